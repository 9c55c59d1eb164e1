"""Lines of spinodals: folds of a branch, followed in both parameters through cusps.

On the line F = 0 and F_u is singular. The second condition is g = 0 in the bordered system

    F_u v + b g = 0,  c.v = 1,        its slopes: dg = -w.(dF_u) v,  w F_u + g c = 0,  w.b = 1,

and (dF_u) v is the change of (F_u, F_x, F_y) along v, two evaluations of the same slopes. At a cusp, where two lines of
spinodals meet, F and g are regular in (u, x, y), so that one line goes through it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from replicode.branches.arclength import BranchPoint, FollowedBranch, Steps, follow
from replicode.phases.plane import Array, Linear, PlaneLevel, inside

DIFFERENCE = 1e-4
STEPS = Steps(first=0.02, least=1e-5, most=0.15, tolerance=1e-8)
SLACK = 0.02


@dataclass(frozen=True)
class Spinodal:
    """Points of a line in order with the solution at each, its cusps, and whether both ends left the plane."""

    points: tuple[tuple[float, float], ...]
    solutions: tuple[Array, ...]
    cusps: tuple[tuple[float, float], ...]
    complete: bool


class Fold:
    """The system of a fold: unknowns (u, x), parameter y; b and c are renewed at every point of the line."""

    def __init__(self, level: PlaneLevel, u: Array, place: Array) -> None:
        self.level = level
        left, _, right = np.linalg.svd(level.linear(u, place).by_u)
        self.b, self.c = left[:, -1], right[-1]
        self.w, self.v = self.b, self.c

    def __call__(self, unknowns: Array, y: float) -> tuple[Array, Array, Array]:
        """(F, g) and their slopes in (u, x) and y."""
        u, place = unknowns[:-1], np.array([unknowns[-1], y])
        at = self.level.linear(u, place)
        bordered = np.block([[at.by_u, self.b[:, None]], [self.c[None, :], np.zeros((1, 1))]])
        last = np.r_[np.zeros(u.size), 1.0]
        right, left = np.linalg.solve(bordered, last), np.linalg.solve(bordered.T, last)
        self.v, self.w = right[:-1], left[:-1]
        step = DIFFERENCE * self.v / np.linalg.norm(self.v)
        above, below = (np.column_stack([x.by_u, x.by_plane]) for x in self._beside(u, step, place))
        change = (above - below) * np.linalg.norm(self.v) / (2.0 * DIFFERENCE)
        slopes = np.vstack([np.column_stack([at.by_u, at.by_plane]), -self.w @ change])
        return np.r_[at.value, right[-1]], slopes[:, :-1], slopes[:, -1]

    def _beside(self, u: Array, step: Array, place: Array) -> list[Linear]:
        return [self.level.linear(u + s * step, place) for s in (1.0, -1.0)]

    def renew(self, _: BranchPoint) -> None:
        """Borders that stay far from singular."""
        self.b, self.c = self.w / np.linalg.norm(self.w), self.v / np.linalg.norm(self.v)


def spinodal(
    level: PlaneLevel, u: Array, place: Array, told: Callable[[Array], None] = lambda p: None
) -> Spinodal | None:
    """The line through a fold next to (u, place), to both sides; None where there is none."""
    sides = []
    for across in (np.r_[np.zeros(u.size), 0.0, 1.0], np.r_[np.zeros(u.size), 1.0, 0.0]):  # it may run along either
        try:
            sides = [_side(level, u, place, towards, across, told) for towards in (1.0, -1.0)]
        except np.linalg.LinAlgError:
            continue
        if all(side.points for side in sides):
            break
    else:
        return None
    forth, back = sides
    points = [*back.points[:0:-1], *forth.points]
    tangents = [*(-p.tangent for p in back.points[:0:-1]), *(p.tangent for p in forth.points)]
    places = tuple((float(p.u[-1]), float(p.p)) for p in points)
    moves = [np.linalg.norm(t[-2:]) for t in tangents]
    cusps = tuple(
        _plain((np.array(places[i]) * moves[i + 1] + np.array(places[i + 1]) * moves[i]) / (moves[i] + moves[i + 1]))
        for i in range(len(points) - 1)
        if float(tangents[i][-2:] @ tangents[i + 1][-2:]) < 0.0
    )
    return Spinodal(places, tuple(p.u[:-1] for p in points), cusps, forth.complete and back.complete)


def _side(
    level: PlaneLevel, u: Array, place: Array, towards: float, across: Array, told: Callable[[Array], None]
) -> FollowedBranch:
    """The line from a fold next to (u, place) to one side of the direction across which the fold is looked for."""
    fold = Fold(level, u, place)

    def tell(point: BranchPoint) -> None:
        fold.renew(point)
        told(np.array([point.u[-1], point.p]))

    begin = np.r_[u, place[0]], float(place[1])
    return follow(fold, *begin, towards, _within, STEPS, told=tell, across=across)


def _within(point: BranchPoint) -> bool:
    return inside((point.u[-1], point.p), SLACK)


def _plain(place: Array) -> tuple[float, float]:
    return float(place[0]), float(place[1])
