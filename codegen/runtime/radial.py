"""Tokens with radii, x = r Sigma^1/2 g: the fields c and zeta are Gaussian, and chi = r c, z = r zeta.

The radii of a sequence are drawn from data, independently of each other and of the fields, before the location is. The
kernels see them as a last argument; the location's weight and the label see r c* and r zeta*. The label is a line of
slope r, told given w; c* is sampled beside w. Nodes are scrambled, the prox global.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from replicode.codegen.runtime.aligned import AlignedChannel, _widened_first, aligned_rows
from replicode.codegen.runtime.channel import Averages, _blocks
from replicode.codegen.runtime.fields import Fields, fields
from replicode.codegen.runtime.inputs import ArgumentError
from replicode.codegen.runtime.kernel import HARD_LIMIT, M_V, Q_K, Q_V, Array, risk_on_manifold
from replicode.codegen.runtime.label import LineLabel, label_of
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.location import Weight, _conditional, softmax_weight
from replicode.codegen.runtime.nodes import sobol
from replicode.codegen.runtime.refinement import t_bound

RADII = "numbers above 0, one for each token of a pool"
COARSE_LOG2 = 10
RISK_LOG2, RISK_SETS = 14, 32


def empirical_radii(given: Any) -> Array:
    """The radii in order."""
    try:
        radii = np.asarray(given, dtype=float).ravel()
    except (TypeError, ValueError):
        raise ArgumentError("radii", type(given).__name__, RADII) from None
    wrong = radii[~(np.isfinite(radii) & (radii > 0.0))]
    if not radii.size or wrong.size:
        raise ArgumentError("radii", "none" if given is None or not radii.size else float(wrong[0]), RADII)
    return np.sort(radii)


def drawn_radii(setting: Setting, normals: Array) -> Array:
    """The radii that normals stand for."""
    radii = setting.radii
    if radii is None:
        raise ArgumentError("radii", None, RADII)
    place = (special.ndtr(normals) * radii.size).astype(np.int64)
    return np.asarray(radii[np.minimum(place, radii.size - 1)])


def radial_weight(order: Array, w: Array, xi: Array, radii: Array, nu: float) -> Weight:
    """The weight at c* = mu + s xi, and its logarithmic slopes in mu.

    At infinite nu it is an indicator, of which the idle tokens' c* are averaged over: the hidden one's score is above
    theirs with the chances Phi((r_0 c*_0 - r_l mu_l)/(r_l s)).
    """
    gain, spread = _conditional(order)
    mu, deviation = gain * w, np.sqrt(spread)
    if not np.isinf(nu):
        found = softmax_weight(radii * (mu + deviation * xi), nu)
        return Weight(found.value, radii * found.slopes)
    ratio = radii[0] / radii[1:]
    lead = HARD_LIMIT * (ratio * (mu[0] + deviation * xi[0]) - mu[1:]) / deviation
    chances = special.log_ndtr(lead)
    rates = HARD_LIMIT / deviation * np.exp(-0.5 * lead * lead - chances) / np.sqrt(2.0 * np.pi)
    slopes = np.concatenate([(ratio * rates).sum(axis=0)[None], -rates])
    return Weight(len(w) * np.exp(chances.sum(axis=0)), slopes)


class RadialFields(Fields):
    """The fields of tokens with radii r, of shape (L, n)."""

    r: Array

    @classmethod
    def of(cls, w_chi: Array, w_z: Array, y: Array, r: Array) -> RadialFields:
        """All of them."""
        found = cls(w_chi, w_z, y)
        found.r = r
        return found

    @property
    def radii(self) -> tuple[Array, ...]:
        """The radii, which kernels see."""
        return (self.r,)

    def at(self, samples: Array | slice) -> RadialFields:
        """The fields of some of the samples."""
        return RadialFields.of(self.w_chi[:, samples], self.w_z[:, samples], self.y[samples], self.r[:, samples])


class RadialChannel(AlignedChannel):
    """A global prox at nodes in w, the radii, and what is sampled beside them."""

    name = "prox, tokens with radii"

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        zeta, weights = nodes
        super().__init__((zeta[: -setting.tokens], weights), setting)
        self.r = drawn_radii(setting, zeta[-setting.tokens :])

    @property
    def dimensions(self) -> int:
        """Those of the nodes, the radii included."""
        return len(self.zeta) + len(self.r)

    def _fields(self, order: Array) -> Fields:
        at = fields(self._law(order), self.zeta)
        return RadialFields.of(at.w_chi, at.w_z, self._told(order, at)[0], self.r)

    def _told(self, order: Array, at: Fields) -> tuple[Array, Array]:
        """The labels, and the slopes of their law in the hidden token's zeta."""
        tokens, label = self.setting.tokens, label_of(order, self.setting)
        assert isinstance(label, LineLabel)
        told = label.of_radius(self.r[0]).at(at.w_z[0], self.zeta[2 * tokens : 2 * tokens + 1])
        return told.y, told.slopes

    def _weighted(self, order: Array, at: Fields) -> Iterator[tuple[slice, Array, tuple[Array, ...]]]:
        stars, (_, told) = self.zeta[-self.setting.tokens :], self._told(order, at)
        for b in _blocks(self.weights.size, self.setting):
            found = radial_weight(order, at.w_chi[:, b], stars[:, b], self.r[:, b], self.setting.nu)
            yield b, self.weights[b] * found.value, (found.slopes, told[:, b])


def radial_scrambled(log2: int, seed: int, setting: Setting) -> RadialChannel:
    """On a scrambled Sobol set: the radii, then the fields as for Gaussian tokens, of which the label is spread."""
    rows = aligned_rows(setting)
    net, weights = sobol(setting.tokens + len(rows), log2, seed)
    nodes = np.empty_like(net)
    nodes[len(rows) :] = net[: setting.tokens]
    nodes[rows] = net[setting.tokens :]
    weights = weights * _widened_first(nodes[rows[0]])
    return RadialChannel((nodes, weights / weights.sum()), setting)


def radial_averages(order: Array, setting: Setting, count: float) -> Averages:
    """Averages at a point that need not be a solution."""
    return radial_scrambled(int(np.log2(count)), 0, setting).averages(order)


def coarse_radial(setting: Setting) -> RadialChannel:
    """The same on few nodes."""
    return radial_scrambled(COARSE_LOG2, 0, setting)


@lru_cache(maxsize=2 * RISK_SETS)
def _risk_nodes(tokens: int, seed: int) -> Array:
    return sobol(3 * tokens, RISK_LOG2, seed)[0]


def radial_risk(order: Array, settings: Sequence[Setting], tol: float) -> tuple[float, float]:
    """The test risk given scores and radii, averaged over these, with a t bound from the scatter of the sets."""
    shares = np.array([s.kernel.share for s in settings])
    sets = np.array([[_risk_of(order, s, seed) for s in settings] for seed in range(RISK_SETS)]) @ shares
    return float(sets.mean()), float(t_bound(sets))


def _risk_of(order: Array, setting: Setting, seed: int) -> float:
    """That of one length on one set of nodes."""
    normals, scores, xi = np.split(_risk_nodes(setting.tokens, seed), 3)
    radii, w = drawn_radii(setting, normals), np.sqrt(float(order[Q_K])) * scores
    answers = radii * setting.kernel.sigma(radii * w, setting.params)
    weights = radial_weight(order, w, xi, radii, setting.nu).value
    moments: Any = answers[0], (answers * answers).sum(axis=0), radii[0]
    risk = risk_on_manifold(float(order[M_V]), float(order[Q_V]), setting.noise, *moments)
    return float((weights * risk).sum() / weights.sum())
