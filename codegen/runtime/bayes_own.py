"""The Bayes channel of weights of the hidden token's own score: any number of tokens at the cost of one.

Given the label the tokens are independent with evidence a = gbar(w_chi) N(d), and Z = sum_l a_l / L. Negative powers of
Z are Laplace integrals in log s and log Z is Frullani's, so that one-token averages of exp(-s a) suffice, over an idle
token and, with a for weight, over the hidden one: functions of log s + log N(d) by the average over w_chi, tabulated
once, and then averaged over d.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline, make_interp_spline

from replicode.codegen.runtime.bayes_kernel import LENGTHS
from replicode.codegen.runtime.bayes_label import label_nodes
from replicode.codegen.runtime.bayes_rates import DEGREE, HIGH, LOG_STEP, LOW, TABLE_STEP, BayesOverlaps, Rates
from replicode.codegen.runtime.bayes_weight import weight_at
from replicode.codegen.runtime.inputs import OutOfReach
from replicode.codegen.runtime.kernel import Array

OWN_REACH = 9.0
OWN_DEPTH = 42.0
OWN_WEIGHTY = 25.0  # where gbar must be resolved to full accuracy
SCORE_STEP = 0.5
SLOPE_STEP = 0.3
OWN_GONE = 6.6  # exp(-exp(6.6)) is 0
OWN_FELT = -40.0
OWN_ROWS = 256
OWN_SCAN = np.linspace(-1.0, 1.0, 241)
OWN_FARTHEST = 2.0**11
OWN_MOST_NODES = 200_000


class ScoreNodes(NamedTuple):
    """Nodes of w_chi: logarithms of the idle and the hidden token's weights and of gbar, and its logarithmic slope."""

    idle: Array
    hidden: Array
    log_weight: Array
    slope: Array


class OwnChannel:
    """The averages at one nu and noise."""

    def __init__(self, nu: float, noise: float) -> None:
        self.weight, self.noise = weight_at(nu), noise
        self.tokens, self.chance = np.array(LENGTHS, dtype=float).T

    def rates(self, at: BayesOverlaps, fineness: float) -> Rates:
        """All averages."""
        nodes = self.score_nodes(at, fineness)
        low, table = _tabulated(nodes, fineness)
        labels = label_nodes(at, self.noise, fineness)
        top = float(labels.log_density.max())
        log_s = np.arange(low - top + (OWN_DEPTH - LOW), HIGH - top, LOG_STEP / fineness)
        step = log_s[1] - log_s[0]
        idle, hidden, once, revealed = np.moveaxis(table(np.maximum(log_s[:, None] + labels.log_density, low)), -1, 0)
        density = np.exp(labels.log_density)
        idle, hidden = labels.averaged(idle), labels.averaged(hidden * density)
        k, v = labels.averaged(revealed * density), labels.averaged(once * density * labels.slope**2)
        found = np.zeros(3)
        start = np.exp(-np.exp(np.minimum(log_s, 50.0)))[:, None] * hidden[:1]
        for tokens, chance in zip(self.tokens, self.chance, strict=True):
            others = idle ** (tokens - 1.0)
            sums = [(f @ labels.weights).sum() * step for f in (k * others, v * others, start - hidden * others)]
            found += chance * np.array([sums[0], sums[1], sums[2] - np.log(tokens)])
        return Rates.of(np.r_[found, self._unlabelled(nodes, low, table, fineness)])

    def fresh(self, at: BayesOverlaps, fineness: float) -> Rates:
        """Only the two averages without a label."""
        nodes = self.score_nodes(at, fineness)
        return Rates.of(np.r_[np.zeros(3), self._unlabelled(nodes, *_tabulated(nodes, fineness), fineness)])

    def _unlabelled(self, nodes: ScoreNodes, low: float, table: BSpline, fineness: float) -> Array:
        """E P_eps of a fresh sequence and E |grad log gbar_eps|^2."""
        log_s = np.arange(low + (OWN_DEPTH - LOW), HIGH, LOG_STEP / fineness)
        idle, _, once, _ = table(log_s).T
        values = (once[:, None] * idle[:, None] ** (self.tokens - 1.0)).sum(axis=0) * (log_s[1] - log_s[0])
        return np.array([values @ self.chance, np.exp(nodes.hidden) @ nodes.slope**2])

    def score_nodes(self, at: BayesOverlaps, fineness: float) -> ScoreNodes:
        """Trapezoid nodes over all that an idle or the hidden token's w_chi reaches, as fine as gbar needs."""
        deviation = float(np.sqrt(at.q_k))
        low, high, steepest = self._felt(at, deviation)
        width = min(SCORE_STEP, SLOPE_STEP / max(steepest * deviation, 1e-300), self.weight.finest(at) / deviation)
        u = np.arange(low, high + width, width / fineness)
        if u.size > OWN_MOST_NODES:
            raise OutOfReach("the weight of the task is too sharp for this quadrature: take a smaller nu")
        log_weight, slope = self.weight.log_average(deviation * u, at)
        idle = -(u**2) / 2.0 + np.log(width / fineness) - np.log(2.0 * np.pi) / 2.0
        return ScoreNodes(idle, idle + log_weight, log_weight, slope)

    def _felt(self, at: BayesOverlaps, deviation: float) -> tuple[float, float, float]:
        """The range of w_chi in units of its deviation, and the steepest slope of log gbar in it."""
        reach = 1.5 * OWN_REACH
        while reach < OWN_FARTHEST:
            u = reach * OWN_SCAN
            log_weight, slope = self.weight.log_average(deviation * u, at)
            log = log_weight - u**2 / 2.0
            relevant = log > log.max() - OWN_DEPTH
            if not (relevant[0] or relevant[-1]):
                low, high = min(-OWN_REACH, u[relevant][0]), max(OWN_REACH, u[relevant][-1])
                return low, high, float(np.abs(slope[log > log.max() - OWN_WEIGHTY]).max())
            reach *= 2.0
        raise OutOfReach("the hidden token's score lies too far out for this quadrature: take a smaller nu")


def _tabulated(nodes: ScoreNodes, fineness: float) -> tuple[float, BSpline]:
    """E exp(-a) of an idle token, and E exp(-a), E a exp(-a), E slope^2 a exp(-a) of the hidden one, against log s.

    Only nodes with log a in a band are summed: exp(-a) is 1 below and 0 above.
    """
    order = np.argsort(nodes.log_weight, kind="stable")
    log_a, slope = nodes.log_weight[order], nodes.slope[order]
    idle, hidden = np.exp(nodes.idle[order]), np.exp(nodes.hidden[order])
    relevant = hidden > np.exp(-OWN_DEPTH)
    low = -float(log_a[relevant].max()) - OWN_DEPTH
    axis = np.arange(low, HIGH + 2.0, TABLE_STEP / np.sqrt(fineness))
    below = np.stack([np.r_[0.0, np.cumsum(w)] for w in (idle, hidden)], axis=1)
    revealed = hidden * slope**2
    found = np.empty((axis.size, 4))
    for begin in range(0, axis.size, OWN_ROWS):
        x = axis[begin : begin + OWN_ROWS]
        band = slice(*np.searchsorted(log_a, [OWN_FELT - x[-1], OWN_GONE - x[0]]))
        a = np.exp(np.minimum(x[:, None] + log_a[band], OWN_GONE))
        spared = np.exp(-a)
        taken = a * spared
        rows = found[begin : begin + OWN_ROWS]
        rows[:, 0], rows[:, 1] = spared @ idle[band], spared @ hidden[band]
        rows[:, 2], rows[:, 3] = taken @ hidden[band], taken @ revealed[band]
        rows[:, :2] += below[band.start]
    return low, make_interp_spline(axis, found, k=DEGREE)
