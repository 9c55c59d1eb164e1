"""Activations with kinks: the prox between them, the averages at its nodes, and the way to the fixed point.

At a kink c of a token's score the loss has two slopes. Where the objective of the prox falls towards c from both sides
the token is held there, for a whole interval of w: G = (c - w)/V_k, and the prox does not respond. Where it falls away
on both sides, the prox jumps. Derivatives on a side are taken NUDGE away from c, where the kernels are smooth.
"""

from __future__ import annotations

from functools import partial
from itertools import product as combinations

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Ensemble, NodeChannel, node_dimensions
from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.fixedpoint import WIDE_STEP, Evaluation, Linearised, evaluate, wide_slopes
from replicode.codegen.runtime.kernel import V_K, V_V, Array, channel_rates, kink_points, score_law
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import add_identity, factor, solve_factored
from replicode.codegen.runtime.mixture import mixed
from replicode.codegen.runtime.nodes import sobol
from replicode.codegen.runtime.places import RATES
from replicode.codegen.runtime.population import PopulationAverages, _one_token, _one_token_moments, _scrambled_averages
from replicode.codegen.runtime.prox import (
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
from replicode.codegen.runtime.refinement import Safety, climbed, level_error, rested
from replicode.codegen.runtime.states import (
    LOG2_FEW,
    LOG2_SOBOL,
    NEXT_LEVEL,
    ROUGH,
    SCRAMBLES,
    WANDERING,
    _errors,
    _failed,
    _iterated,
    _newton_with_jumps,
    _passed_on,
    _Request,
    _risk_slopes,
    _scatter,
    _State,
)

NUDGE = 1e-12
MOST_PATTERNS = 16
DEEP_STARTS = 12
PANEL_REACH = 13.0
PANEL_ORDER = 16
PANEL_WIDTHS = (1.0, 0.5, 0.25, 0.125)
MISSED_SAFETY = Safety(2.0)
LOG2_COARSE = 12
LOG2_FINE = 15
DAMPING = 0.3
NEWTON_REACH = 0.1
KINK_SETTLED = 3e-5
RELINEARISED = 3
INWARDS = (0.05, 0.15, 0.3, 0.5, 0.8)


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


def kinked_prox(start: Array, at: Fields, V: tuple[float, float], setting: Setting) -> tuple[Array, int]:
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


def kinked_global_prox(
    start: Array, at: Fields, V: tuple[float, float], setting: Setting, scans: bool = True, more: int = 0
) -> tuple[Array, int, int]:
    """The best of several local minimisers, how many samples did not converge, and how many left that of `start`.

    Starts are a point in every piece, where the pieces are few, those of the search for smooth activations, and `more`
    random ones in the ball where a better point would lie.
    """
    chi, failed = kinked_prox(start, at, V, setting)
    best, left = objective(chi, at, V, setting), np.zeros(at.y.shape, dtype=bool)
    reach = np.sqrt(2.0 * V[0] * np.where(np.isfinite(best), best, 1.0))
    starts = [*_in_pieces(at, V, setting, reach), at.w_chi]
    if scans:
        starts += [_scan(at, V, setting, sign * reach, part) for sign in (1.0, -1.0) for part in (NEAR, FAR)]
    rng = np.random.default_rng(more)
    for _ in range(more):
        away = rng.standard_normal(at.w_chi.shape)
        radius = reach * rng.random(at.y.size) ** (1.0 / setting.tokens)
        starts.append(at.w_chi + radius * away / np.linalg.norm(away, axis=0))
    for candidates in starts:
        other, _ = kinked_prox(candidates, at, V, setting)
        value = objective(other, at, V, setting)
        better = value < best - 1e-10 * (1e-3 + np.abs(best))
        chi[:, better], best[better] = other[:, better], value[better]
        left |= better
    return chi, failed, int(left.sum())


def _in_pieces(at: Fields, V: tuple[float, float], setting: Setting, reach: Array) -> list[Array]:
    """In every product of pieces the lowest of a few points, from next to w_chi inwards; none if these are too many."""
    kinks, tokens = kinks_of(setting), setting.tokens
    if (kinks.size + 1) ** tokens > MOST_PATTERNS:
        return []
    edges = np.r_[-np.inf, kinks, np.inf]
    found = []
    for pieces in combinations(range(kinks.size + 1), repeat=tokens):
        low, high = (edges[np.array(pieces) + side][:, None] for side in (0, 1))
        margin = np.minimum(INWARDS[0] * reach, 0.25 * (high - low))
        inwards = np.where(at.w_chi - low < high - at.w_chi, 1.0, -1.0)
        trials = [
            np.clip(at.w_chi + fraction * reach * inwards, low + margin, high - margin) for fraction in (0.0, *INWARDS)
        ]
        lowest = np.argmin([objective(t, at, V, setting) for t in trials], axis=0)
        found.append(np.choose(lowest, trials))
    return found


def _kinked_integrands(order: Array, setting: Setting, at: Fields, chi: Array, slopes: tuple[Array, ...] = ()) -> Array:
    """The six rates, M and the residual's loss, sample by sample: (8, n); slopes are those of the location's weight."""
    value, slope, sigmas, gain, residual_loss = setting.kernel.gradient(chi, at.w_z, at.y, order[V_V], setting.params)
    g_chi = np.where(on_kink(chi, kinks_of(setting)), (chi - at.w_chi) / order[V_K], -slope)
    rates = channel_rates(order, setting.nu, setting.noise, *at, g_chi, gain * sigmas, *slopes)
    envelope = 0.5 * order[V_K] * (g_chi * g_chi).sum(axis=0) + value
    return np.stack([np.broadcast_to(r, at.y.shape) for r in (*rates, envelope, residual_loss)])


def _kinked_responses(order: Array, setting: Setting, at: Fields, chi: Array) -> Array:
    """Squares of the blocks of d^2 M / dw^2 at a prox point, and the trace of the score block: (4, n).

    A = dchi/dw is (I + V_k H)^-1 on the free tokens and 0 on those held: kk = (I - A)/V_k, kv = A C, vv as ever.
    """
    h, c, e = setting.kernel.curvatures(chi, at.w_z, at.y, order[V_V], setting.params)
    held = on_kink(chi, kinks_of(setting))
    h, c = _freed(h, held), np.where(held[:, None], 0.0, c)
    lower, pivots = factor(add_identity(order[V_K] * h.copy()))
    score = solve_factored(lower, pivots, h)
    index = np.arange(len(score))
    score[index, index] += held / order[V_K]
    mixed = solve_factored(lower, pivots, c)
    value = e - order[V_K] * np.einsum("lin,ljn->ijn", c, mixed)
    squares = [(block * block).sum(axis=(0, 1)) for block in (score, mixed, value)]
    return np.stack([*squares, np.einsum("iin->n", score)])


class KinkedChannel(NodeChannel):
    """The prox at nodes in w; minima are searched for at every call, since all kinks make the prox jump somewhere."""

    deep = False

    @property
    def work(self) -> float:
        """A prox from every piece, where these are few, and from the field itself."""
        pieces = (kinks_of(self.setting).size + 1) ** self.setting.tokens
        return float(3.0 * super().work * (2 + pieces * (pieces <= MOST_PATTERNS)))

    def _prox(self, at: Fields, V: tuple[float, float], search: bool) -> Array:
        scans = search or self.deep or self.chi is None
        start = at.w_chi if self.chi is None else self.chi
        more = DEEP_STARTS if self.deep else 0
        chi, self.failed, self.jumped = kinked_global_prox(start, at, V, self.setting, scans, more)
        return chi

    def _integrands(self, order: Array, at: Fields, chi: Array, slopes: tuple[Array, ...]) -> Array:
        return _kinked_integrands(order, self.setting, at, chi, slopes)

    def _responses(self, order: Array, at: Fields, chi: Array) -> Array:
        return _kinked_responses(order, self.setting, at, chi)


def panel_averages(m_k: float, q_k: float, setting: Setting, tol: float) -> PopulationAverages:
    """A and B of one length: on panels that end at the kinks where one token is all there is, else on Sobol sets."""
    if not _one_token(setting):
        return _scrambled_averages(m_k, q_k, setting)
    mean, *variances = score_law(m_k, q_k, setting.nu)
    scales = np.sqrt(variances)
    cuts = np.r_[(kinks_of(setting) - mean) / scales[0], kinks_of(setting) / scales[1]]
    panels = (_one_token_moments(m_k, q_k, setting, *_kink_panels(cuts, width)) for width in PANEL_WIDTHS)
    return PopulationAverages.of(climbed(panels, partial(rested, tol=tol)))


def _kink_panels(cuts: Array, width: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes, with normalised Gaussian weights, on panels of at most this width that end at the cuts."""
    ends = np.arange(-PANEL_REACH, PANEL_REACH + width, width)
    ends = np.unique(np.r_[ends, cuts[np.abs(cuts) < PANEL_REACH]])
    nodes, weights = np.polynomial.legendre.leggauss(PANEL_ORDER)
    half = 0.5 * np.diff(ends)[:, None]
    zeta = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * nodes).ravel()
    weights = (half * weights).ravel() * np.exp(-0.5 * zeta * zeta)
    return zeta[None, :], weights / weights.sum()


def _kinked_scrambled(log2: int, seed: int, request: _Request) -> Channel:
    """Every length's averages on one scrambled Sobol set."""
    return mixed(request.settings, lambda s: KinkedChannel(sobol(node_dimensions(s), log2, seed), s))


def kinked_coarse(setting: Setting) -> Channel:
    """The prox on few nodes."""
    return KinkedChannel(sobol(node_dimensions(setting), LOG2_COARSE, 0), setting)


def kinked_averages(order: Array, setting: Setting, count: float) -> Averages:
    """Averages at a point that need not be a solution, on one fine set of nodes."""
    log2 = min(int(np.log2(count)), LOG2_FINE)
    return KinkedChannel(sobol(node_dimensions(setting), log2, 0), setting).averages(order)


def kinked_state(start: Array, request: _Request) -> _State:
    """Fixed point of the mean over scrambled Sobol sets, with a t bound from their scatter; unbiased, jumps or not."""
    few = _kinked_scrambled(LOG2_FEW, SCRAMBLES, request)
    rough = _iterated(few, start, request, ROUGH, damping=DAMPING)
    iterations, last, near, home = rough.iterations, rough.last, None, start
    if not last.residual <= NEWTON_REACH:
        return _failed(last, iterations, [few], "prox between kinks, one set of Sobol nodes")
    for log2 in LOG2_SOBOL:
        ensemble = Ensemble([_kinked_scrambled(log2, s, request) for s in range(SCRAMBLES)])
        last, near, numbers, settled, spent = _settled_at_kinks(ensemble, last, near, home, request)
        iterations, home = iterations + spent, last.order
        errors = _errors(
            last, near, _risk_slopes(last.order, request, np.full(RATES, WIDE_STEP)), request, numbers, 0.0
        )
        if errors[0] <= request.tol or not request.budget.affords(4.0 * NEXT_LEVEL * ensemble.work, float(errors[0])):
            break
    method = f"prox between kinks, {SCRAMBLES} x Sobol of {2**log2} nodes in {request.dimensions} dimensions"
    last = last._replace(averages=last.averages._replace(folded_mass=np.nan))
    known = settled and bool(np.isfinite(errors[0]))
    return _State(last, iterations, known, errors, [ensemble], method, on=[ensemble])


def _settled_at_kinks(
    ensemble: Ensemble, last: Evaluation, near: Linearised | None, home: Array, request: _Request
) -> tuple[Evaluation, Linearised, Array, bool, int]:
    """The fixed point by Newton's method: where, the slopes there, the scatter of all numbers, whether, at what cost.

    Next to a bifurcation one set of nodes may lead elsewhere, and Newton's method to a point that the map repels. Then
    the damped iteration on all sets starts again from `home`, or goes on where it is only slow.
    """
    iterations = 0
    for left in reversed(range(RELINEARISED)):
        now = evaluate(ensemble, last.order, request.problem, search=True)
        here = near or wide_slopes(ensemble, now, request.problem)
        fresh = 0 if near else here.evaluations
        iterations += fresh
        request.budget.spend(ensemble, fresh)
        if here.attracts:
            found = _newton_with_jumps(ensemble, now, here, request, KINK_SETTLED)
            last, iterations = found.last, iterations + found.iterations
        else:
            last = now
        numbers = _scatter(ensemble, last, here, request) + _missed(ensemble, last, here, request)
        settled = here.attracts and last.residual <= max(KINK_SETTLED, 0.3 * float(numbers[0]))
        if settled or not left or not request.budget.affords(WANDERING * ensemble.work, np.inf):
            break
        begin = last.order if here.attracts else home
        found = _iterated(ensemble, begin, request, KINK_SETTLED, WANDERING, damping=DAMPING)
        iterations, last, near = iterations + found.iterations, found.last, None
    return last, here, numbers, settled, iterations


def _missed(ensemble: Ensemble, last: Evaluation, near: Linearised, request: _Request) -> Array:
    """How far all numbers move when one member looks for minima from many more starts, twice over for what is left."""
    member = ensemble.channels[0]
    found = []
    for deep in (False, True):
        for channel in getattr(member, "channels", [member]):
            channel.deep = deep
        here = evaluate(member, last.order, request.problem)
        found.append(_passed_on(here.averages, last.image, last.order, near, request))
    return level_error(found, MISSED_SAFETY)
