"""A look at the integral in double precision: which nodes matter, how fine they must be, folds, and the Jacobian."""

from __future__ import annotations

import math
from functools import cached_property

import mpmath
import numpy as np
from mpmath import mpf

from replicode.codegen.precise.integral import Array, DoubleSystem, Grid, Physics, Vector
from replicode.codegen.runtime.linear import weighted_sum
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import Refusal

LARGEST_NODES = 2_000_000
FARTHEST = 33.0
CAUTION = 0.9
COARSE = 0.6
WIDEST = 1.6
DOUBLE = 15
ROUNDING = 1e-12
BLOCK = 200_000


class Scout:
    """The same integral in double precision: which nodes matter, how fine they must be, folds, and the Jacobian."""

    def __init__(self, system: SaddleSystem, start: Vector, physics: Physics) -> None:
        self.double, self.order, self.physics = DoubleSystem(system), start, physics
        self.score, self.value = self.double.dimensions
        self.center, self.scale = 0.0, 1.0
        if self.score:
            self._adapt()

    def _adapt(self) -> None:
        """Centre and scale the scores of the nodes on the law of the prox point."""
        for _ in range(2):
            grid = self.grid(COARSE, DOUBLE)
            u = self.center + self.scale * 0.5 * grid.spacing * grid.indices[0]
            weights = self.double.node_weights(self.order, self.physics, grid)
            weights /= weights.sum()
            self.center = float(weighted_sum(u, weights))
            self.scale = float(np.sqrt(weighted_sum((u - self.center) ** 2, weights)))

    def grid(self, spacing: float, digits: float, shift: float = 0.0) -> Grid:
        """The nodes whose weight is above 10^-digits, found by looking at ever more distant scores."""
        radius = float(np.sqrt(2.0 * np.log(10.0) * digits))
        dim = self.score + self.value
        if np.pi ** (dim / 2) / math.gamma(dim / 2 + 1) * (radius / spacing) ** dim > LARGEST_NODES:
            raise Refusal(f"digits: a lattice of spacing {spacing:.2g} has more than {LARGEST_NODES} nodes")
        values = _half_space(self.value, 2.0 * radius / spacing)
        if not self.score:
            return self._lattice(spacing, shift, values)
        reach = 1.25 * radius
        while reach <= FARTHEST:
            count = int(np.ceil(2.0 * reach / spacing))
            grid, edge = self._selected(values, self._lattice(spacing, shift, values), 10.0**-digits, count)
            if not edge:
                return grid
            reach *= 1.2
        raise Refusal("digits: the prox point lies too far from its field for a lattice of this many digits")

    def _lattice(self, spacing: float, shift: float, indices: Array, folded: float = 0.0) -> Grid:
        """The grid of these nodes; only those without any value are their own image under the flip."""
        pairs = np.where((indices[len(indices) - self.value :] == 0).all(axis=0), 1, 2)
        return Grid(spacing, shift, self.center, self.scale, indices, pairs, folded)

    def _selected(self, values: Array, like: Grid, threshold: float, count: int) -> tuple[Grid, bool]:
        """The nodes that matter among all scores up to `count`, and whether the outermost of these are among them."""
        kept, folded, edge = [], 0.0, False
        lines = max(1, BLOCK // (2 * count + 1))
        for begin in range(0, values.shape[1], lines):
            grid = self._lattice(like.spacing, like.shift, _with_scores(values[:, begin : begin + lines], count))
            weights = self.double.node_weights(self.order, self.physics, grid)
            folded -= float(weights[weights < 0.0].sum() * grid.cell)
            chosen = np.abs(weights) >= threshold
            edge = edge or bool((chosen & (np.abs(grid.indices[0]) >= count - 1)).any())
            kept.append(grid.indices[:, chosen])
        return self._lattice(like.spacing, like.shift, np.concatenate(kept, axis=1), folded), edge

    def spacing(self, digits: int) -> float:
        """The spacing for this many digits, from the fall exp(-c/h^2) of the error measured in double precision."""
        spacing, before, rate = WIDEST, None, 0.0
        while True:
            found = self.double.averages(self.order, self.physics, self.grid(spacing, DOUBLE, 0.5))
            now = np.array([float(x) for x in (*found.rates, found.envelope, found.train_loss, found.mass)])
            if before is not None:
                change = float((np.abs(now - before) / (1.0 + np.abs(now))).max())
                fall = -np.log(max(change, ROUNDING)) * (spacing / 0.85) ** 2
                if change <= ROUNDING:
                    rate = max(rate, fall)
                    break
                rate = fall
            before, spacing = now, 0.85 * spacing
        return CAUTION * float(np.sqrt(rate / (np.log(10.0) * (digits + 1))))

    @cached_property
    def slopes(self) -> mpmath.matrix:
        """How the image, the conjugates and the training loss move with the order parameters they depend on.

        By differences of fourth order.
        """
        grid, model = self.grid(COARSE, DOUBLE), self.double.system.model
        matrix = mpmath.zeros(2 * len(self.order) + 1, len(self.order))
        for block in model.blocks if self.score else (model.values,):
            places = [model.index(s) for s in (block.m, block.q, block.V)]
            m, q, v = (self.order[i] for i in places)
            for i, size in zip(places, (mpmath.sqrt(q - m * m), q - m * m, v), strict=True):
                step = 3 * size / 1000
                moved = {n: self._moved(grid, i, n * step) for n in (-2, -1, 1, 2)}
                for j in range(matrix.rows):
                    rise = 8 * (moved[1][j] - moved[-1][j]) - (moved[2][j] - moved[-2][j])
                    matrix[j, i] = rise / (12 * step)
        return matrix

    def newton_matrix(self) -> mpmath.matrix:
        """(I - dF)^-1 of the saddle-point map."""
        size = len(self.order)
        return mpmath.inverse(mpmath.eye(size) - self.slopes[:size, :])

    def _moved(self, grid: Grid, i: int, step: mpf) -> Vector:
        """Image, conjugates and training loss with one order parameter moved."""
        order = [x + step * (j == i) for j, x in enumerate(self.order)]
        averages = self.double.averages(order, self.physics, grid)
        conjugates = self.double.conjugates(averages, self.physics)
        return [*self.double.image(conjugates, self.physics), *conjugates, averages.train_loss]


def _half_space(dim: int, radius: float) -> Array:
    """Indices in a ball, of equal parity, of which the first that is not zero is positive."""
    line = np.arange(-int(radius), int(radius) + 1)
    indices = np.stack(np.meshgrid(*[line] * dim, indexing="ij")).reshape(dim, -1)
    inside = (indices * indices).sum(axis=0) <= radius * radius
    even = (indices % 2 == indices[0] % 2).all(axis=0)
    leading = np.zeros(indices.shape[1], dtype=int)
    for row in indices[::-1]:
        leading = np.where(row != 0, row, leading)
    return np.asarray(indices[:, inside & even & (leading >= 0)])


def _with_scores(values: Array, count: int) -> Array:
    """Every index of the values with every score index of the same parity."""
    scores = np.repeat(np.arange(-count, count + 1), values.shape[1])
    joined = np.concatenate([scores[None], np.tile(values, 2 * count + 1)])
    return np.asarray(joined[:, joined[0] % 2 == joined[1] % 2])
