"""Prox-free averages with the folds cut out exactly, where the scores have one dimension.

Each value node is a row: along it the prox point is u, the field tau(u) = Psi'(u), Psi = u^2/2 + V_k loss (in units of
the score field). A point is a global minimiser iff Psi touches its convex envelope there (Legendre), so the rows are
integrated over the contact set alone: its gaps are found on a grid by the lower convex hull, their ends polished as
bitangents (Maxwell), and the intervals between them get Gauss-Legendre rules. Rows that nearly fold are split where
they come closest to it, and the rules are graded towards all ends, since responses peak there. Other rows keep the
trapezoid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codegen.runtime.channel import RATES, Averages, Response, _blocks, _integrands, _response_integrands
from codegen.runtime.fields import Fields, dimensions
from codegen.runtime.kernel import Array
from codegen.runtime.lengths import Setting
from codegen.runtime.location import location_dimensions
from codegen.runtime.nodes import lattice
from codegen.runtime.proxfree import ScoreFrame, frame_at

ROW_REACH = 8.0
ROW_BLOCK = 512
NEARLY_FOLDED = 0.4
GRADING = 4


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


class FoldedChannel:
    """Averages over the contact set, row by row; exact at folds up to the quadrature in the values."""

    name = "prox-free, folds cut out"
    slack = 1.0 / 3.0
    cuts_folds = True

    def __init__(self, level: int, setting: Setting) -> None:
        self.setting = setting
        self.level = level
        dim = dimensions(setting)[1]
        self.zeta, self.weights = lattice(dim, self.rows(dim, level), 500 + level)
        self.count = self.columns(level)

    @staticmethod
    def applies(setting: Setting) -> bool:
        """Whether the scores have one dimension, and the values few enough for a lattice."""
        score, value = dimensions(setting)
        return score == 1 and value <= 3 and not location_dimensions(setting)

    @staticmethod
    def rows(dim: int, level: int) -> float:
        """Rows at a level."""
        return 300.0 * 3.0 ** (dim - 2) * 3.0**level

    @staticmethod
    def columns(level: int) -> int:
        """Nodes along a row at a level."""
        return int(50 * 1.25**level)

    def size(self, level: int) -> float:
        """How many nodes a level has."""
        return self.rows(len(self.zeta), level) * self.columns(level)

    def refined(self, level: int) -> FoldedChannel:
        """The same at another level."""
        return FoldedChannel(level, self.setting)

    def adapt(self, order: Array) -> None:
        """Rows find their own reach."""

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; nothing is searched for."""
        total, folded = np.zeros(RATES + 3), 0.0
        for part in self._parts(order):
            terms = np.vstack(
                [_integrands(order, self.setting, part.at, part.chi, part.slopes), np.ones(part.weights.size)]
            )
            total += terms @ part.weights
            folded += part.folded
        rates, (envelope, train_loss, mass) = total[:RATES], map(float, total[RATES:])
        return Averages(rates, envelope, train_loss, mass, folded, 0.0)

    def response(self, order: Array) -> Response:
        """Second derivatives of M over the contact set, in prox coordinates."""
        total = np.zeros(4)
        for part in self._parts(order):
            total += _response_integrands(order, self.setting, part.at, part.chi) @ part.weights
        return Response(total[:3], float(total[3]))

    def _parts(self, order: Array) -> list[_Part]:
        frame = frame_at(order, self.setting)
        values = frame.law.value_factor @ self.zeta
        parts = []
        for begin in range(0, self.weights.size, ROW_BLOCK):
            rows = slice(begin, begin + ROW_BLOCK)
            block = _Rows(order, self.setting, frame, values[:-1, rows], values[-1, rows])
            nodes, folded = block.nodes(self.count)
            parts += block.parts(nodes, self.weights[rows], float(folded @ self.weights[rows]))
        return parts


class _Part(NamedTuple):
    """A block of nodes with fields, prox points and weights; folded mass is on the first block of its rows."""

    at: Fields
    chi: Array
    weights: Array
    folded: float
    slopes: tuple[Array, ...]


class _Rows(NamedTuple):
    """Some rows: their values and labels, and the frame of the scores."""

    order: Array
    setting: Setting
    frame: ScoreFrame
    w_z: Array
    y: Array

    def line(self, row: Array, u: Array) -> Line:
        """Psi and its two derivatives at the points u of the rows `row`, any equal shapes."""
        flat_row, flat = np.broadcast_to(row, u.shape).ravel(), u.ravel()
        out = np.empty((3, flat.size))
        span = self.frame.span[:, 0]
        scale = self.order[2] / (span @ span)
        for b in _blocks(flat.size, self.setting):
            chi = self.frame.point(flat[None, b])
            where = flat_row[b]
            value, slope, curvature = self.setting.kernel.hessian(
                chi, self.w_z[:, where], self.y[where], self.order[5], self.setting.params
            )
            out[0, b] = 0.5 * flat[b] ** 2 + scale * value
            out[1, b] = flat[b] + scale * (span @ slope)
            out[2, b] = 1.0 + scale * np.einsum("l,lmn,m->n", span, curvature, span)
        return Line(*out.reshape(3, *u.shape))

    def nodes(self, count: int) -> tuple[RowNodes, Array]:
        """Quadrature nodes of all rows, and the folded mass of each."""
        rows = np.arange(self.y.size)
        ends = [self._end(rows, sign * ROW_REACH) for sign in (-1.0, 1.0)]
        grid = ends[0][:, None] + (ends[1] - ends[0])[:, None] * np.linspace(0.0, 1.0, count)
        step = (ends[1] - ends[0]) / (count - 1)
        line = self.line(rows[:, None], grid)
        folding = np.where(line.rate < 0.0, -line.rate, 0.0) * _normal(line.tau)
        if self.frame.location is not None:
            where = np.nonzero(folding)
            fields = self.frame.field(line.tau[where][None])
            folding[where] *= self.frame.location.at(fields, np.empty((0, fields.shape[1]))).value
        bent = np.flatnonzero(line.rate.min(axis=1) <= NEARLY_FOLDED)
        plain = np.setdiff1d(rows, bent)
        length = np.broadcast_to(step[plain, None], (plain.size, count)).ravel()
        whole = RowNodes(np.repeat(plain, count), grid[plain].ravel(), length)
        if not bent.size:
            return whole, folding.sum(axis=1) * step
        rows_cut, left, right = self._bitangents(*_hull_gaps(grid[bent], line.psi[bent]), bent, step)
        whole_bent = np.setdiff1d(bent, rows_cut)
        closest = _lowest(grid[whole_bent], line.rate[whole_bent])
        gaps = [np.concatenate(p) for p in ((rows_cut, whole_bent), (left, closest), (right, closest))]
        pieces = _between(bent, ends[0][bent], ends[1][bent], *gaps)
        cut = _gauss_nodes(*pieces, count)
        joined = RowNodes(*(np.concatenate(pair) for pair in zip(whole, cut, strict=True)))
        return joined, folding.sum(axis=1) * step

    def _end(self, rows: Array, tau: float) -> Array:
        """The global minimiser of Psi - tau u on each row; the loss is not negative, which bounds the search."""
        here = self.line(rows, np.full(rows.size, tau))
        reach = np.sqrt(2.0 * np.maximum(here.psi - 0.5 * tau * tau, 0.0)) + 1e-3
        trial = tau + reach[:, None] * np.linspace(-1.0, 1.0, 81)
        cost = self.line(rows[:, None], trial).psi - tau * trial
        u = trial[rows, np.argmin(cost, axis=1)]
        for _ in range(3):
            now = self.line(rows, u)
            u = u + np.clip((tau - now.tau) / np.maximum(now.rate, 0.2), -reach / 40.0, reach / 40.0)
        return np.asarray(u)

    def _bitangents(self, which: Array, left: Array, right: Array, bent: Array, step: Array) -> tuple[Array, ...]:
        """Ends (a, b) of the gaps with tau(a) = tau(b) and Psi(b) - Psi(a) = tau (b - a), by Newton from the hull's."""
        rows = bent[which]
        reach = 0.5 * step[rows]
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
        return rows, a, b

    def parts(self, nodes: RowNodes, weights: Array, folded: float) -> list[_Part]:
        """The nodes in blocks, with fields and weights."""
        found: list[_Part] = []
        span = self.frame.span[:, 0]
        scale = self.order[2] / (span @ span)
        for b in _blocks(nodes.u.size, self.setting):
            row, u = nodes.row[b], nodes.u[b]
            chi = self.frame.point(u[None])
            w_z, y = self.w_z[:, row], self.y[row]
            _, slope, curvature = self.setting.kernel.hessian(chi, w_z, y, self.order[5], self.setting.params)
            tau = u + scale * (span @ slope)
            rate = 1.0 + scale * np.einsum("l,lmn,m->n", span, curvature, span)
            weight = weights[row] * nodes.length[b] * rate * _normal(tau)
            w_chi = self.frame.field(tau[None])
            slopes: tuple[Array, ...] = ()
            if self.frame.location is not None:
                here = self.frame.location.at(w_chi, np.empty((0, u.size)))
                weight, slopes = weight * here.value, (here.slopes,)
            part = _Part(Fields(w_chi, w_z, y), chi, weight, folded if not found else 0.0, slopes)
            found.append(part)
        return found


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


def _lowest(grid: Array, rate: Array) -> Array:
    """Where each row's rate is lowest, by a parabola through the lowest node and its neighbours."""
    size = rate.shape[1]
    every, at = np.arange(len(rate)), np.clip(np.argmin(rate, axis=1), 1, size - 2)
    before, here, after = (rate[every, at + k] for k in (-1, 0, 1))
    bend = np.maximum(before - 2.0 * here + after, 1e-12)
    return np.asarray(grid[every, at] + np.clip(0.5 * (before - after) / bend, -1.0, 1.0) * (grid[:, 1] - grid[:, 0]))


def _gauss_nodes(row: Array, begin: Array, end: Array, count: int) -> RowNodes:
    """Gauss-Legendre nodes on both halves of each interval, graded towards its ends as the fourth power."""
    x, w = np.polynomial.legendre.leggauss(count)
    s = 0.5 * (x + 1.0)
    distance, element = s**GRADING, 0.5 * w * GRADING * s ** (GRADING - 1)
    half = 0.5 * (end - begin)[:, None]
    u = np.concatenate([begin[:, None] + half * distance, end[:, None] - half * distance], axis=1)
    length = np.concatenate([half * element, half * element], axis=1)
    return RowNodes(np.repeat(row, 2 * count), u.ravel(), length.ravel())
