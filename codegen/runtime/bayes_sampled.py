"""The Bayes channel of weights that couple many tokens' scores, on scrambled nodes over scores, values and label.

Given a node every token may be the hidden one, with the chance that its scores give it: the sum over all of them is
taken, so that no node has a weight. Averages over labels given the scores, as on lattices, cost a hundred times as much
a node and leave most of the scatter, which is that of the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.bayes_kernel import label_log_density, label_slope, label_variance
from replicode.codegen.runtime.bayes_location import Weights, combined, node_weights, one_token_tables
from replicode.codegen.runtime.bayes_rates import KEY_SCRAMBLES, BayesOverlaps
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.nodes import sobol

SAMPLED_LOG2 = 8
SAMPLED_GROWTH = 5.0
SAMPLED_COARSEST = 0.6  # the fineness of the first level, and that of the weights at any
SAMPLED_BLOCK = 1024
SAMPLED_SMALLEST = 1e-280
CHANCE_STEP, CHANCE_REACH = 0.2, 8.0
CHANCE_TRIED, CHANCE_VARIES = 64, 1e-6


class SampledNodes(NamedTuple):
    """Standard normals of scores and values, (nodes, tokens) each, and of the label."""

    scores: Array
    values: Array
    label: Array

    def blocks(self) -> Iterator[SampledNodes]:
        """A few at a time."""
        for begin in range(0, self.label.size, SAMPLED_BLOCK):
            yield SampledNodes(*(part[begin : begin + SAMPLED_BLOCK] for part in self))


@lru_cache(maxsize=2 * KEY_SCRAMBLES)
def sampled_nodes(tokens: int, log2_count: int, seed: int) -> SampledNodes:
    """Scrambled Sobol nodes; the label and the scores come first, where they are finest."""
    nodes, _ = sobol(2 * tokens + 1, log2_count, seed)
    scores, values = (np.ascontiguousarray(part.T) for part in (nodes[1 : tokens + 1], nodes[tokens + 1 :]))
    return SampledNodes(scores, values, nodes[0])


def sampled_averages(nu: float, noise: float, at: BayesOverlaps, tokens: int, fineness: float, labelled: bool) -> Array:
    """The five averages of one length, a row for each set of nodes; without a label the first three are 0."""
    log2 = SAMPLED_LOG2 + round(SAMPLED_GROWTH * np.log2(fineness / SAMPLED_COARSEST))
    variance = float(label_variance(at.V_v, noise))
    known = location_chance(nu, at, tokens)
    found = []
    for seed in range(KEY_SCRAMBLES):
        total, mass = np.zeros(5), 0.0
        for nodes in sampled_nodes(tokens, log2, seed).blocks():
            weights = node_weights(nodes.scores, nu, at.V_k, SAMPLED_COARSEST, float(np.sqrt(at.q_k)))
            total[3:] += _unlabelled(weights)
            total[:3] += _labelled(nodes, weights, at, variance) if labelled else 0.0
            mass += float(weights.value.mean(axis=1).sum())
        total /= mass  # E[g] = 1
        total[3] = total[3] if known is None else known
        total[2] -= np.log(mass / 2.0**log2) if labelled else 0.0
        found.append(total)
    return np.array(found)


def location_chance(nu: float, at: BayesOverlaps, tokens: int) -> float | None:
    """E P_eps without nodes over all tokens, where sum_e gbar_e = L: it then is E[gbar_0^2]/L, a product over tokens.

    gbar is an integral over t of one-token functions, and its square one over t and t'. None where the sum varies.
    """
    u = CHANCE_STEP * np.arange(-int(CHANCE_REACH / CHANCE_STEP), int(CHANCE_REACH / CHANCE_STEP) + 1)
    density = np.exp(-0.5 * u * u)
    one = one_token_tables(np.sqrt(at.q_k) * u, nu, at.V_k, tokens, 1.0)
    sums = combined(one, np.random.default_rng(0).integers(len(u) // 4, 3 * len(u) // 4, (CHANCE_TRIED, tokens))).value
    if np.ptp(sums.sum(axis=1)) > CHANCE_VARIES * float(sums.sum(axis=1).mean()):
        return None
    first, others = (f.T @ (f * (density / density.sum())[:, None]) for f in (one.marked, one.plain))
    square = float(one.weights @ (first * others ** (tokens - 1)) @ one.weights)
    return square * tokens / float(sums.sum(axis=1).mean()) ** 2


def _unlabelled(weights: Weights) -> Array:
    """Sums over nodes of sum_e gbar_e^2 / sum gbar and of |grad gbar_e|^2 / gbar_e, over the tokens."""
    value, tokens = weights.value, weights.value.shape[1]
    location = (value**2).sum(axis=1) / value.sum(axis=1)
    revealed = ((weights.gradient**2).sum(axis=2) / np.maximum(value, SAMPLED_SMALLEST)).sum(axis=1)
    return np.array([location.sum() / tokens, revealed.sum() / tokens])


def _labelled(nodes: SampledNodes, weights: Weights, at: BayesOverlaps, variance: float) -> Array:
    """Sums over nodes of |grad log Z|^2 for k and v and of log Z, every token e in turn being the hidden one."""
    value, tokens = weights.value, nodes.scores.shape[1]
    w_z = np.sqrt(at.q_v) * nodes.values
    y = w_z + np.sqrt(variance) * nodes.label[:, None]
    gaps = y[:, :, None] - w_z[:, None, :]  # (node, hidden token, token)
    log = label_log_density(gaps, variance)
    top = log.max(axis=2, keepdims=True)
    density = np.exp(log - top)
    evidence = density * value[:, None, :]
    total = np.maximum(evidence.sum(axis=2), SAMPLED_SMALLEST)
    chance = value / tokens
    score = ((density @ weights.gradient) ** 2).sum(axis=2) / total**2
    label = ((evidence * label_slope(gaps, variance)) ** 2).sum(axis=2) / total**2
    entropy = np.log(total / tokens) + top[:, :, 0]
    return np.array([(chance * part).sum() for part in (score, label, entropy)])
