"""Nodes of the label y and of the gaps d = y - w_z of the tokens, and averages over an idle token's w_z given y.

An idle token's w_z is N(0, q_v) whatever the label; a hidden one carries the label's density besides. Gaps grow like a
hyperbolic sine, so that labels that tell the values almost exactly cost a logarithm of their sharpness. Where q_v is
small, so that gaps are y itself but for a little, every label has its own few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from replicode.codegen.averages import Array, Numeric, compiled
from replicode.theory.bayes import GAP, SPREAD, BayesSystem
from replicode.theory.model import NOISE

_REACH = 9.0
_LABEL_STEP = 0.35
_GAP_STEP = 0.1
_GROWTH = 0.4
_SHARE = 0.7  # of the deviation of w_z, by which gaps may be apart at _FELT deviations
_FELT = 5.0
_SMALL = 0.03
_HERMITE_NODES = 16


class Overlaps(NamedTuple):
    """q of both blocks, and V = 1 - q, which may be too small to be told from it."""

    q_k: float
    V_k: float
    q_v: float
    V_v: float


@dataclass(frozen=True)
class LabelNodes:
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


@dataclass(frozen=True)
class LabelLaw:
    """The derived label channel, compiled."""

    log_density: Numeric
    slope: Numeric
    variance: Numeric
    total: Numeric

    @staticmethod
    def of(system: BayesSystem) -> LabelLaw:
        """From the derived system."""
        label, gap, v = system.label, (GAP, SPREAD), system.model.values.V
        variance = label.variance.subs(system.model.values.q, 1 - v).expand()
        return LabelLaw(
            compiled(label.log_density, gap),
            compiled(label.slope, gap),
            compiled(variance, (v, NOISE)),
            compiled(label.total, (NOISE,)),
        )

    def nodes(self, at: Overlaps, noise: float, fineness: float, reach: float = _REACH) -> LabelNodes:
        """Labels, up to `reach` deviations, and gaps for these overlaps."""
        total, spread = float(np.sqrt(self.total(noise))), float(self.variance(at.V_v, noise))
        h = _LABEL_STEP * total / fineness
        y = np.asarray(h * (np.arange(int(reach * total / h) + 1) + 0.5), dtype=np.float64)
        make = _own_gaps if at.q_v < _SMALL else _shared_gaps
        gaps, smear = make(y, float(np.sqrt(at.q_v)), float(np.sqrt(spread)), fineness)
        log_density, slope = (np.asarray(f(gaps, spread)) for f in (self.log_density, self.slope))
        return LabelNodes(np.full(y.size, 2.0 * h), gaps, log_density, slope, smear, at.q_v < _SMALL)


def _own_gaps(y: Array, deviation: float, sharpness: float, fineness: float) -> tuple[Array, Array]:
    """Gauss-Hermite nodes around every label."""
    u, weights = np.polynomial.hermite_e.hermegauss(int(_HERMITE_NODES * fineness))
    return (y[:, None] - deviation * u).ravel(), weights / weights.sum()


def _shared_gaps(y: Array, deviation: float, sharpness: float, fineness: float) -> tuple[Array, Array]:
    """|d| = sharpness sinh(growth u)/growth at midpoints u; the density of w_z = y - d, both signs of d together."""
    felt = _FELT * (float(np.hypot(deviation, sharpness)) + deviation)
    h = min(_GAP_STEP, _SHARE * deviation / max(sharpness, _GROWTH * felt)) / fineness
    most = y[-1] + _REACH * deviation
    u = h * (np.arange(int(np.arcsinh(_GROWTH * most / sharpness) / (_GROWTH * h)) + 1) + 0.5)
    gaps = sharpness * np.sinh(_GROWTH * u) / _GROWTH
    width = h * sharpness * np.cosh(_GROWTH * u) / (np.sqrt(2.0 * np.pi) * deviation)
    density = sum(np.exp(-(((y - s * gaps[:, None]) / deviation) ** 2) / 2.0) for s in (1.0, -1.0))
    return gaps, np.asarray(density * width[:, None])
