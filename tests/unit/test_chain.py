"""The numbered chain: every step by numbers from the JSON alone, at the tokens it says, for any activation."""

import json
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import checker
import pytest
import sympy as sp

from replicode.derivations.present import as_json, derivation
from replicode.theory.chain.activation import explicit_tokens
from replicode.theory.chain.replicas import leibniz
from replicode.theory.derive.saddle import derive

NESTED = "x*sum(x*exp(-x**2)/sum(exp(-x**2)))"
CASES = [
    ("linear", "spiked", 2),
    ("softmax", "spiked", 3),
    ("erf", "x**2/4", 2),
    ("softplus", "spiked", 1),
    ("relu", "spiked", 3),
    ("softmax1", "x**2/4 + x/3", None),
    (NESTED, "spiked", 2),
    ("abs(a + n*x) + sigmoid(beta*x)/(L + sum(x**2))", "spiked", 2),
    ("softmax", "max", 2),
    ("linear", "nu*tanh(x)", "1:0.5,2:0.5"),
]
PASSED = set()


@cache
def found(activation, task="spiked", tokens=None):
    return json.loads(json.dumps(as_json(derivation(derive(activation, task, tokens)))))


FULL = (CASES[2], CASES[3])
EVERY = [pytest.param(*case, marks=pytest.mark.full if case in FULL else ()) for case in CASES]


@pytest.mark.parametrize(("activation", "task", "tokens"), EVERY)
def test_every_step_by_numbers(activation, task, tokens):
    """Steps that do not depend on the activation come again word for word; they are evaluated once."""
    shown = found(activation, task, tokens)
    assert len(shown["steps"]) >= 50
    assert checker.failures(shown, points=1, known=PASSED) == []
    PASSED.update((s["lhs"], s["rhs"]) for s in shown["steps"])


@pytest.fixture(scope="module")
def linear():
    return found("linear", "spiked", 2)


@pytest.mark.parametrize("seed", range(8))
def test_the_checker_sees_a_wrong_sign(linear, seed):
    """One sign of one side turned: the checker names that step; the others are those it passed above."""
    rng = random.Random(seed)
    signed = [i for i, s in enumerate(linear["steps"]) if re.search(r" [+-] ", s["rhs"]) and "Integral" not in s["lhs"]]
    number = rng.choice(signed)
    broken = json.loads(json.dumps(linear))
    step = broken["steps"][number]
    at = rng.choice([m.start() + 1 for m in re.finditer(r" [+-] ", step["rhs"])])
    step["rhs"] = step["rhs"][:at] + {"+": "-", "-": "+"}[step["rhs"][at]] + step["rhs"][at + 1 :]
    sound = {(s["lhs"], s["rhs"]) for s in linear["steps"]}
    assert checker.failures(broken, points=1, known=sound) == [number + 1]


def test_the_checker_runs_alone(tmp_path, linear):
    """In isolated mode, without the project on its path, on a file; a corrupted file fails."""
    steps = [s for s in linear["steps"] if "Integral" not in s["lhs"]][:12]
    file = tmp_path / "derivation.json"
    command = [sys.executable, "-I", str(Path(checker.__file__)), str(file)]
    for extra, status in ({}, 0), ({"rhs": "17*rs_a"}, 1):
        file.write_text(json.dumps({"steps": [*steps[:-1], {**steps[-1], **extra}]}))
        assert subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60).returncode == status
    imports = re.findall(r"^(?:import|from) (\w+)", Path(checker.__file__).read_text(), re.MULTILINE)
    assert set(imports) <= {"json", "random", "sys", "mpmath", "sympy"}


@pytest.mark.parametrize("case", [CASES[4], CASES[7], ("gamma*tanh(id*x) + u", "spiked", 1)], ids=str)
def test_steps_are_plain_sympy(case):
    """Only functions of SymPy, and names that it reads as symbols, each of them explained."""
    shown = found(*case)
    own = r"\b(TokenSum|EM?|sigmoid|softplus|relu|step|Derivative|Limit|Subs)\("
    for step in shown["steps"]:
        for side in (step["lhs"], step["rhs"]):
            assert not re.search(own, side), side
            read = sp.sympify(side)
            assert not read.atoms(sp.core.function.AppliedUndef)
            assert {s.name for s in read.free_symbols} <= set(shown["symbols"]), side
        assert step["lhs"] != step["rhs"]


def test_the_chain_goes_from_replicas_to_the_equations():
    shown = found("softmax", "spiked", 3)
    titles = [p["title"] for p in shown["parts"]]
    assert titles[0] == "Replicas" and titles[-2:] == ["The saddle-point equations", "Their Jacobian"]
    rules = " ".join(s["rule"] for s in shown["steps"])
    for word in (
        "replica trick",
        "determinant",
        "n -> 0",
        "beta -> infinity",
        "Laplace",
        "envelope theorem",
        "Hamilton-Jacobi",
    ):
        assert word in rules
    for word in ("prox stationarity", "inverse map", "Jacobian", "Stein form", "derivative form", "row sum", "shift"):
        assert word in rules
    for theta in ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v"):
        assert f"stationarity in {theta}:" in rules
    for conjugate in ("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v"):
        assert f"stationarity in {conjugate}:" in rules


def test_reductions_are_those_of_the_activation():
    def rules(case):
        return " ".join(s["rule"] for s in found(*case)["steps"])

    assert "row sum" in rules(CASES[1]) and "shift" in rules(CASES[1])
    assert not re.search("row sum|shift", rules(CASES[0]))
    system = derive("exp(x)/sqrt(sum(exp(2*x)))", tokens=2)
    kept = [s.rule for s in system.steps if s.part.startswith("Reductions")]
    assert len(kept) == 2 and kept[0].startswith("shift invariance")


@pytest.mark.parametrize(("activation", "tokens", "count"), [("softmax", 8, 3), ("relu", None, 2)])
def test_tokens_shown(activation, tokens, count):
    system = derive(activation, tokens=tokens)
    shown = explicit_tokens(system)
    assert shown.count == count
    prox = next(s for s in system.steps if s.rule.startswith("prox stationarity"))
    assert prox.rule.endswith(f"shown at {count} tokens") == (tokens != count)
    names = {s.name for s in prox.rhs.free_symbols}
    assert {f"x_{i + 1}" for i in range(count)} <= names and f"x_{count + 1}" not in names


def test_staged_derivatives_written_out_are_the_derivatives():
    """Also the entries that the chain does not show."""
    tokens = explicit_tokens(derive("x**3 + L*x", tokens=2))
    for i in range(2):
        for j in range(2):
            expected = sp.diff(tokens.loss, tokens.x[i], tokens.x[j])
            point = {s: sp.Rational(k + 3, k + 7) for k, s in enumerate(sorted(expected.free_symbols, key=str))}
            assert tokens.hessian(i, j).xreplace(point) == expected.xreplace(point)


def test_leibniz():
    matrix = sp.Matrix([[2, 3, 5], [7, 11, 13], [17, 19, 23]])
    assert leibniz(matrix) == matrix.det()
