"""The Moreau envelope M of one sequence on a tensor grid of the coordinates that it depends on.

The coordinates are those combinations of the fields that M sees: all scores, or their differences where sigma is shift
invariant, and w_z - y/c where the rows of sigma sum to c, else w_z and y. They are orthonormal in scores and in values,
so that noise of one variance per block stays independent. M is a minimum and continuous where its prox jumps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import _response_integrands
from replicode.codegen.runtime.fields import Fields, field_law
from replicode.codegen.runtime.kernel import EVEN_LOSS, SHIFT_INVARIANT, V_K, V_V, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.prox import block_size, global_prox
from replicode.codegen.runtime.rsb_grid import Axis, Grid, axes_over, table_points

SCAN_STEPS = 4.0  # of the search for minima, per step of the grid
POLISHING = 4
FLOOR = 0.05


class Coordinates(NamedTuple):
    """What M sees of the fields: scores = score_frame s, (values, label) = value_frame u, their law and their noise.

    `back_chi` and `back_z` give the fields' conditional means from the coordinates less their mean.
    """

    score_frame: Array
    value_frame: Array
    mean: Array
    covariance: Array
    back_chi: Array
    back_z: Array
    score_mean: Array
    noisy: Array

    @property
    def split(self) -> int:
        """How many coordinates belong to the scores."""
        return int(self.score_frame.shape[1])

    def fields(self, points: Array) -> Fields:
        """Fields at which M is what it is at these coordinates."""
        values = product(self.value_frame, points[self.split :])
        return Fields(product(self.score_frame, points[: self.split]), values[:-1], values[-1])

    def expected(self, points: Array) -> Fields:
        """The means of the fields, given the coordinates."""
        away = points - self.mean[:, None]
        values = product(self.back_z, away[self.split :])
        return Fields(self.score_mean[:, None] + product(self.back_chi, away[: self.split]), values[:-1], values[-1])

    def log_density(self, points: Array) -> Array:
        """That of the law of the coordinates."""
        away = points - self.mean[:, None]
        size = np.linalg.slogdet(2.0 * np.pi * self.covariance)[1]
        return np.asarray(-0.5 * (away * product(np.linalg.inv(self.covariance), away)).sum(axis=0) - 0.5 * size)

    def axes(self, noise: tuple[float, float], grid: Grid) -> tuple[Axis, ...]:
        """Axes for this law and noise of these variances in scores and in values."""
        deviations = np.sqrt(self.covariance.diagonal())
        return axes_over(list(zip(self.mean, deviations, self.variances(noise), strict=True)), grid)

    def variances(self, noise: tuple[float, float]) -> Array:
        """The variance of the noise along every coordinate."""
        return np.asarray(self.noisy * np.where(np.arange(len(self.mean)) < self.split, *noise))


class Frames(NamedTuple):
    """The coordinates as functionals: of the scores, and of the values with the label."""

    scores: Array
    values: Array


def frames(order: Array, setting: Setting) -> Frames:
    """Orthonormal coordinates, along the principal axes of their law where their noise allows it."""
    _, score, value = field_law(order, setting)
    tokens, total = setting.tokens, setting.row_sum
    scores = np.linalg.svd(np.ones((1, tokens)))[2][1:] if SHIFT_INVARIANT else np.eye(tokens)
    gaps = np.c_[np.eye(tokens), np.full(tokens, -1.0 / total)] if total else np.eye(tokens + 1)
    return Frames(_principal(scores, score), _principal(gaps, value) if total else gaps)


def _principal(functionals: Array, covariance: Array) -> Array:
    """The functionals turned to the principal axes of their law."""
    return np.asarray(np.linalg.eigh(functionals @ covariance @ functionals.T)[1].T @ functionals)


def coordinates(order: Array, seen: Frames, setting: Setting) -> Coordinates:
    """The law of the coordinates at these order parameters."""
    mean, score, value = field_law(order, setting)
    tokens, total = setting.tokens, setting.row_sum
    score_law, value_law = (f @ c @ f.T for f, c in zip(seen, (score, value), strict=True))
    split, count = len(seen.scores), len(seen.values)
    covariance = np.zeros((split + count,) * 2)
    covariance[:split, :split], covariance[split:, split:] = score_law, value_law
    label = np.zeros((1, count)) if total else seen.values[-1:]  # where the rows have a sum, y = 0 will do
    return Coordinates(
        score_frame=seen.scores.T,
        value_frame=np.r_[seen.values[:, :tokens].T, label],
        mean=np.r_[seen.scores @ mean, np.zeros(count)],
        covariance=covariance,
        back_chi=np.linalg.solve(score_law, seen.scores @ score).T,
        back_z=np.linalg.solve(value_law, seen.values @ value).T,
        score_mean=mean,
        noisy=np.r_[np.ones(split + tokens), np.zeros(count - tokens)],
    )


class Table(NamedTuple):
    """M on the grid, |G|^2 of scores and of values, the residual's own loss, the slopes of M, and the prox."""

    envelope: Array
    squares_k: Array
    squares_v: Array
    loss: Array
    slopes: tuple[Array, ...]
    chi: Array


def tabulated(order: Array, where: Coordinates, axes: tuple[Axis, ...], setting: Setting) -> Table:
    """All of it at every point of the grid."""
    V = float(order[V_K]), float(order[V_V])
    at = where.fields(table_points(axes))
    one = where.split == 1
    chi = (
        _scanned(at, where.score_frame[:, 0], axes[0], V, setting) if one else global_prox(at.w_chi, at, V, setting)[0]
    )
    shape = tuple(len(a.points) for a in axes)
    value, _, sigmas, gain, residual = setting.kernel.gradient(chi, at.w_z, at.y, V[1], setting.params)
    moved = product(where.score_frame.T, chi - at.w_chi)
    distance = (moved * moved).sum(axis=0)
    rows = (
        distance / (2.0 * V[0]) + value,
        distance / V[0] ** 2,
        gain * gain * (sigmas * sigmas).sum(axis=0),
        residual,
    )
    pulls = product(where.value_frame[:-1].T, gain * sigmas)
    slopes = tuple(-r.reshape(shape) for r in (*(moved / V[0]), *pulls))
    envelope, squares_k, squares_v, losses = (r.reshape(shape) for r in rows)
    return Table(envelope, squares_k, squares_v, losses, slopes, chi)


def _scanned(at: Fields, frame: Array, axis: Axis, V: tuple[float, float], setting: Setting) -> Array:
    """The prox along the one direction of the scores: the lowest of a row of points, then Newton's method.

    The loss along the row is the same for all score fields, and a better point than w itself is no further from it than
    sqrt(2 V_k loss(w)). Values and label of the opposite sign stand at the other end of their grid: where the loss is
    even, half of them will do.
    """
    scores = axis.points
    every = at.y.size // scores.size
    count = (every + 1) // 2 if EVEN_LOSS else every
    w_z, y = at.w_z[:, :count], at.y[:count]
    step = axis.step / SCAN_STEPS
    far = float(np.sqrt(2.0 * V[0] * max(_along(frame, scores[[0, -1]], w_z, y, V[1], setting).max(), 1e-12)))
    beyond = int(np.ceil(far / step))
    row = scores[0] + step * np.arange(-beyond, round(float(scores[-1] - scores[0]) / step) + beyond + 1)
    losses = _along(frame, row, w_z, y, V[1], setting)
    found = np.empty((scores.size, count))
    for i, s in enumerate(scores):
        near = slice(np.searchsorted(row, s - far), np.searchsorted(row, s + far, side="right"))
        objective = losses[:, near] + (row[near] - s) ** 2 / (2.0 * V[0])
        found[i] = row[near][objective.argmin(axis=1)]
    kept = Fields(*(f.reshape(*f.shape[:-1], scores.size, every)[..., :count] for f in at))
    flat = Fields(*(f.reshape(*f.shape[:-2], -1) for f in kept))
    best = _polished(found.ravel(), step, frame, flat, V, setting).reshape(found.shape)
    whole = np.concatenate([best, best[:, : every - count][:, ::-1]], axis=1)
    return np.asarray(frame[:, None] * whole.ravel())


def _along(frame: Array, row: Array, w_z: Array, y: Array, V_v: float, setting: Setting) -> Array:
    """The loss at every point of a row of scores, for every sample: (samples, points)."""
    losses = np.empty((y.size, row.size))
    for i, t in enumerate(row):
        scores = np.repeat(frame[:, None] * t, y.size, axis=1)
        losses[:, i] = setting.kernel.loss(scores, w_z, y, V_v, setting.params)
    return losses


def _polished(t: Array, step: float, frame: Array, at: Fields, V: tuple[float, float], setting: Setting) -> Array:
    """Newton's method in the one score, block by block, no step longer than that of the search."""
    t = t.copy()
    size = 4 * block_size(setting.tokens)
    for begin in range(0, t.size, size):
        part = slice(begin, begin + size)
        here, w = at.at(part), weighted_sum(at.w_chi[:, part].T, frame)
        now = t[part]
        for _ in range(POLISHING):
            _, slope, hessian = setting.kernel.hessian(frame[:, None] * now, here.w_z, here.y, V[1], setting.params)
            bend = np.einsum("i,ijn,j->n", frame, hessian, frame)
            move = -(now - w + V[0] * weighted_sum(slope.T, frame)) / np.maximum(1.0 + V[0] * bend, FLOOR)
            now = now + np.clip(move, -step, step)
        t[part] = now
    return t


def responses(order: Array, where: Coordinates, axes: tuple[Axis, ...], table: Table, setting: Setting) -> Array:
    """Squares of the blocks of d^2 M/dw^2 at the prox, and the trace of the score block, on the grid: (4, n)."""
    at = where.fields(table_points(axes))
    return _response_integrands(order, setting, at, table.chi)
