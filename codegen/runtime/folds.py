"""Averages over the points that are global minimisers, row by row, where the scores have one dimension."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replicode.codegen.runtime.channel import Averages, Ladder, Response, _integrands, _response_integrands
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.location import location_dimensions
from replicode.codegen.runtime.nodes import ball_lattice, lattice, lattice_size
from replicode.codegen.runtime.onsets import LINE_REACH, Lines
from replicode.codegen.runtime.places import RATES
from replicode.codegen.runtime.proxfree import even_values, frame_at
from replicode.codegen.runtime.refinement import standard_error
from replicode.codegen.runtime.rows import _Rows, row_blocks

ROW_WORK = 4.0
LINE_SHIFTS = 8
LINE_SPACING = 1.5
WIDER = 1.6  # in each further dimension
RELEVANT_LINE = 1e-6


class FoldedChannel(Ladder):
    """Averages over the contact set, row by row; exact at folds up to the quadrature in the values."""

    name = "prox-free, folds cut out"
    slack = 1.0 / 3.0
    cuts_folds = True

    def __init__(self, level: int, setting: Setting) -> None:
        self.setting = setting
        self.level = level
        dim = dimensions(setting)[1]
        self.zeta, self.weights = lattice(dim, self.rows(dim, level), 500 + level, even_values(0, setting))
        self.count = self.columns(level)

    @property
    def work(self) -> float:
        """A grid along each row, and rules between gaps."""
        return float(ROW_WORK * self.setting.tokens * self.weights.size * self.count)

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
        """Second derivatives of M over the contact set, in prox coordinates, on shifted sets of lines of values."""
        fineness = 1.25**self.level
        sets = [_outer_lattice(dimensions(self.setting)[1] - 1, fineness, shift) for shift in range(LINE_SHIFTS)]
        outer, shares = (np.concatenate(part, axis=-1) for part in zip(*sets, strict=True))
        belongs = np.repeat(np.arange(LINE_SHIFTS), [weights.size for _, weights in sets])
        lines = Lines(order, self.setting, frame_at(order, self.setting), outer, self.count)
        nodes = lines.nodes(fineness)
        totals = np.zeros((LINE_SHIFTS, 4))
        for b in row_blocks(nodes.at.size):
            rows, line = lines.rows(nodes.line[b], nodes.at[b]), nodes.line[b]
            for part in rows.parts(rows.nodes(rows.grid(self.count)), shares[line] * nodes.weights[b]):
                terms = _response_integrands(order, self.setting, part.at, part.chi) * np.maximum(part.weights, 0.0)
                for total, term in zip(totals.T, terms, strict=True):
                    total += np.bincount(belongs[line[part.row]], term, LINE_SHIFTS)
        mean, scatter = totals.mean(axis=0), standard_error(totals)
        return Response(mean[:3], float(mean[3]), float(scatter[3]), scatter[:3])

    def _blocks(self, order: Array) -> Iterator[tuple[_Rows, Array]]:
        """Rows, some at a time, with their weights."""
        frame = frame_at(order, self.setting)
        for part in row_blocks(self.weights.size):
            values = product(frame.law.value_factor, self.zeta[:, part])
            yield _Rows(order, self.setting, frame, values), self.weights[part]


def _outer_lattice(dim: int, fineness: float, seed: int) -> tuple[Array, Array]:
    """A shifted lattice of lines, without those that do not matter."""
    nodes, weights = ball_lattice(dim, LINE_SPACING * WIDER ** (dim - 1) / fineness, LINE_REACH, seed)
    relevant = weights > RELEVANT_LINE * weights.max()
    return nodes[:, relevant], weights[relevant]
