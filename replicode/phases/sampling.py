"""Where to look next in a plane: triangles between the points so far, the most open of them divided.

A triangle is open as far as it is large, more so where its corners are in different phases or the risk changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import Delaunay

from replicode.phases.plane import Array, Look

FIRST = 5  # along each side
PARTED, STEEP = 60.0, 6.0
FINEST = 5e-3


def first_places() -> list[tuple[float, float]]:
    """A grid with the corners, every other row shifted so that no line runs along it."""
    sides = np.linspace(0.0, 1.0, FIRST)
    between = np.r_[0.0, sides[:-1] + 0.5 * sides[1], 1.0]
    return [(float(x), float(y)) for i, y in enumerate(sides) for x in (between if i % 2 else sides)]


def triangles(looks: Sequence[Look]) -> Array:
    """The corners of all triangles, by the numbers of the looks."""
    return np.asarray(Delaunay(np.array([look.place for look in looks])).simplices)


def _areas(looks: Sequence[Look]) -> tuple[Array, Array, Array]:
    """All triangles, their corners in the plane, and their areas."""
    chosen = triangles(looks)
    corners = np.array([look.place for look in looks])[chosen]
    one, two = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    return chosen, corners, 0.5 * np.abs(one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0])


def edges(looks: Sequence[Look]) -> list[tuple[int, int]]:
    """The sides of all triangles, each once, shortest first."""
    found = {
        tuple(sorted((int(a), int(b)))) for t in triangles(looks) for a, b in ((t[0], t[1]), (t[1], t[2]), (t[2], t[0]))
    }
    places = np.array([look.place for look in looks])
    return sorted(found, key=lambda e: (float(np.linalg.norm(places[e[0]] - places[e[1]])), e))  # type: ignore[arg-type]


def next_place(looks: Sequence[Look]) -> tuple[float, float] | None:
    """The middle of the longest side of the most open triangle; None where all are small."""
    chosen, corners, area = _areas(looks)
    risks = np.array([look.risk for look in looks])[chosen]
    whole = np.nanmax(risks) - np.nanmin(risks) if np.isfinite(risks).any() else 0.0
    rise = np.nan_to_num(np.ptp(risks, axis=1) / (whole or 1.0), nan=1.0)
    kinds = np.array([hash_of(look) for look in looks])[chosen]
    parted = (kinds != kinds[:, :1]).any(axis=1)
    openness = area * (1.0 + PARTED * parted + STEEP * rise)
    sides = np.stack([np.linalg.norm(corners[:, i] - corners[:, (i + 1) % 3], axis=1) for i in range(3)], axis=1)
    openness[sides.max(axis=1) < FINEST] = 0.0
    worst = int(np.argmax(openness))
    if openness[worst] <= 0.0:
        return None
    side = int(np.argmax(sides[worst]))
    middle = 0.5 * (corners[worst, side] + corners[worst, (side + 1) % 3])
    return float(middle[0]), float(middle[1])


def hash_of(look: Look) -> str:
    """What tells two regions apart."""
    return f"{look.phase} {look.stable}"


def shares(looks: Sequence[Look]) -> Array:
    """The part of the plane that each look stands for: a third of every triangle around it."""
    chosen, _, area = _areas(looks)
    found = np.zeros(len(looks))
    for i in range(3):
        np.add.at(found, chosen[:, i], area / 3.0)
    return found
