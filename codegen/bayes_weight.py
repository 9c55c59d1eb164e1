"""log gbar(w) of weights of the hidden token's own score, and its slope: closed where it is Gaussian, else by panels.

gbar(w) = E[g(chi*)] over chi* ~ N(w, V_k), divided by its mean at w = 0, V_k = 1. The slope is that of the log of an
average over a Gaussian, E[score g]/E[g] (Stein), which holds with kinks too.
"""

from __future__ import annotations

import numpy as np
import sympy as sp

from replicode.codegen.averages import Array, compiled, gauss_panels, signed
from replicode.codegen.bayes_label import Overlaps
from replicode.theory.bayes import W_CHI, BayesSystem
from replicode.theory.errors import Refusal
from replicode.theory.model import NU
from replicode.theory.nodes import X

_SCAN = np.linspace(-60.0, 60.0, 24001)
_DEPTH = 60.0
_WEIGHTY = 30.0
_PANEL = 1.2
_SLOPE_PANEL = 6.0
_MOST_NODES = 60_000
_BLOCK = 2_000_000


class OwnWeight:
    """log gbar and its slope at given overlaps."""

    def __init__(self, system: BayesSystem, nu: float) -> None:
        self.nu = nu
        self.closed = system.task.gaussian and system.prior is not None
        self.kinks: Array = np.zeros(0)
        if self.closed:
            mean, variance = (float(compiled(e, (NU,))(nu)) for e in system.task.hidden_score())
            if not (variance > 0.0 and np.isfinite(mean)):
                raise Refusal(f"at nu = {nu} the weight of the task has no finite average")
            arguments = (W_CHI, NU, system.model.scores.q)
            self.prior, self.prior_slope = (
                compiled(e, arguments) for e in (system.prior, sp.diff(system.prior, W_CHI))
            )
            return
        own = signed(system.location.own, (X, NU))
        self.log_own = own.log
        with np.errstate(all="ignore"):
            log = np.asarray(own.log(_SCAN, nu)) - _SCAN**2 / 2.0
        if not np.isfinite(log[[0, -1]]).all() and np.isnan(log).any():
            raise Refusal(f"at nu = {nu} the weight of the task is not finite")
        depth = log[np.isfinite(log)].max() - log
        felt = depth < _DEPTH
        if felt[0] or felt[-1]:
            raise Refusal(f"at nu = {nu} the hidden token's score lies too far out for this quadrature")
        self.low, self.high = _SCAN[felt][[0, -1]]
        slopes = np.abs(np.diff(log + _SCAN**2 / 2.0))[depth[1:] < _WEIGHTY]
        self.steepest = float(np.nanmax(slopes)) / (_SCAN[1] - _SCAN[0])
        self.kinks = np.array([float(k(0.0, nu)) for k in own.kinks])
        self.total = float(self._tilted(np.zeros(1), 1.0)[0][0])

    def finest(self, at: Overlaps) -> float:
        """The step in w_chi below which a kink, smeared over sqrt(V_k), is resolved."""
        return 0.5 * float(np.sqrt(at.V_k)) if self.kinks.size else np.inf

    def log_average(self, w: Array, at: Overlaps) -> tuple[Array, Array]:
        """log gbar and its slope at every w."""
        if self.closed:
            prior, slope = (np.asarray(f(w, self.nu, at.q_k)) for f in (self.prior, self.prior_slope))
            return prior + np.zeros_like(w), slope + np.zeros_like(w)
        log, mean = self._tilted(w, at.V_k)
        return log - self.total, (mean - w) / at.V_k

    def _tilted(self, w: Array, variance: float) -> tuple[Array, Array]:
        """log E[g] and E[chi g]/E[g] over chi ~ N(w, variance)."""
        width = min(_PANEL * np.sqrt(variance), _SLOPE_PANEL / max(self.steepest, 1e-300))
        count = int(np.ceil((self.high - self.low) / width))
        if count * 12 > _MOST_NODES:
            raise Refusal(f"chi* is known too well (V_k = {variance:.1e}) for the quadrature over it")
        edges = np.r_[np.linspace(self.low, self.high, count + 1), self.kinks]
        x, weights = gauss_panels(np.unique(edges[(edges >= self.low) & (edges <= self.high)]))
        base = np.asarray(self.log_own(x, self.nu)) + np.log(weights) - np.log(2.0 * np.pi * variance) / 2.0
        log, mean = np.empty(w.size), np.empty(w.size)
        rows = max(1, _BLOCK // x.size)
        for begin in range(0, w.size, rows):
            b = slice(begin, begin + rows)
            terms = base - (x - w[b, None]) ** 2 / (2.0 * variance)
            top = terms.max(axis=1, keepdims=True)
            terms = np.exp(terms - top)
            total = terms.sum(axis=1)
            log[b], mean[b] = top[:, 0] + np.log(total), (terms @ x) / total
        return log, mean
