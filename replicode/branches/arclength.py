"""Pseudo-arclength continuation: a branch of solutions of F(u, p) = 0 followed through its folds.

A point is corrected in the hyperplane across the branch's tangent, the null vector of (F_u, F_p), so that a fold, where
F_u is singular, is a point like any other. What is handed on is a `FollowedBranch`: its points with whatever was
recorded at each, and its folds, where the tangent has no part along p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
System = Callable[[Array, float], tuple[Array, Array, Array]]  # F, F_u, F_p
MOST_NEWTON = 8
QUICK_NEWTON = 3
GROWTH, SHRINK = 1.6, 0.5
MOST_TURN = 0.95  # cosine between tangents of neighbours
MOST_POINTS = 400
MOST_SECANTS = 30


@dataclass(frozen=True)
class BranchPoint:
    """A solution u at p, the unit tangent there, pointing onwards, and what was recorded."""

    u: Array
    p: float
    tangent: Array
    record: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FollowedBranch:
    """Points in the order in which they were met, folds among them, and whether the ends of the range were reached."""

    points: tuple[BranchPoint, ...]
    folds: tuple[BranchPoint, ...]
    complete: bool

    def columns(self, name: str, value: Callable[[float], float] = float) -> dict[str, tuple[float, ...]]:
        """The parameter along the branch under its name, and whatever was recorded."""
        recorded = self.points[0].record if self.points else {}
        found = {n: tuple(point.record[n] for point in self.points) for n in recorded}
        return {name: tuple(value(point.p) for point in self.points), **found}

    def crossings(self, p: float) -> list[BranchPoint]:
        """The neighbours in p of every passage through a value: as many as there are solutions there."""
        found = []
        for one, two in zip(self.points, self.points[1:]):
            if (one.p - p) * (two.p - p) < 0.0 or one.p == p:
                found.append(min(one, two, key=lambda x: abs(x.p - p)))
        return found


@dataclass(frozen=True)
class Steps:
    """Lengths of steps along the branch and the residual at which a point is one."""

    first: float = 0.05
    least: float = 1e-6
    most: float = 0.4
    tolerance: float = 1e-10


def corrected(system: System, u: Array, p: float, across: Array, steps: Steps) -> tuple[Array, float, int] | None:
    """Newton's method in the hyperplane through (u, p) across a direction; None where it does not converge."""
    known = np.r_[u, p]
    anchor = known.copy()
    for count in range(1, MOST_NEWTON + 1):
        value, by_u, by_p = system(known[:-1], float(known[-1]))
        residual = np.r_[value, across @ (known - anchor)]
        if not np.isfinite(residual).all():
            return None
        if np.abs(residual).max() < steps.tolerance:
            return known[:-1], float(known[-1]), count
        matrix = np.vstack([np.column_stack([by_u, by_p]), across])
        try:
            known = known - np.linalg.solve(matrix, residual)
        except np.linalg.LinAlgError:
            return None
    return None


def tangent_at(system: System, u: Array, p: float, before: Array) -> Array:
    """The unit null vector of (F_u, F_p), on the side of the tangent before."""
    _, by_u, by_p = system(u, p)
    matrix = np.vstack([np.column_stack([by_u, by_p]), before])
    found = np.linalg.solve(matrix, np.r_[np.zeros(u.size), 1.0])
    return np.asarray(found / np.linalg.norm(found))


def follow(
    system: System,
    u: Array,
    p: float,
    towards: float,
    ends: tuple[float, float] | Callable[[BranchPoint], bool],
    steps: Steps,
    record: Callable[[Array, float], dict[str, float]] = lambda u, p: {},
    told: Callable[[BranchPoint], None] = lambda point: None,
    across: Array | None = None,
) -> FollowedBranch:
    """The branch from a solution next to (u, p), first towards larger or smaller p, until it leaves the ends.

    `ends` are those of p, or say of a point whether it is inside; `across` is another direction to start along.
    """
    within = ends if callable(ends) else (lambda point: ends[0] <= point.p <= ends[1])
    along = np.sign(towards) * (np.r_[np.zeros(u.size), 1.0] if across is None else across)
    begin = corrected(system, u, p, np.abs(along), steps)
    if begin is None:
        return FollowedBranch((), (), False)
    now = _point(system, begin[0], begin[1], along, record)
    points, folds, length = [now], list[BranchPoint](), steps.first
    while len(points) < MOST_POINTS:
        there = _stepped(system, now, length, steps, record)
        if there is None or float(there[0].tangent @ now.tangent) < MOST_TURN:
            length *= SHRINK
            if length < steps.least:
                return FollowedBranch(tuple(points), tuple(folds), False)
            continue
        point, count = there
        if point.tangent[-1] * now.tangent[-1] < 0.0:
            folds.append(_fold(system, now, point, length, steps, record))
        points.append(point)
        told(point)
        now = point
        if not within(now):
            return FollowedBranch(tuple(points), tuple(folds), True)
        length = min(length * (GROWTH if count <= QUICK_NEWTON else 1.0), steps.most)
    return FollowedBranch(tuple(points), tuple(folds), False)


def _point(
    system: System, u: Array, p: float, before: Array, record: Callable[[Array, float], dict[str, float]]
) -> BranchPoint:
    return BranchPoint(u, p, tangent_at(system, u, p, before), record(u, p))


def _stepped(
    system: System, now: BranchPoint, length: float, steps: Steps, record: Callable[[Array, float], dict[str, float]]
) -> tuple[BranchPoint, int] | None:
    """The point a step onwards, and how many corrections it took."""
    guess = np.r_[now.u, now.p] + length * now.tangent
    found = corrected(system, guess[:-1], float(guess[-1]), now.tangent, steps)
    if found is None:
        return None
    return _point(system, found[0], found[1], now.tangent, record), found[2]


def _fold(
    system: System,
    left: BranchPoint,
    right: BranchPoint,
    length: float,
    steps: Steps,
    record: Callable[[Array, float], dict[str, float]],
) -> BranchPoint:
    """Where the tangent has no part along p, between two points, by the Illinois rule in the length of the step."""
    low, high, f_low, f_high = 0.0, length, left.tangent[-1], right.tangent[-1]
    found = min(left, right, key=lambda x: abs(x.tangent[-1]))
    for _ in range(MOST_SECANTS):
        at = (low * f_high - high * f_low) / (f_high - f_low)
        there = _stepped(system, left, at, steps, record)
        if there is None:
            break
        found, value = there[0], there[0].tangent[-1]
        if abs(value) < 1e-7 or high - low < steps.least * length:
            break
        if value * f_high < 0.0:
            low, f_low = high, f_high
        else:
            f_low *= 0.5
        high, f_high = at, value
    return found
