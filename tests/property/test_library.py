"""The property library on random activations, tasks and parameters, and as users of pytest import it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from replicode.theory.errors import InputError
from replicode.theory.language.activation import activation
from replicode.theory.language.task import task as setting_of
from replicode.theory.lengths import lengths as law
from replicode.theory.properties.analysis import Analysis, Growth, parity
from replicode.theory.properties.symbolic import Claim, properties, row_sum_claim, shift_claim
from replicode.validation import strategies as draw
from replicode.validation.properties import LONGER, PROPERTIES, Subject, outcomes, prepared
from replicode.validation.pytest_plugin import replicode_properties as replicode_properties

DOCS = Path(__file__).parents[2] / "docs" / "properties.md"
SYMMETRIES = ("equivariance", "sigma as typed", "normalisation", "shift invariance", "reflection")
KERNELS = ("pullback", "gradient identity", "jacobian identity", "token permutation of the loss", "sign symmetry")
GAUSSIAN = ("spiked", "x**2/4", "sqrt(nu)*x - x**2/5")
CHEAP = (*SYMMETRIES, *KERNELS)
QUICK = {"phases": [Phase.explicit, Phase.generate]}  # shrinking would take minutes


def _analysed(act) -> Analysis:
    """What the cheap properties read of an analysis, without the fits of its growth."""
    found, shift = properties(act), shift_claim(act)
    claims = (Claim(True), row_sum_claim(act.expr), shift)
    return Analysis(found, *claims, found.smooth, (), Growth(None, None), parity(act), None)


def _subject(text, task="spiked", tokens=2, **values) -> Subject:
    act = activation(text)
    fixed = replace(act, values={p: v for p, v in values.items() if p in act.parameters}).with_values()
    return prepared(fixed, setting_of(task), tokens, _analysed(fixed))


def _failed(of, names):
    return [f"{n}: {v.detail}" for n, v in outcomes(of, names).items() if v.outcome == "failed"]


@settings(max_examples=4, **QUICK)
@given(draw.activations(), draw.token_counts(3), draw.parameters())
def test_random_activations(text, tokens, values):
    assert _failed(_subject(text, tokens=tokens, **values), CHEAP) == []


@settings(max_examples=2, **QUICK)
@given(draw.normalised(), draw.parameters())
def test_normalised_activations(text, values):
    """Positive kernels over their sum: the sum is found, holds, and makes one token a ridge regression."""
    of = _subject(text, **values)
    found = outcomes(of, ("normalisation", "ridge limit"))
    assert found["normalisation"].outcome == found["ridge limit"].outcome == "passed"


@settings(max_examples=2, **QUICK)
@given(st.sampled_from(draw.BOUNDED), st.sampled_from(GAUSSIAN), draw.parameters())
def test_random_tasks(text, task, values):
    names = ("posterior", "residual is the gradient of the free energy", "total weight", "stationarity")
    assert _failed(_subject(text, task, **values), names) == []


@pytest.mark.full
@settings(max_examples=25, **QUICK)
@given(st.sampled_from(draw.BOUNDED), draw.tasks(), draw.token_counts(3), draw.parameters())
def test_every_property_on_random_tasks(text, task, tokens, values):
    assert _failed(_subject(text, task, tokens, **values), (*PROPERTIES, *LONGER)) == []


@given(draw.lengths(), draw.tasks(), draw.order_parameters(), draw.settings())
@settings(max_examples=30)
def test_what_is_drawn_is_allowed(spec, task, order, physics):
    assert sum(law(spec).weights) == pytest.approx(1.0) and setting_of(task).own is not None
    assert all(order[f"q_{b}"] > order[f"m_{b}"] ** 2 and order[f"V_{b}"] > 0 for b in "kv")
    assert set(physics) == {"alpha", "nu", "noise", "lambda_k", "lambda_v"}


def test_the_fixture_names_what_fails(replicode_properties, monkeypatch):
    names = ["equivariance", "normalisation"]
    found = replicode_properties("exp(x)/sum(exp(x)) + 0.01*x", names=names)
    assert [found[n].outcome for n in names] == ["passed", "not applicable"]
    with pytest.raises(pytest.fail.Exception, match="normalisation is required, but sigma does not sum"):
        replicode_properties("linear", names=["equivariance"], require=["normalisation"])
    with pytest.raises(InputError, match=r"names: got \['nonsense'\]"):
        replicode_properties("linear", names=["nonsense"])
    monkeypatch.setattr(Subject, "sigma", lambda self, x: [2 * s for s in self.direct(x)])
    with pytest.raises(pytest.fail.Exception, match=r"1 \+ x.*sigma as typed: sigma: off by"):
        replicode_properties("1 + x", names=["sigma as typed"])


def test_the_documented_example_runs(replicode_properties):
    text = DOCS.read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    space: dict = {}
    exec(compile(example, str(DOCS), "exec"), space)
    space["test_mine"](replicode_properties)
    space["test_temperature"](replicode_properties)
    space["test_any_kernel_over_its_sum"]()


def test_every_property_is_documented():
    text = DOCS.read_text(encoding="utf-8")
    assert [n for n in (*PROPERTIES, *LONGER) if f"| {n} |" not in text] == []
