"""The search for a minimum: where gradients are noisy it ends at the noise, not at its limit of trials."""

from __future__ import annotations

import numpy as np
import pytest

from replicode.branches.minimise import Trial, minimise

CENTRE = np.array([-1.3, -0.3])
BENT = np.array([[0.3, 0.1], [0.1, 0.2]])


def search(noise, resolution=5e-5, stated=100.0, gain=0.0):
    """A bowl whose gradient is off by `noise` at random, and known to be off by at most `stated` times that."""
    rng, seen = np.random.default_rng(0), []

    def trial(place):
        away = place - CENTRE
        gradient = BENT @ away + noise * rng.normal(size=2)
        seen.append(place)
        return Trial(place, float(0.5 * away @ BENT @ away), gradient, 1e-5, np.full(2, stated * noise))

    return minimise(trial, np.zeros(2), np.full(2, -9.0), np.full(2, 9.0), resolution, 40, gain), seen


@pytest.mark.parametrize("noise", [0.0, 3e-5, 3e-4])
def test_noise_ends_the_search(noise):
    found, seen = search(noise)
    assert found.converged and len(seen) <= 14
    assert np.abs(found.best.place - CENTRE).max() < max(30.0 * noise, 1e-4)


@pytest.mark.parametrize("gain", [0.0, 1e-3])
def test_a_step_that_the_bounds_cut_does_not_end_it(gain):
    """A narrow bowl whose bottom is beyond a bound: the step that is cut goes uphill, far from the minimum."""
    bent, centre, most = np.array([[0.32, -0.13], [-0.13, 0.08]]), np.array([8.0, 11.0]), np.log(1e4)

    def trial(place):
        away = place - centre
        return Trial(place, float(0.5 * away @ bent @ away), bent @ away, 1e-12, np.zeros(2))

    found = minimise(trial, np.zeros(2), np.full(2, -most), np.full(2, most), 1e-5, 40, gain)
    at_bound = centre[0] - bent[0, 1] / bent[0, 0] * (most - centre[1])
    assert found.converged and found.best.place == pytest.approx([at_bound, most], abs=0.1 if gain else 1e-4)


def test_noise_that_is_not_stated_does_not():
    """Gradients said to be exact are believed."""
    _, seen = search(3e-4, stated=0.0)
    assert len(seen) > 14


def test_what_is_not_worth_another_trial_ends_it():
    """The value is then above the least by little more than was said to be enough."""
    (exact, all_seen), (found, seen) = search(0.0), search(0.0, gain=1e-3)
    assert found.converged and len(seen) < len(all_seen)
    assert 0.0 <= found.best.value - exact.best.value < 3e-3
