"""Extreme arguments: a finite answer with an error, or a clear refusal; never not-a-number, never in silence."""

from __future__ import annotations

import time

import numpy as np
import pytest
from generated import module_of

NAMES = ("alpha", "nu", "noise", "lambda_k", "lambda_v")
SECONDS = 15.0


@pytest.fixture(scope="module")
def modules():
    return {name: module_of(name) for name in ("softmax", "linear", "sigmoid")}


def said(found) -> bool:
    """Whether everything reported is finite and converged, or the opposite is said."""
    numbers = [found.test_risk, found.energy, found.train_loss, found.error, found.residual]
    numbers += [*found.order_parameters.values(), *found.conjugates.values(), *found.errors.values()]
    return (found.converged and bool(np.isfinite(numbers).all())) or (not found.converged and bool(found.warnings))


EXTREMES = [
    (1e-3, 2.0, 0.3, 1.0, 1.0),
    (1e4, 2.0, 0.3, 1.0, 1.0),
    (4.0, 0.0, 0.3, 1.0, 1.0),
    (4.0, 1e3, 0.3, 1.0, 1.0),
    (4.0, 2.0, 0.3, 0.0, 1.0),
    (4.0, 2.0, 0.3, 1.0, 0.0),
    (4.0, 2.0, 0.3, 0.0, 0.0),
    (0.5, 2.0, 0.3, 1.0, 0.0),
    (0.5, 2.0, 0.0, 0.0, 0.0),
    (1e4, 1e3, 0.3, 0.0, 0.0),
    (1e-3, 1e3, 0.3, 0.0, 0.0),
    (4.0, 2.0, 0.0, 1e6, 1e6),
]


@pytest.mark.parametrize("arguments", EXTREMES, ids=str)
def test_extremes_are_finite_or_refused_in_time(modules, arguments):
    begin = time.process_time()
    found = modules["softmax"].solve(**dict(zip(NAMES, arguments, strict=True)), tol=1e-4)
    assert said(found)
    assert time.process_time() - begin < SECONDS


@pytest.mark.full
@pytest.mark.parametrize("activation", ["linear", "sigmoid"])
@pytest.mark.parametrize("arguments", EXTREMES, ids=str)
def test_extremes_of_other_activations(modules, activation, arguments):
    begin = time.process_time()
    found = modules[activation].solve(**dict(zip(NAMES, arguments, strict=True)), tol=1e-3)
    assert said(found)
    assert time.process_time() - begin < 4.0 * SECONDS


def test_what_ran_away_is_named(modules):
    found = modules["softmax"].solve(0.5, 2.0, 0.3, 1.0, 0.0, tol=1e-4)
    assert not found.converged and found.error == np.inf
    assert any("ran away" in w and "V_v" in w for w in found.warnings)


@pytest.mark.parametrize("activation", ["softmax", "linear", "sigmoid"])
def test_few_samples_leave_the_risk_of_knowing_nothing(modules, activation):
    """At alpha -> 0 nothing is learnt: 1 + noise^2 less O(alpha)."""
    risks = [modules[activation].solve(a, 2.0, 0.3, 1.0, 1.0, tol=1e-5).test_risk for a in (1e-3, 5e-4)]
    gains = [1.09 - r for r in risks]
    assert gains[0] == pytest.approx(2.0 * gains[1], rel=0.02)
    assert 0.0 < gains[0] < 5e-3


def test_many_samples_reach_the_population_optimum(modules):
    """The best of all overlaps, by minimising `population_risk`; the excess over it falls as 1/alpha."""
    from scipy import optimize

    module = modules["softmax"]

    def risk(x):
        return module.population_risk(x[0], x[0] ** 2 * (1.0 + 1e-12), x[1], x[1] ** 2, 2.0, 0.3)

    best = optimize.minimize(risk, [1.2, 0.9], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}).fun
    gaps = [module.solve(a, 2.0, 0.3, 1.0, 1.0, tol=1e-7).test_risk - best for a in (1e3, 1e4)]
    assert 0.0 < gaps[1] < 1e-3
    assert gaps[0] == pytest.approx(10.0 * gaps[1], rel=0.1)


def test_without_signal_the_keys_do_not_align(modules):
    found = modules["softmax"].solve(4.0, 0.0, 0.3, 1.0, 1.0, tol=1e-6)
    assert abs(found.order_parameters["m_k"]) <= 1e-9 + found.errors["m_k"]


def test_keys_that_collapse_converge():
    """Where sigma is flat at zero the keys vanish; q_k stops at rounding and V_k is still right."""
    module = module_of("1/(1 + x**2)")
    found = module.solve(0.4, 0.8, 0.9, 1.0, 0.04, tol=1e-4)
    assert found.converged and found.error <= 1e-4
    assert found.order_parameters["q_k"] < 1e-9
    assert found.order_parameters["V_k"] == pytest.approx(1.0 / (1.0 + found.conjugates["Vh_k"]), rel=1e-5)


ORDER = {"m_k": 0.4, "q_k": 0.5, "V_k": 0.6, "m_v": 0.7, "q_v": 0.8, "V_v": 0.5}
PHYSICS = (4.0, 2.0, 0.3, 1.0, 1.0)


def evaluated(module, changes):
    conjugates = dict.fromkeys(module.CONJUGATE_NAMES, 0.5)
    value = module.free_energy(ORDER | changes, conjugates, *PHYSICS, nodes=5_000)
    return np.r_[value, module.residual(ORDER | changes, conjugates, *PHYSICS, nodes=5_000)]


BOUNDS = [
    {"q_k": 0.16 * (1.0 + 1e-12)},
    {"q_v": 0.49 * (1.0 + 1e-12)},
    {"m_k": 1e-12, "q_k": 1e-20},
    {"m_k": 1e4, "q_k": 1e8 + 1.0},
    {"m_k": 0.0, "q_k": 1e8},
    {"V_k": 1e-12},
    {"V_k": 1e6},
]


@pytest.mark.parametrize("changes", BOUNDS, ids=str)
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_points_near_the_bounds_are_finite_or_refused(modules, activation, changes):
    try:
        values = evaluated(modules[activation], changes)
    except ValueError as problem:
        assert str(problem).split(":")[0] in ORDER
    else:
        assert np.isfinite(values).all()


@pytest.mark.parametrize(("name", "value"), [("q_k", 0.15), ("q_v", 0.48), ("q_k", float("inf"))])
def test_points_beyond_the_bounds_are_refused(modules, name, value):
    with pytest.raises(ValueError, match=name):
        evaluated(modules["softmax"], {name: value})


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e4])
@pytest.mark.parametrize("slack", [1.0 + 1e-15, 2.0])
@pytest.mark.parametrize("nu", [0.0, 1e3])
def test_population_risk_at_all_scales(modules, scale, slack, nu):
    q_k = max(slack * scale**2, 1e-24)
    value = modules["softmax"].population_risk(scale, q_k, 0.9, 0.9, nu, 0.3)
    assert 0.09 <= value < 1.09 + 0.9 + 1.8
    if scale == 1e4 and nu == 1e3:
        assert value == pytest.approx(0.09 + 1.0 - 1.8 + 0.9, abs=1e-3)


@pytest.mark.full
@pytest.mark.parametrize(("activation", "error"), [("softmax", 0.01), ("sigmoid", 0.03)])
def test_many_tokens_within_minutes_and_memory(activation, error):
    import resource

    module = module_of(activation, tokens=32)
    begin = time.process_time()
    found = module.solve(4.0, 4.0, 0.3, 1.0, 1.0, tol=1e-3)
    assert found.converged and found.error < error
    assert time.process_time() - begin < 600.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 500_000


def test_scores_too_small_to_be_resolved_are_said():
    """Where sigma sees scores of 1e-10, q_k is far below the least spread that is resolved: no risk is claimed."""
    found = module_of("sigmoid(c*x)", tokens=1).solve(4.0, 2.0, tol=1e-2, c=1e10)
    assert not found.converged and found.error == np.inf and "q_k is below 1e-12" in found.warnings[0]


def test_a_k_of_no_size_is_no_fault_where_its_size_does_not_matter(modules):
    found = modules["softmax"].solve(4.0, 2.0, 0.3, lambda_k=1e12)
    assert found.converged and found.error < 1e-7
    assert found.order_parameters["q_k"] < 2e-12
