"""Presentation: every format of the same chain, LaTeX that compiles, names that are all explained."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sympy as sp

from replicode.present import (
    abbreviated,
    as_json,
    as_latex,
    as_markdown,
    as_text,
    derivation,
    symbols_of,
)
from replicode.theory.derive.population import derive_population
from replicode.theory.derive.saddle import derive
from replicode.theory.language.nodes import TokenSum, W, X, erfc, erfcx, ierfcx, log_ndtr, relu, sigmoid, softplus, step
from replicode.theory.notation import builtin, latex, meaning, parameter_symbols, text

AWKWARD = "relu(a_b*x)/(1 + sum(abs(x)))"
NOTEBOOK = Path(__file__).parents[2] / "examples" / "derivation.ipynb"


@pytest.fixture(scope="module")
def softmax():
    return derivation(derive("softmax", tokens=2))


@pytest.fixture(scope="module")
def pages(softmax):
    awkward = derive(AWKWARD, tokens=1)
    return {
        "softmax": softmax,
        "awkward": derivation(awkward),
        "population": derivation(derive_population(awkward.activation)),
        "task": derivation(derive("cos(beta*x)", "x**2/4", 1)),
    }


def balanced(document):
    """Braces and environments close in order, and \\left has its \\right."""
    plain = re.sub(r"\\[\\{}%&#$_]", "", document)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", document):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    assert len(re.findall(r"\\left\b", document)) == len(re.findall(r"\\right\b", document))
    assert document.count(r"\[\adjustbox") == document.count(r"\]" + "\n")
    assert len(re.findall(r"(?<!\\)\$", document)) % 2 == 0


@pytest.mark.parametrize("name", ["softmax", "awkward", "population", "task"])
def test_latex(pages, name, tmp_path):
    document = as_latex(pages[name])
    assert document.startswith(r"\documentclass") and document.isascii()
    balanced(document)
    for number in range(1, len(pages[name].steps) + 1):
        assert rf"\textbf{{{number}.}}" in document
    if shutil.which("pdflatex"):
        (tmp_path / "page.tex").write_text(document)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull \\hbox" not in done.stdout


def test_the_structural_check_can_fail(softmax):
    document = as_latex(softmax)
    for broken in (document.replace("}", "", 1), document.replace(r"\right", "", 1), document.replace("$", "", 1)):
        with pytest.raises(AssertionError):
            balanced(broken)


def test_latex_follows_the_level(pages):
    risk, saddle = as_latex(pages["population"]), as_latex(pages["awkward"])
    assert "level population" in risk and r"\hat" not in risk
    assert "level rs" in saddle and r"\hat V_{k}" in saddle and "Jacobian" in saddle


def test_text_and_markdown_number_every_step(softmax):
    lines, page = as_text(softmax), as_markdown(softmax)
    for number, line in enumerate(softmax.steps, 1):
        assert f"{number:>3}. {line.rule}" in lines
        assert f"**{number}.** " in page
    assert page.count("$$\n") % 2 == 0 and "`mh_k`" in page
    assert softmax._repr_markdown_() == page


def test_json_keys(softmax):
    shown = as_json(softmax)
    assert {"level", "symbols", "free_energy", "equations", "prox", "inverse_map", "reductions", "steps"} <= set(shown)
    unknowns = [f"{name}_{b}" for b in "kv" for name in ("m", "q", "V", "mh", "qh", "Vh")]
    forms = [f"{name}_{b}_derivative_form" for b in "kv" for name in ("mh", "Vh")]
    assert set(shown["equations"]) == {*unknowns, *forms}
    assert shown["prox"] == str(softmax.inverse_map - sp.Symbol("w_chi", real=True))
    assert json.loads(json.dumps(shown)) == shown
    assert [p["first"] for p in shown["parts"]] == sorted(p["first"] for p in shown["parts"])


def names_in(shown):
    """Every identifier of every expression, but for keys of SymPy."""
    jacobian = shown["prox_jacobian"] or {"diagonal": "", "outer": [], "where": []}
    written = [shown["free_energy"], *shown["equations"].values(), str(shown["prox"]), str(shown["inverse_map"])]
    written += [s[side] for s in shown["steps"] for side in ("lhs", "rhs")]
    written += [jacobian["diagonal"], *(e for pair in jacobian["outer"] for e in pair)]
    written += [d["expression"] for d in jacobian["where"]]
    return {n for w in written for n in re.findall(r"[A-Za-z_]\w*", w)}


@pytest.mark.parametrize("name", ["softmax", "awkward", "population", "task"])
def test_every_symbol_is_explained(pages, name):
    shown = as_json(pages[name])
    functions = {"exp", "log", "sqrt", "diff", "Integral", "cos", "oo", "pi", "Max", "Heaviside", "Derivative", "Abs"}
    functions |= {"sign", "sin", "relu", "step", "None"}
    assert names_in(shown) - functions <= set(shown["symbols"])
    assert all(shown["symbols"].values())


def test_a_name_without_an_entry_is_an_error(softmax):
    shown = as_json(softmax) | {"free_energy": "unheard_of + m_k"}
    with pytest.raises(AssertionError, match="unheard_of"):
        symbols_of(shown, ())
    assert symbols_of(shown, ("unheard_of",))["unheard_of"] == "parameter of the activation"


def test_clashing_parameters_are_renamed():
    renamed = {old.name: new.name for old, new in parameter_symbols(("beta", "c", "id", "x_1", "theta")).items()}
    assert renamed == {"beta": "beta_par", "id": "id_par", "x_1": "x_1_par", "theta": "theta_par"}


def test_abbreviations_put_back_give_the_expressions(softmax):
    """Derivatives and token sums bind variables, so no abbreviation may be taken out of them."""
    long = [(s, short, sides) for s, short, *sides in softmax.shown_steps if short]
    assert len(long) > 5
    for shown, short, sides in long:
        assert not any(e.has(sp.Derivative) for e in (*sides, *(e for _, e in short)))
        values, functions = {}, {s: e for s, e in short if s.name.startswith("F_")}
        for symbol, e in short:
            values[symbol] = e.xreplace(values)
        for expected, side in zip((shown.lhs, shown.rhs), sides):
            for opaque in [s for s in side.free_symbols if s.name.startswith("diff(")]:
                name, *variables = opaque.name[5:-1].split(", ")
                (function,) = (s for s in functions if s.name == name)
                by = [sp.Symbol(v, real=True) for v in variables]
                by = [next(s for s in expected.atoms(sp.Symbol) if s.name == v.name) for v in by]
                side = side.xreplace({opaque: sp.Derivative(values[function], *by)})
            assert agree(side.xreplace(values), expected)


def agree(one, other):
    if one == other:
        return True
    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    point = {s: sp.Float(0.4 + 0.07 * i) for i, s in enumerate(symbols)}
    left, right = (e.doit().xreplace(point).evalf() for e in (one, other))
    return abs(left - right) < 1e-9 * abs(right)


def test_token_sums_stay_sums():
    long = sum(TokenSum(sp.exp(k * X) * W**k) ** k * X**k for k in range(1, 20))
    short, (side,) = abbreviated(long)
    sums = {s: e for s, e in short if s.name.startswith("T_")}
    assert len(sums) == 19 and all(e.has(TokenSum) for e in sums.values())
    parts = {}
    for s, e in short:
        parts[s] = e.xreplace(parts)
    assert sp.expand(side.xreplace(parts) - long) == 0


@pytest.mark.parametrize("own", [sigmoid, softplus, relu, step, erfc, erfcx, log_ndtr, lambda u: ierfcx(u, 2)])
def test_functions_of_our_own_are_written_in_those_of_sympy(own):
    written = builtin(1 + 2 * own(X))
    assert not written.atoms(sigmoid, softplus, relu, step, erfc, erfcx, ierfcx, log_ndtr)
    for at in (-1.25, -0.5, 0.75):
        value = sp.sympify(text(written)).subs("x", at).evalf()
        assert abs(value - (1 + 2 * own(sp.Float(at))).evalf()) < 1e-12


def test_printed_names():
    x = sp.Symbol("x_1", real=True)
    assert text(sp.Derivative(sp.Abs(x), x)) == "diff(sqrt((x_1)**2), x_1)"
    assert sp.sympify(text(sp.sign(x))).subs("x_1", -2) == -1
    assert latex(sp.Symbol("Vh_k") * sp.Symbol("avg_G_z_eps__w_z_eps")) == (
        r"\hat V_{k} \langle {G^{z}_{\varepsilon}}\,{w^{z}_{\varepsilon}}\rangle"
    )
    assert meaning("w_chi_eps") == "score field of the hidden token" and meaning("c") is None


def test_notebook_repr():
    shown = derive("linear", tokens=2)._repr_latex_()
    assert shown.startswith("$$") and shown.endswith("$$")
    assert r"\hat m_{k} &=" in shown and r"f &=" in shown
    assert shown.count(r"\left") == shown.count(r"\right")


def test_the_example_notebook_runs():
    """Its code cells, one after the other, without Jupyter."""
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    scope = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    assert scope["chain"].steps and scope["wrong"] == []
