"""Variable lengths: averages, solutions and risks are the means over the lengths."""

import numpy as np
import pytest
from generated import module_of as generated

ORDER = np.array([0.4, 0.5, 0.4, 0.6, 0.7, 0.3])
POINT = (4.0, 2.0, 0.3, 1.0, 1.0)


def module_of(activation, tokens, task="spiked"):
    return generated(activation, task, tokens)


@pytest.fixture(scope="module")
def mixture():
    return module_of("softmax", "1:0.25,2:0.75")


def test_averages_are_weighted_by_the_shares(mixture):
    alone = [module_of("softmax", n) for n in (1, 2)]
    settings = mixture.settings_of(2.0, 0.3, np.array([]))
    both = mixture.mixed_ladder(settings, mixture._smooth).averages(ORDER)
    parts = [m._smooth(m.Setting(2.0, 0.3, np.array([]))).averages(ORDER) for m in alone]
    assert both.rates == pytest.approx(0.25 * parts[0].rates + 0.75 * parts[1].rates, rel=1e-12, abs=1e-13)
    assert both.train_loss == pytest.approx(0.25 * parts[0].train_loss + 0.75 * parts[1].train_loss, rel=1e-12)
    risks = [m.population_risk(0.4, 0.5, 0.6, 0.7, 2.0, 0.3) for m in (mixture, *alone)]
    assert risks[0] == pytest.approx(0.25 * risks[1] + 0.75 * risks[2], abs=1e-11)


def test_the_solution_is_stationary(mixture):
    found = mixture.solve(*POINT, tol=1e-8)
    assert found.converged and found.error <= 1e-8
    slopes = mixture.residual(found.order_parameters, found.conjugates, *POINT)
    assert np.abs(slopes).max() < 1e-6
    energy = mixture.free_energy(found.order_parameters, found.conjugates, *POINT)
    assert energy == pytest.approx(found.energy, abs=1e-7)
    penalties = sum(0.5 * found.order_parameters[q] for q in ("q_k", "q_v"))
    assert found.energy == pytest.approx(4.0 * found.train_loss + penalties, abs=1e-7)


def test_one_length_is_that_length():
    certain, fixed = (module_of("softmax", tokens).solve(*POINT, tol=1e-6) for tokens in ("2:1.0", 2))
    assert certain == fixed and fixed.converged


def test_element_wise_and_ranked():
    module = module_of("sigmoid", "1:0.5,2:0.5", "max")
    found = module.solve(4.0, np.inf, 0.3, 1.0, 1.0, tol=1e-3)
    assert found.converged and found.error < 1e-3
    slopes = module.residual(found.order_parameters, found.conjugates, 4.0, np.inf, 0.3, 1.0, 1.0)
    assert np.abs(slopes).max() < 1e-3
