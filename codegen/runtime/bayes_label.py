"""Nodes of the label y and of the gaps d = y - w_z of the tokens, and averages over an idle token's w_z given y.

An idle token's w_z is N(0, q_v) whatever the label; a hidden one carries the label's density besides. Gaps grow like a
hyperbolic sine, so that labels that tell the values almost exactly cost a logarithm of their sharpness. Where q_v is
small, so that gaps are y itself but for a little, every label has its own few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.bayes_kernel import label_log_density, label_slope, label_total, label_variance
from replicode.codegen.runtime.bayes_rates import BayesOverlaps
from replicode.codegen.runtime.kernel import Array

LABEL_REACH = 9.0
LABEL_STEP = 0.35
GAP_STEP = 0.1
LABEL_GROWTH = 0.4
LABEL_SHARE = 0.7  # of the deviation of w_z, by which gaps may be apart at LABEL_RELEVANT deviations
LABEL_RELEVANT = 5.0
LABEL_SMALL = 0.03
LABEL_HERMITE_NODES = 16


class LabelNodes(NamedTuple):
    """Labels y > 0 with the weights of both signs; gaps with the logarithm of the label's density and its slope.

    `smear` takes values at the gaps to their averages over an idle token, label by label.
    """

    weights: Array
    gaps: Array
    log_density: Array
    slope: Array
    smear: Array
    own: bool

    def averaged(self, values: Array) -> Array:
        """(.., gaps) to (.., labels): the average over w_z ~ N(0, q_v) given y."""
        if self.own:
            return np.asarray(values.reshape(*values.shape[:-1], self.weights.size, self.smear.size) @ self.smear)
        return np.asarray(values @ self.smear)


def label_nodes(at: BayesOverlaps, noise: float, fineness: float, reach: float = LABEL_REACH) -> LabelNodes:
    """Labels, up to `reach` deviations, and gaps for these overlaps."""
    total, spread = float(np.sqrt(label_total(noise))), float(label_variance(at.V_v, noise))
    h = LABEL_STEP * total / fineness
    y = np.asarray(h * (np.arange(int(reach * total / h) + 1) + 0.5), dtype=np.float64)
    make = _own_gaps if at.q_v < LABEL_SMALL else _shared_gaps
    gaps, smear = make(y, float(np.sqrt(at.q_v)), float(np.sqrt(spread)), fineness)
    log_density, slope = label_log_density(gaps, spread), label_slope(gaps, spread)
    return LabelNodes(np.full(y.size, 2.0 * h), gaps, log_density, slope, smear, at.q_v < LABEL_SMALL)


def _own_gaps(y: Array, deviation: float, sharpness: float, fineness: float) -> tuple[Array, Array]:
    """Gauss-Hermite nodes around every label."""
    u, weights = np.polynomial.hermite_e.hermegauss(int(LABEL_HERMITE_NODES * fineness))
    return (y[:, None] - deviation * u).ravel(), weights / weights.sum()


def _shared_gaps(y: Array, deviation: float, sharpness: float, fineness: float) -> tuple[Array, Array]:
    """|d| = sharpness sinh(growth u)/growth at midpoints u; the density of w_z = y - d, both signs of d together."""
    relevant = LABEL_RELEVANT * (float(np.hypot(deviation, sharpness)) + deviation)
    h = min(GAP_STEP, LABEL_SHARE * deviation / max(sharpness, LABEL_GROWTH * relevant)) / fineness
    most = y[-1] + LABEL_REACH * deviation
    u = h * (np.arange(int(np.arcsinh(LABEL_GROWTH * most / sharpness) / (LABEL_GROWTH * h)) + 1) + 0.5)
    gaps = sharpness * np.sinh(LABEL_GROWTH * u) / LABEL_GROWTH
    width = h * sharpness * np.cosh(LABEL_GROWTH * u) / (np.sqrt(2.0 * np.pi) * deviation)
    density = sum(np.exp(-(((y - s * gaps[:, None]) / deviation) ** 2) / 2.0) for s in (1.0, -1.0))
    return gaps, np.asarray(density * width[:, None])
