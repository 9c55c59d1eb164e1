"""log gbar(w) of weights of the hidden token's own score, and its slope: closed where it is Gaussian, else by panels.

gbar(w) = E[g(chi*)] over chi* ~ N(w, V_k), divided by its mean at w = 0, V_k = 1. The slope is that of the log of an
average over a Gaussian, E[score g]/E[g] (Stein), which holds with kinks too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from replicode.codegen.runtime.bayes_kernel import hidden_score, own_kinks, prior_log_average, prior_slope
from replicode.codegen.runtime.bayes_rates import BayesOverlaps
from replicode.codegen.runtime.inputs import OutOfReach
from replicode.codegen.runtime.kernel import Array, own_log_weight
from replicode.codegen.runtime.nodes import COMPOSITE_NODES, gauss_panels

WEIGHT_SCAN = np.linspace(-60.0, 60.0, 24001)
WEIGHT_DEPTH = 60.0
WEIGHT_WEIGHTY = 30.0
WEIGHT_PANEL = 1.2
WEIGHT_SLOPE_PANEL = 6.0
WEIGHT_MOST_NODES = 60_000
WEIGHT_BLOCK = 2_000_000


class OwnWeight(Protocol):
    """log gbar and its slope at one nu."""

    def finest(self, at: BayesOverlaps) -> float:
        """The step in w_chi below which a kink, smeared over sqrt(V_k), is resolved."""

    def log_average(self, w: Array, at: BayesOverlaps) -> tuple[Array, Array]:
        """log gbar and its slope at every w."""


class ClosedWeight:
    """Of a weight that leaves chi* Gaussian."""

    def __init__(self, nu: float) -> None:
        self.nu = nu
        mean, variance = hidden_score(nu)
        if not (variance > 0.0 and np.isfinite(mean)):
            raise OutOfReach(f"at nu = {nu} the weight of the task has no finite average")

    def finest(self, at: BayesOverlaps) -> float:
        """There is no kink."""
        return np.inf

    def log_average(self, w: Array, at: BayesOverlaps) -> tuple[Array, Array]:
        """As derived."""
        return prior_log_average(w, self.nu, at.q_k), prior_slope(w, self.nu, at.q_k)


class PanelWeight:
    """Of any other: averages over chi* by panels."""

    def __init__(self, nu: float) -> None:
        self.nu, self.kinks = nu, own_kinks(nu)
        with np.errstate(all="ignore"):
            log = own_log_weight(WEIGHT_SCAN, nu) - WEIGHT_SCAN**2 / 2.0
        if not np.isfinite(log[[0, -1]]).all() and np.isnan(log).any():
            raise OutOfReach(f"at nu = {nu} the weight of the task is not finite")
        depth = log[np.isfinite(log)].max() - log
        relevant = depth < WEIGHT_DEPTH
        if relevant[0] or relevant[-1]:
            raise OutOfReach(f"at nu = {nu} the hidden token's score lies too far out for this quadrature")
        self.low, self.high = WEIGHT_SCAN[relevant][[0, -1]]
        slopes = np.abs(np.diff(log + WEIGHT_SCAN**2 / 2.0))[depth[1:] < WEIGHT_WEIGHTY]
        self.steepest = float(np.nanmax(slopes)) / (WEIGHT_SCAN[1] - WEIGHT_SCAN[0])
        self.total = float(self._tilted(np.zeros(1), 1.0)[0][0])

    def finest(self, at: BayesOverlaps) -> float:
        """Half of what smears a kink."""
        return 0.5 * float(np.sqrt(at.V_k)) if self.kinks.size else np.inf

    def log_average(self, w: Array, at: BayesOverlaps) -> tuple[Array, Array]:
        """By Stein's lemma."""
        log, mean = self._tilted(w, at.V_k)
        return log - self.total, (mean - w) / at.V_k

    def _tilted(self, w: Array, variance: float) -> tuple[Array, Array]:
        """log E[g] and E[chi g]/E[g] over chi ~ N(w, variance)."""
        width = min(WEIGHT_PANEL * np.sqrt(variance), WEIGHT_SLOPE_PANEL / max(self.steepest, 1e-300))
        count = int(np.ceil((self.high - self.low) / width))
        if count * COMPOSITE_NODES > WEIGHT_MOST_NODES:
            raise OutOfReach(f"chi* is known too well (V_k = {variance:.1e}) for the quadrature over it")
        edges = np.r_[np.linspace(self.low, self.high, count + 1), self.kinks]
        x, weights = gauss_panels(np.unique(edges[(edges >= self.low) & (edges <= self.high)]))
        base = own_log_weight(x, self.nu) + np.log(weights) - np.log(2.0 * np.pi * variance) / 2.0
        log, mean = np.empty(w.size), np.empty(w.size)
        rows = max(1, WEIGHT_BLOCK // x.size)
        for begin in range(0, w.size, rows):
            b = slice(begin, begin + rows)
            terms = base - (x - w[b, None]) ** 2 / (2.0 * variance)
            top = terms.max(axis=1, keepdims=True)
            terms = np.exp(terms - top)
            total = terms.sum(axis=1)
            log[b], mean[b] = top[:, 0] + np.log(total), (terms @ x) / total
        return log, mean


weight_at: Callable[[float], OwnWeight] = ClosedWeight
