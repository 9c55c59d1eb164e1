"""The way to the Bayes-optimal equations: every step by numbers, in every format."""

import checker
import pytest

from replicode.derivations.present import as_json, as_latex, as_text, derivation
from replicode.theory.derive.bayes import derive_bayes


@pytest.mark.parametrize(
    "task, steps",
    [
        ("spiked", 9),
        pytest.param("max", 8, marks=pytest.mark.full),
        pytest.param("x**2/4 + x/3", 9, marks=pytest.mark.full),
    ],
)
def test_every_step_by_numbers(task, steps):
    found = derivation(derive_bayes(task, 2))
    shown = as_json(found)
    assert len(shown["steps"]) == steps
    assert checker.failures(shown, points=1, known=set()) == []
    assert shown["equations"]["q_k"] == "qh_k/(qh_k + 1)" and shown["level"] == "bayes"
    assert "Free entropy" in as_text(found) and r"\Phi" in as_latex(found)
