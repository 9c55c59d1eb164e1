"""Properties of the Bayes-optimal risk at random settings: monotone in alpha and noise, between known bounds."""

import numpy as np
import pytest
from generated import bayes_gain
from hypothesis import given, settings
from hypothesis import strategies as st

from replicode.theory.language.task import task
from replicode.verbs.bayes import bayes

SETTINGS = st.fixed_dictionaries(
    {
        "task": st.sampled_from(["spiked", "x**2/4", "-x**4/10 + x"]),
        "tokens": st.sampled_from([1, 2, 3, 4, "1:0.5,2:0.5", "2:0.3,4:0.7"]),
        "nu": st.floats(0.1, 6.0),
        "alpha": st.floats(0.2, 6.0),
        "noise": st.floats(0.1, 1.0),
    }
)


@settings(max_examples=4)
@given(SETTINGS)
def test_bounds_and_monotony(setting):
    """With more samples the risk falls; it stays above that of infinite data and below that of no data."""
    found = bayes(digits=5, **setting)
    more = bayes(digits=5, **{**setting, "alpha": 1.3 * setting["alpha"]})
    room = found.error + more.error + 1e-9
    assert more.test_risk <= found.test_risk + room
    assert found.excess_risk <= 1.0 + room
    if task(setting["task"]).gaussian:
        gain = bayes_gain(setting["task"], setting["nu"], setting["tokens"]).gain
        assert 1.0 - gain <= found.excess_risk + room


@settings(max_examples=3)
@given(st.sampled_from([0.5, 2.0, np.inf]), st.floats(0.3, 4.0), st.floats(0.2, 1.0))
def test_largest_score(nu, alpha, noise):
    """The same for max, where the scores of both tokens count."""
    found, more = (bayes(task="max", tokens=2, nu=nu, alpha=a, noise=noise, digits=5) for a in (alpha, 1.3 * alpha))
    assert more.test_risk <= found.test_risk + found.error + more.error
    gain = bayes_gain("max", nu, 2).gain
    assert 1.0 - gain - found.error <= found.excess_risk <= 1.0 + found.error


@settings(max_examples=2)
@given(st.floats(0.0, 8.0), st.floats(0.3, 4.0))
def test_signal_helps(nu, alpha):
    """A stronger signal lowers the risk: the posterior of a weaker one can be had by adding noise to the scores."""
    weak, strong = (bayes(tokens=2, nu=v, alpha=alpha, noise=0.3, digits=5) for v in (nu, nu + 0.5))
    assert strong.test_risk <= weak.test_risk + weak.error + strong.error
    assert weak.test_risk == pytest.approx(weak.excess_risk + 0.09, abs=1e-12)
