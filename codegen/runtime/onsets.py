"""Where folds begin along lines of values, and rules that are graded towards there.

Along a row (see rows.py) whose lowest rate is a, squared responses integrate to something like |a|^(-1/2). A line of
values crosses a = 0 at single points. They are found here and made ends of panels with nodes graded as the square, so
that the singularity is gone. What is left to the other values is a logarithm at most, of lines that touch a = 0; rows
scattered over all values would see |a|^(-1/2) itself, and their mean has no variance.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product
from replicode.codegen.runtime.proxfree import ScoreFrame
from replicode.codegen.runtime.rows import RowGrid, _normal, _Rows, row_blocks

LINE_REACH = 5.5
LOOK_STEP = 0.5
PANEL_WIDTH = 1.6
PANEL_NODES, PANEL_WEIGHTS = np.polynomial.legendre.leggauss(6)
ONSET_STEPS = 12
IRRELEVANT = 1e-9


class LineNodes(NamedTuple):
    """Nodes along lines: the line each belongs to, where on it, and its weight with the density of the line."""

    line: Array
    at: Array
    weights: Array


class Lines(NamedTuple):
    """Lines of values, along the last of their normals; `outer` holds the others, one column per line."""

    order: Array
    setting: Setting
    frame: ScoreFrame
    outer: Array
    columns: int

    def rows(self, line: Array, at: Array) -> _Rows:
        """The rows at some points of the lines."""
        zeta = np.vstack([self.outer[:, line], at])
        return _Rows(self.order, self.setting, self.frame, product(self.frame.law.value_factor, zeta))

    def nodes(self, fineness: float) -> LineNodes:
        """Nodes of panels that end where folds begin."""
        line, at = self._onsets(np.linspace(-LINE_REACH, LINE_REACH, 1 + int(2.0 * LINE_REACH * fineness / LOOK_STEP)))
        panels = [_panels(np.sort(at[line == i]), fineness) for i in range(self.outer.shape[1])]
        which = np.repeat(np.arange(len(panels)), [p[0].size for p in panels])
        where, weights = (np.concatenate(part) for part in zip(*panels, strict=True))
        weights = weights * _normal(where)
        relevant = weights > IRRELEVANT
        return LineNodes(which[relevant], where[relevant], weights[relevant])

    def _onsets(self, axis: Array) -> tuple[Array, Array]:
        """Where the lines cross the onset of a fold: between points of an axis that do not see as many gaps."""
        count, middle = self._looked_at(axis)
        line, left = np.nonzero(np.diff(count, axis=1))
        opens = count[line, left + 1] > count[line, left]
        shut, opened = (np.where(opens == way, left, left + 1) for way in (True, False))
        _, above = self._dip(line, axis[shut], middle[line, opened])
        near, below = self._dip(line, axis[opened], middle[line, opened])
        passes = (above > 0.0) & (below <= 0.0)  # gaps that merge are no onset
        ends = [(axis[side][passes], rate[passes]) for side, rate in ((shut, above), (opened, below))]
        return line[passes], self._crossings(line[passes], ends[0], ends[1], near[passes])

    def _looked_at(self, axis: Array) -> tuple[Array, Array]:
        """How many gaps each line has at the points of an axis, and the middle of the narrowest."""
        lines, size = self.outer.shape[1], axis.size
        line, column = np.repeat(np.arange(lines), size), np.tile(np.arange(size), lines)
        count, middle = np.zeros(line.size, dtype=int), np.zeros(line.size)
        for b in row_blocks(line.size):
            rows = self.rows(line[b], axis[column[b]])
            gaps = rows.all_gaps(rows.grid(self.columns))
            widths = gaps.end - gaps.begin
            widest_first = np.argsort(-widths, kind="stable")[: np.count_nonzero(widths > 0.0)]
            row = gaps.row[widest_first]
            count[b] = np.bincount(row, minlength=count[b].size)
            middle[b][row] = 0.5 * (gaps.begin + gaps.end)[widest_first]  # the last, narrowest one stays
        return count.reshape(lines, size), middle.reshape(lines, size)

    def _crossings(self, line: Array, above: tuple[Array, Array], below: tuple[Array, Array], near: Array) -> Array:
        """Where the lowest rate near some points passes 0, by the Illinois method."""
        (a, rate_a), (b, rate_b) = above, below
        best, least, side = b, np.abs(rate_b), np.zeros(b.size)
        for _ in range(ONSET_STEPS):
            here = (a * rate_b - b * rate_a) / np.minimum(rate_b - rate_a, -1e-300)
            near, rate = self._dip(line, here, near)
            best, least = np.where(np.abs(rate) < least, here, best), np.minimum(least, np.abs(rate))
            open_here = rate > 0.0
            rate_a = np.where(open_here, rate, np.where(side < 0.0, 0.5 * rate_a, rate_a))
            rate_b = np.where(open_here, np.where(side > 0.0, 0.5 * rate_b, rate_b), rate)
            a, b, side = np.where(open_here, here, a), np.where(open_here, b, here), np.where(open_here, 1.0, -1.0)
        return np.asarray(best)

    def _dip(self, line: Array, at: Array, near: Array) -> tuple[Array, Array]:
        """The local minimum of the rate nearest to some points of rows: where it is, and the rate there."""
        where, rate = np.empty(line.size), np.empty(line.size)
        for b in row_blocks(line.size):
            rows = self.rows(line[b], at[b])
            on = rows.grid(self.columns)
            every = np.arange(at[b].size)
            where[b], _, _ = rows.lowest_near(every, _nearest_dip(on, near[b]), on.step)
            rate[b] = rows.line(every, where[b]).rate
        return where, rate


def _nearest_dip(on: RowGrid, near: Array) -> Array:
    """The point of each row with a rate below that beside it that is nearest to some point."""
    away = np.where(on.dips(np.inf), np.abs(on.u - near[:, None]), np.inf)
    return np.asarray(on.u[np.arange(near.size), np.argmin(away, axis=1)])


def _panels(onsets: Array, fineness: float) -> tuple[Array, Array]:
    """Nodes and weights of Gauss-Legendre rules on panels of a line, graded towards the onsets at their ends."""
    ends = np.r_[-LINE_REACH, onsets, LINE_REACH]
    s, w = 0.5 * (PANEL_NODES + 1.0), 0.5 * PANEL_WEIGHTS
    found: list[tuple[Array, Array]] = []
    for i, (low, high) in enumerate(pairwise(ends)):
        edges = np.linspace(low, high, 1 + max(2, int(np.ceil((high - low) * fineness / PANEL_WIDTH))))
        width = edges[1] - edges[0]
        first, last = i > 0, i < onsets.size
        if first:
            found.append((low + width * s * s, 2.0 * width * s * w))
        if last:
            found.append((high - width * s * s, 2.0 * width * s * w))
        plain = edges[int(first) : edges.size - 1 - int(last)]
        found.append(((plain[:, None] + width * s).ravel(), np.tile(width * w, plain.size)))
    where, weights = (np.concatenate(part) for part in zip(*found, strict=True))
    return where, weights
