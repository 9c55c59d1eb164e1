"""The averages of the training dynamics one token at a time, for sigma = a(x)/(c + sum_l b(x_l)) and any many tokens.

With N = sum_l a_l z_l and S = c + sum_l b_l every average is a sum of terms y^i N^j S^-p T, T a sum over the tokens.
S^-p is a Laplace integral over t, in which tokens are independent: N^j is the coefficient of a power series, that of
one token raised to the number of tokens. Given its score a token's other fields are Gaussian and enter as polynomials.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

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
from replicode.codegen.runtime.kernel import ELEMENTWISE, Array, token_ratio

ORDERS, LABELS = 5, 3  # powers of N up to 4, of y up to 2
SCORE_NODES, SCORE_REACH = 160, 9.5
LOG_STEP, LOG_DEPTH, LOG_REACH = 0.4, 38.0, 6.0
HERMITE = 4  # exact up to degree seven


class TokenSeries(NamedTuple):
    """Coefficients of powers of N, (bodies, labels, orders, t); body 0 is 1, labels are powers of y."""

    plain: Array
    bodies: Array


def factorised_averages(overlaps: Array, world: World, kernel: SequenceKernel, count: int, seed: int) -> Array:
    """Pulls, spreads, the risk and the loss of sequences of one length."""
    given, fine = Given.at(overlaps, world.nu), count / LEAST_NODES[1]
    u = _score_normals(fine, seed)
    tops, bottoms, offset = zip(*(_ratio(part, u, world) for part in (given.hidden, given.idle)), strict=True)
    scale = 1.0 if ELEMENTWISE else max(float(b[0].max()) for b in bottoms)
    t, weights = _laplace(bottoms, offset[0], scale, kernel.tokens, fine)
    hidden, idle = (
        _series(part, u, top / scale, bottom / scale, t, world if first else None)
        for part, top, bottom, first in zip((given.hidden, given.idle), tops, bottoms, (True, False), strict=True)
    )
    sums = _over_tokens(hidden, idle, kernel.tokens - 1)
    found = np.zeros(TOTAL)
    for average, coefficient, label, output, power, body in FACTOR_TERMS:
        part = sums[body + 1, label, output] * special.factorial(output)
        found[average] += coefficient * _integrated(part, power, t, weights, offset[0] / scale)
    return found


def _integrated(part: Array, power: int, t: Array, weights: Array, offset: float) -> float:
    """The Laplace integral of S^-power beside an average; at t = 0, the first point, where there is no such power."""
    if ELEMENTWISE or not power:
        return float(part[0])
    return float((weights * np.exp(-t * offset) * t**power * part).sum() / special.factorial(power - 1))


def _score_normals(fine: float, seed: int) -> Array:
    """Evenly spaced values of the normal behind a score."""
    count = int(SCORE_NODES * fine**0.5)
    step = 2.0 * SCORE_REACH / count
    return step * (np.arange(count + 1) - 0.5 * count + (0.37 * seed) % 1.0)


def _ratio(part: tuple[Array, Array, Array], u: Array, world: World) -> tuple[Array, Array, float]:
    """(a, a') and (b, b') at the scores, and c."""
    scores = part[0][SCORE] + part[1][0, SCORE] * u
    *parts, offset = token_ratio(scores, world.params)
    rows = np.array([np.broadcast_to(part, scores.shape) for part in parts])
    return rows[:2], rows[2:], float(np.asarray(offset).flat[0])


def _laplace(bottoms: tuple[Array, ...], offset: float, scale: float, tokens: int, fine: float) -> tuple[Array, Array]:
    """Points t > 0 with the weights of d log t; without sums one point, which does not matter.

    t is large enough for the smallest sums that occur and small enough for the largest.
    """
    if ELEMENTWISE:
        return np.zeros(1), np.ones(1)
    middle = len(bottoms[0][0]) // 2
    largest = max(float(b[0][middle:].max()) for b in bottoms) * tokens + offset
    smallest = min(float(b[0].min()) for b in bottoms) + offset
    low, high = -LOG_DEPTH - np.log(max(largest / scale, 1.0)), LOG_REACH - np.log(max(smallest / scale, 1e-280))
    step = LOG_STEP / fine**0.25
    logs = np.arange(low, high + step, step)
    return np.exp(logs), np.full(logs.size, step)


def _series(
    part: tuple[Array, Array, Array], u: Array, top: Array, bottom: Array, t: Array, world: World | None
) -> TokenSeries:
    """One token's averages of T (a z)^j/j! y^i exp(-t b), for every t."""
    mean, loadings, covariance = part
    around, weights = _pair_nodes(covariance)
    fields = mean[:, None, None] + loadings[0][:, None, None] * u[:, None] + around[:, None, :]
    of_label, own = (0.0, 0.0) if world is None else label_weights(world.noise)
    y = of_label * fields[VALUE_STAR]
    labels = [np.ones_like(y), y, y * y + own * own][: LABELS if world is not None else 1]
    a, da, b, db = (row[:, None] for row in (*top, *bottom))
    bodies = token_bodies(a, da, b, db, *fields)
    bodies = (np.ones_like(y), *(np.broadcast_to(e, y.shape) for e in bodies))
    output, steps = a * fields[VALUE], [np.ones_like(y)]
    for order in range(1, ORDERS):
        steps.append(steps[-1] * output / order)
    density = np.exp(-0.5 * u * u)
    density = density / density.sum()
    beside = np.array([[[((e * la * st) @ weights) * density for st in steps] for la in labels] for e in bodies])
    tilted = np.exp(-np.multiply.outer(t, bottom[0]))
    found = np.einsum("blou,tu->blot", beside, tilted)
    return TokenSeries(found[0], found)


def _pair_nodes(covariance: Array) -> tuple[Array, Array]:
    """Nodes of what is left of the fields given the score, exact for polynomials; chi* enters linearly, by its mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(HERMITE)
    first, second = (g.ravel() for g in np.meshgrid(nodes, nodes))
    both = np.multiply.outer(weights, weights).ravel() / weights.sum() ** 2
    deviation = np.sqrt(max(covariance[VALUE, VALUE], 0.0))
    loads = np.zeros((2, FIELDS))
    if deviation > 0.0:
        loads[0] = covariance[VALUE] / deviation
    rest = covariance - np.multiply.outer(loads[0], loads[0])
    left = np.sqrt(max(rest[VALUE_STAR, VALUE_STAR], 0.0))
    if left > 1e-8:
        loads[1] = rest[VALUE_STAR] / left
    return np.einsum("if,in->fn", loads, np.stack([first, second])), both


def _times(one: Array, two: Array) -> Array:
    """The product of two power series along the axis before the last."""
    shape = np.broadcast_shapes(one[..., 0, :].shape, two[..., 0, :].shape)
    found = np.zeros((*shape[:-1], ORDERS, shape[-1]))
    for i in range(ORDERS):
        found[..., i:, :] += one[..., i : i + 1, :] * two[..., : ORDERS - i, :]
    return found


def _over_tokens(hidden: TokenSeries, idle: TokenSeries, others: int) -> Array:
    """The series of y^i T over all tokens, (1 + bodies, labels, orders, t): T at the hidden one, or at an idle one."""
    plain = idle.plain[0]
    one_less, all_idle = np.zeros_like(plain), np.zeros_like(plain)
    all_idle[0] = 1.0
    for _ in range(others):
        one_less, all_idle = all_idle, _times(all_idle, plain)
    found = _times(hidden.bodies, all_idle)
    if others:
        beside = _times(idle.bodies[1:, 0], one_less)
        found[1:] += others * _times(hidden.plain[None], beside[:, None])
    return found
