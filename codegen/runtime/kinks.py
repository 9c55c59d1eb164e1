"""Activations with kinks: what follows replaces the functions of the same names above.

At a kink c of a token's score the loss has two slopes. Where the objective of the prox falls towards c from both sides
the token is held there, for a whole interval of w: G = (c - w)/V_k, and the prox does not respond. Where it falls away
on both sides, the prox jumps. Derivatives on a side are taken NUDGE away from c, where the kernels are smooth.
"""

from __future__ import annotations

from itertools import product as combinations

import numpy as np

from codegen.runtime.channel import RATES, ProxChannel
from codegen.runtime.fields import Fields, field_factor, fields
from codegen.runtime.kernel import Array, channel_rates, kink_points
from codegen.runtime.lengths import Setting
from codegen.runtime.linear import add_identity, factor, solve_factored
from codegen.runtime.prox import (
    FAR,
    NEAR,
    NEWTON_STEPS,
    NEWTON_TOLERANCE,
    SMALLEST_PIVOT,
    STEP_TOLERANCE,
    TRUSTED_PIVOT,
    TRUSTED_STEP,
    _scan,
    block_size,
    objective,
)

NUDGE = 1e-12
MOST_PATTERNS = 16
INSIDE = 0.1


def kinks_of(setting: Setting) -> Array:
    """The scores with a kink in order, without those that are not finite or not distinct."""
    found = np.sort([k for k in kink_points(setting.params) if np.isfinite(k)])
    apart = np.diff(found, prepend=-np.inf) > 10.0 * NUDGE * (1.0 + np.abs(found))
    return np.asarray(found[apart])


def on_kink(chi: Array, kinks: Array) -> Array:
    """Which tokens sit at a kink."""
    return np.asarray((chi[..., None] == kinks).any(axis=-1))


class Sides:
    """Where tokens at a kink go: held there, or let go to one side; and the box that each token may move in."""

    def __init__(self, point: Array, at: Fields, V: tuple[float, float], setting: Setting, kinks: Array) -> None:
        on = on_kink(point, kinks)
        self.held, self.base = on, point
        self.way = np.zeros(point.shape)
        if (some := np.flatnonzero(on.any(axis=0))).size:
            up, down = (self._slopes(point[:, some], on[:, some], s, at.at(some), V, setting) for s in (1.0, -1.0))
            rise, fall = np.maximum(-up, 0.0), np.maximum(down, 0.0)
            way = np.where(rise >= fall, np.sign(rise), -1.0)
            self.way[:, some] = np.where(on[:, some], way, 0.0)
            self.held = on & (self.way == 0.0)
            self.base = point + NUDGE * (1.0 + np.abs(point)) * np.where(self.held, 1.0, self.way)
        edges = np.r_[-np.inf, kinks, np.inf]
        piece = np.searchsorted(kinks, self.base)
        self.low, self.high = edges[piece], edges[piece + 1]
        self.low, self.high = (np.where(self.held, point, edge) for edge in (self.low, self.high))

    @staticmethod
    def _slopes(point: Array, on: Array, side: float, at: Fields, V: tuple[float, float], setting: Setting) -> Array:
        """Slopes of V_k times the objective on one side of the kinks."""
        moved = np.where(on, point + side * NUDGE * (1.0 + np.abs(point)), point)
        _, slope, *_ = setting.kernel.gradient(moved, at.w_z, at.y, V[1], setting.params)
        return np.asarray(point - at.w_chi + V[0] * slope)

    def clipped(self, point: Array, samples: Array | slice = slice(None)) -> Array:
        """The nearest point of the box."""
        return np.clip(point, self.low[:, samples], self.high[:, samples])


def prox(start: Array, at: Fields, V: tuple[float, float], setting: Setting) -> tuple[Array, int]:
    """A local minimiser per sample, by Newton's method projected on the box between kinks; and how many failed."""
    chi, kinks = start.copy(), kinks_of(setting)
    failed, size = 0, block_size(setting.tokens)
    for begin in range(0, chi.shape[1], size):
        part = slice(begin, begin + size)
        failed += _prox_between_kinks(chi[:, part], at.at(part), V, setting, kinks)
    return chi, failed


def _prox_between_kinks(chi: Array, at: Fields, V: tuple[float, float], setting: Setting, kinks: Array) -> int:
    """In place on one block; tokens that reach a kink stop there, and are held or let go in the step after."""
    active = np.arange(chi.shape[1])
    for _ in range(NEWTON_STEPS):
        point, here = chi[:, active], at.at(active)
        with np.errstate(all="ignore"):
            sides = Sides(point, here, V, setting, kinks)
            _, slope, curvature = setting.kernel.hessian(sides.base, here.w_z, here.y, V[1], setting.params)
            slope = np.where(sides.held, 0.0, point - here.w_chi + V[0] * slope)
            lower, pivots = factor(add_identity(V[0] * _freed(curvature, sides.held)), floor=SMALLEST_PIVOT)
            newton = -solve_factored(lower, pivots, slope)
        broken = ~np.isfinite(newton).all(axis=0)
        newton[:, broken] = 0.5 * (here.w_chi - point)[:, broken]
        goal = sides.clipped(point + newton)
        size = np.abs(goal - point).max(axis=0)
        stopped = (goal != point + newton).any(axis=0) & (size > 0.0)
        risky = np.flatnonzero((size > TRUSTED_STEP) | (pivots.min(axis=0) < TRUSTED_PIVOT) | stopped)
        if risky.size:
            goal[:, risky] = _backtracked_arc(point, newton, slope, sides, risky, here, V, setting)
        chi[:, active] = goal
        enough = np.where(pivots.min(axis=0) >= TRUSTED_PIVOT, NEWTON_TOLERANCE, STEP_TOLERANCE)
        active = active[stopped | (size > enough * (1.0 + np.abs(point).max(axis=0)))]
        if not active.size:
            return 0
    return int(active.size)


def _freed(matrix: Array, held: Array) -> Array:
    """The matrix of each sample without the rows and columns of what is held."""
    free = ~held
    return np.asarray(np.where(free[:, None] & free[None, :], matrix, 0.0))


def _backtracked_arc(
    point: Array,
    newton: Array,
    slope: Array,
    sides: Sides,
    samples: Array,
    at: Fields,
    V: tuple[float, float],
    setting: Setting,
) -> Array:
    """Where the projected step leads once it is halved until the objective falls enough (Bertsekas' arc)."""
    point, newton, slope, here = point[:, samples], newton[:, samples].copy(), slope[:, samples], at.at(samples)
    goal = sides.clipped(point + newton, samples)
    before = objective(point, here, V, setting)
    pending = np.arange(samples.size)
    for _ in range(40):
        moved = goal[:, pending]
        after = objective(moved, here.at(pending), V, setting)
        descent = (slope[:, pending] * (moved - point[:, pending])).sum(axis=0) / V[0]
        allowed = before[pending] + 1e-4 * np.minimum(descent, 0.0) + 1e-14 * np.abs(before[pending])
        pending = pending[~(after <= allowed)]
        if not pending.size:
            break
        newton[:, pending] *= 0.5
        goal[:, pending] = sides.clipped(point[:, pending] + newton[:, pending], samples[pending])
    return goal


def global_prox(
    start: Array, at: Fields, V: tuple[float, float], setting: Setting, scans: bool = True
) -> tuple[Array, int]:
    """The best of several local minimisers, and how many samples did not converge.

    Starts are a point in every piece, where the pieces are few, and those of the search for smooth activations.
    """
    chi, failed = prox(start, at, V, setting)
    best = objective(chi, at, V, setting)
    reach = np.sqrt(2.0 * V[0] * np.where(np.isfinite(best), best, 1.0))
    starts = [*_in_pieces(at.w_chi, reach, kinks_of(setting)), at.w_chi]
    if scans:
        starts += [_scan(at, V, setting, sign * reach, part) for sign in (1.0, -1.0) for part in (NEAR, FAR)]
    for candidates in starts:
        other, _ = prox(candidates, at, V, setting)
        value = objective(other, at, V, setting)
        better = value < best - 1e-10 * (1e-3 + np.abs(best))
        chi[:, better], best[better] = other[:, better], value[better]
    return chi, failed


def _in_pieces(w_chi: Array, reach: Array, kinks: Array) -> list[Array]:
    """The point of every product of pieces that is next to w_chi, a little inside; none if these are too many."""
    tokens = len(w_chi)
    if (kinks.size + 1) ** tokens > MOST_PATTERNS:
        return []
    edges = np.r_[-np.inf, kinks, np.inf]
    nearest = []
    for low, high in zip(edges[:-1], edges[1:]):
        inside = np.minimum(INSIDE * reach, 0.25 * (high - low))
        nearest.append(np.clip(w_chi, low + inside, high - inside))
    return [np.stack([nearest[p][token] for token, p in enumerate(c)]) for c in combinations(range(len(nearest)), repeat=tokens)]


def _integrands(order: Array, setting: Setting, at: Fields, chi: Array, slopes: tuple[Array, ...] = ()) -> Array:
    """The six rates, M and the residual's loss, sample by sample: (8, n); slopes are those of the location's weight."""
    value, slope, sigmas, gain, residual_loss = setting.kernel.gradient(chi, at.w_z, at.y, order[5], setting.params)
    g_chi = np.where(on_kink(chi, kinks_of(setting)), (chi - at.w_chi) / order[2], -slope)
    rates = channel_rates(order, setting.nu, setting.noise, *at, g_chi, gain * sigmas, *slopes)
    envelope = 0.5 * order[2] * (g_chi * g_chi).sum(axis=0) + value
    return np.stack([np.broadcast_to(r, at.y.shape) for r in (*rates, envelope, residual_loss)])


def _response_integrands(order: Array, setting: Setting, at: Fields, chi: Array) -> Array:
    """Squares of the blocks of d^2 M / dw^2 at a prox point, and the trace of the score block: (4, n).

    A = dchi/dw is (I + V_k H)^-1 on the free tokens and 0 on those held: kk = (I - A)/V_k, kv = A C, vv as ever.
    """
    h, c, e = setting.kernel.curvatures(chi, at.w_z, at.y, order[5], setting.params)
    held = on_kink(chi, kinks_of(setting))
    h, c = _freed(h, held), np.where(held[:, None], 0.0, c)
    lower, pivots = factor(add_identity(order[2] * h.copy()))
    score = solve_factored(lower, pivots, h)
    index = np.arange(len(score))
    score[index, index] += held / order[2]
    mixed = solve_factored(lower, pivots, c)
    value = e - order[2] * np.einsum("lin,ljn->ijn", c, mixed)
    squares = [(block * block).sum(axis=(0, 1)) for block in (score, mixed, value)]
    return np.stack([*squares, np.einsum("iin->n", score)])


class KinkedChannel(ProxChannel):
    """The prox at nodes in w; minima are searched for at every call, since all kinks make the prox jump somewhere."""

    def _prox_points(self, order: Array, search: bool) -> tuple[Fields, Array]:
        at = fields(field_factor(order, self.setting), self.zeta)
        V = (float(order[2]), float(order[5]))
        first = self.chi is None
        start = at.w_chi if self.chi is None else self.chi
        self.chi, self.failed = global_prox(start, at, V, self.setting, scans=first or search)
        return at, self.chi
