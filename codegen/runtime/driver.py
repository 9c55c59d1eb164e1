"""What the fixed points of every level are found by: one loop, the moves that it makes, and derivatives of its map.

A level hands over where it starts, what ends its iteration and how, and what follows on a state: its map, with its own
guard, at the point that a move leads to. `Mixing` moves by Anderson's method, `Chord` by Newton's with a matrix that is
kept; a level whose map is monotone, or that lays its nodes anew, moves by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from replicode.codegen.runtime.kernel import Array

MEMORY = 6
WILD = 2.0
CONTRACTS = 0.7
State = TypeVar("State")


class Rested(NamedTuple, Generic[State]):
    """The state that counts, how many there were, and whether the last met what was asked."""

    last: State
    iterations: int
    converged: bool


def driven(
    now: State,
    ended: Callable[[State], bool | None],
    following: Callable[[State], State | None],
    limit: int,
    size: Callable[[State], float] | None = None,
) -> Rested[State]:
    """From state to state until `ended` says so, True where it converged, or nothing follows.

    At the limit it is the last state that counts, or that of the least `size`.
    """
    best = now
    for count in range(1, limit + 1):
        verdict = ended(now)
        if verdict is not None:
            return Rested(now, count, verdict)
        best = now if size is None or size(now) < size(best) else best
        if count == limit:
            break
        after = following(now)
        if after is None:
            return Rested(now, count, False)
        now = after
    return Rested(best, limit, False)


class Mixing:
    """Anderson's method; a plain damped step while the history is short or the mixture is wild."""

    def __init__(self, point: Array, damping: float) -> None:
        self.point, self.damping, self.least = point, damping, np.inf
        self.points: list[Array] = []
        self.gaps: list[Array] = []

    def after(self, image: Array, residual: float) -> Array:
        """The point after this one, which the map takes to `image`."""
        if residual > 3.0 * self.least:
            self.points, self.gaps = [], []
        self.least = min(self.least, residual)
        self.points = [*self.points[1 - MEMORY :], self.point]
        self.gaps = [*self.gaps[1 - MEMORY :], image - self.point]
        self.point = np.clip(self._mixed(self.damping if residual < 0.1 else 0.5 * self.damping), -600.0, 600.0)
        return self.point

    def _mixed(self, damping: float) -> Array:
        points, gaps = self.points, self.gaps
        plain = points[-1] + damping * gaps[-1]
        if len(gaps) < 3:
            return plain
        past = np.stack([g - gaps[-1] for g in gaps[:-1]], axis=1)
        moves = np.stack([p - points[-1] for p in points[:-1]], axis=1)
        ridge = 1e-10 * (past * past).sum() / past.shape[1] + 1e-300
        mixture = np.linalg.solve(past.T @ past + ridge * np.eye(past.shape[1]), past.T @ gaps[-1])
        mixed = points[-1] - moves @ mixture + damping * (gaps[-1] - past @ mixture)
        return mixed if np.abs(mixed - points[-1]).max() < WILD else plain


class Chord:
    """Newton's method with a matrix that is kept, or the plain map where that is not finite."""

    def __init__(self, point: Array, matrix: Array) -> None:
        self.point, self.matrix, self.least, self.stalled = point, matrix, np.inf, False

    def contracts(self, residual: float) -> bool:
        """Whether the last step made the residual fall as it should."""
        self.stalled = not residual < CONTRACTS * self.least
        self.least = residual
        return not self.stalled

    def after(self, image: Array) -> Array:
        """The point after this one, which the map takes to `image`."""
        gap = image - self.point
        self.point = self.point + (self.matrix @ gap if np.isfinite(self.matrix).all() else gap)
        return self.point


def forward_slopes(function: Callable[[Array], Array], point: Array, base: Array, step: float) -> Array:
    """The derivatives of a map by forward differences from its value at a point, a column for each coordinate."""
    return np.stack([(function(point + move) - base) / step for move in step * np.eye(point.size)], axis=1)


def spectral_radius(matrix: Array) -> float:
    """The largest modulus of the eigenvalues; infinite where an entry is."""
    return float(np.abs(np.linalg.eigvals(matrix)).max()) if np.isfinite(matrix).all() else np.inf
