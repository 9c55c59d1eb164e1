"""The way to the equations of training: every step by numbers, in every format, for any task."""

import checker
import numpy as np
import pytest
import sympy as sp

from replicode.codegen.compiler import generate
from replicode.derivations.present import as_json, as_latex, as_markdown, as_text, derivation
from replicode.theory.derive.dynamics import derive_dynamics, pulls_of, spreads_of
from replicode.theory.language.nodes import L
from replicode.theory.model import NOISE, NU

CASES = [
    ("softmax", "spiked", 2),
    ("linear", "max", None),
    pytest.param("1 + erf(c + x)", "nu*tanh(x)", "1:0.5,3:0.5", marks=pytest.mark.full),
]


@pytest.mark.parametrize(("activation", "task", "tokens"), CASES)
def test_every_step_by_numbers(activation, task, tokens):
    found = derivation(derive_dynamics(activation, task, tokens))
    shown = as_json(found)
    assert len(shown["steps"]) >= 15 and shown["level"] == "dynamics"
    assert checker.failures(shown, points=1, known=set()) == []
    assert shown["equations"]["d_m_k"] == "eta_k*(-lambda_k*m_k + pull_k_kstar)"
    assert "spread_kv" in shown["equations"]["d_k_v"] and shown["equations"]["G"] == "-f + y"
    assert "Isserlis" in as_text(found, steps=True) and r"\eta_{k}" in as_latex(found) and as_markdown(found)


def test_the_checker_sees_a_factor():
    """A factor 1.1 on any step's right-hand side is found."""
    shown = as_json(derivation(derive_dynamics("softmax", "spiked", 2)))
    for number, step in enumerate(shown["steps"], 1):
        if step["rhs"] != "0":
            broken = {"steps": [{**step, "rhs": f"1.1*({step['rhs']})"}]}
            assert checker.failures(broken, points=1) == [1], number


@pytest.mark.parametrize(
    ("activation", "parameters", "least"),
    [("linear", {}, 11), pytest.param("erf", {"c": 0.3}, 8, marks=pytest.mark.full)],
)
def test_closed_pulls_and_spreads_against_quadrature(activation, parameters, least):
    """All pulls of linear and erf attention, and the spreads of linear, at seven drawn overlaps, L symbolic."""
    system = derive_dynamics(activation, "spiked", 3)
    closed, made = derive_dynamics(activation, "spiked", None).closed, generate(system).load()
    at = np.array([0.4, 0.9, 0.6, 0.8, 0.25, -0.13, 0.3])
    found = made.averages_at(at, made.World(1.3, 0.3, np.array(list(parameters.values()))), 3)
    numbers = np.r_[found.pulls, found.spreads]
    values = {**dict(zip(system.overlaps, at, strict=True)), NU: 1.3, NOISE: 0.3, L: 3}
    values |= {sp.Symbol(name, real=True): value for name, value in parameters.items()}
    names = [*pulls_of(system.model), *spreads_of(system.model)]
    assert len(closed) >= least
    for name, expr in closed.items():
        assert abs(float(expr.subs(values)) - numbers[names.index(name)]) < 1e-12, name
    shown = as_json(derivation(system))["equations"]
    assert "pull_k_kstar" in shown and "Integral" not in shown["pull_k_kstar"]
