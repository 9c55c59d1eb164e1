"""The prox of softmax and of softmax-off-by-one by a grid that is refined wherever it can matter, and averages there.

Nothing here comes from theory/ or codegen/. Softmax-off-by-one is a softmax with one more score, 0, and one more value,
0, which the norm does not count: with d_l = y - w_zl (and d = y for that one) the objective is

    |t - t_w|^2 / (2 V_k) + rho^2 / (2 N),   rho = s . d,   N = 1 + V_v |s|^2,   s = softmax(A t),

with t in L - 1 dimensions, orthonormal in the plane of scores of sum zero, or in L.

A cell is a cube. What it has nowhere below it: rho^2 / (2 N) is the largest of r rho - r^2 N / 2 over r, so the
objective is nowhere below what it is with the r of the centre held, and touches that there. Second derivatives of that
along a unit vector, which moves the scores by e_l: of rho it is Cov_s(d, (e - E_s e)^2), where e lies in an interval of
length sqrt(2), so that the square has a variance of at most 1/4, and d has one of at most range(d)^2 / 4; that of
|s|^2 is at most 1.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from scipy.stats import qmc

Array = np.ndarray[Any, np.dtype[Any]]

SLACK = 5e-3  # cells are halved until nothing in them can be lower than their centre by more than this
NODES = 1024
CELLS = 4096
FIRST = 4  # cells along each axis of the cube that must hold the minimum
NEAR = 1.5  # diameters of a cell from a minimum within which it is taken to belong to it
STEPS, HALVINGS = 60, 30
SMALLEST_STEP = 1e-9
LEAST_CURVED = 1e-2


class Case(NamedTuple):
    """What is averaged: an activation and where, and the scores that it is a softmax of, as A t."""

    scores: Array
    counted: Array
    nu: float
    noise: float
    order: Array

    @staticmethod
    def of(activation: str, tokens: int, nu: float, noise: float, order: Array) -> Case:
        """Softmax or softmax-off-by-one; `order` is m_k, q_k, V_k, m_v, q_v, V_v."""
        eye = np.eye(tokens)
        if activation == "softmax":
            plane = np.linalg.svd(eye - 1.0 / tokens)[0][:, : tokens - 1]
            return Case(plane, np.ones(tokens), nu, noise, order)
        assert activation == "softmax1"
        return Case(np.vstack([eye, np.zeros(tokens)]), np.r_[np.ones(tokens), 0.0], nu, noise, order)

    @property
    def tokens(self) -> int:
        """L."""
        return int(self.counted.sum())

    @property
    def basis(self) -> Array:
        """The directions of t in the space of the L scores."""
        return self.scores[: self.tokens]


class Nodes(NamedTuple):
    """The fields at some nodes: t_w and d, one row for each coordinate."""

    t_w: Array
    d: Array

    def at(self, chosen: Array | slice) -> Nodes:
        """Some of them."""
        return Nodes(self.t_w[:, chosen], self.d[:, chosen])


def label_law(case: Case) -> tuple[Array, Array]:
    """The covariance of d, and the matrix that takes d to E[(w_z, y) | d]."""
    _, _, _, m_v, q_v, _ = case.order
    fields = np.diag(np.r_[np.full(case.tokens, q_v), 1.0 + case.noise**2])
    fields[0, -1] = fields[-1, 0] = m_v
    differences = np.hstack([-np.eye(len(case.counted), case.tokens), np.ones((len(case.counted), 1))])
    cross = fields @ differences.T
    covariance = differences @ cross
    return covariance, cross @ np.linalg.inv(covariance)


def scrambled(case: Case, log2: int, seed: int) -> Nodes:
    """Scrambled Sobol nodes of the fields that the objective sees, under the spiked law."""
    m_k, q_k = case.order[:2]
    covariance, _ = label_law(case)
    free = case.scores.shape[1]
    uniform = qmc.Sobol(free + len(covariance), scramble=True, seed=np.random.default_rng(seed)).random_base2(log2)
    normal = special.ndtri(np.clip(uniform, 1e-16, 1.0 - 1e-16)).T
    mean = m_k * np.sqrt(case.nu) * case.basis[0]
    return Nodes(mean[:, None] + np.sqrt(q_k) * normal[:free], np.linalg.cholesky(covariance) @ normal[free:])


class Local(NamedTuple):
    """The objective at points t, its slope, r, and the softmax s."""

    value: Array
    slope: Array
    r: Array
    s: Array
    curved: Array  # r d - r^2 V_v s: the derivative in s


def local(case: Case, t: Array, nodes: Nodes) -> Local:
    """The objective at one point for each node."""
    V_k, V_v = case.order[2], case.order[5]
    x = case.scores @ t
    x -= x.max(axis=0)
    s = np.exp(x, out=x)
    s /= s.sum(axis=0)
    counted = s if case.counted.all() else s * case.counted[:, None]
    rho = (s * nodes.d).sum(axis=0)
    r = rho / (1.0 + V_v * (counted * s).sum(axis=0))
    curved = r * nodes.d - (V_v * r * r) * counted
    away = t - nodes.t_w
    slope = away / V_k + case.scores.T @ (s * (curved - (s * curved).sum(axis=0)))
    return Local((away * away).sum(axis=0) / (2.0 * V_k) + 0.5 * r * rho, slope, r, s, curved)


def values(case: Case, t: Array, nodes: Nodes) -> Array:
    """The objective alone."""
    return local(case, t, nodes).value


def curvature(case: Case, at: Local, nodes: Nodes) -> Array:
    """The Hessian of the objective, samples first."""
    V_k, V_v = case.order[2], case.order[5]
    s, mask = at.s.T, case.counted
    jacobian = (s[:, :, None] * np.eye(len(mask)) - s[:, :, None] * s[:, None, :]) @ case.scores  # ds / dt
    pull = s * (at.curved.T - (s * at.curved.T).sum(axis=1, keepdims=True))
    crossed = (pull @ case.scores)[:, :, None] * (s @ case.scores)[:, None, :]
    held = np.einsum("nl,li,lj->nij", pull, case.scores, case.scores, optimize=True)
    held -= crossed + crossed.transpose(0, 2, 1)
    held -= (V_v * at.r**2)[:, None, None] * np.einsum("nli,l,nlj->nij", jacobian, mask, jacobian, optimize=True)
    tilt = np.einsum("nl,nli->ni", nodes.d.T - 2.0 * V_v * at.r[:, None] * s * mask, jacobian)
    norm = 1.0 + V_v * (s * s * mask).sum(axis=1)
    return held + tilt[:, :, None] * tilt[:, None, :] / norm[:, None, None] + np.eye(len(case.scores.T)) / V_k


def descended(case: Case, start: Array, nodes: Nodes) -> tuple[Array, Array]:
    """A minimiser that Newton's method, with |eigenvalues| and steps halved, leads down to; the objective there."""
    t, best, moving = start.copy(), values(case, start, nodes), np.arange(start.shape[1])
    for _ in range(STEPS):
        part = nodes.at(moving)
        here = local(case, t[:, moving], part)
        sizes, frame = np.linalg.eigh(curvature(case, here, part))
        along = np.einsum("nji,jn->ni", frame, here.slope) / np.maximum(np.abs(sizes), LEAST_CURVED)
        step = -np.einsum("nij,nj->in", frame, along)
        fall = 1e-4 * (here.slope * step).sum(axis=0)
        waiting = np.arange(moving.size)
        for _ in range(HALVINGS):
            samples = moving[waiting]
            trial = t[:, samples] + step[:, waiting]
            after = values(case, trial, part.at(waiting))
            low = after <= here.value[waiting] + fall[waiting]
            t[:, samples[low]], best[samples[low]] = trial[:, low], after[low]
            waiting = waiting[~low]
            step[:, waiting] *= 0.5
            fall[waiting] *= 0.5
            if not waiting.size:
                break
        moving = moving[np.abs(step).max(axis=0) > SMALLEST_STEP]
        if not moving.size:
            break
    return t, best


class Cells(NamedTuple):
    """Cubes: of which node, the centre, the side, the objective at the centre, and a bound below which it never is."""

    node: Array
    centre: Array
    side: Array
    value: Array
    bound: Array

    def chosen(self, which: Array) -> Cells:
        """Some of them."""
        return Cells(*(a[..., which] for a in self))

    def lowest(self) -> Array:
        """The place of that of the lowest centre, for every node that has one."""
        order = np.lexsort((self.value, self.node))
        return order[np.diff(self.node[order], prepend=-1) > 0]


def joined(parts: list[Cells]) -> Cells:
    """All of them in one."""
    return Cells(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))


def corners(free: int, count: int) -> Array:
    """The centres of so many cubes along each axis of the cube of side 1."""
    line = (np.arange(count) + 0.5) / count - 0.5
    return np.array(list(product(line, repeat=free))).T


def bounded(case: Case, centre: Array, side: Array, nodes: Nodes) -> tuple[Array, Array]:
    """The objective at the centres of cubes, and the bound."""
    here = local(case, centre, nodes)
    reach = 0.25 * len(centre) * side * side  # half a diagonal, squared
    drop = 0.5 * side * np.abs(here.slope).sum(axis=0) + 0.5 * np.maximum(bent(case, here.r, nodes), 0.0) * reach
    return here.value, here.value - drop


def bent(case: Case, r: Array, nodes: Nodes) -> Array:
    """How negative the curvature can be anywhere, with r held."""
    return 0.25 * np.abs(r) * np.ptp(nodes.d, axis=0) + 0.5 * case.order[5] * r**2 - 1.0 / case.order[2]


class Found(NamedTuple):
    """Global minimisers t, the objective there, the least that it can be anywhere, and how many cells it took."""

    t: Array
    value: Array
    bound: Array
    cells: int


def global_minimum(case: Case, nodes: Nodes, slack: float = SLACK) -> Found:
    """The global minimiser at every node."""
    searches = [_Search(case, nodes.at(slice(i, i + NODES)), slack) for i in range(0, nodes.d.shape[1], NODES)]
    t, value, bound, cells = zip(*(s.ended() for s in searches), strict=True)
    return Found(np.concatenate(t, axis=1), np.concatenate(value), np.concatenate(bound), sum(cells))


class _Search:
    """The lowest minimum so far at every node of a block, and the lowest value seen."""

    def __init__(self, case: Case, nodes: Nodes, slack: float) -> None:
        self.case, self.nodes, self.slack, self.count = case, nodes, slack, 0

    def ended(self) -> Found:
        """Cubes are halved until the minima below the few that are left can be looked at one by one."""
        self.t, self.value = descended(self.case, self.nodes.t_w, self.nodes)
        self.seen, begun = self.value.copy(), self.t.copy()
        cells, kept = self._assessed(*self._first()), []
        marks = [begun, *self._descend(cells.chosen(cells.lowest()))]
        while cells.node.size:
            cells = cells.chosen(cells.bound < self.seen[cells.node])
            fine = cells.value - cells.bound <= self.slack
            kept.append(cells.chosen(fine))
            cells = self._assessed(*self._halved(cells.chosen(~fine)))
        cells, bound = joined(kept), self.seen.copy()
        np.minimum.at(bound, cells.node, cells.bound)
        cells = self._away(cells.chosen(cells.bound < self.value[cells.node]), marks)
        while cells.node.size:
            first = cells.lowest()
            marks = self._descend(cells.chosen(first))
            cells = self._away(cells.chosen(np.delete(np.arange(cells.node.size), first)), marks)
        return Found(self.t, self.value, bound, self.count)

    def _first(self) -> tuple[Array, Array, Array]:
        """Cubes that hold the minimum together: the loss is not negative, so |t - t_w|^2 <= 2 V_k value."""
        side = 2.0 * np.sqrt(2.0 * self.case.order[2] * self.value)
        return self._parts(np.arange(side.size), self.nodes.t_w, side, FIRST)

    def _halved(self, cells: Cells) -> tuple[Array, Array, Array]:
        return self._parts(cells.node, cells.centre, cells.side, 2)

    def _parts(self, node: Array, centre: Array, side: Array, count: int) -> tuple[Array, Array, Array]:
        """Node, centre and side of the parts of cubes, so many along each axis."""
        shifts = corners(len(centre), count)
        many, wide = shifts.shape[1], np.repeat(side, shifts.shape[1])
        return np.repeat(node, many), np.repeat(centre, many, axis=1) + wide * np.tile(shifts, side.size), wide / count

    def _assessed(self, node: Array, centre: Array, side: Array) -> Cells:
        """Those of the cubes that can hold the minimum."""
        kept = [Cells(node[:0], centre[:, :0], *(side[:0],) * 3)]
        self.count += node.size
        for begin in range(0, node.size, CELLS):
            b = slice(begin, begin + CELLS)
            n = node[b]
            value, bound = bounded(self.case, centre[:, b], side[b], self.nodes.at(n))
            np.minimum.at(self.seen, n, value)
            kept.append(Cells(n, centre[:, b], side[b], value, bound).chosen(np.flatnonzero(bound < self.seen[n])))
        return joined(kept)

    def _descend(self, cells: Cells) -> list[Array]:
        """Looks for minima from centres of cubes, at most one for each node; from where and where to, for all nodes."""
        n = cells.node
        t, value = descended(self.case, cells.centre, self.nodes.at(n))
        starts, ends = self.t.copy(), self.t.copy()
        starts[:, n], ends[:, n] = cells.centre, t
        lower = value < self.value[n]
        self.t[:, n[lower]], self.value[n[lower]] = t[:, lower], value[lower]
        self.seen = np.minimum(self.seen, self.value)
        return [starts, ends]

    def _away(self, cells: Cells, marks: list[Array]) -> Cells:
        """Without those next to where a minimum was looked for or found, unless they are lower than any."""
        reach = NEAR * cells.side * np.sqrt(len(cells.centre))
        far = np.ones(cells.node.size, dtype=bool)
        for mark in marks:
            far &= np.linalg.norm(cells.centre - mark[:, cells.node], axis=0) > reach
        return cells.chosen(far | (cells.value < self.value[cells.node]))


class Rates(NamedTuple):
    """mh_k, qh_k, Vh_k, mh_v, qh_v, Vh_v over alpha; E[M]; E[r^2] / 2."""

    conjugates: Array
    envelope: float
    train_loss: float


def averaged(case: Case, nodes: Nodes, t: Array) -> Rates:
    """The averages at prox points of nodes of equal weight, by Stein's lemma; w_z and y are their means given d."""
    m_k, q_k, V_k, m_v, q_v, _ = case.order
    here, tokens = local(case, t, nodes), case.tokens
    _, mean = label_law(case)
    fields = mean @ nodes.d
    w_z, y = fields[:tokens], fields[-1]
    g_k = (t - nodes.t_w) / V_k
    g_v = here.r * here.s[:tokens]
    start = m_k * np.sqrt(case.nu) * case.basis[0]
    variance = 1.0 + case.noise**2
    det = variance * q_v - m_v**2
    yg, wg = (y * g_v[0]).mean(), (w_z[0] * g_v[0]).mean()
    found = [
        np.sqrt(case.nu) * (case.basis[0] @ g_k).mean(),
        (g_k * g_k).sum(axis=0).mean(),
        -((nodes.t_w - start[:, None]) * g_k).sum(axis=0).mean() / q_k,
        (q_v * yg - m_v * wg) / det,
        (g_v * g_v).sum(axis=0).mean(),
        -(variance * wg - m_v * yg) / det - (w_z[1:] * g_v[1:]).sum(axis=0).mean() / q_v,
    ]
    return Rates(np.array(found), float(here.value.mean()), float(0.5 * (here.r**2).mean()))


def t_bound(found: Any) -> Array:
    """What the mean of values on independent sets leaves open: a two-sided t bound of 99.9 %."""
    return np.asarray(special.stdtrit(len(found) - 1, 0.9995) * np.std(found, axis=0, ddof=1) / np.sqrt(len(found)))
