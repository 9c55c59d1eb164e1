"""Folds in any dimension: the search for critical points, and the averages that it changes, by other ways to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generated import module_of
from scipy import optimize

ORDER_3 = np.array([0.6681, 0.9372, 1.4758, 1.0107, 1.2336, 0.6893])  # softmax, lambda 0.3
ORDER_3_FOLDED = np.array([0.8938, 2.1238, 3.1617, 1.1181, 1.5509, 0.8887])  # softmax, lambda 0.1
ORDER_2 = np.array([0.83, 1.55, 2.6, 0.98, 1.17, 0.55])
SETS_APART = 5.0  # standard errors: one in two million, for Gaussian ones


def setting_of(module: Any, nu: float = 2.0, noise: float = 0.3, length: int = 0) -> Any:
    return module.Setting(nu, noise, module.parameter_values({}), module.KERNELS[length])


def folded(module: Any, order: np.ndarray, setting: Any, level: int, log2: int) -> tuple[Any, Any, Any, Any]:
    """A searched channel whose nodes are placed, its folded nodes and the prox objective there."""
    smooth = module.ProxFreeChannel.at_level(level, setting)
    smooth.adapt(order)
    channel, frame = module.SearchedChannel(smooth, log2), module.frame_at(order, setting)
    channel.changes(order, frame, search=True)
    nodes = module.folded_nodes(order, frame, smooth, channel.nodes)
    return channel, nodes, module.landscape(order, frame, nodes, setting), smooth


@pytest.mark.full
def test_searched_and_cut_folds_agree():
    """Where scores have one dimension: what folds change, searched for, and rows of which the contact set counts."""
    module = module_of("softmax", "spiked", "2:0.5,3:0.5")
    setting = setting_of(module)
    with np.errstate(all="ignore"):
        channel, *_ = folded(module, ORDER_2, setting, 4, 9)
        found, cut = channel.averages(ORDER_2), module.FoldedChannel(3, setting).averages(ORDER_2)
        signed = channel.smooth.averages(ORDER_2)
    members = np.array([m.rates for m in channel.members])
    scatter = members.std(axis=0, ddof=1) / np.sqrt(len(members))
    apart = np.abs(found.rates - cut.rates)
    assert (apart <= SETS_APART * scatter + 1e-6).all()
    assert (apart < 0.05 * np.abs(signed.rates - cut.rates) + 1e-6).all()  # and that is much less than folds change
    assert abs(found.envelope - cut.envelope) < 1e-6


def test_critical_points_are_complete():
    """Softmax at three tokens: degree one at every node, and nothing lower is found from many starts."""
    module = module_of("softmax", "spiked", 3)
    with np.errstate(all="ignore"):
        channel, nodes, land, _ = folded(module, ORDER_3, setting_of(module), 2, 6)
        near = module.critical_next(land, nodes.chi)
        wide = near.with_points(*module.widely(land, nodes.chi, near))
        assert (near.degree == 1.0).mean() > 0.98
        complete = wide.degree == 1.0
        assert nodes.masses[~complete].sum() < 1e-3 * nodes.masses.sum()
        rng = np.random.default_rng(1)
        lowest = np.where(wide.there, wide.values, np.inf).min(axis=0)
        missed = np.zeros(lowest.size, dtype=bool)
        for _ in range(12):
            start = land.fields.w_chi + 2.0 * rng.standard_normal(land.fields.w_chi.shape)
            there = land.descend(start)
            value = module.objective(there, land.fields, land.responses, land.setting)
            missed |= value < lowest - 1e-7 * (1.0 + lowest)
    assert nodes.masses[missed & complete].sum() < 1e-3 * nodes.masses.sum()
    assert channel.doubt < 1e-3 * nodes.masses.sum()


def test_shallow_minima_between_tokens_are_seen():
    """Softmax at three tokens, lambda 0.1: what Newton's method finds from many starts, the wide search has found."""
    module = module_of("softmax", "spiked", 3)
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        _, nodes, land, _ = folded(module, ORDER_3_FOLDED, setting_of(module), 2, 6)
        near = module.critical_next(land, nodes.chi)
        wide = near.with_points(*module.widely(land, nodes.chi, near)).packed()
        assert nodes.masses[wide.degree != 1.0].sum() < 1e-3 * nodes.masses.sum()
        more = wide
        for size in (0.5, 1.5, 4.0) * 4:
            starts = (x + size * rng.standard_normal(x.shape) for x in (land.fields.w_chi, wide.points[1]))
            more = land.assessed(np.stack([*more.points, *map(land.newton, starts)])).packed()
    missed = more.there.sum(axis=0) > wide.there.sum(axis=0)
    assert nodes.masses[missed].sum() < 3e-3 * nodes.masses.sum()


def test_residuals_are_all_roots():
    """Linear: every root of the derived polynomial is a critical point, the degree is one, the lowest is the prox."""
    module = module_of("linear", "spiked", 2)
    order = np.array([0.19, 1.64, 2.3, 0.44, 0.51, 0.43])
    with np.errstate(all="ignore"):
        _, nodes, land, _ = folded(module, order, setting_of(module), 1, 5)
        found = module.critical_next(land, nodes.chi)
        chi, _, _ = module.global_prox(land.fields.w_chi, land.fields, land.responses, land.setting)
        lowest = module.objective(chi, land.fields, land.responses, land.setting)
    assert (found.degree == 1.0).all()
    best = np.where(found.there, found.values, np.inf).min(axis=0)
    assert (best < lowest * (1.0 + 1e-7)).all()  # at a flat minimum the prox ends a little higher
    np.testing.assert_allclose(best, lowest, rtol=1e-6)
    at = land.at(np.array([0]))
    root = optimize.root(lambda x: at.slope(x[:, None])[:, 0], nodes.chi[:, 0] + 1e-3)
    assert np.abs(found.points[found.there[:, 0], :, 0] - root.x).max(axis=1).min() < 1e-6


def test_responses_of_global_minimisers():
    """Squared responses in prox coordinates against a global prox at nodes in w, where these are not too singular."""
    module = module_of("softmax", "spiked", 3)
    setting = setting_of(module)
    with np.errstate(all="ignore"):
        channel, *_ = folded(module, ORDER_3, setting, 3, 7)
        found = channel.response(ORDER_3)
        sets = [module.ProxChannel(module.sobol(module.node_dimensions(setting), 11, s), setting) for s in range(8)]
        for s in sets:
            s.averages(ORDER_3, search=True)
        other = [s.response(ORDER_3) for s in sets]
    squares, traces = np.array([r.squares for r in other]), np.array([r.trace for r in other])
    error = np.hypot(squares.std(axis=0, ddof=1) / np.sqrt(8), found.scatter)
    assert (np.abs(squares.mean(axis=0) - found.squares) < SETS_APART * error).all()
    assert abs(traces.mean() - found.trace) < SETS_APART * np.hypot(traces.std(ddof=1) / np.sqrt(8), found.noise)


def test_controls_are_zero_and_help():
    """Both forms of the rates of overlaps agree over what folds change, though only one of them jumps."""
    module = module_of("softmax", "spiked", 3)
    setting = setting_of(module)
    with np.errstate(all="ignore"):
        channel, nodes, land, _ = folded(module, ORDER_3, setting, 2, 8)
        near, wide = channel._searched(land, nodes)
        summed = module._sums(land, nodes, module.frame_at(ORDER_3, setting).law)
        found = np.sum([channel._by_set(nodes, share, summed) for share in (near, *wide)], axis=0)
    sums, controls = found[:, : module.SUMS], found[:, module.SUMS :]
    error = controls.std(axis=0, ddof=1) / np.sqrt(len(controls))
    assert controls.shape[1] == 4 and (error > 0.0).all()
    assert (np.abs(controls.mean(axis=0)) < SETS_APART * error).all()
    plain, less = module.t_bound(sums), module.t_bound(module.controlled(sums, controls))
    assert np.median(less / plain) < 0.8
    assert (np.abs(module.controlled(sums, controls).mean(axis=0) - sums.mean(axis=0)) < plain + less).all()


def test_bounds_of_controlled_values_cover():
    """Values that share what is random with controls: as many bounds fail as they say, and they are smaller."""
    module = module_of("softmax", "spiked", 3)
    rng = np.random.default_rng(5)
    coverage, failed, ratio = 0.9, 0, []
    before, module.COVERAGE = module.COVERAGE, coverage
    try:
        for _ in range(400):
            controls = rng.standard_normal((12, 3))
            values = (controls @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_normal(12))[:, None]
            found = module.controlled(values, controls)
            bound = module.t_bound(found)
            failed += int(abs(found.mean()) > bound[0])
            ratio.append(bound[0] / module.t_bound(values)[0])
    finally:
        module.COVERAGE = before
    assert abs(failed - 400 * 2 * (1.0 - coverage)) < 4.0 * np.sqrt(400 * 0.2 * 0.8)
    assert np.median(ratio) < 0.4


def test_signed_averages_on_closer_nodes():
    """Nodes within a radius, some at a time, lead to the averages of those that reach far out."""
    module = module_of("softmax", "spiked", 3)
    setting = setting_of(module)
    far = module.ProxFreeChannel.at_level(6, setting)
    near = module.SignedChannel.reaching(1e-5, setting)
    for channel in (far, near):
        channel.adapt(ORDER_3)
    with np.errstate(all="ignore"):
        found, other = near.refined(5).averages(ORDER_3), far.averages(ORDER_3)
        coarse = module.ProxFreeChannel.at_level(5, setting)
        coarse.center, coarse.scale = far.center, far.scale
        apart = np.abs(coarse.averages(ORDER_3).rates - other.rates).max()
    assert np.abs(found.rates - other.rates).max() < 0.5 * apart
    assert abs(found.mass - 1.0) < 1e-5


@pytest.mark.full
def test_searched_folds_warn_of_missed_minima():
    """Degree one is no proof that all critical points are there: the warning stays where jumps weigh."""
    module = module_of("softmax", "spiked", 3)
    found = module.solve(alpha=4.0, nu=2.0, noise=0.3, lambda_k=0.1, lambda_v=0.1, tol=3e-3)
    assert found.method.startswith("prox-free, folds searched") and found.converged
    assert any(w.startswith("jumps: the error does not cover global minima") for w in found.warnings)


@pytest.mark.full
def test_what_no_route_solves_is_told_by_the_last_tried():
    """An even activation next to its best k with infinite data, 0: the search of folds ends at a point without mass."""
    module = module_of("1/(1 + x**2)", "spiked", 2)
    start = module.overlap_start(
        "informed", (10.7, 2.0, 1.28), module.settings_of(2.29, 0.98, module.parameter_values({}))
    )
    init = dict(zip(module.ORDER_NAMES, start.tolist()))
    found = module.solve(10.7, 2.29, 0.98, 2.0, 1.28, tol=1e-3, init=init)
    assert not found.converged and found.residual > 1e-2
    assert found.warnings[0].startswith("not converged: V_k ran away")
