"""The averages of the training dynamics: pulls, spreads and the risk at given overlaps, over all tokens at once.

Given the scores of a sequence its other fields are Gaussian: the residual r and the slopes f_l of the output are
combinations of them, whose conditional means and covariances go into what is derived by Isserlis' theorem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.dynamics_kernel import (
    FIELDS,
    OVERLAP_NAMES,
    SCORE,
    SEQUENCES,
    VALUE,
    VALUE_STAR,
    SequenceKernel,
    hidden_given,
    idle_given,
    label_weights,
    loss_given,
    pull_given,
    risk_given,
    spread_given,
)
from replicode.codegen.runtime.dynamics_nodes import ScoreNodes, dimensions, score_nodes
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.linear import weighted_sum

LEAST_NODES = {0: 1, 1: 60, 2: 250, 3: 1500, 4: 6000}
MANY = 2**13
BLOCK = 8192
LEAST_NORM = 1e-12
FAR_VALUE = 20.0
PULLS, SPREADS, TOTAL = 8, 3, 13


class World(NamedTuple):
    """What the averages depend on besides the overlaps: signal, noise and the activation's parameters."""

    nu: float
    noise: float
    params: Array


class Given(NamedTuple):
    """The hidden and an idle token given their scores: means, loadings of the normals, covariances of the rest."""

    hidden: tuple[Array, Array, Array]
    idle: tuple[Array, Array, Array]

    @staticmethod
    def at(overlaps: Array, nu: float) -> Given:
        """At overlaps whose scores have some variance, however small."""
        kept = within(overlaps)
        parts = [_with_rest(*found) for found in (hidden_given(kept, nu), idle_given(kept))]
        return Given(parts[0], parts[1])

    def covariances(self, tokens: int, one: int, two: int) -> Array:
        """The covariance of two fields at every token, as a column."""
        idle = np.full(tokens - 1, self.idle[2][one, two])
        return np.asarray(np.r_[self.hidden[2][one, two], idle][:, None])

    def means(self, nodes: ScoreNodes) -> Array:
        """The conditional means of all fields: (4, L, n)."""
        hidden = _means(*self.hidden[:2], [u[:1] for u in nodes.units])
        idle = _means(*self.idle[:2], [u[1:] for u in nodes.idle])
        return np.concatenate([hidden, idle], axis=1)


SCORE_M, SCORE_Q = OVERLAP_NAMES.index("m_k"), OVERLAP_NAMES.index("q_k")


def within(overlaps: Array) -> Array:
    """The overlaps with a squared norm of k that is positive, and no less than its overlap with the teacher allows."""
    kept = np.array(overlaps, dtype=float)
    kept[SCORE_Q] = max(kept[SCORE_Q], kept[SCORE_M] ** 2 * (1.0 + 1e-14), LEAST_NORM)
    return kept


def _with_rest(mean: Array, covariance: Array, loadings: Array) -> tuple[Array, Array, Array]:
    return mean, loadings, covariance - np.einsum("gi,gj->ij", loadings, loadings)


def _means(mean: Array, loadings: Array, units: list[Array]) -> Array:
    total = np.empty((mean.size, *units[0].shape))
    total[:] = mean[:, None, None]
    for row, unit in zip(loadings, units, strict=True):
        total += row[:, None, None] * unit
    return total


def least_count(tokens: int, nu: float) -> int:
    """Nodes to begin with."""
    return LEAST_NODES.get(dimensions(tokens, nu), MANY)


def sequence_averages(overlaps: Array, world: World, kernel: SequenceKernel, count: int, seed: int) -> Array:
    """Pulls, spreads, the risk and the loss of sequences of one length."""
    given = Given.at(overlaps, world.nu)
    nodes = score_nodes(kernel.tokens, world.nu, given.hidden[1], given.idle[1], count, seed)
    return sum((_block_averages(given, part, world, kernel) for part in nodes.blocks(BLOCK)), start=np.zeros(TOTAL))


def _block_averages(given: Given, nodes: ScoreNodes, world: World, kernel: SequenceKernel) -> Array:
    tokens = kernel.tokens
    means = given.means(nodes)
    sigmas, jacobian = kernel.attention(means[SCORE], world.params)
    of_label, own_noise = label_weights(world.noise)
    value_variance = given.covariances(tokens, VALUE, VALUE)
    with_r = [-sigmas * given.covariances(tokens, VALUE, field) for field in range(FIELDS)]
    for field in range(FIELDS):
        with_r[field][0] += of_label * given.hidden[2][VALUE_STAR, field]
    mean_r = of_label * means[VALUE_STAR, 0] - (sigmas * means[VALUE]).sum(axis=0)
    variance_r = own_noise**2 + of_label * with_r[VALUE_STAR][0] - (sigmas * with_r[VALUE]).sum(axis=0)
    k, v = slopes_given(means, sigmas, jacobian, value_variance)
    of_k, of_v = np.einsum("ljn,ln->jn", jacobian, with_r[VALUE]), np.zeros_like(sigmas)  # covariances with r
    pulls = [
        pull_given(mean_r, s.mean, means[field], of_s, with_r[field], s.own * given.covariances(tokens, VALUE, field))
        for s, of_s in ((k, of_k), (v, of_v))
        for field in range(FIELDS)
    ]
    spreads = [
        spread_given(mean_r, one.mean, two.mean, variance_r, of_one, of_two, two.variance)
        for one, of_one, two, of_two in ((k, of_k, k, of_k), (k, of_k, v, of_v), (v, of_v, v, of_v))
    ]
    sums = [each.sum(axis=0) for each in (*pulls, *spreads)]
    ends = risk_given(mean_r, variance_r), loss_given(mean_r, variance_r)
    return weighted_sum(np.array([*sums, *ends]), nodes.weights)


class Slopes(NamedTuple):
    """The slopes of the output in a student's fields: means, rates in their own value, variances."""

    mean: Array
    own: Array
    variance: Array


def slopes_given(means: Array, sigmas: Array, jacobian: Array, value_variance: Array) -> tuple[Slopes, Slopes]:
    """Those in the scores and in the values, given the scores."""
    of_scores = Slopes(
        np.einsum("ljn,ln->jn", jacobian, means[VALUE]),
        np.einsum("jjn->jn", jacobian),
        np.einsum("ljn,l->jn", jacobian * jacobian, value_variance[:, 0]),
    )
    return of_scores, Slopes(sigmas, np.zeros_like(sigmas), np.zeros_like(sigmas))


averages_of_length: Callable[[Array, World, SequenceKernel, int, int], Array] = sequence_averages


class Averages(NamedTuple):
    """Pulls and spreads in their orders, the risk, and the average loss."""

    pulls: Array
    spreads: Array
    risk: float
    loss: float


def averages_at(overlaps: Array, world: World, level: int, seed: int = 1) -> Averages:
    """The averages over all lengths, on nodes doubled `level` times."""
    total = np.zeros(TOTAL)
    for kernel in SEQUENCES:
        count = least_count(kernel.tokens, world.nu) * 2**level
        total += kernel.share * averages_of_length(overlaps, world, kernel, count, seed)
    return Averages(total[:PULLS], total[PULLS : PULLS + SPREADS], *map(float, total[PULLS + SPREADS :]))


def square_value(m_k: float, q_k: float, world: World) -> float:
    """The m_v of the v = m_v v* that has the least loss beside these scores, where that is a square."""
    pull = averages_at(np.r_[m_k, q_k, np.zeros(5)], world, 0).pulls[5]  # of v along v* at v = 0
    losses = [averages_at(np.r_[m_k, q_k, 0.0, q, np.zeros(3)], world, 0).loss for q in (0.0, 1.0)]
    square = 2.0 * (losses[1] - losses[0])
    return float(pull / square) if square > 0.0 else 0.0


def searched_value(m_k: float, q_k: float, world: World) -> float:
    """The same of any loss, within reach."""
    from scipy.optimize import minimize_scalar

    def loss(m_v: float) -> float:
        return averages_at(np.r_[m_k, q_k, m_v, m_v * m_v, np.zeros(3)], world, 0).loss

    return float(minimize_scalar(loss, bounds=(-FAR_VALUE, FAR_VALUE), method="bounded", options={"xatol": 1e-6}).x)


best_value: Callable[[float, float, World], float] = square_value
