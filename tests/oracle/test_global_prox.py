"""Global minima of the prox where folds are felt, and the stated errors there, against a grid that misses none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from generated import module_of
from gridprox import (
    SLACK,
    Case,
    Nodes,
    Rates,
    averaged,
    bent,
    bounded,
    corners,
    curvature,
    global_minimum,
    local,
    scrambled,
    t_bound,
    values,
)

ORDER = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")
CONJUGATES = ("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v")
NAMES = ("alpha", "nu", "noise", "lambda_k", "lambda_v")
SETS, FEW = 32, 32
FOLDED = (  # orders at which one node in a few thousand leads the engine's search astray
    ("softmax", 3, 1.31, 0.649, np.array([0.5749, 2.1961, 2.8267, 0.8981, 1.5269, 0.9584])),
    ("softmax", 4, 0.91, 0.152, np.array([0.3231, 1.4445, 4.3541, 0.7071, 1.3675, 2.3475])),
    ("softmax1", 3, 2.35, 0.117, np.array([0.7277, 1.0413, 2.4857, 1.0380, 1.3014, 1.2235])),
)


class FoldedPoint(NamedTuple):
    activation: str
    tokens: int
    arguments: dict[str, float]


def folded_points() -> list[FoldedPoint]:
    """Three and four tokens, regularised so little that folds are felt."""
    rng = np.random.default_rng(15)
    low, high = np.log([2.0, 0.5, 0.1, 0.15, 0.15]), np.log([8.0, 5.0, 0.8, 0.6, 0.6])
    found = []
    for i in range(20):
        values = np.exp(rng.uniform(low, high))
        name = ("softmax", "softmax", "softmax1", "softmax")[i % 4]
        found.append(FoldedPoint(name, 3 + i % 2, dict(zip(NAMES, (float(f"{v:.3g}") for v in values), strict=True))))
    return found


def module_at(case: Case) -> Any:
    return module_of("softmax" if case.counted.all() else "softmax1", "spiked", case.tokens)


def fields_of(module: Any, case: Case, nodes: Nodes) -> Any:
    """The fields of the module that have these differences: where d alone counts, y may be 0."""
    y = np.zeros(nodes.d.shape[1]) if case.counted.all() else nodes.d[-1]
    return module.Fields(case.basis @ nodes.t_w, y - nodes.d[: case.tokens], y)


def engine_prox(module: Any, case: Case, nodes: Nodes) -> np.ndarray:
    """The module's own search for the global minimum, in the coordinates of the grid."""
    setting = module.Setting(case.nu, case.noise, module.parameter_values({}), module.KERNELS[0])
    at = fields_of(module, case, nodes)
    chi, _, _ = module.global_prox(at.w_chi, at, (case.order[2], case.order[5]), setting)
    return case.basis.T @ chi


def own_train_loss(case: Case, nodes: Nodes, t: np.ndarray) -> float:
    """The average of the residual's loss by the module."""
    module = module_at(case)
    at, kernel = fields_of(module, case, nodes), module.KERNELS[0]
    return float(kernel.gradient(case.basis @ t, at.w_z, at.y, case.order[5], module.parameter_values({}))[4].mean())


class Numbers(NamedTuple):
    """The test risk and all else that has an error, and these errors; of a reference, t bounds of them.

    `above` is the share of nodes at which the module's prox is above the grid's.
    """

    values: np.ndarray
    errors: np.ndarray
    above: float = 0.0


def stated(module: Any, found: Any) -> Numbers:
    """What a solution says."""
    values = found.order_parameters | found.conjugates | found._asdict()
    errors = found.errors | {"test_risk": found.error}
    return Numbers(*(np.array([part[n] for n in ("test_risk", *module.REPORTED)]) for part in (values, errors)))


def case_at(point: FoldedPoint, found: Any) -> Case:
    """The fields at a solution."""
    order = np.array([found.order_parameters[name] for name in ORDER])
    return Case.of(point.activation, point.tokens, point.arguments["nu"], point.arguments["noise"], order)


def brute_force(module: Any, point: FoldedPoint, found: Any, log2: int) -> Numbers:
    """One step of Newton's method from a solution, by averages over sets of nodes with the grid's minima."""
    case = case_at(point, found)
    alpha, nu, noise, *penalties = (point.arguments[name] for name in NAMES)
    setting = module.Setting(nu, noise, module.parameter_values({}), module.KERNELS[0])
    task = module._Request((setting,), module.Problem(alpha, *penalties), 1e-4)
    order = np.array([found.order_parameters[name] for name in module.ORDER_NAMES])
    with np.errstate(all="ignore"):
        smooth = module.ProxFreeChannel.at_level(2, setting)
        smooth.adapt(order)
        near = module.linearised(smooth, module.evaluate(smooth, order, task.problem), task.problem)
    numbers, above = [], []
    for seed in range(SETS):
        nodes = scrambled(case, log2, seed)
        least, own = global_minimum(case, nodes), values(case, engine_prox(module, case, nodes), nodes)
        assert not higher(least.value, own).any()
        averages = as_averages(module, averaged(case, nodes, least.t))
        numbers.append(module._passed_on(averages, order, order, near, task))
        above.append(higher(own, least.value).mean())
    return Numbers(np.mean(numbers, axis=0), t_bound(numbers), float(np.mean(above)))


def as_averages(module: Any, rates: Rates) -> Any:
    """What the module calls averages: dE[M] / d(m, q, V) for each block, to which conjugates are proportional."""
    named = dict(zip(CONJUGATES, rates.conjugates, strict=True))
    per_rate = np.stack([module.conjugates_from_rates(e, 1.0) for e in np.eye(len(named))], axis=1)
    found = np.linalg.solve(per_rate, [named[name] for name in module.CONJUGATE_NAMES])
    return module.Averages(found, rates.envelope, rates.train_loss, 1.0, 0.0, 0.0)


def higher(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where one value is above the other by more than rounding."""
    return np.asarray(value > other + 1e-9 * (1.0 + other))


def cases() -> list[Case]:
    return [Case.of(*where) for where in FOLDED]


@pytest.mark.parametrize("case", cases(), ids=[f"{name}-{tokens}" for name, tokens, *_ in FOLDED])
def test_objective_and_bounds_of_cells(case):
    """The objective is the module's, its derivatives are those of differences, and no cell has less than its bound."""
    module = module_at(case)
    setting = module.Setting(case.nu, case.noise, module.parameter_values({}), module.KERNELS[0])
    nodes, rng = scrambled(case, 9, 3), np.random.default_rng(3)
    t = nodes.t_w + 2.0 * rng.standard_normal(nodes.t_w.shape)
    here, V, step = local(case, t, nodes), (case.order[2], case.order[5]), 1e-5
    fields = fields_of(module, case, nodes)
    np.testing.assert_allclose(here.value, module.objective(case.basis @ t, fields, V, setting), rtol=1e-12)
    moves = [step * e[:, None] for e in np.eye(len(t))]
    slopes = [values(case, t + e, nodes) - values(case, t - e, nodes) for e in moves]
    np.testing.assert_allclose(here.slope, np.array(slopes) / (2.0 * step), atol=1e-7)
    bends = [local(case, t + e, nodes).slope - local(case, t - e, nodes).slope for e in moves]
    np.testing.assert_allclose(curvature(case, here, nodes).T, np.array(bends) / (2.0 * step), atol=1e-7)
    alike = nodes._replace(d=np.ones_like(nodes.d) * nodes.d[0])
    for t_at, at in ((t, nodes), (t, alike), (0.0 * t, alike)):
        held = local(case, t_at, at)
        assert (np.linalg.eigvalsh(curvature(case, held, at)).min(axis=1) >= -bent(case, held.r, at) - 1e-12).all()
    for side in (2.0, 0.5, 0.1):
        _, bound = bounded(case, t, np.full(nodes.d.shape[1], side), nodes)
        for _ in range(20):
            inside = t + side * (rng.random(t.shape) - 0.5)
            assert (values(case, inside, nodes) >= bound - 1e-12).all()


@pytest.mark.parametrize("case", cases(), ids=[f"{name}-{tokens}" for name, tokens, *_ in FOLDED])
def test_nothing_is_below_the_minima_of_the_grid(case):
    """Neither on a plain grid over all that is left by the loss being positive, nor where the module's search ends."""
    module = module_at(case)
    nodes = scrambled(case, 10, 3)
    found = global_minimum(case, nodes)
    assert (found.value - SLACK <= found.bound).all() and (found.bound <= found.value).all()
    own = values(case, engine_prox(module, case, nodes), nodes)
    assert not higher(found.value, own).any()
    assert higher(own, found.value).mean() < 2e-3
    np.testing.assert_allclose(global_minimum(case, nodes, slack=1.0).value, found.value, rtol=1e-9)
    few = nodes.at(slice(FEW))
    radius = np.sqrt(2.0 * case.order[2] * values(case, few.t_w, few))
    for shift in corners(len(few.t_w), 25).T:
        assert not higher(found.value[:FEW], values(case, few.t_w + 2.0 * radius * shift[:, None], few)).any()


@pytest.mark.parametrize("case", cases(), ids=[f"{name}-{tokens}" for name, tokens, *_ in FOLDED])
def test_averages_are_derivatives_of_the_envelope(case):
    """E[M] moves with m, q and V, the nodes moving along and the minimisers at rest, as the averages say."""
    per_rate, step, apart = {"m": -1.0, "q": 2.0, "V": -2.0}, 1e-5, []
    for seed in range(SETS):
        nodes = scrambled(case, 6, seed)
        found = global_minimum(case, nodes)
        rates = averaged(case, nodes, found.t)
        assert rates.envelope == pytest.approx(found.value.mean(), rel=1e-12)
        assert rates.train_loss == pytest.approx(own_train_loss(case, nodes, found.t), rel=1e-12)
        differences = []
        for i, name in enumerate(ORDER):
            ends = [case._replace(order=case.order + sign * step * np.eye(6)[i]) for sign in (1.0, -1.0)]
            above, below = (values(end, found.t, scrambled(end, 6, seed)).mean() for end in ends)
            differences.append(per_rate[name[0]] * (above - below) / (2.0 * step))
        m_k, q_k, V_k, m_v, q_v, V_v = differences
        apart.append(np.array([m_k, V_k, q_k, m_v, V_v, q_v]) - rates.conjugates)
    by_parts = [CONJUGATES.index(name) for name in ("mh_v", "Vh_v")]  # the others are derivatives node by node
    np.testing.assert_allclose(np.delete(apart, by_parts, axis=1), 0.0, atol=1e-8)
    mean, bound = (f(apart)[by_parts] for f in (lambda x: np.abs(np.mean(x, axis=0)), t_bound))
    assert (mean < bound).all() and (bound < 0.3 * np.abs(rates.conjugates[by_parts])).all()


@pytest.mark.full
@pytest.mark.parametrize("index", range(20))
def test_stated_errors_cover_where_folds_are_felt(index, log2=15):
    """Against 32 x 2^15 scrambled Sobol nodes with a prox that misses no minimum."""
    point = folded_points()[index]
    module = module_of(point.activation, "spiked", point.tokens)
    found = module.solve(**point.arguments, tol=3e-4)
    assert found.converged
    here, reference = stated(module, found), brute_force(module, point, found, log2)
    assert (np.abs(here.values - reference.values) <= here.errors + reference.errors).all()
