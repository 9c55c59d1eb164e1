"""No estimator beats the Bayes-optimal one: every activation, both tasks, one to four tokens, lengths that vary."""

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import replicode as rc
from replicode.verbs.solve import bayes_reference

ACTIVATIONS = ("softmax", "linear", "softplus", "sigmoid")
LENGTHS = ("1", "2", "3", "4", "1:0.3,2:0.7", "2:0.5,3:0.5")
SIGNALS = {"spiked": (0.0, 0.7, 2.0, 5.0), "max": (0.0, 0.7, 2.0, math.inf)}


@st.composite
def points(draw, activations=ACTIVATIONS, lengths=LENGTHS):
    task = draw(st.sampled_from(sorted(SIGNALS)))
    given = {
        "task": task,
        "tokens": draw(st.sampled_from(lengths)),
        "nu": draw(st.sampled_from(SIGNALS[task])),
        "alpha": draw(st.sampled_from([0.5, 1.5, 4.0, 9.0])),
        "noise": draw(st.sampled_from([0.1, 0.3, 1.0])),
    }
    penalties = draw(st.sampled_from([0.3, 1.0, 3.0])), draw(st.sampled_from([0.3, 1.0, 3.0]))
    return draw(st.sampled_from(activations)), given, penalties


def holds(point):
    """The stated bounds leave no room for an activation below the Bayes-optimal risk."""
    activation, given, (lambda_k, lambda_v) = point
    reference = bayes_reference(given["task"], given["tokens"], given["alpha"], given["nu"], given["noise"])
    assert reference is not None
    found = rc.solve(activation, digits=3, lambda_k=lambda_k, lambda_v=lambda_v, **given)
    assume(found.converged and found.rs_stable)
    assert found.bayes_risk == reference[0]
    assert found.test_risk + found.error >= reference[0] - reference[1]
    trivial = 1.0 + given["noise"] ** 2
    assert reference[0] <= trivial + reference[1]


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(points(("softmax", "linear"), ("1", "2", "1:0.3,2:0.7")))
def test_bayes_is_below_every_activation(point):
    holds(point)


@pytest.mark.full
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(points())
def test_bayes_is_below_every_activation_at_more_tokens(point):
    holds(point)


def test_a_risk_below_the_bound_is_called_spurious(monkeypatch):
    monkeypatch.setattr("replicode.verbs.solve.bayes_reference", lambda *_: (0.7, 1e-6))
    found = rc.solve("softmax", tokens=2, alpha=4, nu=2, noise=0.3, digits=3)
    assert any("below the Bayes-optimal risk" in w for w in found.warnings)
