"""The weight of the hidden location given the score fields: gbar(w) = E[g(0, chi*) | w], token 0 being the hidden one.

Given w, chi* is N(mu, s^2) with mu = m_k w / q_k. What is averaged over chi* beforehand depends on the weight, and the
linker chooses `location_at`. There is none where the weight is in the law of the fields already. `own_location`: it
belongs to the hidden token's score, a table in mu_0; `ranked_location`: softmax of a linear score is the law of the
largest of chi* + Gumbel noise, an integral over the winner; `sampled_location`: the softmax of any other score, for
which chi* is sampled beside w.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import (
    HARD_LIMIT,
    LOCATION,
    M_K,
    Q_K,
    SHIFT_INVARIANT,
    Array,
    own_log_weight,
    own_slope,
    ranking_slope,
)
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.nodes import gauss_legendre

NORMAL_REACH = 8.5
SHORT_REACH = 5.5
GUMBEL_REACH = (4.0, 40.0)
TABLE_NODES = 2048
TABLE_REACH = 30.0
FEW_TOKENS = 4
SMALLEST_DEVIATION = 1e-7
PLACKETT_NODES = 10
WINNER_STEP, MOST_WINNERS = 0.5, 4000


class Weight(NamedTuple):
    """gbar at every sample, and d log gbar / d mu of every token."""

    value: Array
    slopes: Array


class FieldWeight(Protocol):
    """The weight at given order parameters."""

    def at(self, w_chi: Array, xi: Array) -> Weight:
        """gbar at the score fields; xi are the normals of chi* where it is sampled."""

    def value(self, w_chi: Array, xi: Array) -> Array:
        """gbar alone."""

    def width(self) -> float:
        """How far a score moves until the weight has changed."""

    def by_token(self, scores: Array, tokens: int, fineness: float) -> tuple[Array, Array] | None:
        """gbar / L as sum_c hidden(c, w_0) prod_l idle(c, w_l), each (c, scores); None where it is no such sum."""


def location_dimensions(setting: Setting) -> int:
    """Number of further normals that the weight needs."""
    return setting.tokens if LOCATION == "radial" or (LOCATION == "normalised" and not np.isinf(setting.nu)) else 0


LocationAt = Callable[[Array, Setting, bool], FieldWeight]
location_at: LocationAt | None = None


def location_of(order: Array, setting: Setting, blind: bool = SHIFT_INVARIANT) -> FieldWeight | None:
    """The weight at these order parameters, or None where it is in the law of the fields.

    `blind`: given the scores less their mean, all that a shift-invariant sigma sees of them.
    """
    return None if location_at is None else location_at(order, setting, blind)


def _conditional(order: Array) -> tuple[float, float]:
    """The factor of w in mu, and the variance of chi* given w."""
    m_k, q_k = float(order[M_K]), float(order[Q_K])
    return m_k / q_k, max(1.0 - m_k * m_k / q_k, SMALLEST_DEVIATION**2)


def _unseen(order: Array, setting: Setting, blind: bool) -> float:
    """Along (1, .., 1), which a shift-invariant sigma does not see, nothing is known of chi*."""
    m_k, q_k = float(order[M_K]), float(order[Q_K])
    return m_k * m_k / (q_k * setting.tokens) if blind else 0.0


def hard_location(order: Array, setting: Setting, blind: bool = SHIFT_INVARIANT) -> FieldWeight:
    """At infinite nu the token with the largest score, or the smallest, is the hidden one."""
    gain, spread = _conditional(order)
    return Ranked(HARD_LIMIT, gain, float(np.sqrt(spread)), np.inf)


def ranked_location(order: Array, setting: Setting, blind: bool = SHIFT_INVARIANT) -> FieldWeight:
    """The weight is the softmax of a linear score."""
    if np.isinf(setting.nu):
        return hard_location(order, setting, blind)
    gain, spread = _conditional(order)
    slope = float(ranking_slope(setting.nu))
    return Ranked(int(np.sign(slope)), gain, float(np.sqrt(spread)), abs(slope)) if slope else Even()


def own_location(order: Array, setting: Setting, blind: bool = SHIFT_INVARIANT) -> FieldWeight:
    """The weight belongs to the hidden token's score."""
    gain, spread = _conditional(order)
    return Own(gain, own_spline(float(np.sqrt(spread + _unseen(order, setting, blind))), setting.nu))


def sampled_location(order: Array, setting: Setting, blind: bool = SHIFT_INVARIANT) -> FieldWeight:
    """The weight is the softmax of any score."""
    gain, spread = _conditional(order)
    covariance = spread * np.eye(setting.tokens) + _unseen(order, setting, blind)
    return Sampled(gain, np.linalg.cholesky(covariance), setting.nu)


def limited_location(order: Array, setting: Setting, blind: bool = SHIFT_INVARIANT) -> FieldWeight:
    """The same, of a weight that has a limit at infinite nu."""
    return (hard_location if np.isinf(setting.nu) else sampled_location)(order, setting, blind)


class Even(NamedTuple):
    """No token is preferred."""

    def at(self, w_chi: Array, xi: Array) -> Weight:
        """gbar = 1."""
        return Weight(self.value(w_chi, xi), np.zeros(w_chi.shape))

    def value(self, w_chi: Array, xi: Array) -> Array:
        """gbar = 1."""
        return np.ones(w_chi.shape[1])

    def width(self) -> float:
        """It does not change."""
        return np.inf

    def by_token(self, scores: Array, tokens: int, fineness: float) -> tuple[Array, Array]:
        """One term, which is 1."""
        return np.ones((1, 1)), np.ones((1, 1))


class Spline(NamedTuple):
    """A function of one variable by quintics between the nodes of an even grid."""

    low: float
    step: float
    coefficients: Array

    @staticmethod
    def through(grid: Array, values: Array, slopes: Array, bends: Array) -> Spline:
        """With these values, slopes and second derivatives at the nodes."""
        step = float(grid[1] - grid[0])
        p, v, a = values, step * slopes, step * step * bends
        rise = p[1:] - p[:-1]
        (v0, v1), (a0, a1) = ((e[:-1], e[1:]) for e in (v, a))
        cubic = 10.0 * rise - 6.0 * v0 - 4.0 * v1 - 1.5 * a0 + 0.5 * a1
        quartic = -15.0 * rise + 8.0 * v0 + 7.0 * v1 + 1.5 * a0 - a1
        quintic = 6.0 * rise - 3.0 * (v0 + v1) - 0.5 * (a0 - a1)
        return Spline(float(grid[0]), step, np.stack([p[:-1], v0, 0.5 * a0, cubic, quartic, quintic], axis=1))

    def at(self, x: Array) -> tuple[Array, Array]:
        """The function and its slope; beyond the grid, those of its ends."""
        position = np.clip((x - self.low) / self.step, 0.0, len(self.coefficients) - 1e-9)
        i = position.astype(int)
        t = position - i
        c = np.moveaxis(self.coefficients[i], -1, 0)
        value = c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * c[5]))))
        slope = c[1] + t * (2.0 * c[2] + t * (3.0 * c[3] + t * (4.0 * c[4] + t * (5.0 * c[5]))))
        return value, slope / self.step


class Noise(NamedTuple):
    """Independent noise of every token: nodes of the winner's, weights of its density and of the density's slope.

    Without a spline it is normal, with the cdf and the density at hand.
    """

    nodes: Array
    weights: Array
    bends: Array
    deviation: float
    spline: Spline | None

    def cdf(self, x: Array) -> Array:
        """The cdf."""
        return self.spline.at(x)[0] if self.spline is not None else np.asarray(special.ndtr(x / self.deviation))

    def law(self, x: Array) -> tuple[Array, Array]:
        """The cdf and the density."""
        if self.spline is not None:
            return self.spline.at(x)
        u = x / self.deviation
        return special.ndtr(u), np.exp(-0.5 * u * u) / (np.sqrt(2.0 * np.pi) * self.deviation)


@lru_cache(maxsize=64)
def ranking_noise(deviation: float, slope: float, tokens: int) -> Noise:
    """deviation xi + Gumbel / slope: the largest of chi* with such noise has the law of softmax(slope chi*).

    At infinite slope it is the normal noise alone. The step is that of the smoother of the two laws; products of more
    cdfs are sharper. Beyond a few tokens the averages are on random nodes, and 1e-6 is enough.
    """
    few = tokens <= FEW_TOKENS
    rough, reach = (0.85 if few else 1.2) / np.sqrt(max(tokens, 3)), NORMAL_REACH if few else SHORT_REACH
    if np.isinf(slope):
        u = rough * np.arange(-int(reach / rough), int(reach / rough) + 1)
        weights = np.exp(-0.5 * u * u)
        weights /= weights.sum()
        return Noise(deviation * u, weights, -weights * u / deviation, deviation, None)
    if not np.isfinite(deviation):  # of order parameters that ran away
        nothing = np.full(1, np.nan)
        return Noise(nothing, nothing, nothing, deviation, None)
    low = -NORMAL_REACH * deviation - GUMBEL_REACH[0] / slope
    high = NORMAL_REACH * deviation + GUMBEL_REACH[1] / slope
    nodes = np.arange(low, high, max(rough * deviation, 0.25 / slope))
    _, weights, bends = _mixed_noise(nodes, deviation, slope)
    relevant = weights > 1e-18 * weights.max()
    total = weights.sum()
    grid = np.linspace(low, high, TABLE_NODES)
    spline = Spline.through(grid, *_mixed_noise(grid, deviation, slope))
    return Noise(nodes[relevant], weights[relevant] / total, bends[relevant] / total, deviation, spline)


def _mixed_noise(x: Array, deviation: float, slope: float) -> Array:
    """cdf, density and its slope of deviation xi + Gumbel / slope, the sharper of the two laws averaged over."""
    found = np.empty((3, x.size))
    sharp = slope * deviation > 1.0
    if sharp:
        g = np.arange(-GUMBEL_REACH[0], GUMBEL_REACH[1], 0.25)
        weights = np.exp(-g - np.exp(-g))
    else:
        g = np.arange(-NORMAL_REACH, NORMAL_REACH + 0.1, 0.25)
        weights = np.exp(-0.5 * g * g)
    weights /= weights.sum()
    for begin in range(0, x.size, 256):
        b = slice(begin, begin + 256)
        if sharp:
            u = (x[b, None] - g / slope) / deviation
            density = np.exp(-0.5 * u * u) / (np.sqrt(2.0 * np.pi) * deviation)
            parts = special.ndtr(u), density, -u / deviation * density
        else:
            fall = np.exp(np.minimum(-slope * (x[b, None] - deviation * g), 30.0))
            cdf = np.exp(-fall)
            density = slope * fall * cdf
            parts = cdf, density, slope * (fall - 1.0) * density
        found[:, b] = [weighted_sum(part, weights) for part in parts]
    return found


@lru_cache(maxsize=64)
def duel(deviation: float, slope: float) -> Spline:
    """Where there are two tokens: the chance E_t F(t + d) to win, in the lead d."""
    noise = ranking_noise(deviation, slope, 2)
    reach = float(noise.nodes[-1] - noise.nodes[0])
    grid = np.linspace(-reach, reach, TABLE_NODES)
    found = np.zeros((3, grid.size))
    for t, weight, bend in zip(noise.nodes, noise.weights, noise.bends, strict=True):
        cdf, density = noise.law(grid + t)
        found += np.stack([weight * cdf, weight * density, -bend * density])
    return Spline.through(grid, *found)


def normal_contest(ahead: Array) -> tuple[Array, Array]:
    """Normal noise and three tokens: the chance to win and its rates in the leads over the two others.

    The noises of the leads have variance 2 and correlation r = 1/2. The chance is that without correlation and the
    integral of their joint density over r (Plackett), here over arcsin r; one lead given, the other is normal.
    """
    x = ahead / np.sqrt(2.0)
    alone = special.ndtr(x)
    won = alone[0] * alone[1]
    squares, both = 0.5 * (x[0] * x[0] + x[1] * x[1]), x[0] * x[1]
    nodes, weights = gauss_legendre(PLACKETT_NODES)
    angles = (1.0 + nodes) * np.pi / 12.0
    for sine, weight in zip(np.sin(angles), weights / 24.0, strict=True):
        won += weight * np.exp((both * sine - squares) / (1.0 - sine * sine))
    beside = special.ndtr((2.0 * x[::-1] - x) / np.sqrt(3.0))
    return won, np.exp(-0.5 * x * x) / np.sqrt(4.0 * np.pi) * beside


class Ranked(NamedTuple):
    """The hidden token wins: gbar = L E_t prod_l F(t + x_0 - x_l), x = sign mu, t the winner's own noise."""

    sign: int
    gain: float
    deviation: float
    slope: float

    def at(self, w_chi: Array, xi: Array) -> Weight:
        """gbar and its slopes; those of the beaten tokens add up to minus the winner's."""
        ahead = self._ahead(w_chi)
        if len(ahead) == 1:
            won, lost = self._duel(ahead)
        elif len(ahead) == 2 and np.isinf(self.slope):
            won, lost = normal_contest(ahead / self.deviation)
            lost = lost / self.deviation
        else:
            won, lost = self._contest(ahead)
        slopes = np.concatenate([lost.sum(axis=0)[None], -lost]) / np.maximum(won, 1e-300)
        return Weight(len(w_chi) * won, self.sign * slopes)

    def value(self, w_chi: Array, xi: Array) -> Array:
        """gbar alone, which needs no densities."""
        ahead = self._ahead(w_chi)
        if len(ahead) == 2 and np.isinf(self.slope):
            return len(w_chi) * normal_contest(ahead / self.deviation)[0]
        noise = ranking_noise(self.deviation, self.slope, len(w_chi))
        won = np.zeros(ahead.shape[1])
        for t, weight in zip(noise.nodes, noise.weights, strict=True):
            won += weight * noise.cdf(ahead + t).prod(axis=0)
        return len(w_chi) * won

    def width(self) -> float:
        """The scale of the noise."""
        return self.deviation / max(abs(self.gain), 1e-300)

    def by_token(self, scores: Array, tokens: int, fineness: float) -> tuple[Array, Array] | None:
        """Along the winner's score: the density there of the hidden token's, and the chance of an idle one's below."""
        noise = ranking_noise(self.deviation, self.slope, FEW_TOKENS)  # with all of its reach
        ahead = self.sign * self.gain * scores
        step = WINNER_STEP * self.deviation / (fineness * np.sqrt(max(tokens, 3) / 3.0))
        low, high = ahead.min() + noise.nodes[0], ahead.max() + noise.nodes[-1]
        if not high - low < MOST_WINNERS * step:
            return None
        below, density = noise.law(np.arange(low, high + step, step)[:, None] - ahead)
        return step * density, below

    def _ahead(self, w_chi: Array) -> Array:
        return np.asarray(self.sign * self.gain * (w_chi[:1] - w_chi[1:]))

    def _duel(self, ahead: Array) -> tuple[Array, Array]:
        won, rate = duel(self.deviation, self.slope).at(ahead[0])
        return won, rate[None]

    def _contest(self, ahead: Array) -> tuple[Array, Array]:
        """The probability to win and its rates E_t f_l prod_{j != l} F_j in the leads over the others."""
        noise = ranking_noise(self.deviation, self.slope, len(ahead) + 1)
        won, lost = np.zeros(ahead.shape[1]), np.zeros(ahead.shape)
        for t, weight in zip(noise.nodes, noise.weights, strict=True):
            cdf, density = noise.law(ahead + t)
            product = weight * cdf.prod(axis=0)
            won += product
            lost += product * (density / np.maximum(cdf, 1e-300))
        return won, lost


@lru_cache(maxsize=64)
def own_spline(deviation: float, nu: float) -> Spline:
    """log E over xi of exp(own_log_weight(mu + deviation xi)), less its value without anything known: E[g] = 1."""
    return averaged_spline(partial(own_log_weight, nu=nu), deviation, _own_total(nu))


def _own_total(nu: float) -> float:
    """The logarithm of E[g] before it is made 1."""
    return float(log_moments(partial(own_log_weight, nu=nu), np.zeros(1), 1.0)[0, 0])


def averaged_spline(log_weight: Callable[[Array], Array], deviation: float, total: float = 0.0) -> Spline:
    """log E over xi of exp(log_weight(mu + deviation xi)) - total, in mu, and two derivatives by Stein."""
    grid = np.linspace(-TABLE_REACH, TABLE_REACH, TABLE_NODES)
    moments = log_moments(log_weight, grid, deviation)
    slope = moments[1] / deviation
    bend = moments[2] / deviation**2 - slope * slope
    return Spline.through(grid, moments[0] - total, slope, bend)


def log_moments(log_weight: Callable[[Array], Array], mu: Array, deviation: float) -> Array:
    """log E[h], E[h xi]/E[h] and E[h (xi^2 - 1)]/E[h], the step halved until they rest."""
    step, found = 0.2, np.full((3, mu.size), np.inf)
    while True:
        before, found = found, np.empty((3, mu.size))
        xi = step * np.arange(-int(20.0 / step), int(20.0 / step) + 1)
        base = -0.5 * xi * xi - 0.5 * np.log(2.0 * np.pi) + np.log(step)
        for begin in range(0, mu.size, 256):
            b = slice(begin, begin + 256)
            log = log_weight(mu[b, None] + deviation * xi) + base
            top = log.max(axis=1, keepdims=True)
            h = np.exp(log - top)
            total = h.sum(axis=1)
            found[:, b] = top[:, 0] + np.log(total), weighted_sum(h, xi) / total, weighted_sum(h, xi * xi - 1.0) / total
        step /= 2.0
        if np.abs(found - before).max() < 1e-11 * (1.0 + np.abs(found).max()) or step < 0.02:
            return found


class Own(NamedTuple):
    """The weight is a function of the hidden token's score alone."""

    gain: float
    log_weight: Spline

    def width(self) -> float:
        """A spline is smooth on the scale of chi*."""
        return 1.0 / max(abs(self.gain), 1e-300)

    def by_token(self, scores: Array, tokens: int, fineness: float) -> tuple[Array, Array]:
        """One term: the hidden token has all of the weight."""
        return self.value(scores[None], scores[:0])[None], np.ones((1, 1))

    def value(self, w_chi: Array, xi: Array) -> Array:
        """gbar alone."""
        return self.at(w_chi, xi).value

    def at(self, w_chi: Array, xi: Array) -> Weight:
        """gbar and its slope."""
        slopes = np.zeros(w_chi.shape)
        log, slopes[0] = self.log_weight.at(self.gain * w_chi[0])
        return Weight(np.exp(np.minimum(log, 700.0)), slopes)


class Sampled(NamedTuple):
    """chi* = mu + factor xi beside w; gbar is g itself."""

    gain: float
    factor: Array
    nu: float

    def width(self) -> float:
        """Not known here."""
        return np.inf

    def by_token(self, scores: Array, tokens: int, fineness: float) -> None:
        """Its softmax couples the tokens."""
        return None

    def value(self, w_chi: Array, xi: Array) -> Array:
        """gbar alone."""
        return self.at(w_chi, xi).value

    def at(self, w_chi: Array, xi: Array) -> Weight:
        """L times the softmax at token 0, and its logarithmic slopes in chi*."""
        return softmax_weight(self.gain * w_chi + product(self.factor, xi), self.nu)


def softmax_weight(stars: Array, nu: float) -> Weight:
    """g(0, chi*) = L softmax(own log-weights)_0 and its logarithmic slopes."""
    logs = own_log_weight(stars, nu)
    parts = np.exp(logs - logs.max(axis=0))
    parts /= parts.sum(axis=0)
    own = own_slope(stars, nu)
    slopes = -parts * own
    slopes[0] += own[0]
    return Weight(len(stars) * parts[0], slopes)


def softmax_teacher(stars: Array, setting: Setting) -> Array:
    """g(0, chi*) itself at the scores of the teacher; at nu = inf the scores must have the hidden one first."""
    return np.ones(stars.shape[1]) if np.isinf(setting.nu) else softmax_weight(stars, setting.nu).value


def own_teacher(stars: Array, setting: Setting) -> Array:
    """g(0, chi*) itself where it belongs to the hidden token's score."""
    return np.asarray(np.exp(own_log_weight(stars[0], setting.nu) - _own_total(setting.nu)))


teacher_weight: Callable[[Array, Setting], Array] = softmax_teacher
