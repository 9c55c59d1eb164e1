"""Prox-free averages with the folds cut out exactly, where the scores have one dimension.

Each value node is a row: along it the prox point is u, the field tau(u) = Psi'(u), Psi = u^2/2 + V_k loss (in units of
the score field). A point is a global minimiser iff Psi touches its convex envelope there (Legendre). The gaps of that
contact set are found on a grid by the lower convex hull, their ends polished as bitangents (Maxwell).

The signed integral over the whole of a row is that over the contact set plus that over the gaps. The first is analytic
and left to the nodes of ProxFreeChannel; what the gaps add, in the few rows that have any, is integrated by Gauss rules
and taken off. Responses have poles inside the gaps: they are integrated over the contact set alone, rows that nearly
fold being split where they come closest to it and all rules graded towards the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from codegen.runtime.channel import Averages, Response, _response_integrands
from codegen.runtime.fields import Fields, dimensions
from codegen.runtime.kernel import EVEN_LOSS, Array
from codegen.runtime.lengths import Setting
from codegen.runtime.location import location_dimensions
from codegen.runtime.nodes import lattice
from codegen.runtime.proxfree import (
    Explicit,
    ProxFreeChannel,
    ProxFreePoints,
    ScoreFrame,
    _node_blocks,
    averages_of,
    explicit,
    frame_at,
    jacobian_scale,
)

ROW_REACH = 8.0
ROW_BLOCK = 512
LEAST_WEIGHT = 1e-13
NEARLY_FOLDED = 0.4
GRADING = 4
SEARCHED_AGAIN = 0.02
FINER = 4
RESPONSE_ROWS = 8100.0
RESPONSE_COLUMNS = 80
BITANGENT_STEPS = 10
SETTLED_END = 1e-9
SMALLEST_GAP = 0.05  # what a gap adds falls as the fifth power of its width
GAP_NODES, GAP_WEIGHTS = np.polynomial.legendre.leggauss(40)


class Line(NamedTuple):
    """Psi, tau = Psi' and its rate Psi'' at points of some rows."""

    psi: Array
    tau: Array
    rate: Array


class RowNodes(NamedTuple):
    """Quadrature nodes: the row each belongs to, its coordinate and its length element."""

    row: Array
    u: Array
    length: Array


class Gaps(NamedTuple):
    """Gaps of the contact set: the row each is in, its ends, and the grid step to which these were found."""

    row: Array
    begin: Array
    end: Array
    step: Array


def _moved(order: Array, before: Array) -> bool:
    """Whether order parameters have changed by so much that gaps may have come and gone."""
    return bool((np.abs(order - before) > SEARCHED_AGAIN * (0.1 + np.abs(order))).any())


def _row_parts(count: int) -> Iterator[slice]:
    for begin in range(0, count, ROW_BLOCK):
        yield slice(begin, min(begin + ROW_BLOCK, count))


class RowSet(NamedTuple):
    """Nodes of the values that weigh something, each of them a row."""

    zeta: Array
    weights: Array

    @staticmethod
    def of(setting: Setting, count: float, seed: int) -> RowSet:
        """The rows of a lattice; that in two dimensions has `count`, any further one triples it."""
        dim = dimensions(setting)[1]
        zeta, weights = lattice(dim, count * 3.0 ** (dim - 2), seed, dim if EVEN_LOSS else 0)
        felt = weights > LEAST_WEIGHT * weights.max()
        return RowSet(zeta[:, felt], weights[felt])

    def at(self, order: Array, setting: Setting, frame: ScoreFrame, chosen: Array) -> tuple[_Rows, Array]:
        """The chosen rows at these order parameters, and their weights."""
        return _Rows(order, setting, frame, frame.law.value_factor @ self.zeta[:, chosen]), self.weights[chosen]

    def parts(self) -> Iterator[Array]:
        """All rows, some at a time."""
        for part in _row_parts(self.weights.size):
            yield np.arange(part.start, part.stop)


class FoldedChannel:
    """Averages over the contact set: the signed ones less those over the gaps, row by row."""

    name = "prox-free, folds cut out"
    slack = 1.0 / 3.0
    cuts_folds = True

    def __init__(self, level: int, smooth: ProxFreeChannel) -> None:
        self.smooth, self.setting, self.level = smooth, smooth.setting, level
        # What the gaps add is small, so that few rows do for it what many nodes do for the rest.
        self.rows = RowSet.of(self.setting, 300.0 * 3.0 ** max(level - 2, 0), 500 + level)
        self.count = 20 + 2 * level
        self.found: Gaps | None = None
        self.searched_at = np.zeros(0)

    @staticmethod
    def at_level(level: int, setting: Setting) -> FoldedChannel:
        """Nodes and rows of a level."""
        return FoldedChannel(level, ProxFreeChannel.at_level(level, setting))

    @staticmethod
    def applies(setting: Setting) -> bool:
        """Whether the scores have one dimension, and the values few enough for a lattice."""
        score, value = dimensions(setting)
        return score == 1 and value <= 3 and not location_dimensions(setting)

    def size(self, level: int) -> float:
        """How many nodes a level has."""
        return self.smooth.size(level)

    def refined(self, level: int) -> FoldedChannel:
        """The same at another level."""
        return FoldedChannel(level, self.smooth.refined(level))

    def adapt(self, order: Array) -> None:
        """Move the nodes to where these order parameters put the weight; rows find their own reach."""
        self.smooth.adapt(order)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; the gaps are searched for afresh when these have moved."""
        frame = frame_at(order, self.setting)
        total = self.smooth._total(order, frame)
        moved = self.found is None or bool(
            (np.abs(order - self.searched_at) > SEARCHED_AGAIN * (0.1 + np.abs(order))).any()
        )
        if search or moved or self.found is None:
            self.found, self.searched_at = self._search(order, frame), order
        lost = 0.0
        for part in _row_parts(self.found.row.size):
            gaps = Gaps(*(field[part] for field in self.found))
            rows, weights = self.rows.at(order, self.setting, frame, gaps.row)
            ends, missed = rows.bitangents(gaps)
            total[:-2] -= rows.gap_sums(ends, weights)[:-2]
            lost += float(weights @ missed)
            self.found.begin[part], self.found.end[part] = ends
        return averages_of(total, order, self.setting)._replace(unconverged=lost)

    def _search(self, order: Array, frame: ScoreFrame) -> Gaps:
        """The gaps of all rows, ends not yet polished."""
        found = []
        for part in self.rows.parts():
            near = self.rows.at(order, self.setting, frame, part)[0].lowest_rate(self.count)
            bent = part[near <= NEARLY_FOLDED]
            gaps = self.rows.at(order, self.setting, frame, bent)[0].gaps(FINER * self.count)
            found.append(gaps._replace(row=bent[gaps.row]))
        return Gaps(*(np.concatenate(fields) for fields in zip(*found, strict=True)))

    def response(self, order: Array) -> Response:
        """Second derivatives of M over the contact set, in prox coordinates."""
        every, frame, total = RowSet.of(self.setting, RESPONSE_ROWS, 500), frame_at(order, self.setting), np.zeros(4)
        for part in every.parts():
            rows, weights = every.at(order, self.setting, frame, part)
            for at in rows.points(rows.contact_nodes(RESPONSE_COLUMNS), weights):
                here = Fields(frame.law.score_mean[:, None] + at.deviation, at.w_z, at.y)
                total += _response_integrands(order, self.setting, here, at.chi) @ at.weights
        return Response(total[:3], float(total[3]))


class _Rows(NamedTuple):
    """Some rows: their values, the label last, and the frame of the scores."""

    order: Array
    setting: Setting
    frame: ScoreFrame
    values: Array

    def explicit(self, row: Array, u: Array) -> Explicit:
        """All that is explicit at some points."""
        return explicit(self.order, self.setting, self.frame, u[None], self.values[:, row])

    def line(self, row: Array, u: Array) -> Line:
        """Psi and its two derivatives at the points u of the rows `row`, any equal shapes."""
        flat_row, flat = np.broadcast_to(row, u.shape).ravel(), u.ravel()
        out = np.empty((3, flat.size))
        span, whole = self.frame.span[:, 0], jacobian_scale(self.setting)
        for b in _node_blocks(flat.size):
            at = self.explicit(flat_row[b], flat[b])
            out[0, b] = 0.5 * flat[b] ** 2 + self.order[2] / (span @ span) * at.local.value
            out[1, b], out[2, b] = at.tau[0], whole * at.pivots[0]
        return Line(*out.reshape(3, *u.shape))

    def _every(self) -> Array:
        return np.arange(self.values.shape[1])

    def lowest_rate(self, count: int) -> Array:
        """The lowest rate on a coarse grid of each row; the loss, not being negative, bounds where prox points are."""
        rows = self._every()
        ends = [sign * (ROW_REACH + self._reach(rows, sign * ROW_REACH)) for sign in (-1.0, 1.0)]
        grid = ends[0][:, None] + (ends[1] - ends[0])[:, None] * np.linspace(0.0, 1.0, count)
        return np.asarray(self.line(rows[:, None], grid).rate.min(axis=1))

    def _reach(self, rows: Array, tau: float) -> Array:
        """How far from tau the global minimiser of Psi - tau u can be."""
        here = self.line(rows, np.full(rows.size, tau))
        return np.sqrt(2.0 * np.maximum(here.psi - 0.5 * tau * tau, 0.0)) + 1e-3

    def _grid(self, count: int) -> tuple[Array, Line, tuple[Array, Array]]:
        """Points along each row from the prox of tau = -ROW_REACH to that of ROW_REACH, and the row's ends."""
        rows = self._every()
        low, high = (self._end(rows, sign * ROW_REACH) for sign in (-1.0, 1.0))
        grid = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, count)
        return grid, self.line(rows[:, None], grid), (low, high)

    def gaps(self, count: int) -> Gaps:
        """The gaps of the contact set, as the hull of a grid has them."""
        grid, line, _ = self._grid(count)
        return _hull_gaps(grid, line.psi, np.flatnonzero(line.rate.min(axis=1) < 0.0))

    def gap_sums(self, ends: tuple[Array, Array], weights: Array) -> Array:
        """The signed sums over gaps, one per row."""
        begin, end = ends
        half = 0.5 * (end - begin)[:, None]
        u = 0.5 * (begin + end)[:, None] + half * GAP_NODES
        nodes = RowNodes(np.repeat(self._every(), GAP_NODES.size), u.ravel(), (half * GAP_WEIGHTS).ravel())
        return np.asarray(np.sum([at.sums() for at in self.points(nodes, weights)], axis=0))

    def contact_nodes(self, count: int) -> RowNodes:
        """Quadrature nodes of the contact set of all rows."""
        grid, line, ends = self._grid(count)
        step = grid[:, 1] - grid[:, 0]
        bent = np.flatnonzero(line.rate.min(axis=1) <= NEARLY_FOLDED)
        plain = np.setdiff1d(self._every(), bent)
        length = np.broadcast_to(step[plain, None], (plain.size, count)).ravel()
        whole = RowNodes(np.repeat(plain, count), grid[plain].ravel(), length)
        if not bent.size:
            return whole
        gaps = _hull_gaps(grid, line.psi, bent)
        (left, right), _ = self._at(gaps.row).bitangents(gaps)
        rows_cut = gaps.row
        whole_bent = np.setdiff1d(bent, rows_cut)
        closest = _lowest(grid[whole_bent], line.rate[whole_bent])
        cuts = [np.concatenate(p) for p in ((rows_cut, whole_bent), (left, closest), (right, closest))]
        cut = _graded_nodes(*_between(bent, ends[0][bent], ends[1][bent], *cuts), count)
        return RowNodes(*(np.concatenate(pair) for pair in zip(whole, cut, strict=True)))

    def _end(self, rows: Array, tau: float) -> Array:
        """The global minimiser of Psi - tau u on each row."""
        reach = self._reach(rows, tau)
        trial = tau + reach[:, None] * np.linspace(-1.0, 1.0, 41)
        cost = self.line(rows[:, None], trial).psi - tau * trial
        u = trial[rows, np.argmin(cost, axis=1)]
        for _ in range(3):
            now = self.line(rows, u)
            u = u + np.clip((tau - now.tau) / np.maximum(now.rate, 0.2), -reach / 20.0, reach / 20.0)
        return np.asarray(u)

    def _at(self, chosen: Array) -> _Rows:
        """Some of the rows, or one several times."""
        return self._replace(values=self.values[:, chosen])

    def bitangents(self, gaps: Gaps) -> tuple[tuple[Array, Array], Array]:
        """Ends (a, b) of gaps, one per row, by Newton: tau(a) = tau(b) and Psi(b) - Psi(a) = tau (b - a).

        And which of them Newton did not settle.
        """
        rows, reach = self._every(), 0.5 * gaps.step
        a, b = gaps.begin.copy(), gaps.end.copy()
        unsettled = np.ones(rows.size, dtype=bool)
        for _ in range(BITANGENT_STEPS):
            one, two = self.line(rows, a), self.line(rows, b)
            gap, width = one.tau - two.tau, b - a
            area = two.psi - one.psi - one.tau * width
            # Jacobian [[rate_a, -rate_b], [-rate_a width, -gap]] of (gap, area) in (a, b).
            determinant = -one.rate * gap - one.rate * two.rate * width
            safe = np.where(np.abs(determinant) > 1e-14, determinant, -1e-14)
            move_a = -(-gap * gap + two.rate * area) / safe
            move_b = -(one.rate * area + one.rate * width * gap) / safe
            a = np.clip(a + np.clip(move_a, -reach, reach), gaps.begin - 2.0 * reach, gaps.end)
            b = np.clip(b + np.clip(move_b, -reach, reach), a, gaps.end + 2.0 * reach)
            unsettled = (np.abs(move_a) + np.abs(move_b) > SETTLED_END) & (b - a > SMALLEST_GAP)
            if not unsettled.any():
                break
        return (a, b), unsettled

    def points(self, nodes: RowNodes, weights: Array) -> Iterator[ProxFreePoints]:
        """The nodes in blocks, with fields and weights."""
        whole, factor = jacobian_scale(self.setting), self.frame.law.score_factor
        for b in _node_blocks(nodes.u.size):
            row = nodes.row[b]
            chi, local, tau, pivots = self.explicit(row, nodes.u[b])
            rate, deviation = whole * pivots[0], factor * tau
            weight = weights[row] * nodes.length[b] * rate * _normal(tau[0])
            slopes: tuple[Array, ...] = ()
            if self.frame.location is not None:
                fields = self.frame.law.score_mean[:, None] + deviation
                here = self.frame.location.at(fields, np.empty((0, row.size)))
                weight, slopes = weight * here.value, (here.slopes,)
            values = self.values[:, row]
            yield ProxFreePoints(chi, deviation, values[:-1], values[-1], weight, pivots[0], local, slopes)


def _normal(tau: Array) -> Array:
    return np.asarray(np.exp(-0.5 * tau * tau) / np.sqrt(2.0 * np.pi))


def _hull_gaps(grid: Array, psi: Array, chosen: Array) -> Gaps:
    """Gaps of the lower convex hull of the points of each chosen row.

    Andrew's monotone chain with all rows in step: one pass over the columns, popping where the turn is not convex.
    """
    grid, psi = grid[chosen], psi[chosen]
    count, size = psi.shape
    stack = np.zeros((count, size), dtype=int)
    top = np.zeros(count, dtype=int)
    every = np.arange(count)
    for column in range(1, size):
        busy = every[top >= 1]
        while busy.size:
            last, before = stack[busy, top[busy]], stack[busy, top[busy] - 1]
            rise = (psi[busy, last] - psi[busy, before]) * (grid[busy, column] - grid[busy, last])
            run = (psi[busy, column] - psi[busy, last]) * (grid[busy, last] - grid[busy, before])
            popped = busy[rise >= run]
            top[popped] -= 1
            busy = popped[top[popped] >= 1]
        top += 1
        stack[every, top] = column
    inside = np.arange(size - 1)[None, :] < top[:, None]
    jumps = np.where(inside, np.diff(stack, axis=1), 0) > 1
    which, position = np.nonzero(jumps)
    begin, end = (grid[which, stack[which, position + k]] for k in (0, 1))
    return Gaps(chosen[which], begin, end, (grid[:, 1] - grid[:, 0])[which])


def _between(
    bent: Array, low: Array, high: Array, rows: Array, left: Array, right: Array
) -> tuple[Array, Array, Array]:
    """The intervals that the gaps leave of each bent row: row, begin, end."""
    begins_row, begins = np.concatenate([bent, rows]), np.concatenate([low, right])
    ends_row, ends = np.concatenate([bent, rows]), np.concatenate([high, left])
    first, last = np.lexsort((begins, begins_row)), np.lexsort((ends, ends_row))
    return begins_row[first], begins[first], np.maximum(ends[last], begins[first])


def _lowest(grid: Array, rate: Array) -> Array:
    """Where each row's rate is lowest, by a parabola through the lowest node and its neighbours."""
    size = rate.shape[1]
    every, at = np.arange(len(rate)), np.clip(np.argmin(rate, axis=1), 1, size - 2)
    before, here, after = (rate[every, at + k] for k in (-1, 0, 1))
    bend = np.maximum(before - 2.0 * here + after, 1e-12)
    return np.asarray(grid[every, at] + np.clip(0.5 * (before - after) / bend, -1.0, 1.0) * (grid[:, 1] - grid[:, 0]))


def _graded_nodes(row: Array, begin: Array, end: Array, count: int) -> RowNodes:
    """Gauss-Legendre nodes on both halves of each interval, graded towards its ends as the fourth power."""
    x, w = np.polynomial.legendre.leggauss(count)
    s = 0.5 * (x + 1.0)
    distance, element = s**GRADING, 0.5 * w * GRADING * s ** (GRADING - 1)
    half = 0.5 * (end - begin)[:, None]
    u = np.concatenate([begin[:, None] + half * distance, end[:, None] - half * distance], axis=1)
    length = np.concatenate([half * element, half * element], axis=1)
    return RowNodes(np.repeat(row, 2 * count), u.ravel(), length.ravel())
