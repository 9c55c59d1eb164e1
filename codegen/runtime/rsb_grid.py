"""Gaussian smoothing on a tensor grid: F(w0) = -(1/y) log E exp(-y M(w0 + noise)), and averages tilted by exp(-y M).

A function of a few coordinates is known on a uniform grid. The noise is independent along the axes, so that its average
is a product of one matrix per axis, taken to fewer points where the smoothed function is smooth. Where the grid
resolves the noise, the matrix samples its density, with the variance kept right where it is of the size of a step; else
it is the discrete Gaussian exp(-t) I_n(t), which has the same variance on any grid and tends to the identity as the
noise vanishes. All entries are positive: nothing cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import Array

RESOLVED = (
    2.0 / 3.0
)  # standard deviations of the noise, in steps, from which on its density is sampled, to 2 exp(-2 (pi RESOLVED)^2)
WIDE, SAMPLES = 4.0, 24  # the variance, in squared steps, from which on sampling changes nothing
COARSEST = 2.0  # steps per standard deviation of the whole, where the noise needs fewer
OUTER_STEP = 1.2  # the outer sum's step, in standard deviations of what it resolves
NEGLIGIBLE = 3e-3  # standard deviations of noise, relative to the whole, that no grid is made for
LONGEST = 8.0
SLICE = 2**18  # multiplications that one thread does
LEAST_POSITIVE = 1e-290


class Grid(NamedTuple):
    """How fine: the range in standard deviations, the steps per standard deviation of the noise, and the most points.

    Where the noise is so small that an axis would need more than `most` points, or the grid more than `total`, the
    steps are as long as these allow.
    """

    reach: float
    steps: float
    most: int
    total: float


class Axis(NamedTuple):
    """The points of a coordinate, which of them the outer sum takes, and the variance of the noise along it.

    `resolved` says whether the steps are short enough to sample the density of the noise; it is kept while the variance
    moves, so that nothing jumps.
    """

    points: Array
    stride: int
    variance: float
    resolved: bool

    @property
    def step(self) -> float:
        """The distance of two points."""
        return float(self.points[1] - self.points[0])

    @property
    def outer(self) -> Array:
        """The points of the outer sum."""
        return self.points[:: self.stride]

    def between(self) -> Axis:
        """The points in the middle of any two, and one more at either end."""
        return self._replace(points=np.r_[self.points - 0.5 * self.step, self.points[-1] + 0.5 * self.step])


def axes_over(lines: Sequence[tuple[float, float, float]], grid: Grid) -> tuple[Axis, ...]:
    """Axes by the mean, deviation and noise of each, the steps made longer until the grid is small enough."""
    longer = 1.0
    while True:
        axes = tuple(axis_over(*line, grid, longer) for line in lines)
        size = float(np.prod([float(len(a.points)) for a in axes]))
        if size <= grid.total or longer > LONGEST:
            return axes
        longer *= max((size / grid.total) ** (1.0 / len(axes)), 1.02)


def staggered(axes: tuple[Axis, ...], sets: int) -> tuple[tuple[Axis, ...], ...]:
    """Up to four grids of the same steps: as they are, and with an even number of axes moved by half a step.

    Where M has a kink, or nearly, a sum over a grid has an error that depends on where the kink is between two points.
    """
    moved = ((), (0, 1), (0, 2), (1, 2))[:sets]
    return tuple(tuple(a.between() if i in which else a for i, a in enumerate(axes)) for which in moved)


def axis_over(centre: float, deviation: float, noise: float, grid: Grid, longer: float = 1.0) -> Axis:
    """A coordinate whose law is N(centre, deviation^2) and to which noise of this variance is added."""
    spread = np.sqrt(deviation * deviation + noise)
    felt = np.sqrt(noise) > NEGLIGIBLE * spread
    wanted = min(np.sqrt(noise) / grid.steps if felt else np.inf, spread / (COARSEST * grid.steps))
    step = longer * max(wanted, 2.0 * grid.reach * spread / grid.most)
    count = int(np.ceil(grid.reach * spread / step))
    resolved = bool(noise > (RESOLVED * step) ** 2)
    width = np.sqrt(1.0 / (1.0 / noise + 1.0 / deviation**2)) if resolved else 0.0
    stride = int(max(1.0, OUTER_STEP * width // step))
    return Axis(centre + step * np.arange(-count, count + 1), stride, noise, resolved)


def smoothing(axis: Axis) -> Array:
    """The matrix that averages over the noise, from all points to the outer ones."""
    if axis.variance <= 0.0:
        return np.eye(len(axis.points))[:: axis.stride]
    if not axis.resolved:
        t = axis.variance / axis.step**2
        away = np.abs(np.arange(len(axis.points))[None, :] - np.arange(len(axis.points))[:: axis.stride, None])
        return np.asarray(special.ive(away, t))
    gap = (axis.points[None, :] - axis.outer[:, None]) / axis.step
    sampled, total = sampled_variance(axis.variance / axis.step**2)
    return np.asarray(np.exp(-(gap**2) / (2.0 * sampled)) / total)


def sampled_variance(wanted: float) -> tuple[float, float]:
    """The variance whose density, sampled at whole numbers, has the variance wanted; and the sum of the samples."""
    at, sampled = np.arange(-SAMPLES, SAMPLES + 1.0), wanted
    for _ in range(40):
        weights = np.exp(-(at**2) / (2.0 * sampled))
        found = float((weights * at**2).sum() / weights.sum())
        if wanted > WIDE or abs(found / wanted - 1.0) < 1e-13:
            break
        sampled *= wanted / found
    return sampled, float(weights.sum()) if wanted <= WIDE else float(np.sqrt(2.0 * np.pi * wanted))


def slope_of_smoothing(axis: Axis, matrix: Array) -> Array:
    """The matrix of the derivative in the outer point."""
    gap = axis.points[None, :] - axis.outer[:, None]
    if axis.resolved:
        return np.asarray(matrix * gap / axis.variance)
    return np.asarray(matrix @ differences(len(axis.points)) / axis.step)


def bend_of_smoothing(axis: Axis, matrix: Array) -> Array:
    """The matrix of the second derivative in the outer point."""
    gap = axis.points[None, :] - axis.outer[:, None]
    if axis.resolved:
        return np.asarray(matrix * (gap * gap / axis.variance - 1.0) / axis.variance)
    by = differences(len(axis.points)) / axis.step
    return np.asarray(matrix @ by @ by)


def differences(count: int) -> Array:
    """Fourth-order central differences in units of the step, of lower order at the ends."""
    matrix = np.zeros((count, count))
    for offset, weight in ((1, 8.0 / 12.0), (2, -1.0 / 12.0)):
        matrix += weight * (np.eye(count, k=offset) - np.eye(count, k=-offset))
    for row in (0, 1, count - 2, count - 1):
        low, high = max(row - 1, 0), min(row + 1, count - 1)
        matrix[row] = 0.0
        matrix[row, high], matrix[row, low] = 1.0 / (high - low), -1.0 / (high - low)
    return matrix


def applied(matrices: list[Array], values: Array) -> Array:
    """The product of one matrix per axis on the values, the axis that shrinks most first."""
    ratios = [m.shape[0] / m.shape[1] for m in matrices]
    for axis in np.argsort(ratios, kind="stable"):
        first = np.moveaxis(values, axis, 0)
        found = in_slices(matrices[axis], first.reshape(len(first), -1))
        values = np.moveaxis(found.reshape(len(found), *first.shape[1:]), 0, axis)
    return values


def in_slices(matrix: Array, columns: Array) -> Array:
    """matrix @ columns, in products too small to wake the threads of BLAS."""
    width = max(SLICE // matrix.size, 1)
    found = np.empty((len(matrix), columns.shape[1]))
    for begin in range(0, columns.shape[1], width):
        part = slice(begin, begin + width)
        found[:, part] = matrix @ columns[:, part]
    return found


class Smoothed(NamedTuple):
    """F and its gradient at the outer points, and what is needed to average over the tilted noise."""

    value: Array
    gradient: tuple[Array, ...]
    tilt: Array
    partition: Array
    matrices: list[Array]

    def weights(self, outer: Array) -> Array:
        """The weights on the whole grid by which a function is averaged over outer point and tilted noise."""
        back = applied([m.T for m in self.matrices], outer / self.partition)
        return np.asarray(self.tilt * back)


def smoothed(table: Array, slopes: Sequence[Array], y: float, axes: tuple[Axis, ...]) -> Smoothed:
    """F, its gradient, and the tilt, from a table and its slopes along the axes.

    Along an axis whose noise the grid resolves the smoothed function is differentiated, which jumps of the slopes do
    not disturb; else the slopes themselves are averaged, so that nothing is left of the noise where it vanishes.
    """
    least = float(table.min())
    tilt = np.exp(-y * (table - least))
    matrices = [smoothing(a) for a in axes]
    partition = np.maximum(applied(matrices, tilt), LEAST_POSITIVE)
    gradient = tuple(
        -applied(_sloped(matrices, axes, (i,)), tilt) / (y * partition)
        if axis.resolved
        else applied(matrices, tilt * slopes[i]) / partition
        for i, axis in enumerate(axes)
    )
    return Smoothed(least - np.log(partition) / y, gradient, tilt, partition, matrices)


def second_slopes(found: Smoothed, y: float, axes: tuple[Axis, ...]) -> Array:
    """The second derivatives of F at the outer points: (axes, axes, ...)."""
    bends = np.empty((len(axes), len(axes), *found.value.shape))
    for i in range(len(axes)):
        for j in range(i + 1):
            moved = applied(_sloped(found.matrices, axes, (i, j)), found.tilt) / found.partition
            bends[i, j] = bends[j, i] = y * found.gradient[i] * found.gradient[j] - moved / y
    return bends


def _sloped(matrices: list[Array], axes: tuple[Axis, ...], places: tuple[int, ...]) -> list[Array]:
    """The matrices with a derivative along each of these axes."""
    found = list(matrices)
    for i in dict.fromkeys(places):
        make = slope_of_smoothing if places.count(i) == 1 else bend_of_smoothing
        found[i] = make(axes[i], matrices[i])
    return found


def outer_points(axes: tuple[Axis, ...]) -> Array:
    """The coordinates of all outer points: (axes, n)."""
    return np.stack([g.ravel() for g in np.meshgrid(*[a.outer for a in axes], indexing="ij")])


def table_points(axes: tuple[Axis, ...]) -> Array:
    """The coordinates of the whole grid: (axes, n)."""
    return np.stack([g.ravel() for g in np.meshgrid(*[a.points for a in axes], indexing="ij")])


def cell(axes: tuple[Axis, ...]) -> float:
    """The volume that an outer point stands for."""
    return float(reduce(lambda v, a: v * a.step * a.stride, axes, 1.0))
