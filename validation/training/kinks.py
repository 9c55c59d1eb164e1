"""Training with kinks: the minimum sits at many of them, where no gradient vanishes, so they are rounded off by stages.

Within a width of a kink sigma becomes the cubic that joins on with its slope; each narrower stage starts from the
minimum of the one before. The last is far narrower than what the scatter over seeds resolves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replicode.validation.data.sampling import Array
from replicode.validation.training.attention import TokenMap

WIDTHS = (0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True, eq=False)
class Rounded:
    """An element-wise activation whose kinks are rounded off within a width."""

    sharp: TokenMap
    points: tuple[float, ...]
    width: float

    def sigma(self, chi: Array) -> Array:
        """sigma(chi), tokens along axis 0."""
        values = np.array(self.sharp.sigma(chi), dtype=float)
        for point, near in self._near(chi):
            t, (a, b), (da, db) = self._ends(chi, point, near)
            values[near] = (
                (1 + 2 * t) * (1 - t) ** 2 * a
                + t**2 * (3 - 2 * t) * b
                + 2 * self.width * t * (1 - t) * ((1 - t) * da - t * db)
            )
        return values

    def pullback(self, chi: Array, cotangent: Array) -> Array:
        """cotangent_l d sigma_l / d chi_l."""
        values = np.array(self.sharp.pullback(chi, cotangent), dtype=float)
        for point, near in self._near(chi):
            t, (a, b), (da, db) = self._ends(chi, point, near)
            slope = 3 * t * (1 - t) * (b - a) / self.width + (1 - t) * (1 - 3 * t) * da + t * (3 * t - 2) * db
            values[near] = cotangent[near] * slope
        return values

    def _near(self, chi: Array) -> list[tuple[float, NDArray[np.bool_]]]:
        return [(p, near) for p in self.points if (near := np.abs(chi - p) < self.width).any()]

    def _ends(self, chi: Array, point: float, near: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
        """Where in the interval the scores are, from 0 to 1; the values and the slopes at its two ends."""
        ends = np.zeros((len(chi), 2)) + point + self.width * np.array([-1.0, 1.0])
        t = (chi[near] - point + self.width) / (2.0 * self.width)
        return t, self.sharp.sigma(ends)[0], self.sharp.pullback(ends, np.ones_like(ends))[0]


def stages(token_map: TokenMap) -> tuple[TokenMap, ...]:
    """The maps to train in turn: itself alone, unless it names kinks."""
    points: tuple[float, ...] = getattr(token_map, "kinks", ())
    if not points:
        return (token_map,)
    apart = float(np.diff(points).min()) if len(points) > 1 else np.inf
    return tuple(Rounded(token_map, points, min(width, 0.4 * apart)) for width in WIDTHS)
