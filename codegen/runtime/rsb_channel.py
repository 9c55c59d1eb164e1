"""Channel averages at one step of breaking by tables of M: those of F = -(1/y) log E exp(-y M) over the outer fields.

F depends on the fields w0 as M does on w in the replica-symmetric theory, its gradient is -<G>, and the derived rates
apply with q0 in place of q. The rest is averaged over the tilted noise too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import Array, channel_rates
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_record, weighted_sum
from replicode.codegen.runtime.location import location_of
from replicode.codegen.runtime.rsb_averages import TiltedAverages, TiltedResponse
from replicode.codegen.runtime.rsb_grid import (
    LEAST_POSITIVE,
    Axis,
    Grid,
    Smoothed,
    cell,
    outer_points,
    second_slopes,
    smoothed,
    staggered,
)
from replicode.codegen.runtime.rsb_table import Coordinates, Frames, Table, coordinates, frames, responses, tabulated


class _Tables(NamedTuple):
    """The table of one length, smoothed, with the weights of its outer points."""

    where: Coordinates
    axes: tuple[Axis, ...]
    table: Table
    smooth: Smoothed
    expected: Fields
    weights: Array
    slopes: tuple[Array, ...]
    mass: float


class _OneGrid(NamedTuple):
    """The coordinates and the points of their axes, kept while the order parameters move."""

    seen: Frames
    axes: tuple[Axis, ...]
    setting: Setting

    def tables(self, order: Array, noise: tuple[float, float], y: float) -> _Tables:
        """Tabulate M, smooth it, and weigh the outer points."""
        where = coordinates(order, self.seen, self.setting)
        axes = tuple(a._replace(variance=float(v)) for a, v in zip(self.axes, where.variances(noise), strict=True))
        table = tabulated(order, where, axes, self.setting)
        points = outer_points(axes)
        expected = where.expected(points)
        weights = np.exp(where.log_density(points)) * cell(axes)
        slopes: tuple[Array, ...] = ()
        location = location_of(order, self.setting)
        if location is not None:
            here = location.at(expected.w_chi, np.empty((0, weights.size)))
            weights, slopes = weights * here.value, (here.slopes,)
        mass = float(weights.sum())
        smooth = smoothed(table.envelope, table.slopes, y, axes)
        return _Tables(where, axes, table, smooth, expected, weights / mass, slopes, mass)

    def averages(self, order: Array, noise: tuple[float, float], y: float) -> TiltedAverages:
        """All averages."""
        s = self.tables(order, noise, y)
        g_chi, g_z = _gains(s.where, np.stack([g.ravel() for g in s.smooth.gradient]))
        rates = channel_rates(order, self.setting.nu, self.setting.noise, *s.expected, g_chi, g_z, *s.slopes)
        spread = s.smooth.weights(s.weights.reshape(s.smooth.partition.shape))
        total = [float((spread * a).sum()) for a in s.table[:4]]
        empty = s.smooth.partition.ravel() <= LEAST_POSITIVE
        return TiltedAverages(
            rates=np.array([weighted_sum(np.broadcast_to(r, s.weights.shape), s.weights) for r in rates]),
            squares=np.array(total[1:3]),
            envelope=float(weighted_sum(s.smooth.value.ravel(), s.weights)),
            tilted=total[0],
            train_loss=total[3],
            lost=abs(1.0 - s.mass) + abs(1.0 - float(spread.sum())) + float(s.weights[empty].sum()),
        )

    def response(self, order: Array, noise: tuple[float, float], y: float) -> TiltedResponse:
        """Averages of squared responses for the stability against a further step."""
        s = self.tables(order, noise, y)
        spread = s.smooth.weights(s.weights.reshape(s.smooth.partition.shape)).ravel()
        inside = weighted_sum(responses(order, s.where, s.axes, s.table, self.setting), spread)
        bends = second_slopes(s.smooth, y, s.axes)
        frame = _field_frame(s.where)
        hessian = np.einsum("ai,ij...,bj->ab...", frame, bends.reshape(*bends.shape[:2], -1), frame)
        tokens = self.setting.tokens
        blocks = hessian[:tokens, :tokens], hessian[:tokens, tokens:], hessian[tokens:, tokens:]
        squares = [float(weighted_sum((b * b).sum(axis=(0, 1)), s.weights)) for b in blocks]
        return TiltedResponse(inside[:3], np.array(squares), float(inside[3]))


class GridLayout(NamedTuple):
    """The grids whose averages are averaged."""

    grids: tuple[_OneGrid, ...]

    @property
    def resolved(self) -> bool:
        """Longer steps overestimate how far the tilt carries, the more the steeper M is."""
        return all(a.resolved for a in self.grids[0].axes if a.variance > 0.0)

    @property
    def text(self) -> str:
        """The points of every axis."""
        points = " x ".join(str(len(a.points)) for a in self.grids[0].axes)
        return "envelopes on " + (f"{len(self.grids)} grids" if self.members else "a grid") + f" of {points} points"

    @property
    def members(self) -> tuple[GridLayout, ...]:
        """Each of the grids, where there are several."""
        return tuple(GridLayout((g,)) for g in self.grids) if len(self.grids) > 1 else ()

    def serves(self, order: Array, noise: tuple[float, float]) -> bool:
        """A grid is laid anew for every change."""
        return False

    def averages(self, order: Array, noise: tuple[float, float], y: float) -> TiltedAverages:
        """All averages."""
        return weighted_record([g.averages(order, noise, y) for g in self.grids], self._shares)

    def response(self, order: Array, noise: tuple[float, float], y: float) -> TiltedResponse:
        """Averages of squared responses for the stability against a further step."""
        return weighted_record([g.response(order, noise, y) for g in self.grids], self._shares)

    @property
    def _shares(self) -> Array:
        return np.full(len(self.grids), 1.0 / len(self.grids))


class Tables(NamedTuple):
    """The rule of tables on grids, and how many of them."""

    grid: Grid
    sets: int = 1

    def laid(self, order: Array, noise: tuple[float, float], setting: Setting) -> GridLayout:
        """A layout for these order parameters, of which `order` has q0 in the place of q, and this noise."""
        seen = frames(order, setting)
        axes = coordinates(order, seen, setting).axes(noise, self.grid)
        return GridLayout(tuple(_OneGrid(seen, a, setting) for a in staggered(axes, self.sets)))


def _gains(where: Coordinates, gradient: Array) -> tuple[Array, Array]:
    """<G> of scores and of values from the gradient of F in the coordinates."""
    split = where.split
    return -product(where.score_frame, gradient[:split]), -product(where.value_frame[:-1], gradient[split:])


def _field_frame(where: Coordinates) -> Array:
    """The derivative of the coordinates in the fields w_chi and w_z, transposed: (2 tokens, coordinates)."""
    tokens, split = where.score_frame.shape
    frame = np.zeros((2 * tokens, len(where.mean)))
    frame[:tokens, :split], frame[tokens:, split:] = where.score_frame, where.value_frame[:-1]
    return frame
