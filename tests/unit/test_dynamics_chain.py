"""The way to the equations of training: every step by numbers, in every format, for any task."""

import checker
import pytest

from replicode.present import as_json, as_latex, as_markdown, as_text, derivation
from replicode.theory.derive.dynamics import derive_dynamics

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
