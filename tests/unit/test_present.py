"""Presentation: every format of the same chain, LaTeX that compiles, names that are all explained."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sympy as sp

from replicode.derivations.fitting import ROW, Equation, fitted
from replicode.derivations.present import (
    abbreviated,
    as_json,
    as_latex,
    as_latex_fragment,
    as_markdown,
    as_text,
    derivation,
    symbols_of,
)
from replicode.theory.derive.population import derive_population
from replicode.theory.derive.saddle import E, derive
from replicode.theory.language.nodes import TokenSum, W, X, erfc, erfcx, ierfcx, log_ndtr, relu, sigmoid, softplus, step
from replicode.theory.typeset.arranged import arranged
from replicode.theory.typeset.notation import builtin, latex, meaning, parameter_symbols, text
from replicode.theory.typeset.printers import width
from replicode.verbs.derive import derivation_of

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
    assert len(re.findall(r"(?<!\\)\$", document)) % 2 == 0


def compiled(document, folder):
    """Through pdflatex, where there is one: no error, and no line that runs over its margin."""
    if not shutil.which("pdflatex"):
        return
    (folder / "page.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull \\hbox" not in done.stdout


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("name", ["softmax", "awkward", "population", "task"])
def test_latex(pages, name, steps, tmp_path):
    document = as_latex(pages[name], steps)
    assert document.startswith(r"\documentclass") and document.isascii()
    balanced(document)
    numbers = [int(n) for n in re.findall(r"\\textbf\{(\d+)\.\}", document)]
    assert numbers == (list(range(1, len(pages[name].steps) + 1)) if steps else [])
    compiled(document, tmp_path)


def test_a_fragment_is_what_a_document_holds(softmax, tmp_path):
    fragment = as_latex_fragment(softmax)
    assert r"\documentclass" not in fragment and r"\begin{document}" not in fragment
    assert r"\begin{align*}" in fragment and r"\hat V_{k}" in fragment and r"\textbf{1.}" not in fragment
    body = as_latex(softmax).split(r"\begin{document}")[1]
    assert all(line in body for line in fragment.splitlines() if not line.startswith("%"))
    frame = r"\documentclass[11pt]{article}\usepackage{amsmath,amssymb,fullpage}\begin{document}%s\end{document}"
    balanced(frame % fragment)
    compiled(frame % fragment, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("level", ["stability", "1rsb", "bayes", "dynamics"])
def test_latex_of_every_level(level, tmp_path):
    for steps in (False, True):
        document = derivation_of("softmax", "spiked", None, level, steps=steps)["latex"]
        balanced(document)
        compiled(document, tmp_path)


def test_the_structural_check_can_fail(softmax):
    document = as_latex(softmax)
    for broken in (document.replace("}", "", 1), document.replace(r"\right", "", 1), document.replace("$", "", 1)):
        with pytest.raises(AssertionError):
            balanced(broken)


@pytest.mark.parametrize("write", [as_text, as_markdown, as_latex, as_latex_fragment])
@pytest.mark.parametrize("name", ["softmax", "awkward", "population", "task"])
def test_every_page_begins_with_the_model(pages, name, write):
    """Data, task by its name, label, estimator and averages, before any equation."""
    page = write(pages[name])
    model, result = page.index("The model"), page.index("Risk" if name == "population" else "Free energy")
    said = page[model:result]
    for word in ("Data.", "Task", "Label.", "Estimator.", "Hidden"):
        assert word in said, word
    words = (
        ("Overlaps", "A is the average")
        if name == "population"
        else ("Training.", "Fields.", "prox", "E is the average")
    )
    assert all(word in said for word in words)
    assert ("Task spiked" in said) == (name != "task")


def test_the_result_comes_first_and_the_chain_on_request(softmax):
    short, long = as_text(softmax), as_text(softmax, steps=True)
    assert "  1. " not in short and "--steps" in short and "Reductions" in short
    assert long.startswith(short[: short.index("--steps")].rstrip()) and "  1. the replica trick" in long
    assert not re.search(r"added", " ".join(s.rule for s in softmax.steps))


def test_equations_as_a_physicist_writes_them():
    found = derivation(derive("softmax"))
    page = as_text(found)
    assert "qh_k = alpha E[G_chi_eps^2] + alpha (L - 1) E[G_chi_l^2]" in page
    assert "mh_v = (alpha/(q_v (1 + noise^2) - m_v^2)) E[G_z_eps (q_v y - m_v w_z_eps)]" in page
    assert "q_k Vh_k/2 + V_k qh_k/2 - (mh_k^2 + qh_k)/(2 (lambda_k + Vh_k)) + m_v mh_v" in page
    shown = as_json(found)["equations"]
    assert shown["qh_k"] == "alpha*(L - 1)*E(G_chi_l**2) + alpha*E(G_chi_eps**2)"
    assert not any("1/2 - L/2" in e for e in shown.values())
    assert r"\hat q_{k} & = \alpha \, \mathbb{E}" in as_latex(found)


@pytest.mark.parametrize("level", ["saddle", "population"])
def test_arranged_is_the_same_number(pages, level):
    found = pages["softmax" if level == "saddle" else "population"]
    for e in (found.free_energy, *found.equations.values()):
        assert agree(plain_numbers(arranged(e)), plain_numbers(e)), e


def plain_numbers(e):
    """Averages by their integrands, and E[M] by a number, so that both sides can be evaluated."""
    e = e.replace(E, lambda integrand: integrand).replace(sp.Derivative, lambda f, *_: sp.Float(0.7))
    return e.replace(lambda n: n.func.__name__ == "EM", lambda _: sp.Float(0.3))


def test_wide_terms_are_named_and_put_back(softmax):
    """Every equation is fitted to the line; with the names put back it is what it was."""
    a = sp.symbols("a_1:9", positive=True)
    wide = sp.prod([sp.Add(*a[: 3 + i]) + i for i in range(5)]) / (1 + sp.Add(*a) ** 2) + a[0]
    first, *named = fitted([Equation("f", wide)])
    assert named and all(width(latex(t)) <= ROW for e in (first, *named) for t in sp.Add.make_args(e.right))
    put_back = first.right
    for _ in named:
        put_back = put_back.xreplace({e.left: e.right for e in named})
    assert sp.simplify(put_back - wide) == 0


def test_latex_follows_the_level(pages):
    risk, saddle = as_latex(pages["population"]), as_latex(pages["awkward"])
    assert "Infinite data" in risk and r"\hat" not in risk
    assert "Replica-symmetric" in saddle and r"\hat V_{k}" in saddle
    assert "Jacobian" in as_latex(pages["awkward"], steps=True)


def test_text_and_markdown_number_every_step(softmax):
    lines, page = as_text(softmax, steps=True), as_markdown(softmax, steps=True)
    for number, line in enumerate(softmax.steps, 1):
        assert f"{number:>3}. {line.rule[:60]}" in lines
        assert f"**{number}.** " in page
    assert page.count("$$\n") % 2 == 0 and r"\hat m_{k}" in page
    assert softmax._repr_markdown_() == as_markdown(softmax)


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
        r"\hat V_{k} \, \langle {G^{z}_{\varepsilon}}\,{w^{z}_{\varepsilon}}\rangle"
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
