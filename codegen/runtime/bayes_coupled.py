"""The Bayes channel of weights that couple the scores of all tokens: nodes over the scores, tables over the labels.

Where the lattice of scores would be too large, scrambled nodes over everything take its place (bayes_sampled.py).

Given the scores, Z = sum_e gbar_e N(d_e) / L with independent gaps d_e given the label, so that Laplace's integral for
1/Z and Frullani's for log Z factorise over the tokens: E[N^j exp(-s gbar_e N)] of one idle token is a table in
log s + log gbar_e for every label.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import make_interp_spline

from replicode.codegen.runtime.bayes_kernel import DIFFERENCES, LENGTHS
from replicode.codegen.runtime.bayes_keys import KeyNodes, symmetric_lattice
from replicode.codegen.runtime.bayes_label import LabelNodes, label_nodes
from replicode.codegen.runtime.bayes_location import Weights, location_weights
from replicode.codegen.runtime.bayes_rates import (
    DEGREE,
    LOG_STEP,
    TABLE_STEP,
    BayesOverlaps,
    Rates,
    TooFine,
)
from replicode.codegen.runtime.bayes_sampled import sampled_averages
from replicode.codegen.runtime.kernel import Array

KEY_STEP = 0.9
KEY_MOST_NODES = 2000
KEY_COARSER = 1.12
KEY_COARSEST = 2.0
KEY_BLOCK = 400_000
KEY_SMALLEST = 1e-280
KEY_GONE = 1e-40  # of exp(-s gbar N): what a token adds with it is as small
KEY_RARE = 1e-13


class CoupledChannel:
    """The averages at one nu and noise."""

    def __init__(self, nu: float, noise: float) -> None:
        self.nu, self.noise = nu, noise

    def rates(self, at: BayesOverlaps, fineness: float) -> Rates:
        """All averages, length by length."""
        return self._averaged(at, fineness, True)

    def fresh(self, at: BayesOverlaps, fineness: float) -> Rates:
        """Only the two averages without a label."""
        return self._averaged(at, fineness, False)

    def _averaged(self, at: BayesOverlaps, fineness: float, labelled: bool) -> Rates:
        total, random = np.zeros((1, 5)), False
        for tokens, chance in LENGTHS:
            nodes = _key_nodes(at, tokens, fineness)
            if nodes is not None:
                total = total + chance * self._on(nodes, at, fineness, labelled)
            else:
                total = total + chance * sampled_averages(self.nu, self.noise, at, tokens, fineness, labelled)
                random = True
        return Rates.of(total.mean(axis=0), total if random else None)

    def _on(self, nodes: KeyNodes, at: BayesOverlaps, fineness: float, labelled: bool) -> Array:
        weights = self._weights(nodes, at, fineness)
        revealed = np.zeros(3)
        if labelled:
            labels = label_nodes(at, self.noise, _label_fineness(fineness), _key_reach(fineness))
            depth = _key_reach(fineness) ** 2 / 2.0
            evidence = _Evidence(labels, float(weights.value.max()), _label_fineness(fineness), depth)
            revealed = _given_scores(evidence, nodes, weights)
        return np.concatenate([revealed, _fresh_averages(nodes, weights)])

    def _weights(self, nodes: KeyNodes, at: BayesOverlaps, fineness: float) -> Weights:
        """gbar at the nodes, normalised so that E[g] = 1, and its gradient."""
        found = location_weights(nodes.scores, self.nu, at.V_k, fineness, float(np.sqrt(at.q_k)))
        total = float(nodes.weights @ found.value.mean(axis=1))
        return Weights(found.value / total, found.gradient / total)


def _key_reach(fineness: float) -> float:
    """How many deviations are followed: what is left out falls with the spacing."""
    return min(5.0 + 2.0 * fineness, 9.0)


def _label_fineness(fineness: float) -> float:
    """Averages over labels converge sooner than those over scores."""
    return 0.45 + 0.3 * fineness


def _key_nodes(at: BayesOverlaps, tokens: int, fineness: float) -> KeyNodes | None:
    """The lattice, its step in proportion to what of a score is unknown; None where it is too large."""
    step = KEY_STEP * min(1.0, float(np.sqrt(at.V_k / at.q_k)))
    scale = _coarsening(tokens, round(np.log(step) * 4.0) / 4.0)
    if scale is None:
        return None
    nodes = symmetric_lattice(
        tokens, scale * step / fineness, _key_reach(fineness) - 0.4, DIFFERENCES, 8 * KEY_MOST_NODES
    )
    if nodes is None:
        raise TooFine
    return nodes


@lru_cache(maxsize=256)
def _coarsening(tokens: int, log_step: float) -> float | None:
    """The factor by which the step must grow for the lattice to stay small; None where too little would be left."""
    scale = 1.0
    while scale < KEY_COARSEST:
        step = scale * float(np.exp(log_step))
        if symmetric_lattice(tokens, step, _key_reach(1.0) - 0.4, DIFFERENCES, KEY_MOST_NODES) is not None:
            return scale
        scale *= KEY_COARSER
    return None


def _fresh_averages(nodes: KeyNodes, weights: Weights) -> Array:
    """E sum_e gbar_e^2 / (L sum gbar), which is E P_eps, and E sum_e |grad gbar_e|^2 / (L gbar_e)."""
    value = weights.value
    location = (value**2).sum(axis=1) / value.sum(axis=1)
    revealed = ((weights.gradient**2).sum(axis=2) / np.maximum(value, KEY_SMALLEST)).mean(axis=1)
    return np.array([nodes.weights @ location / value.shape[1], nodes.weights @ revealed])


class _Evidence:
    """E exp(-s N), E N exp(-s N), E s N^2 exp(-s N) and E s N^2 slope^2 exp(-s N) of an idle token, label by label."""

    def __init__(self, labels: LabelNodes, largest: float, fineness: float, depth: float) -> None:
        self.labels = labels
        top, reach = float(labels.log_density.max()), max(float(np.log(largest)), 0.0)
        self.log_s = np.arange(-reach - top - depth, depth - top, LOG_STEP / fineness)
        self.low = -top - depth - 4.0
        axis = np.arange(self.low, self.log_s[-1] + reach + 1.0, TABLE_STEP / np.sqrt(fineness))
        size = np.exp(np.minimum(axis[:, None] + labels.log_density, 6.6))
        spared, density = np.exp(-size), np.exp(labels.log_density)
        columns = (spared, density * spared, size * density * spared, size * density * labels.slope**2 * spared)
        table = np.concatenate([labels.averaged(c) for c in columns], axis=1)
        self.spline = make_interp_spline(axis, table, k=DEGREE)

    def at(self, log_weight: Array) -> Array:
        """At log s + log gbar: (.., log s, 4, labels)."""
        x = np.maximum(self.log_s + log_weight[..., None], self.low)
        return np.asarray(self.spline(x).reshape(*x.shape, 4, self.labels.weights.size))


class _Given(NamedTuple):
    """Averages over label and values given the scores: of p_e p_e' by pairs, of the squared slopes, and of log Z."""

    pairs: Array
    slopes: Array
    entropy: Array


def _given_scores(evidence: _Evidence, nodes: KeyNodes, weights: Weights) -> Array:
    """E |grad log Z|^2 for k and v and E log Z; tokens that cannot be the hidden one are left out of the sums."""
    tokens = nodes.scores.shape[1]
    order = np.argsort(-weights.value, axis=1)
    value = np.take_along_axis(weights.value, order, axis=1)
    gradient = np.take_along_axis(weights.gradient, order[:, :, None], axis=1)
    active = (value > KEY_RARE).sum(axis=1)
    found = np.zeros(3)
    for count in np.unique(active):
        chosen = np.flatnonzero(active == count)
        rows = max(1, KEY_BLOCK // (count * evidence.log_s.size * evidence.labels.weights.size))
        for begin in range(0, chosen.size, rows):
            b = chosen[begin : begin + rows]
            given = _given(evidence, value[b, :count])
            outer = gradient[b, :count] @ gradient[b, :count].transpose(0, 2, 1)
            sums = ((outer * given.pairs).sum(axis=(1, 2)), given.slopes.sum(axis=1), given.entropy)
            found += np.array([nodes.weights[b] @ part for part in sums]) / tokens
    return np.asarray(found - np.array([0.0, 0.0, np.log(tokens)]))


def _given(evidence: _Evidence, value: Array) -> _Given:
    """With gbar at some nodes: int dy int ds of products of one-token averages, summed over the tokens."""
    count, tokens = value.shape
    table = evidence.at(np.log(value))
    idle = table[..., 0, :]
    with np.errstate(divide="ignore"):
        inverse = np.where(idle > KEY_GONE, 1.0 / idle, 0.0)
    product = idle.prod(axis=1) * ((evidence.log_s[1] - evidence.log_s[0]) * evidence.labels.weights)
    weighted = inverse * product[:, None]
    once = table[..., 1, :] * weighted
    s = np.exp(evidence.log_s)[:, None]
    flat = (count, tokens, -1)
    pairs = (once * s).reshape(flat) @ (table[..., 1, :] * inverse).reshape(flat).transpose(0, 2, 1)
    diagonal = np.arange(tokens)
    # the table holds s gbar N^2, so that gbar is divided out once
    pairs[:, diagonal, diagonal] = (table[..., 2, :] * weighted).sum(axis=(2, 3)) / value
    slopes = (table[..., 3, :] * weighted).sum(axis=(2, 3)) * value
    marked = np.einsum("ne,nesy->nsy", value, once)
    start = np.exp(-np.exp(np.minimum(evidence.log_s, 50.0)))[:, None] * marked[:, :1]
    return _Given(pairs, slopes, (start - marked).sum(axis=(1, 2)))
