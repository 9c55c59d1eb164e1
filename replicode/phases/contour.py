"""A line g = 0 in the plane, followed from a point on it: a step along, then a root across.

Nothing but values of g is needed: slopes of a replicon are not at hand. Where g has no value, as where one of the two
branches of a transition ends, the line ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from replicode.phases.plane import Array, inside

FIRST, LEAST, MOST = 0.02, 1e-3, 0.06
MOST_TURN = 0.9
MOST_POINTS = 300
MOST_SECANTS = 12
Function = Callable[[Array], float]


@dataclass(frozen=True)
class Contour:
    """Points of a line in order; `closed`, or whether both its ends left the plane."""

    points: tuple[tuple[float, float], ...]
    closed: bool
    complete: bool


def root(g: Function, here: Array, along: Array, reach: float, tolerance: float, slope: float = 0.0) -> Array | None:
    """A place where g = 0 on the straight line through a place, at most `reach` away; None where none is found.

    `slope` is that of g along the line, where it is known about.
    """
    low, f_low = 0.0, g(here)
    if not np.isfinite(f_low):
        return None
    high = 0.25 * reach
    if slope and f_low:
        high = float(np.clip(-f_low / slope, -0.5 * reach, 0.5 * reach))
        if abs(high) < tolerance:
            return here + high * along
    f_high = g(here + high * along)
    for _ in range(MOST_SECANTS):
        if abs(f_low) <= 0.0:
            return here + low * along
        if not np.isfinite(f_high) or f_high == f_low:
            return None
        at = high - f_high * (high - low) / (f_high - f_low)
        if abs(at) > reach:
            return None
        if abs(at - high) < tolerance:
            return here + at * along
        value = g(here + at * along)
        if not np.isfinite(value):
            return None
        if value * f_high > 0.0 and abs(value) > 0.5 * abs(f_high) and f_low * f_high < 0.0:
            low, f_low, high, f_high = low, 0.5 * f_low, at, value  # the Illinois rule, for kinks
        elif f_low * f_high < 0.0 and value * f_low < 0.0:
            high, f_high = at, value
        else:
            low, f_low, high, f_high = high, f_high, at, value
    return None


def contour(g: Function, seed: Array, tolerance: float, told: Callable[[Array], None] = lambda p: None) -> Contour:
    """The line through a point of it, to both sides."""
    slope = np.array([(g(seed + d) - g(seed - d)) for d in 1e-3 * np.eye(2)])
    if not (np.isfinite(slope).all() and slope.any()):
        return Contour((_plain(seed),), False, False)
    along = np.array([-slope[1], slope[0]]) / np.linalg.norm(slope)
    steep = float(np.linalg.norm(slope)) / 2e-3
    forth, left, closed = _one_side(g, seed, along, steep, tolerance, told)
    if closed:
        return Contour(tuple(map(_plain, [seed, *forth])), True, True)
    g(seed)  # whatever g keeps for warm starts is taken back to the seed
    back, right, _ = _one_side(g, seed, -along, -steep, tolerance, told)
    return Contour(tuple(map(_plain, [*back[::-1], seed, *forth])), False, left and right)


def _plain(place: Array) -> tuple[float, float]:
    return float(place[0]), float(place[1])


def _one_side(
    g: Function, seed: Array, along: Array, slope: float, tolerance: float, told: Callable[[Array], None]
) -> tuple[list[Array], bool, bool]:
    """Points onwards from the seed, whether the last is on the border, and whether the line came back to the seed."""
    points, now, length = list[Array](), seed, FIRST
    while len(points) < MOST_POINTS and length >= LEAST:
        there = _stepped(g, now, along, length, tolerance, slope)
        turned = there is not None and float(_unit(there - now) @ along) < MOST_TURN
        if there is None or turned:
            length *= 0.5
            continue
        if not inside(there):
            border = _border(g, now, there, tolerance)
            return [*points, *([border] if border is not None else [])], True, False
        along, now = _unit(there - now), there
        points.append(now)
        told(now)
        if len(points) > 3 and np.linalg.norm(now - seed) < length:
            return [*points, seed], False, True
        length = min(1.5 * length, MOST)
    return points, False, False


def _stepped(g: Function, now: Array, along: Array, length: float, tolerance: float, slope: float) -> Array | None:
    across = np.array([along[1], -along[0]])
    return root(g, now + length * along, across, length, tolerance, slope)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


def _border(g: Function, now: Array, beyond: Array, tolerance: float) -> Array | None:
    """Where the line crosses the border of the plane, between a point inside and one outside."""
    step = beyond - now
    shares = [((1.0 if s > 0 else 0.0) - n) / s for n, s in zip(now, step) if s != 0.0 and not 0.0 <= n + s <= 1.0]
    share = min(shares)
    place = now + share * step
    across = np.array([0.0, 1.0]) if min(place[0], 1.0 - place[0]) < 1e-9 else np.array([1.0, 0.0])
    found = root(g, place, across, 0.5 * MOST, tolerance)
    return found if found is not None and inside(found, 1e-9) else None
