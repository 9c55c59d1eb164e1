"""The prox of the eliminated loss: safeguarded vectorised Newton, and a multi-start search for the global minimum."""

from __future__ import annotations

import numpy as np

from codegen.runtime.kernel import SHIFT_INVARIANT, TOKENS, Array, hessian, loss
from codegen.runtime.linear import add_identity, factor, solve_factored

BLOCK = 4096
NEWTON_STEPS = 80
STEP_TOLERANCE = 1e-12
TRUSTED_STEP = 0.05
TRUSTED_PIVOT = 0.2


def objective(chi: Array, w_chi: Array, w_z: Array, y: Array, V: tuple[float, float], params: Array) -> Array:
    """|chi - w_chi|^2 / (2 V_k) + loss, infinite where it is not a number."""
    with np.errstate(all="ignore"):
        value = ((chi - w_chi) ** 2).sum(axis=0) / (2.0 * V[0]) + loss(chi, w_z, y, V[1], params)
    return np.where(np.isnan(value), np.inf, value)


def prox(start: Array, w_chi: Array, w_z: Array, y: Array, V: tuple[float, float], params: Array) -> tuple[Array, int]:
    """A local minimiser of the objective per sample, by Newton's method from `start`; and how many did not converge."""
    chi = start.copy()
    failed = 0
    for begin in range(0, chi.shape[1], BLOCK):
        part = slice(begin, begin + BLOCK)
        failed += _prox_block(chi[:, part], w_chi[:, part], w_z[:, part], y[part], V, params)
    return chi, failed


def _prox_block(chi: Array, w_chi: Array, w_z: Array, y: Array, V: tuple[float, float], params: Array) -> int:
    """Newton in place on one block, only over the samples that still move; returns the number left unconverged."""
    active = np.arange(chi.shape[1])
    for _ in range(NEWTON_STEPS):
        point, w, values, label = chi[:, active], w_chi[:, active], w_z[:, active], y[active]
        with np.errstate(all="ignore"):
            _, slope, curvature = hessian(point, values, label, V[1], params)
            slope = point - w + V[0] * slope
            lower, pivots = factor(add_identity(V[0] * curvature), floor=0.05)
            step = -solve_factored(lower, pivots, slope)
        broken = ~np.isfinite(step).all(axis=0)
        step[:, broken] = -0.5 * (point - w)[:, broken]
        size = np.abs(step).max(axis=0)
        risky = np.flatnonzero((size > TRUSTED_STEP) | (pivots.min(axis=0) < TRUSTED_PIVOT))
        if risky.size:
            args = (w[:, risky], values[:, risky], label[risky])
            step[:, risky] = _backtracked(point[:, risky], step[:, risky], slope[:, risky], args, V, params)
        chi[:, active] = point + step
        moving = size > STEP_TOLERANCE * (1.0 + np.abs(point).max(axis=0))
        active = active[moving]
        if not active.size:
            return 0
    return int(active.size)


def _backtracked(
    point: Array,
    step: Array,
    slope: Array,
    args: tuple[Array, Array, Array],
    V: tuple[float, float],
    params: Array,
) -> Array:
    """The step halved until the objective falls enough, sample by sample, without a Python loop over samples."""
    step = step.copy()
    before = objective(point, *args, V, params)
    descent = (slope * step).sum(axis=0) / V[0]
    allowance = 1e-14 * np.abs(before)
    pending = np.arange(point.shape[1])
    for _ in range(40):
        some = tuple(a[..., pending] for a in args)
        after = objective(point[:, pending] + step[:, pending], *some, V, params)
        worse = ~(after <= before[pending] + 1e-4 * descent[pending] + allowance[pending])
        pending = pending[worse]
        if not pending.size:
            break
        step[:, pending] *= 0.5
        descent[pending] *= 0.5
    return step


def global_prox(
    start: Array, w_chi: Array, w_z: Array, y: Array, V: tuple[float, float], params: Array
) -> tuple[Array, int, float]:
    """The best of several local minimisers, the number unconverged, and the share of samples that another start improved.

    The loss is not negative, so a better point than chi lies within sqrt(2 V_k objective(chi)) of w_chi: the search
    looks along the token directions inside that ball and runs Newton from the best points it sees there.
    """
    chi, failed = prox(start, w_chi, w_z, y, V, params)
    best = objective(chi, w_chi, w_z, y, V, params)
    improved = np.zeros(best.shape, dtype=bool)
    reach = np.sqrt(2.0 * V[0] * np.where(np.isfinite(best), best, 1.0))
    for candidates in (_scan(w_chi, w_z, y, V, params, reach, +1.0), _scan(w_chi, w_z, y, V, params, reach, -1.0), w_chi):
        other, _ = prox(candidates, w_chi, w_z, y, V, params)
        value = objective(other, w_chi, w_z, y, V, params)
        better = value < best - 1e-10 * (1e-3 + np.abs(best))
        chi[:, better], best[better] = other[:, better], value[better]
        improved |= better
    return chi, failed, float(improved.mean())


def _scan(w_chi: Array, w_z: Array, y: Array, V: tuple[float, float], params: Array, reach: Array, sign: float) -> Array:
    """The lowest of the points at a few fractions of `reach` from w_chi along +- each token direction."""
    directions = np.eye(TOKENS)
    if SHIFT_INVARIANT and TOKENS > 1:
        directions = directions - 1.0 / TOKENS
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        directions = directions[: 1 if TOKENS == 2 else TOKENS]
    lowest = np.full(w_chi.shape[1], np.inf)
    found = w_chi.copy()
    for direction in directions:
        for fraction in (0.25, 0.5, 0.9):
            trial = w_chi + sign * fraction * reach * direction[:, None]
            value = objective(trial, w_chi, w_z, y, V, params)
            lower = value < lowest
            found[:, lower], lowest[lower] = trial[:, lower], value[lower]
    return found
