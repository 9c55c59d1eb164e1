"""Averages where the activation is a constant: no scores, and nothing to minimise over but the output itself.

M then depends on the values through their sum alone, and on the label. Nodes are those of what is seen: of that sum, of
the hidden token's value where the label is told from it, and of the label; the values are their means given it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from scipy import optimize

from replicode.codegen.runtime.channel import Averages, Channel, Ladder, Response
from replicode.codegen.runtime.fields import value_covariance
from replicode.codegen.runtime.fixedpoint import Evaluation
from replicode.codegen.runtime.inputs import OutOfReach, check_size
from replicode.codegen.runtime.kernel import (
    EVEN_LOSS,
    LABEL_KINKS,
    LABEL_NORMALS,
    M_V,
    Q_V,
    V_V,
    Array,
    best_value_overlap,
    channel_rates,
    hidden_law,
    idle_law,
    risk_on_manifold,
)
from replicode.codegen.runtime.label import ValueOverlaps, branched, label_at, label_moments, label_of
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.mixture import mixed_ladder
from replicode.codegen.runtime.nodes import Flips, gauss_panels, lattice, lattice_size, level_count
from replicode.codegen.runtime.places import RATES
from replicode.codegen.runtime.population import PopulationAverages
from replicode.codegen.runtime.prior import Problem
from replicode.codegen.runtime.states import _levels, _Request, _State

NEXT_TO_NOTHING = 1e-18
VALUE_BLOCK = 16384
VALUE_LEVEL = 2
WIDE = 10.0
MAP_ROUNDING = 2e-15
LARGEST_LOG = 14.0
TEACHER_REACH = 8.5
STAR_WIDTH = 2.0


def seen_values(setting: Setting) -> Array:
    """What M and the label see of the values and the label, one row for each thing seen."""
    tokens = setting.tokens
    total = np.r_[np.ones(tokens), 0.0]
    label = np.r_[np.zeros(tokens), 1.0]
    if label_at is None:
        return np.stack([label - total * (setting.row_sum / tokens)]) if setting.row_sum else np.stack([total, label])
    hidden = np.eye(tokens)[:1]
    return hidden if tokens == 1 else np.concatenate([hidden, np.ones((1, tokens))])


def value_nodes(setting: Setting) -> int:
    """The number of normals of a node."""
    return len(seen_values(setting)) + LABEL_NORMALS


def value_factor(order: Array, setting: Setting) -> Array:
    """F with F F^T the covariance of E[values, label | what is seen of them]."""
    _, hidden = hidden_law(order, setting.nu, setting.noise)
    _, idle = idle_law(order)
    covariance = value_covariance(hidden, idle[0, 0], setting.tokens)
    cross = covariance @ seen_values(setting).T
    return np.asarray(np.linalg.solve(np.linalg.cholesky(seen_values(setting) @ cross), cross.T).T)


class ValueChannel(Ladder):
    """The averages at nodes in what is seen of values and label."""

    name = "values"
    slack = 0.1
    cuts_folds = True

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        self.zeta, self.weights = branched(nodes, value_nodes(setting))
        self.setting = setting

    @staticmethod
    def at_level(level: int, setting: Setting) -> ValueChannel:
        """On the lattice of a level."""
        dim = value_nodes(setting)
        if LABEL_KINKS:
            return ValueChannel(_split_at_kinks(dim, level), setting)
        return ValueChannel(lattice(dim, level_count(dim, level), level, _value_flips(setting)), setting)

    def refined(self, level: int) -> ValueChannel:
        """The same on the lattice of another level."""
        return ValueChannel.at_level(level, self.setting)

    def size(self, level: int) -> float:
        """How many nodes a level has."""
        if LABEL_KINKS:
            return float(_split_star(level)[0].size * level_count(value_nodes(self.setting) - 1, level - 1))
        return lattice_size(level_count(value_nodes(self.setting), level), _value_flips(self.setting))

    def adapt(self, order: Array) -> None:
        """Nodes in the fields need no adapting."""

    @property
    def work(self) -> float:
        """One evaluation at every node."""
        return float(self.setting.tokens * self.weights.size)

    def _points(self, order: Array, part: slice) -> tuple[Array, Array, Array, tuple[Array, ...]]:
        """The values, the label, the weights and the slopes of the label's law at some of the nodes."""
        factor, zeta = value_factor(order, self.setting), self.zeta[:, part]
        zeta = _from_teacher(order, zeta, factor.shape[1]) if LABEL_KINKS else zeta
        values, label = product(factor, zeta[: factor.shape[1]]), label_of(order, self.setting)
        if label is None:
            return values[:-1], values[-1], self.weights[part], ()
        told = label.at(values[0], zeta[factor.shape[1] :])
        return values, told.y, self.weights[part] * told.weight, (told.slopes,)

    def _parts(self) -> Sequence[slice]:
        return [slice(b, b + VALUE_BLOCK) for b in range(0, self.weights.size, VALUE_BLOCK)]

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters."""
        setting, none = self.setting, np.empty((0, 1))
        total, mass = np.zeros(RATES + 2), 0.0
        for part in self._parts():
            w, y, weights, slopes = self._points(order, part)
            value, _, sigmas, gain, loss = setting.kernel.gradient(np.zeros_like(w), w, y, order[V_V], setting.params)
            rates = channel_rates(order, setting.nu, setting.noise, none, w, y, none, gain * sigmas, *slopes)
            stacked = np.stack([np.broadcast_to(r, y.shape) for r in (*rates, value, loss)])
            total += weighted_sum(stacked, weights)
            mass += float(weights.sum())
        total /= mass
        return Averages(total[:RATES], float(total[RATES]), float(total[RATES + 1]), 1.0, 0.0, 0.0)

    def response(self, order: Array) -> Response:
        """Squares of the second derivatives of M in the values."""
        setting, total, mass = self.setting, 0.0, 0.0
        for part in self._parts():
            w, y, weights, _ = self._points(order, part)
            _, _, e = setting.kernel.curvatures(np.zeros_like(w), w, y, order[V_V], setting.params)
            total += float(weighted_sum((e * e).sum(axis=(0, 1)), weights))
            mass += float(weights.sum())
        return Response(np.array([total / mass]), 0.0, scatter=np.zeros(1))


def _split_at_kinks(dim: int, level: int) -> tuple[Array, Array]:
    """Nodes of which z* stands in panels that end at the label's kinks, the others on a lattice."""
    stars, weights = _split_star(level)
    others, chances = lattice(dim - 1, level_count(dim - 1, level - 1), level)
    nodes = np.insert(np.repeat(others, stars.size, axis=1), dim - LABEL_NORMALS, np.tile(stars, chances.size), axis=0)
    return nodes, np.outer(chances, weights).ravel()


@lru_cache(maxsize=8)
def _split_star(level: int) -> tuple[Array, Array]:
    """z* in panels, which are wide: there are many nodes in each."""
    kinks = [k for k in LABEL_KINKS if abs(k) < TEACHER_REACH]
    width = STAR_WIDTH / (1.0 + 0.2 * level)
    ends = itertools.pairwise([-TEACHER_REACH, *kinks, TEACHER_REACH])
    panels = [np.linspace(a, b, 1 + int(np.ceil((b - a) / width))) for a, b in ends]
    stars, weights = gauss_panels(np.unique(np.concatenate(panels)))
    weights = weights * np.exp(-0.5 * stars * stars)
    return stars, weights / weights.sum()


def _from_teacher(order: Array, zeta: Array, label: int) -> Array:
    """The normals of w and of z* given w, where z* itself and another normal are given: a rotation of the two."""
    a = float(order[M_V]) / np.sqrt(float(order[Q_V]))
    s = np.sqrt(max(1.0 - a * a, 0.0))
    star, other = zeta[label], zeta[0]
    turned = zeta.copy()
    turned[0], turned[label] = a * star + s * other, s * star - a * other
    return turned


def _value_flips(setting: Setting) -> Flips:
    """All normals may change sign together."""
    return (tuple(range(value_nodes(setting))),) if EVEN_LOSS else ()


def first_values(setting: Setting) -> ValueChannel:
    """The coarsest nodes."""
    return ValueChannel.at_level(0, setting)


def coarse_values(setting: Setting) -> Channel:
    """Few nodes."""
    return ValueChannel.at_level(VALUE_LEVEL, setting)


def value_state(start: Array, request: _Request) -> _State:
    """The fixed point on lattices that get finer; next to alpha = 1 the rounding of the map is what is left."""
    found = _levels(mixed_ladder(request.settings, first_values), start, request)
    if found.refined is None:
        return found
    near, slopes = found.refined.near, found.refined.slopes
    moved = near.reach(np.full(RATES, MAP_ROUNDING))
    return found._replace(errors=found.errors + np.r_[np.abs(slopes) @ moved, np.abs(near.slopes) @ moved])


def value_averages(order: Array, setting: Setting, count: float) -> Averages:
    """Averages at a point that need not be a solution."""
    return ValueChannel(lattice(value_nodes(setting), count, 0, _value_flips(setting)), setting).averages(order)


def constant_averages(m_k: float, q_k: float, setting: Setting, tol: float) -> PopulationAverages:
    """A and B of a constant activation."""
    sigma = float(setting.kernel.sigma(np.zeros((setting.tokens, 1)), setting.params)[0, 0])
    return PopulationAverages(sigma, setting.tokens * sigma * sigma, 0.0)


def constant_moments(settings: Sequence[Setting]) -> tuple[float, float]:
    """A and B over all lengths."""
    found = [(s.kernel.share, constant_averages(0.0, 1.0, s, 0.0)) for s in settings]
    return sum(share * f.A for share, f in found), sum(share * f.B for share, f in found)


def value_risk(order: Array, settings: Sequence[Setting], tol: float) -> tuple[float, float]:
    """The test risk at these order parameters, and the error of its average: none."""
    noise = settings[0].noise
    at = float(order[M_V]), float(order[Q_V]), noise, *constant_moments(settings), *label_moments(noise)
    return float(risk_on_manifold(*at)), 0.0


def value_start(init: str, strengths: tuple[float, float, float], settings: Sequence[Setting]) -> Array:
    """The best values of the population, or next to nothing known of the teacher."""
    alpha, _, lambda_v = strengths
    m, q = 0.02, 0.3
    if init == "informed":
        A, B = constant_moments(settings)
        check_size(B)
        m = float(best_value_overlap(A, B, *label_moments(settings[0].noise)))
        q = 1.05 * m * m + 1e-6
    order = np.empty(RATES)
    order[M_V], order[Q_V], order[V_V] = m, q, _ridge_response(alpha, lambda_v)
    return order


def _ridge_response(alpha: float, penalty: float) -> float:
    """The V of a square loss, V = 1/(lambda + alpha/(1 + V)), or nearly that where there is none."""
    penalty = max(penalty, 1e-3) if alpha <= 1.0 and not penalty else penalty
    rest = penalty + alpha - 1.0
    root = float(np.sqrt(rest * rest + 4.0 * penalty))
    return 2.0 / (rest + root) if rest > 0.0 else (root - rest) / (2.0 * penalty)


def convex_stability(
    radius: float, response: Response, last: Evaluation, request: _Request, errors: Array
) -> tuple[float, float, float]:
    """The spectral radius alone: without scores no prox jumps."""
    return radius, 0.0, 0.0


def any_values(problem: Problem, noise: float) -> Problem:
    """Nothing is known of when there is a minimum."""
    return problem


def interpolating(problem: Problem, noise: float) -> Problem:
    """Without a penalty, fewer samples than dimensions leave many minima: the limit is the one of least norm."""
    alpha, lambda_v = problem.alpha, problem.lambda_v
    if alpha == 1.0 and not lambda_v:
        raise OutOfReach("lambda_v: got 0.0; at alpha = 1 the norm of the minimum has no limit, take lambda_v above 0")
    return problem if lambda_v or alpha > 1.0 else problem._replace(lambda_v=NEXT_TO_NOTHING)


def separating(problem: Problem, noise: float) -> Problem:
    """Without a penalty there is no minimum where some v gets the sign of every label right."""
    if problem.lambda_v:
        return problem
    least = separability(noise)
    if problem.alpha <= least:
        where = "for lambda_v above 0 alone"
        if np.isfinite(least):
            where = f"above alpha = {least:.10g} (kappa = {1.0 / least:.10g}), or for lambda_v above 0"
        raise OutOfReach(
            f"lambda_v: got 0.0; at alpha = {problem.alpha:.6g} the labels can be separated, so that the loss has no "
            f"minimum: it has one {where}"
        )
    return problem


@lru_cache(maxsize=64)
def separability(noise: float) -> float:
    """The alpha up to which some v separates the labels: 1/alpha = min over m of E[(-y w)_+^2], q - m^2 being 1.

    There the envelope of a loss that vanishes for a right sign tends to (-y w)_+^2/(2 V), and the free energy falls
    without end in 1/V as long as alpha E[(-y w)_+^2] < q - m^2.
    """
    best = optimize.minimize_scalar(
        partial(_violation, noise=noise), bounds=(-LARGEST_LOG, LARGEST_LOG), method="bounded", options={"xatol": 1e-9}
    )
    return float(1.0 / best.fun) if abs(best.x) < 0.99 * LARGEST_LOG else np.inf


def _violation(log: float, noise: float) -> float:
    """E[(-y w)_+^2] at q = m^2 + 1 in the m that has this sinh^-1; nodes are dense where the label is told."""
    assert label_at is not None
    m = float(np.sinh(log))
    fine = WIDE * 2.0 ** -np.arange(40.0)
    nodes, weights = gauss_panels(np.r_[-fine, 0.0, fine[::-1]])
    w = nodes * np.sqrt(1.0 + m * m)
    weights = weights * np.exp(-0.5 * nodes * nodes) / np.sqrt(2.0 * np.pi)
    zeta, weights = branched((np.zeros((0, w.size)), weights), 0)
    w = np.tile(w, weights.size // w.size)
    told = label_at(ValueOverlaps(m, 1.0 + m * m), noise).at(w, zeta)
    return float(weights @ (told.weight * np.maximum(-told.y * w, 0.0) ** 2))
