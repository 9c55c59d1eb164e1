"""The weight of the hidden location as a factor of every token: averages factorise over the tokens at given points.

A weight that is normalised over the locations, h_0/sum_l h_l, is an integral over log s of s h_0 exp(-s sum_l h_l): at
every s the tokens are independent. At nu = inf the hidden token has the largest score, which is the point; all others
are below it. A weight of the hidden token's own score is a single point, and one in the law of the fields is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import HARD_LIMIT, Array, own_log_weight
from replicode.codegen.runtime.nodes import COMPOSITE_NODES, gauss_legendre, gauss_panels, panel_integrals

STAR_REACH, STAR_STEP, STAR_PANEL = 8.5, 0.2, 2.0
SMALLEST_LARGEST = 5.5  # no token of a sequence of two is above minus this, but once in 1e15
LOG_STEP, LOG_LEFT, LOG_RIGHT = 0.3, 3.7, 3.7  # exp(exp(3.7)) is 4e17
HIGH = 50.0  # exp(-exp(HIGH)) is 0


class TokenFactor(NamedTuple):
    """Normals behind a token's teacher score, and the weights that it has there at every point: (points, stars)."""

    stars: Array
    weights: Array


class Located(NamedTuple):
    """The factors of the hidden token and of an idle one; weights of the points are in the former."""

    hidden: TokenFactor
    idle: TokenFactor


NOT_GIVEN = TokenFactor(np.zeros(1), np.ones((1, 1)))


def unlocated(nu: float, tokens: int, sharp: Array, steep: float, fine: float) -> Located:
    """The weight is in the law of the fields."""
    return Located(NOT_GIVEN, NOT_GIVEN)


def own_located(nu: float, tokens: int, sharp: Array, steep: float, fine: float) -> Located:
    """The weight is that of the hidden token's own star."""
    stars, density = _star_nodes(sharp, steep, fine)
    logs = own_log_weight(stars, nu)
    weights = density * np.exp(logs - logs.max())
    return Located(TokenFactor(stars, (weights / weights.sum())[None]), NOT_GIVEN)


def coupled_located(nu: float, tokens: int, sharp: Array, steep: float, fine: float) -> Located:
    """The weight is normalised over the locations."""
    if np.isinf(nu):
        return _winner(sharp, steep, fine)
    stars, density = _star_nodes(sharp, steep, fine)
    logs = own_log_weight(stars, nu)
    low = logs[np.abs(stars) < SMALLEST_LARGEST].min()
    log_s, steps = half_line(logs.max() + np.log(tokens), low, fine)
    powers = np.minimum(log_s[:, None] + logs, HIGH)
    idle = np.exp(-np.exp(powers))
    hidden = steps[:, None] * np.exp(powers) * idle
    return Located(TokenFactor(stars, hidden * density), TokenFactor(stars, idle * density))


LocatedAt = Callable[[float, int, Array, float, float], Located]
# nu, tokens, stars at which the rest varies fast, how fast it varies elsewhere (1: as a normal density), nodes
located: LocatedAt = unlocated


def half_line(largest: float, smallest: float, fine: float) -> tuple[Array, Array]:
    """log s and weights of d log s, for s^p exp(-s S) with log S between two numbers; p > 0.

    log s = x - exp(-x) less the larger of them: evenly spaced x fall off doubly exponentially on both sides.
    """
    step = LOG_STEP / fine**0.25
    x = np.arange(-LOG_LEFT, largest - smallest + LOG_RIGHT + step, step)
    return x - np.exp(-x) - largest, step * (1.0 + np.exp(-x))


def _star_nodes(sharp: Array, steep: float, fine: float) -> tuple[Array, Array]:
    """Values of a normal with the weights of its density: evenly spaced, or in panels where something is sharp."""
    if sharp.size:
        stars, steps = gauss_panels(_star_edges(sharp, steep, fine))
    else:
        count = int(STAR_REACH / STAR_STEP * fine**0.25 * max(1.0, steep))
        stars = np.linspace(-STAR_REACH, STAR_REACH, 2 * count + 1)
        steps = np.ones(stars.size)
    weights = steps * np.exp(-0.5 * stars * stars)
    return stars, weights / weights.sum()


def _star_edges(sharp: Array, steep: float, fine: float) -> Array:
    even = np.linspace(-STAR_REACH, STAR_REACH, 1 + int(2 * STAR_REACH / STAR_PANEL * fine**0.25 * max(1.0, steep)))
    return np.unique(np.r_[even, sharp[np.abs(sharp) < STAR_REACH]])


def _winner(sharp: Array, steep: float, fine: float) -> Located:
    """The star of the hidden token is the point, and the others are below; above where the smallest is hidden."""
    edges = _star_edges(sharp, steep, fine)
    stars, steps = gauss_panels(edges)
    density = np.exp(-0.5 * stars * stars) / np.sqrt(2.0 * np.pi)
    below = _integrals_up_to(edges) * density
    return Located(TokenFactor(HARD_LIMIT * stars, np.diag(steps * density)), TokenFactor(HARD_LIMIT * stars, below))


def _integrals_up_to(edges: Array) -> Array:
    """Weights at the nodes of `gauss_panels` of the integrals from the first edge to each of the nodes."""
    weights, half = gauss_legendre(COMPOSITE_NODES)[1], 0.5 * np.diff(edges)
    panel = np.arange(half.size)
    before = (panel[:, None] > panel)[:, None, :, None] * (half[:, None] * weights)
    found = np.broadcast_to(before, (half.size, COMPOSITE_NODES, *before.shape[2:])).copy()
    found[panel, :, panel] = half[:, None, None] * panel_integrals()
    return found.reshape(half.size * COMPOSITE_NODES, -1)
