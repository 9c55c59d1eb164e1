"""Rows: the prox points and fields of one value node, where the scores have one dimension.

Along a row the prox point is u and the field tau(u) = Psi'(u), Psi = u^2/2 + V_k loss (in units of the score field). A
point is a global minimiser iff Psi touches its convex envelope there (Legendre). The gaps of that contact set are found
on a grid by the lower convex hull, their ends polished as bitangents (Maxwell), and the intervals between them get
Gauss-Legendre rules. Rows that nearly fold are split where they come closest to it, and the rules are graded towards
all ends, since responses peak there. Other rows keep the trapezoid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from replicode.codegen.runtime.channel import _blocks
from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import V_K, V_V, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product
from replicode.codegen.runtime.proxfree import Explicit, ScoreFrame, _node_blocks, explicit, jacobian_scale

ROW_REACH = 8.0
NEARLY_FOLDED = 0.4
GRADING = 4
REFINED_LOWEST = 6
ROW_BLOCK = 512


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
    """Gaps of the contact set: the row each is in, and its ends."""

    row: Array
    begin: Array
    end: Array


class RowGrid(NamedTuple):
    """Points along every row, the line there, and their spacing."""

    u: Array
    line: Line
    step: Array

    def bent(self) -> Array:
        """The rows that fold or come near to it."""
        return np.flatnonzero(self.line.rate.min(axis=1) <= NEARLY_FOLDED)

    def dips(self, highest: float = NEARLY_FOLDED) -> Array:
        """The points with a rate below that of those beside them, at which a row folds or comes near to it."""
        rate = self.line.rate
        found = np.zeros(rate.shape, dtype=bool)
        found[:, 1:-1] = (rate[:, 1:-1] <= rate[:, :-2]) & (rate[:, 1:-1] < rate[:, 2:])
        return found & (rate <= highest)

    def within(self, gaps: Gaps) -> Array:
        """The points that lie in some gaps."""
        found = np.zeros(self.u.shape, dtype=bool)
        u = self.u[gaps.row]
        np.logical_or.at(found, gaps.row, (u >= gaps.begin[:, None]) & (u <= gaps.end[:, None]))
        return found


class _Part(NamedTuple):
    """A block of nodes: the row of each, fields, prox points and weights."""

    row: Array
    at: Fields
    chi: Array
    weights: Array
    slopes: tuple[Array, ...]


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
        for b in _node_blocks(1 + len(self.values), flat.size):
            at = self.explicit(flat_row[b], flat[b])
            out[0, b] = 0.5 * flat[b] ** 2 + self.order[V_K] / (span @ span) * at.local.value
            out[1, b], out[2, b] = at.tau[0], whole * at.pivots[0]
        return Line(*out.reshape(3, *u.shape))

    def gaps_within(self, count: int) -> Gaps:
        """The gaps of all rows, found on a grid that covers the prox points of fields within ROW_REACH."""
        rows = np.arange(self.values.shape[1])
        low, high = (sign * (ROW_REACH + self._reach(rows, sign * ROW_REACH)) for sign in (-1.0, 1.0))
        on = self._between_ends(low, high, count)
        return self.all_gaps(on)

    def _between_ends(self, low: Array, high: Array, count: int) -> RowGrid:
        u = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, count)
        return RowGrid(u, self.line(np.arange(low.size)[:, None], u), (high - low) / (count - 1))

    def gaps(self, on: RowGrid, rows: Array) -> Gaps:
        """The gaps of the contact set in some rows: ends with a tangent in common, from those of the convex hull.

        tau(a) = tau(b) and Psi(b) - Psi(a) = tau (b - a) by Newton's method; gaps too narrow for it go by their rate.
        """
        which, left, right = _hull_gaps(on.u[rows], on.line.psi[rows])
        hull = Gaps(rows[which], left, right)
        found = self._bitangents(hull, 0.5 * on.step[hull.row])
        lost = np.flatnonzero(~self._settled(found))
        narrow = self._narrow_gaps(hull.row[lost], 0.5 * (left + right)[lost], on.step)
        for field, mended in zip(found, narrow, strict=True):
            field[lost] = mended
        return found

    def all_gaps(self, on: RowGrid) -> Gaps:
        """The gaps that the grid sees, and those, mostly of no width, at all other points that come near to folding."""
        found = self.gaps(on, on.bent())
        row, column = np.nonzero(on.dips() & ~on.within(found))
        return _appended(found, self._narrow_gaps(row, on.u[row, column], on.step))

    def _settled(self, gaps: Gaps) -> Array:
        """Which gaps end where the rate is positive, as contact does."""
        ends = (self.line(gaps.row, end).rate for end in (gaps.begin, gaps.end))
        return np.asarray(np.minimum(*ends) > 0.0)

    def grid(self, count: int) -> RowGrid:
        """A grid along each row from the prox of tau = -ROW_REACH to that of ROW_REACH."""
        rows = np.arange(self.values.shape[1])
        low, high = (self._end(rows, sign * ROW_REACH) for sign in (-1.0, 1.0))
        return self._between_ends(low, high, count)

    def folded(self, on: RowGrid) -> Array:
        """The folded mass of each row."""
        folding = np.where(on.line.rate < 0.0, -on.line.rate, 0.0) * _normal(on.line.tau)
        if self.frame.location is not None:
            where = np.nonzero(folding)
            fields = self.frame.field(on.line.tau[where][None])
            folding[where] *= self.frame.location.at(fields, np.empty((0, fields.shape[1]))).value
        return np.asarray(folding.sum(axis=1) * on.step)

    def nodes(self, on: RowGrid) -> RowNodes:
        """Quadrature nodes of the contact set of all rows."""
        rows, count = np.arange(self.values.shape[1]), on.u.shape[1]
        bent = on.bent()
        plain = np.setdiff1d(rows, bent)
        length = np.broadcast_to(on.step[plain, None], (plain.size, count)).ravel()
        whole = RowNodes(np.repeat(plain, count), on.u[plain].ravel(), length)
        if not bent.size:
            return whole
        cuts = self.all_gaps(on)
        cut = _gauss_nodes(*_between(bent, on.u[bent, 0], on.u[bent, -1], *cuts), count)
        return _appended(whole, cut)

    def lowest_near(self, rows: Array, at: Array, step: Array) -> tuple[Array, Array, Array]:
        """Where rows have their lowest rate near some points, by parabolas; the width of the last, and its bend."""
        width = step[rows]
        for _ in range(REFINED_LOWEST):
            width = 0.25 * width
            before, here, after = (self.line(rows, at + k * width).rate for k in (-1.0, 0.0, 1.0))
            bend = np.maximum(before - 2.0 * here + after, 1e-300)
            at = at + np.clip(0.5 * (before - after) / bend, -2.0, 2.0) * width
        return at, width, bend

    def _narrow_gaps(self, rows: Array, near: Array, step: Array) -> Gaps:
        """The gap around the lowest rate near some points, of no width where that is positive.

        With rate = a + c (u - u_0)^2, a < 0, the ends have a tangent in common at (u - u_0)^2 = -3 a / c. Newton's
        method does better than that where it does not collapse.
        """
        at, width, bend = self.lowest_near(rows, near, step)
        half = width * np.sqrt(6.0 * np.maximum(-self.line(rows, at).rate, 0.0) / bend)
        half = np.minimum(half, step[rows])
        rough = Gaps(rows, at - half, at + half)
        fine = self._bitangents(rough, 0.5 * half)
        return Gaps(*(np.where(self._settled(fine), *pair) for pair in zip(fine, rough, strict=True)))

    def _end(self, rows: Array, tau: float) -> Array:
        """The global minimiser of Psi - tau u on each row."""
        reach = self._reach(rows, tau)
        trial = tau + reach[:, None] * np.linspace(-1.0, 1.0, 81)
        cost = self.line(rows[:, None], trial).psi - tau * trial
        u = trial[rows, np.argmin(cost, axis=1)]
        for _ in range(3):
            now = self.line(rows, u)
            u = u + np.clip((tau - now.tau) / np.maximum(now.rate, 0.2), -reach / 40.0, reach / 40.0)
        return np.asarray(u)

    def _reach(self, rows: Array, tau: float) -> Array:
        """How far from tau the global minimiser of Psi - tau u can be; the loss is not negative."""
        here = self.line(rows, np.full(rows.size, tau))
        return np.sqrt(2.0 * np.maximum(here.psi - 0.5 * tau * tau, 0.0)) + 1e-3

    def _bitangents(self, gaps: Gaps, reach: Array) -> Gaps:
        """Ends of gaps after some steps of Newton's method, none longer than `reach`."""
        rows, left, right = gaps
        a, b = left.copy(), right.copy()
        for _ in range(8):
            one, two = self.line(rows, a), self.line(rows, b)
            gap, width = one.tau - two.tau, b - a
            area = two.psi - one.psi - one.tau * width
            # Jacobian [[rate_a, -rate_b], [-rate_a width, -gap]] of (gap, area) in (a, b).
            determinant = -one.rate * gap - one.rate * two.rate * width
            safe = np.where(np.abs(determinant) > 1e-14, determinant, -1e-14)
            move_a = -(-gap * gap + two.rate * area) / safe
            move_b = -(one.rate * area + one.rate * width * gap) / safe
            a = np.clip(a + np.clip(move_a, -reach, reach), left - 2.0 * reach, right)
            b = np.clip(b + np.clip(move_b, -reach, reach), a, right + 2.0 * reach)
        return Gaps(rows, a, b)

    def parts(self, nodes: RowNodes, weights: Array) -> Iterator[_Part]:
        """The nodes in blocks, with fields and weights."""
        span = self.frame.span[:, 0]
        scale = self.order[V_K] / (span @ span)
        for b in _blocks(nodes.u.size, self.setting):
            row, u = nodes.row[b], nodes.u[b]
            chi = self.frame.point(u[None])
            w_z, y = self.values[:-1, row], self.values[-1, row]
            _, slope, curvature = self.setting.kernel.hessian(chi, w_z, y, self.order[V_V], self.setting.params)
            tau = u + scale * product(span[None], slope)[0]
            rate = 1.0 + scale * np.einsum("l,lmn,m->n", span, curvature, span)
            weight = weights[row] * nodes.length[b] * rate * _normal(tau)
            w_chi = self.frame.field(tau[None])
            slopes: tuple[Array, ...] = ()
            if self.frame.location is not None:
                here = self.frame.location.at(w_chi, np.empty((0, u.size)))
                weight, slopes = weight * here.value, (here.slopes,)
            yield _Part(row, Fields(w_chi, w_z, y), chi, weight, slopes)


Listed = TypeVar("Listed", Gaps, RowNodes)


def _appended(one: Listed, two: Listed) -> Listed:
    """Both, one after the other."""
    return type(one)(*(np.concatenate(pair) for pair in zip(one, two, strict=True)))


def row_blocks(count: int) -> Iterator[slice]:
    """Rows, some at a time."""
    for begin in range(0, count, ROW_BLOCK):
        yield slice(begin, begin + ROW_BLOCK)


def _normal(tau: Array) -> Array:
    return np.asarray(np.exp(-0.5 * tau * tau) / np.sqrt(2.0 * np.pi))


def _hull_gaps(grid: Array, psi: Array) -> tuple[Array, Array, Array]:
    """Gaps of the lower convex hull of each row's points: which row, left end, right end.

    Andrew's monotone chain with all rows in step: one pass over the columns, popping where the turn is not convex.
    """
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
    return which, grid[which, stack[which, position]], grid[which, stack[which, position + 1]]


def _between(
    bent: Array, low: Array, high: Array, rows: Array, left: Array, right: Array
) -> tuple[Array, Array, Array]:
    """The intervals that the gaps leave of each bent row: row, begin, end."""
    begins_row, begins = np.concatenate([bent, rows]), np.concatenate([low, right])
    ends_row, ends = np.concatenate([bent, rows]), np.concatenate([high, left])
    first, last = np.lexsort((begins, begins_row)), np.lexsort((ends, ends_row))
    return begins_row[first], begins[first], np.maximum(ends[last], begins[first])


def _gauss_nodes(row: Array, begin: Array, end: Array, count: int) -> RowNodes:
    """Gauss-Legendre nodes on both halves of each interval, graded towards its ends as the fourth power."""
    x, w = np.polynomial.legendre.leggauss(count)
    s = 0.5 * (x + 1.0)
    distance, element = s**GRADING, 0.5 * w * GRADING * s ** (GRADING - 1)
    half = 0.5 * (end - begin)[:, None]
    u = np.concatenate([begin[:, None] + half * distance, end[:, None] - half * distance], axis=1)
    length = np.concatenate([half * element, half * element], axis=1)
    return RowNodes(np.repeat(row, 2 * count), u.ravel(), length.ravel())
