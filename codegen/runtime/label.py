"""The law of the label given the value field of the hidden token: Z(y, mu) = E[P(y | z*) | w].

Given w, z* is N(mu, s^2) with mu = m_v w / q_v: this is for the values what location.py is for the scores, and the
linker chooses `label_at`. There is none where the label is one of the Gaussian fields. `threshold_label`: few values,
each on one side of a threshold, a normal distribution function; `chance_label`: few values with any chances, a table in
mu for each; `line_label`: one of several lines; `sampled_label`: z* and the noise are sampled beside w.
Where there are several branches, each node is taken once for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import (
    LABEL_BRANCHES,
    LABEL_COPIES,
    LABEL_NORMALS,
    LABEL_VALUES,
    M_V,
    Q_V,
    Array,
    label_chances,
    label_lines,
    label_samples,
)
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.location import SMALLEST_DEVIATION, Spline, averaged_spline

MOMENT_STEP = 0.02
MOMENT_REACH = 9.0


class Told(NamedTuple):
    """The label at every sample, its weight, and d log Z / d mu, one row."""

    y: Array
    weight: Array
    slopes: Array


class FieldLabel(Protocol):
    """The label at given order parameters."""

    def at(self, w: Array, xi: Array) -> Told:
        """The label at the hidden token's value field; xi are its own normals, then the number of the branch."""


class ValueOverlaps(NamedTuple):
    """m, q of a field that the label is told from: its covariance with z*, and its variance."""

    m: float | Array
    q: float | Array


LabelAt = Callable[[ValueOverlaps, float], FieldLabel]
label_at: LabelAt | None = None


def label_of(order: Array, setting: Setting) -> FieldLabel | None:
    """The label at these order parameters, or None where it is in the law of the fields."""
    return None if label_at is None else label_at(ValueOverlaps(float(order[M_V]), float(order[Q_V])), setting.noise)


def unbranched(nodes: tuple[Array, Array], first: int) -> tuple[Array, Array]:
    """The nodes themselves."""
    return nodes


def branches(nodes: tuple[Array, Array], first: int) -> tuple[Array, Array]:
    """Every node once for each branch, whose number is its row `first`."""
    zeta, weights = nodes
    parts = [np.insert(zeta, first, float(branch), axis=0) for branch in range(LABEL_BRANCHES)]
    return np.concatenate(parts, axis=1), np.tile(weights, LABEL_BRANCHES)


branched: Callable[[tuple[Array, Array], int], tuple[Array, Array]] = unbranched


def _conditional_value(at: ValueOverlaps) -> tuple[float | Array, float | Array]:
    """The factor of w in mu, and the variance of z* given w."""
    return at.m / at.q, np.maximum(1.0 - at.m * at.m / at.q, SMALLEST_DEVIATION**2)


def _branch(xi: Array) -> Array:
    """Which branch a node stands for."""
    return np.asarray(xi[LABEL_NORMALS], dtype=np.int64)


class ThresholdLabel(NamedTuple):
    """A value on one side of a threshold: Z = Phi((a mu + b)/r), r^2 = a^2 s^2 + c^2."""

    gain: float | Array
    spread: float | Array
    lines: Array

    def side(self, branch: int, w: Array) -> tuple[Array, Array]:
        """(a mu + b)/r and a/r."""
        a, b, c = self.lines[branch][:3]
        deviation = np.sqrt(a * a * self.spread + c * c)
        return (a * self.gain * w + b) / deviation, a / deviation

    def at(self, w: Array, xi: Array) -> Told:
        """The label of each branch with its weight."""
        t, rate = self.side(0, w)
        y = np.full(w.shape, LABEL_VALUES[0])
        if LABEL_BRANCHES > 1:
            which = _branch(xi)
            sides = [self.side(branch, w) for branch in range(LABEL_BRANCHES)]
            t, rate = (np.choose(which, [np.broadcast_to(s[i], w.shape) for s in sides]) for i in (0, 1))
            y = np.asarray(LABEL_VALUES)[which]
        slopes = rate * np.sqrt(2.0 / np.pi) / special.erfcx(-t / np.sqrt(2.0))
        return Told(y, LABEL_COPIES * special.ndtr(t), slopes[None])


def threshold_label(at: ValueOverlaps, noise: float) -> FieldLabel:
    """Values on the sides of thresholds."""
    return ThresholdLabel(*_conditional_value(at), label_lines(noise))


@lru_cache(maxsize=64)
def chance_splines(deviation: float, noise: float) -> tuple[Spline, ...]:
    """log E of the chance of each value, in mu."""
    return tuple(
        averaged_spline(partial(_log_chance, branch=branch, noise=noise), deviation) for branch in range(LABEL_BRANCHES)
    )


def _log_chance(x: Array, branch: int, noise: float) -> Array:
    return label_chances(x, noise)[branch]


class ChanceLabel(NamedTuple):
    """A value with any chance: log Z is a table; without one z* is known, and the slopes do not matter."""

    gain: float
    noise: float
    log_chances: tuple[Spline, ...]

    def _found(self, mu: Array) -> list[tuple[Array, Array]]:
        if not self.log_chances:
            return [(log + np.zeros_like(mu), np.zeros_like(mu)) for log in label_chances(mu, self.noise)]
        return [spline.at(mu) for spline in self.log_chances]

    def at(self, w: Array, xi: Array) -> Told:
        """The label of each branch with its weight."""
        found = self._found(self.gain * w)
        log, slopes = found[0]
        y = np.full(w.shape, LABEL_VALUES[0])
        if LABEL_BRANCHES > 1:
            which = _branch(xi)
            log, slopes = (np.choose(which, [f[i] for f in found]) for i in (0, 1))
            y = np.asarray(LABEL_VALUES)[which]
        return Told(y, LABEL_COPIES * np.exp(np.minimum(log, 700.0)), slopes[None])


def chance_label(at: ValueOverlaps, noise: float) -> FieldLabel:
    """Values with any chances."""
    gain, spread = _conditional_value(at)
    known = spread <= SMALLEST_DEVIATION**2
    return ChanceLabel(float(gain), noise, () if known else chance_splines(float(np.sqrt(spread)), noise))


class LineLabel(NamedTuple):
    """One of several lines: y is Gaussian given w in each of them."""

    gain: float | Array
    spread: float | Array
    lines: Array
    radius: float | Array = 1.0

    def of_radius(self, radius: Array) -> LineLabel:
        """The label of tokens with radii: it sees these times z*."""
        return self._replace(radius=radius)

    def at(self, w: Array, xi: Array) -> Told:
        """The label on the line of each branch."""
        line = self.lines[_branch(xi)].T if LABEL_BRANCHES > 1 else self.lines[0][:, None]
        a, b, c, chance = line
        a = a * self.radius
        deviation = np.sqrt(a * a * self.spread + c * c)
        y = a * self.gain * w + b + deviation * xi[0]
        return Told(y, np.broadcast_to(LABEL_COPIES * chance, y.shape), (a * xi[0] / deviation)[None])


def line_label(at: ValueOverlaps, noise: float) -> FieldLabel:
    """LineLabel."""
    return LineLabel(*_conditional_value(at), label_lines(noise))


class SampledLabel(NamedTuple):
    """z* = mu + s zeta and the noise beside w; by Stein's lemma in the law of z*, the slope is zeta/s."""

    gain: float | Array
    spread: float | Array
    noise: float

    def at(self, w: Array, xi: Array) -> Told:
        """The label at the sampled z* and noise."""
        deviation = np.sqrt(self.spread)
        found = label_samples(self.gain * w + deviation * xi[0], xi[1], self.noise)
        y, chance = found[:2]
        if LABEL_BRANCHES > 1:
            which = _branch(xi)
            y, chance = (np.choose(which, [np.broadcast_to(f, w.shape) for f in found[i::2]]) for i in (0, 1))
        return Told(
            np.broadcast_to(y, w.shape), np.broadcast_to(LABEL_COPIES * chance, w.shape), (xi[0] / deviation)[None]
        )


def sampled_label(at: ValueOverlaps, noise: float) -> FieldLabel:
    """Any other label."""
    return SampledLabel(*_conditional_value(at), noise)


def no_moments(noise: float) -> tuple[float, ...]:
    """Those of a label that is a Gaussian field are in the equations."""
    return ()


@lru_cache(maxsize=64)
def told_moments(noise: float) -> tuple[float, ...]:
    """E y^2, E[y z*] and E[E[y | z*]^2]: told from nothing, and from z* itself.

    E[y z*] is the slope of E y in mu. The trapezoid rule in z* and, where there is any, in the noise.
    """
    assert label_at is not None
    nodes, weights = _moment_nodes(LABEL_NORMALS)
    blank = label_at(ValueOverlaps(0.0, 1.0), noise).at(np.zeros(weights.size), nodes)
    square, along = (float(weights @ (blank.weight * e)) for e in (blank.y**2, blank.y * blank.slopes[0]))
    return square, along, _told_square(noise)


def _moment_nodes(normals: int) -> tuple[Array, Array]:
    """A grid of the label's own normals, once for each branch."""
    line = np.arange(-MOMENT_REACH, MOMENT_REACH + MOMENT_STEP, MOMENT_STEP)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[line] * normals)]) if normals else np.zeros((0, 1))
    weights = np.exp(-0.5 * (grid * grid).sum(axis=0))
    return branched((grid, weights / weights.sum()), normals)


def _told_square(noise: float) -> float:
    """E[E[y | z*]^2]; the sign of a mirrored label's other branch is that of the first turned around."""
    assert label_at is not None
    z = np.arange(-MOMENT_REACH, MOMENT_REACH + MOMENT_STEP, MOMENT_STEP)
    density = np.exp(-0.5 * z * z)
    nodes, weights = _moment_nodes(min(LABEL_NORMALS, 1))
    if LABEL_NORMALS == 2:
        nodes = np.insert(nodes, 0, 0.0, axis=0)
    label = label_at(ValueOverlaps(1.0, 1.0), noise)
    means = []
    for part in z:
        told = label.at(np.full(weights.size, part), nodes)
        means.append(float(weights @ (told.weight * told.y)))
    mean = np.array(means)
    if LABEL_COPIES > 1.0:
        mean = 0.5 * (mean - mean[::-1])
    return float(density @ (mean * mean) / density.sum())


label_moments: Callable[[float], tuple[float, ...]] = no_moments
