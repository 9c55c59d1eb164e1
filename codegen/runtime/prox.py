"""The prox of the eliminated loss: safeguarded vectorised Newton, and a multi-start search for the global minimum."""

from __future__ import annotations

import numpy as np

from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import SHIFT_INVARIANT, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import add_identity, factor, solve_factored
from replicode.codegen.runtime.lowrank import LowRank, Woodbury

NEWTON_STEPS = 80
STEP_TOLERANCE = 1e-12
NEWTON_TOLERANCE = 1e-8
TRUSTED_STEP = 0.05
TRUSTED_PIVOT = 0.2
SMALLEST_PIVOT = 0.05
CONTROL = 32
NEAR = (0.1, 0.2, 0.32, 0.45)
FAR = (0.58, 0.72, 0.86, 1.0)


def block_size(tokens: int) -> int:
    """How many samples with their Hessians stay in the cache; of many tokens only some are written out."""
    return max(128, min(4096, 2**17 // tokens**2, 2**14 // tokens))


def objective(chi: Array, at: Fields, V: tuple[float, float], setting: Setting) -> Array:
    """|chi - w_chi|^2 / (2 V_k) + loss, infinite where it is not a number."""
    with np.errstate(all="ignore"):
        distance = ((chi - at.w_chi) ** 2).sum(axis=0) / (2.0 * V[0])
        value = distance + setting.kernel.loss(chi, at.w_z, at.y, V[1], setting.params, *at.radii)
    return np.where(np.isnan(value), np.inf, value)


def prox(start: Array, at: Fields, V: tuple[float, float], setting: Setting) -> tuple[Array, int]:
    """A local minimiser of the objective per sample, by Newton's method from `start`; and how many did not converge."""
    chi = start.copy()
    failed = 0
    size = block_size(setting.tokens)
    for begin in range(0, chi.shape[1], size):
        part = slice(begin, begin + size)
        failed += (setting.kernel.newton or _prox_block)(chi[:, part], at.at(part), V, setting)
    return chi, failed


def _prox_block(chi: Array, at: Fields, V: tuple[float, float], setting: Setting) -> int:
    """Newton in place on one block, only over the samples that still move; returns the number left unconverged."""
    active = np.arange(chi.shape[1])
    for _ in range(NEWTON_STEPS):
        point, here = chi[:, active], at.at(active)
        with np.errstate(all="ignore"):
            slope, step, least = _newton_step(point, here, V, setting)
        broken = ~np.isfinite(step).all(axis=0)
        step[:, broken] = 0.5 * (here.w_chi - point)[:, broken]
        size = np.abs(step).max(axis=0)
        risky = np.flatnonzero((size > TRUSTED_STEP) | (least < TRUSTED_PIVOT))
        if risky.size:
            step[:, risky] = _backtracked(point[:, risky], step[:, risky], slope[:, risky], here.at(risky), V, setting)
        chi[:, active] = point + step
        enough = np.where(least >= TRUSTED_PIVOT, NEWTON_TOLERANCE, STEP_TOLERANCE)
        moving = size > enough * (1.0 + np.abs(point).max(axis=0))
        active = active[moving]
        if not active.size:
            return 0
    return int(active.size)


def _newton_step(point: Array, at: Fields, V: tuple[float, float], setting: Setting) -> tuple[Array, Array, Array]:
    """Slope of V_k times the objective, step, and how positive its Hessian is: pivots, or a bound, or 0.

    Of many tokens the Hessian is factored only where it is not seen to be positive without.
    """
    if (factors := setting.kernel.hessian_factors) is None:
        return _factored_step(point, at, V, setting)
    _, slope, parts = factors(point, at.w_z, at.y, V[1], setting.params, *at.radii)
    slope = point - at.w_chi + V[0] * slope
    inverse = Woodbury.of(LowRank.of(parts, point.shape[1]), V[0])
    step, least = -inverse.solve(slope), inverse.least
    doubtful = np.flatnonzero(~(least >= TRUSTED_PIVOT))
    if doubtful.size:
        _, step[:, doubtful], least[doubtful] = _factored_step(point[:, doubtful], at.at(doubtful), V, setting)
    return slope, step, least


def _factored_step(point: Array, at: Fields, V: tuple[float, float], setting: Setting) -> tuple[Array, Array, Array]:
    _, slope, curvature = setting.kernel.hessian(point, at.w_z, at.y, V[1], setting.params, *at.radii)
    slope = point - at.w_chi + V[0] * slope
    lower, pivots = factor(add_identity(V[0] * curvature), floor=SMALLEST_PIVOT)
    return slope, -solve_factored(lower, pivots, slope), pivots.min(axis=0)


def _backtracked(
    point: Array, step: Array, slope: Array, at: Fields, V: tuple[float, float], setting: Setting
) -> Array:
    """The step halved until the objective falls enough, sample by sample, without a Python loop over samples."""
    step = step.copy()
    before = objective(point, at, V, setting)
    descent = (slope * step).sum(axis=0) / V[0]
    allowance = 1e-14 * np.abs(before)
    pending = np.arange(point.shape[1])
    for _ in range(40):
        after = objective(point[:, pending] + step[:, pending], at.at(pending), V, setting)
        worse = ~(after <= before[pending] + 1e-4 * descent[pending] + allowance[pending])
        pending = pending[worse]
        if not pending.size:
            break
        step[:, pending] *= 0.5
        descent[pending] *= 0.5
    return step


def global_prox(start: Array, at: Fields, V: tuple[float, float], setting: Setting) -> tuple[Array, int, int]:
    """The best of several local minimisers, how many samples did not converge, and how many left that of `start`.

    The loss is not negative, so a better point than chi lies within sqrt(2 V_k objective(chi)) of w_chi: the search
    looks along the token directions inside that ball, near and far, and runs Newton from the best points it sees.
    """
    chi, failed = prox(start, at, V, setting)
    left = _left_for_better(chi, at, V, setting)
    return chi, failed, int(left.sum())


def screened_prox(
    start: Array, at: Fields, V: tuple[float, float], setting: Setting, share: float
) -> tuple[Array, int, Array]:
    """The same, searched for only at a share of the samples, those of the largest objective; and which were left.

    Every so many of the others are looked at too: where one of these is left, the rest is searched as well.
    """
    chi, failed = prox(start, at, V, setting)
    value = objective(chi, at, V, setting)
    far = ~(value < np.quantile(value, 1.0 - share)) if share < 1.0 else np.ones(value.size, dtype=bool)
    control = ~far & (np.arange(value.size) % CONTROL == 0)
    left = np.zeros(value.size, dtype=bool)
    for chosen in (far | control, ~(far | control)):
        samples = np.flatnonzero(chosen)
        if samples.size:
            part = chi[:, samples]
            left[samples] = _left_for_better(part, at.at(samples), V, setting)
            chi[:, samples] = part
        if not left[control].any():
            break
    return chi, failed, left


def _left_for_better(chi: Array, at: Fields, V: tuple[float, float], setting: Setting) -> Array:
    """Where a better minimum than chi was found, which is put in its place."""
    left = np.zeros(at.y.shape, dtype=bool)
    best = objective(chi, at, V, setting)
    reach = np.sqrt(2.0 * V[0] * np.where(np.isfinite(best), best, 1.0))
    scans = [_scan(at, V, setting, sign * reach, part) for sign in (1.0, -1.0) for part in (NEAR, FAR)]
    for candidates in (*scans, at.w_chi):
        other, _ = prox(candidates, at, V, setting)
        value = objective(other, at, V, setting)
        better = value < best - 1e-10 * (1e-3 + np.abs(best))
        chi[:, better], best[better] = other[:, better], value[better]
        left |= better
    return left


def _token_directions(tokens: int) -> Array:
    """One for each token, of length one, without what the prox does not see."""
    directions = np.eye(tokens)
    if SHIFT_INVARIANT and tokens > 1:
        directions = directions - 1.0 / tokens
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        directions = directions[: 1 if tokens == 2 else tokens]
    return directions


def _scan(
    at: Fields,
    V: tuple[float, float],
    setting: Setting,
    reach: Array,
    fractions: tuple[float, ...],
    directions: Array | None = None,
) -> Array:
    """The lowest of the points at these fractions of `reach` from w_chi along some directions, or each token's."""
    lowest = np.full(at.y.shape, np.inf)
    found = at.w_chi.copy()
    for direction in _token_directions(setting.tokens) if directions is None else directions:
        for fraction in fractions:
            trial = at.w_chi + fraction * reach * direction[:, None]
            value = objective(trial, at, V, setting)
            lower = value < lowest
            found[:, lower], lowest[lower] = trial[:, lower], value[lower]
    return found
