"""Signed prox-free averages where folds are felt: nodes close to each other, and no farther out than is asked for.

Next to a fold the integrand has singularities in the complex plane: its band is wide, and what nodes far out are worth
is lost beside what the spacing leaves out. A large lattice is not kept but made again, part by part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import special

from replicode.codegen.runtime.channel import node_dimensions
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.nodes import level_count, reaching_lattice
from replicode.codegen.runtime.proxfree import ProxFreeChannel, ProxFreePoints, ScoreFrame, symmetries

LARGEST_KEPT = 500_000
BEYOND = 3e-3  # the share of the error asked for that the Gaussian mass beyond the nodes may have
LEAST_BEYOND = 1e-15


class SignedChannel(ProxFreeChannel):
    """Prox-free averages on the nodes of a level within a radius."""

    def __init__(self, level: int, setting: Setting, radius: float) -> None:
        super().__init__((np.empty((node_dimensions(setting), 0)), np.empty(0)), setting)
        self.level, self.radius = level, radius
        self.kept: list[ProxFreeChannel] = []
        self.seen: tuple[Array, Array] | None = None

    @staticmethod
    def reaching(tol: float, setting: Setting) -> SignedChannel:
        """On the first level, as far out as an error asks for."""
        beyond = max(BEYOND * tol, LEAST_BEYOND)
        return SignedChannel(0, setting, float(np.sqrt(special.chdtri(node_dimensions(setting), beyond))))

    @property
    def work(self) -> float:
        """One evaluation at every node."""
        return self.setting.tokens * self.size(self.level)

    def refined(self, level: int) -> SignedChannel:
        """The same on the lattice of another level, centre and scale handed on."""
        finer = SignedChannel(level, self.setting, self.radius)
        finer.center, finer.scale = self.center, self.scale
        return finer

    def _parts(self) -> Iterator[ProxFreeChannel]:
        """Channels on all nodes, some in each."""
        for part in self.kept or self._made():
            part.center, part.scale = self.center, self.scale
            yield part

    def _made(self) -> Iterator[ProxFreeChannel]:
        dim, keeps = node_dimensions(self.setting), self.size(self.level) <= LARGEST_KEPT
        count, flips = level_count(dim, self.level), symmetries(self.setting)
        for nodes in reaching_lattice(dim, count, self.radius, self.level, flips):
            part = ProxFreeChannel(nodes, self.setting)
            if keeps:
                self.kept.append(part)
            yield part

    def _total(self, order: Array, frame: ScoreFrame) -> Array:
        """The sums of all nodes, or what they were where the last point is asked for again."""
        if self.seen is None or not np.array_equal(self.seen[0], order):
            self.seen = order.copy(), np.sum([part._total(order, frame) for part in self._parts()], axis=0)
        return self.seen[1]

    def adapt(self, order: Array) -> None:
        """Centre and scale the nodes on the law of the prox point."""
        super().adapt(order)
        self.seen = None

    def _all_points(self, order: Array, frame: ScoreFrame) -> Iterator[ProxFreePoints]:
        for part in self._parts():
            yield from part._all_points(order, frame)
