"""The averages of the training dynamics one token at a time, for sigma = a(x)/(c + sum_l b(x_l)) and any many tokens.

With N = sum_l a_l z_l and S = c + sum_l b_l every average is a sum of terms y^i N^j S^-p T, T a sum over the tokens.
S^-p is a Laplace integral over t, in which tokens are independent, as they are at the points of the location's weight
(dynamics_located.py): N^j is the coefficient of a power series, that of one token raised to the number of tokens. Given
its score a token's other fields are Gaussian and enter as polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import factorial
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.dynamics_averages import LEAST_NODES, TOTAL, Given, World
from replicode.codegen.runtime.dynamics_kernel import (
    FACTOR_TERMS,
    FIELDS,
    SCORE,
    VALUE,
    VALUE_STAR,
    SequenceKernel,
    label_weights,
    token_bodies,
)
from replicode.codegen.runtime.dynamics_located import NOT_GIVEN, TokenFactor, half_line, located
from replicode.codegen.runtime.kernel import ELEMENTWISE, Array, token_ratio
from replicode.codegen.runtime.nodes import COMPOSITE_NODES, gauss_legendre

SCORE_REACH, SCORE_NODES, SCORE_NODES_GIVEN, SCORE_PANELS = 9.0, 160, 40, 5
HERMITE = 3  # exact up to degree five; all fields together enter in the fourth
GRADED = np.array([-0.6, -0.15, 0.0, 0.15, 0.6])  # edges of panels around a kink, beyond which sums may be small
NEAR_KINK = 7.0  # deviations of the score given the teacher's
SLOW = 1.5  # scores that grow no faster with the star need no further nodes


def no_kinks(params: Array) -> Array:
    """Scores at which sigma has kinks, where it has none."""
    return np.zeros(0)


kinks_of: Callable[[Array], Array] = no_kinks
Row = tuple[int, int, int]  # body (0 is 1), power of y, power of N


def _rows(idle: bool) -> tuple[Row, ...]:
    """The averages of one token that the terms need; an idle one has no label."""
    needed: dict[tuple[int, int], int] = {}
    for _, _, label, output, _, body in FACTOR_TERMS:
        for one in {0, body + 1}:
            key = one, 0 if idle else label
            needed[key] = max(needed.get(key, 0), output)
    return tuple((*key, order) for key, most in needed.items() for order in range(most + 1))


class _Token(NamedTuple):
    """One token's fields on nodes of its star and its score, (stars, scores): means, weights of the scores; a, b, c."""

    means: Array
    density: Array
    top: Array
    bottom: Array
    offset: float
    covariance: Array
    factor: TokenFactor


Series = Mapping[tuple[int, int], list[Array]]  # of body and power of y: coefficients of powers of N, at all points


def factorised_averages(overlaps: Array, world: World, kernel: SequenceKernel, count: int, seed: int) -> Array:
    """Pulls, spreads, the risk and the loss of sequences of one length."""
    given, fine = Given.at(overlaps, world.nu), count / LEAST_NODES[1]
    place = located(world.nu, kernel.tokens, *_variation(given, world), fine)
    tokens = [
        _token(part, factor, world, fine, seed)
        for part, factor in ((given.hidden, place.hidden), (given.idle, place.idle))
    ]
    scale = 1.0 if ELEMENTWISE else max(float(token.bottom[0].max()) for token in tokens)
    t, weights = _laplace(tokens, scale, kernel.tokens, fine)
    hidden = _series(tokens[0], t / scale, scale, world)
    idle = _series(tokens[1], t / scale, scale, None)
    sums = _Sums(hidden, idle, kernel.tokens - 1)
    found, offset = np.zeros(TOTAL), tokens[0].offset / scale
    for average, coefficient, label, output, power, body in FACTOR_TERMS:
        part = sums.at(body + 1, label, output) * factorial(output)
        found[average] += coefficient * _integrated(part.reshape(-1, t.size), power, t, weights, offset)
    return found / float(sums.at(0, 0, 0).reshape(-1, t.size)[:, 0].sum())


def _integrated(part: Array, power: int, t: Array, weights: Array, offset: float) -> float:
    """The Laplace integral of S^-power beside an average; at t = 0, the first point, where there is no such power."""
    over_points = part.sum(axis=0)
    if ELEMENTWISE or not power:
        return float(over_points[0])
    return float((weights * np.exp(-t * offset) * t**power * over_points).sum() / factorial(power - 1))


def _variation(given: Given, world: World) -> tuple[Array, float]:
    """The stars around which scores cross a kink, and how fast the scores vary with the star."""
    loads = given.hidden[1]
    if len(loads) == 1:
        return np.zeros(0), 1.0
    along, across = loads[:, SCORE]
    kinks, steep = kinks_of(world.params), abs(along) / SLOW
    if not kinks.size or along == 0.0:
        return kinks, steep
    width = NEAR_KINK * across / along
    return np.concatenate([kinks / along + shift for shift in (-width, 0.0, width)]), steep


def _token(part: tuple[Array, Array, Array], factor: TokenFactor, world: World, fine: float, seed: int) -> _Token:
    mean, loads, covariance = part
    at_stars = np.repeat(mean[:, None], factor.stars.size, axis=1)
    if len(loads) > 1:
        at_stars = at_stars + np.multiply.outer(loads[0], factor.stars)
    u, density = _score_normals(at_stars[SCORE], loads[-1, SCORE], world, fine, seed, factor is NOT_GIVEN)
    means = at_stars[..., None] + loads[-1][:, None, None] * u
    *parts, offset = token_ratio(means[SCORE], world.params)
    rows = np.array([np.broadcast_to(part, means[SCORE].shape) for part in parts])
    where = TokenFactor(factor.stars, factor.weights)
    return _Token(means, density, rows[:2], rows[2:], float(np.asarray(offset).flat[0]), covariance, where)


def _score_normals(
    centres: Array, deviation: float, world: World, fine: float, seed: int, alone: bool
) -> tuple[Array, Array]:
    """Values of the normal behind a score, for every star, and the weights of its density: in panels between kinks."""
    kinks = kinks_of(world.params)
    if kinks.size and deviation > 0.0:
        crossing = ((kinks - centres[:, None]) / deviation)[..., None] + GRADED
        crossing = np.clip(crossing, -SCORE_REACH, SCORE_REACH).reshape(centres.size, -1)
        even = np.linspace(-SCORE_REACH, SCORE_REACH, 1 + int(SCORE_PANELS * fine**0.5))
        edges = np.sort(np.c_[crossing, np.broadcast_to(even, (centres.size, even.size))], axis=1)
        places, shares = gauss_legendre(COMPOSITE_NODES)
        half = 0.5 * np.diff(edges, axis=1)[..., None]
        u = (edges[:, :-1, None] + half * (1.0 + places)).reshape(centres.size, -1)
        steps = np.broadcast_to(half * shares, (*half.shape[:2], places.size)).reshape(u.shape)
    else:
        count = int(SCORE_NODES * fine**0.5 if alone else SCORE_NODES_GIVEN * fine**0.25 * max(1.0, deviation))
        step = 2.0 * SCORE_REACH / count
        line = step * (np.arange(count + 1) - 0.5 * count + (0.37 * seed) % 1.0)
        u = np.broadcast_to(line, (centres.size, line.size))
        steps = np.ones(u.shape)
    weights = steps * np.exp(-0.5 * u * u)
    return u, weights / weights.sum(axis=1, keepdims=True)


def _laplace(parts: list[_Token], scale: float, tokens: int, fine: float) -> tuple[Array, Array]:
    """Points t > 0, the first of them next to 0, with the weights of d log t; without sums one point, t = 0."""
    if ELEMENTWISE:
        return np.zeros(1), np.ones(1)
    offset = parts[0].offset
    largest = max(float(p.bottom[0].max()) for p in parts) * tokens + offset
    smallest = min(float(p.bottom[0].min()) for p in parts) + offset
    log_t, weights = half_line(np.log(largest / scale), np.log(max(smallest / scale, 1e-280)), fine)
    return np.exp(log_t), weights


def _series(token: _Token, t: Array, scale: float, world: World | None) -> Series:
    """One token's averages of T (a z)^j/j! y^i exp(-t b) at all points, those that are needed."""
    around, weights = _pair_nodes(token.covariance, world is not None)
    shape = token.density.shape
    fields = token.means.reshape(FIELDS, 1, -1) + around[..., None]
    a, da, b, db = (row.reshape(-1) for row in (*(token.top / scale), *(token.bottom / scale)))
    of_label, own = (0.0, 0.0) if world is None else label_weights(world.noise)
    y = of_label * fields[VALUE_STAR]
    weighed = np.multiply.outer(weights, token.density.reshape(-1))
    labels = [weighed, weighed * y, weighed * (y * y + own * own)]
    bodies = (np.ones(()), *token_bodies(a, da, b, db, *fields))
    powers = [np.ones(())]
    for order in range(1, 1 + max(row[2] for row in IDLE_ROWS)):
        powers.append(powers[-1] * (a * fields[VALUE] / order))
    rows = HIDDEN_ROWS if world is not None else IDLE_ROWS
    beside = np.empty((len(rows), *shape))
    for place, (body, label, order) in zip(beside, rows, strict=True):
        if order == 0:
            product = bodies[body] * labels[label]
        place[:] = (product * powers[order]).sum(axis=0).reshape(shape)
    return _by_name(rows, _at_points(beside, token, t))


def _at_points(beside: Array, token: _Token, t: Array) -> Array:
    """(rows, points of the location times t): averages over the scores with exp(-t b), then over the stars."""
    if ELEMENTWISE:
        return np.asarray(beside.sum(axis=2) @ token.factor.weights.T)
    tilted = np.exp(-token.bottom[0][..., None] * t)
    found = np.matmul(beside.transpose(1, 0, 2), tilted)
    return np.tensordot(token.factor.weights, found, 1).transpose(1, 0, 2).reshape(len(beside), -1)


def _by_name(rows: tuple[Row, ...], values: Array) -> Series:
    found: dict[tuple[int, int], list[Array]] = {}
    for (body, label, _), value in zip(rows, values, strict=True):
        found.setdefault((body, label), []).append(value)
    return found


def _pair_nodes(covariance: Array, labelled: bool) -> tuple[Array, Array]:
    """Nodes of what is left of the fields given the score, exact for polynomials.

    chi* enters linearly, by its mean, and z* of an idle token does so too.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(HERMITE)
    weights = weights / weights.sum()
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    loads = np.zeros((2, FIELDS))
    if deviations[VALUE] > 0.0:  # where it is next to nothing rounding leaves no covariance to it
        loads[0] = np.clip(covariance[VALUE] / deviations[VALUE], -deviations, deviations)
    if not labelled:
        return np.multiply.outer(loads[0], nodes), weights
    rest = covariance - np.multiply.outer(loads[0], loads[0])
    left = np.sqrt(max(rest[VALUE_STAR, VALUE_STAR], 0.0))
    if left > 1e-8:
        loads[1] = rest[VALUE_STAR] / left
    first, second = (g.ravel() for g in np.meshgrid(nodes, nodes))
    return np.einsum("if,in->fn", loads, np.stack([first, second])), np.multiply.outer(weights, weights).ravel()


def _coefficient(one: list[Array], two: list[Array], order: int) -> Array:
    """A coefficient of the product of two power series."""
    return np.asarray(sum(one[i] * two[order - i] for i in range(order + 1)))


class _Sums:
    """Coefficients of y^i T over all tokens: T at the hidden one, or at an idle one."""

    def __init__(self, hidden: Series, idle: Series, others: int) -> None:
        self.hidden, self.idle, self.others = hidden, idle, others
        plain = idle[0, 0]
        one = [np.ones_like(plain[0]), *(np.zeros_like(p) for p in plain[1:])]
        self.one_less, self.all_idle = one, one
        for _ in range(others):
            product = [_coefficient(self.all_idle, plain, order) for order in range(len(plain))]
            self.one_less, self.all_idle = self.all_idle, product

    def at(self, body: int, label: int, order: int) -> Array:
        """The coefficient of N^order at all points."""
        found = _coefficient(self.hidden[body, label], self.all_idle, order)
        if body == 0 or self.others == 0:
            return found
        beside = [_coefficient(self.idle[body, 0], self.one_less, i) for i in range(order + 1)]
        return np.asarray(found + self.others * _coefficient(self.hidden[0, label], beside, order))


HIDDEN_ROWS, IDLE_ROWS = _rows(False), _rows(True)
