"""Averages over the points that are global minimisers, row by row, where the scores have one dimension."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replicode.codegen.runtime.channel import RATES, Averages, Response, _integrands, _response_integrands
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.location import location_dimensions
from replicode.codegen.runtime.nodes import lattice, lattice_size
from replicode.codegen.runtime.proxfree import even_values, frame_at
from replicode.codegen.runtime.rows import _Rows

ROW_BLOCK = 512


class FoldedChannel:
    """Averages over the contact set, row by row; exact at folds up to the quadrature in the values.

    Rows are mirrored where the loss is even, unless they are to be shifted at random.
    """

    name = "prox-free, folds cut out"
    slack = 1.0 / 3.0
    cuts_folds = True

    def __init__(self, level: int, setting: Setting, shift: int | None = None) -> None:
        self.setting = setting
        self.level = level
        dim = dimensions(setting)[1]
        flips, seed = (even_values(0, setting), 500 + level) if shift is None else ((), shift)
        self.zeta, self.weights = lattice(dim, self.rows(dim, level), seed, flips)
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
        return lattice_size(self.rows(len(self.zeta), level), even_values(0, self.setting)) * self.columns(level)

    def refined(self, level: int) -> FoldedChannel:
        """The same at another level."""
        return FoldedChannel(level, self.setting)

    def adapt(self, order: Array) -> None:
        """Rows find their own reach."""

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; nothing is searched for."""
        total, folded = np.zeros(RATES + 3), 0.0
        for rows, weights in self._blocks(order):
            on = rows.grid(self.count)
            folded += float(weighted_sum(rows.folded(on), weights))
            for part in rows.parts(rows.nodes(on), weights):
                terms = _integrands(order, self.setting, part.at, part.chi, part.slopes)
                total += weighted_sum(np.vstack([terms, np.ones(part.weights.size)]), part.weights)
        rates, (envelope, train_loss, mass) = total[:RATES], map(float, total[RATES:])
        return Averages(rates, envelope, train_loss, mass, folded, 0.0)

    def response(self, order: Array) -> Response:
        """Second derivatives of M over the contact set, in prox coordinates."""
        total = np.zeros(4)
        cell = np.sqrt(2.0 * np.pi) * self.weights.max() ** (1.0 / len(self.zeta))  # the density at 0 is known
        for rows, weights in self._blocks(order):
            on = rows.grid(self.count)
            for part in rows.parts(rows.nodes(on), weights):
                terms = _response_integrands(order, self.setting, part.at, part.chi)
                total += weighted_sum(terms, np.maximum(part.weights, 0.0))
            for part in rows.parts(rows.onset(on, cell), weights):
                terms = _response_integrands(order, self.setting, part.at, part.chi)
                total[:3] += weighted_sum(terms[:3], part.weights)
        return Response(total[:3], float(total[3]))

    def _blocks(self, order: Array) -> Iterator[tuple[_Rows, Array]]:
        """Rows, some at a time, with their weights."""
        frame = frame_at(order, self.setting)
        for begin in range(0, self.weights.size, ROW_BLOCK):
            part = slice(begin, begin + ROW_BLOCK)
            values = product(frame.law.value_factor, self.zeta[:, part])
            yield _Rows(order, self.setting, frame, values), self.weights[part]
