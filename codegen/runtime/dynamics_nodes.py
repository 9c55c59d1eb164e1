"""Nodes for the averages of the training dynamics: normals that carry the scores of all tokens, and their weights.

Along a direction in which the integrand is a polynomial of degree four three Gauss-Hermite nodes are exact: the sum of
all scores, where sigma does not see it, and that of the teacher's, where the weight does not (of a square loss on
Gaussian labels: any other sees every shift through the values). Elsewhere there is a
lattice, or Sobol nodes in many dimensions; where all of it is a polynomial there are Gauss-Hermite nodes alone. Token 0
is the hidden one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.dynamics_kernel import FACTORISED, INTEGRAND_DEGREE, POLYNOMIAL, SCORE
from replicode.codegen.runtime.kernel import HARD_LIMIT, LOCATION, SHIFT_INVARIANT, Array, own_log_weight
from replicode.codegen.runtime.linear import product
from replicode.codegen.runtime.nodes import lattice, sobol

MOST_LATTICE = 7
SUM_EXACT = SHIFT_INVARIANT and POLYNOMIAL
EXACT_NODES, EXACT_WEIGHTS = np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)]), np.array([1.0, 4.0, 1.0]) / 6.0


class ScoreNodes(NamedTuple):
    """Normals u_i (one array (L, n) for each i) of every token, and weights that sum to one.

    Where the teacher's scores of idle tokens are not given, they have one normal less: theirs is u_1.
    """

    units: tuple[Array, ...]
    idle: tuple[Array, ...]
    weights: Array

    def blocks(self, size: int) -> Iterator[ScoreNodes]:
        """So many at a time, so that all that is computed of them stays in a cache."""
        for begin in range(0, self.weights.size, size):
            part = slice(begin, begin + size)
            units, idle = (tuple(u[:, part] for u in group) for group in (self.units, self.idle))
            yield ScoreNodes(units, idle, self.weights[part])


@lru_cache(maxsize=16)
def _spread_out(dim: int, exact: int, count: int, seed: int) -> tuple[Array, Array]:
    """Nodes in `dim` directions of a lattice, then in `exact` directions of Gauss-Hermite."""
    if dim == 0:
        nodes, weights = np.zeros((0, 1)), np.ones(1)
    elif INTEGRAND_DEGREE and dim <= MOST_LATTICE + 1:
        nodes, weights = _tensor(dim, INTEGRAND_DEGREE // 2 + 1)
    elif dim <= MOST_LATTICE:
        nodes, weights = lattice(dim, count, seed)
    else:
        nodes, weights = sobol(dim, int(np.ceil(np.log2(count))), seed)
    for _ in range(exact):
        further = np.repeat(EXACT_NODES, weights.size)
        nodes = np.r_[np.tile(nodes, len(EXACT_NODES)), further[None]]
        weights = np.outer(EXACT_WEIGHTS, weights).ravel()
    return nodes, weights


def _tensor(dim: int, count: int) -> tuple[Array, Array]:
    """Gauss-Hermite nodes in all directions, exact for polynomials of a degree below 2 count in each."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    places = np.indices((count,) * dim).reshape(dim, -1)
    return nodes[places], (weights / weights.sum())[places].prod(axis=0)


def _frame(direction: Array) -> Array:
    """An orthonormal frame whose last column is along a direction."""
    columns = np.c_[direction, np.eye(direction.size)[:, : direction.size - 1]]
    frame, _ = np.linalg.qr(columns)
    frame = frame * np.sign(frame[0, 0] * direction[0])
    return np.asarray(np.c_[frame[:, 1:], frame[:, :1]])


def dimensions(tokens: int, nu: float) -> int:
    """In how many directions nodes are spread out."""
    if FACTORISED:
        return 1
    if LOCATION == "gaussian":
        return tokens - SUM_EXACT
    if LOCATION == "own":
        return tokens + 1
    return 2 * tokens - SUM_EXACT - _weight_unmoved(nu)


def _weight_unmoved(nu: float) -> bool:
    """Whether a shift of all the teacher's scores is seen by polynomials alone."""
    return POLYNOMIAL and (LOCATION == "ranked" or bool(np.isinf(nu)))


def gaussian_nodes(tokens: int, nu: float, hidden: Array, idle: Array, count: int, seed: int) -> ScoreNodes:
    """All scores are Gaussian; the teacher's are not given."""
    dim, exact = dimensions(tokens, nu), int(SUM_EXACT)
    zeta, weights = _spread_out(dim, exact, count, seed)
    if SUM_EXACT:
        deviations = np.r_[hidden[0, SCORE], np.full(tokens - 1, idle[0, SCORE])]
        zeta = product(_frame(deviations.max() / deviations), zeta)
    return ScoreNodes((zeta,), (zeta,), weights)


def own_nodes(tokens: int, nu: float, hidden: Array, idle: Array, count: int, seed: int) -> ScoreNodes:
    """The weight belongs to the teacher's score of the hidden token, which is the last normal."""
    zeta, weights = _spread_out(tokens + 1, 0, count, seed)
    weights = weights * np.exp(own_log_weight(zeta[-1], nu))
    scores = zeta[:-1]
    stars = np.broadcast_to(zeta[-1], scores.shape)
    return ScoreNodes((stars, scores), (scores,), weights / weights.sum())


def coupled_nodes(tokens: int, nu: float, hidden: Array, idle: Array, count: int, seed: int) -> ScoreNodes:
    """The weight depends on the teacher's scores of all tokens: differences first, then the two sums."""
    unmoved = _weight_unmoved(nu)
    dim = dimensions(tokens, nu)
    zeta, weights = _spread_out(dim, int(SUM_EXACT) + int(unmoved), count, seed)
    frame, gaps = _frame(np.ones(tokens)), tokens - 1
    along_star, along_rest = _sums(zeta[2 * gaps], zeta[2 * gaps + 1], idle, unmoved)
    if np.isinf(nu):
        stars, chance = _winner_first(zeta[:gaps], tokens)
        weights = weights * chance
    else:
        stars = product(frame[:, :gaps], zeta[:gaps]) if gaps else np.zeros((1, weights.size))
    stars = stars + along_star / np.sqrt(tokens)
    rest = product(frame, np.r_[zeta[gaps : 2 * gaps], along_rest[None]])
    if not np.isinf(nu):
        weights = weights * _softmax_first(own_log_weight(stars, nu))
    return ScoreNodes((stars, rest), (stars, rest), weights / weights.sum())


def _sums(one: Array, two: Array, loadings: Array, unmoved: bool) -> tuple[Array, Array]:
    """The components of both normals along (1, .., 1), the last nodes being those that are exact.

    The score's sum is a combination of both. Where sigma sees it and the weight does not, it is node `one`, and what
    is orthogonal to it node `two`.
    """
    if SUM_EXACT or not unmoved:
        return one, two
    cosine, sine = loadings[:, SCORE] / np.hypot(*loadings[:, SCORE])
    return cosine * one + sine * two, sine * one - cosine * two


def _softmax_first(logs: Array) -> Array:
    """The softmax at token 0."""
    powers = np.exp(logs - logs.max(axis=0))
    return np.asarray(powers[0] / powers.sum(axis=0))


def _winner_first(zeta: Array, tokens: int) -> tuple[Array, Array]:
    """Scores less their mean where token 0 has the largest (or smallest), and the chance of that, factor by factor.

    The differences chi_0 - chi_l are combinations of normals, one more for each l, each of which is above a threshold
    that those before it set.
    """
    lower = np.linalg.cholesky(np.eye(tokens - 1) + 1.0) if tokens > 1 else np.zeros((0, 0))
    chance, above = np.ones(zeta.shape[1]), np.zeros_like(zeta)
    for i in range(tokens - 1):
        threshold = -(lower[i, :i, None] * above[:i]).sum(axis=0) / lower[i, i]
        tail = special.ndtr(-threshold)
        above[i] = -special.ndtri(tail * special.ndtr(zeta[i]))
        chance = chance * tail
    leads = product(lower, above) if tokens > 1 else zeta
    mean = leads.sum(axis=0) / tokens
    return HARD_LIMIT * np.r_[mean[None], mean - leads], chance


NodesAt = Callable[[int, float, Array, Array, int, int], ScoreNodes]
score_nodes: NodesAt = gaussian_nodes  # tokens, nu, loadings of the hidden and of an idle token, count, seed
