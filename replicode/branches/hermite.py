"""Interpolation of a function known with its slopes at some nodes, by the polynomial through the nearest of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
NODES = 4


def nearest(places: Sequence[float], at: float, count: int = NODES) -> list[int]:
    """The nodes around a place, nearest first."""
    return sorted(range(len(places)), key=lambda i: abs(places[i] - at))[:count]


def interpolated(places: Sequence[float], values: Array, slopes: Array, at: float) -> tuple[Array, Array]:
    """The values at a place, and how far those of the polynomial through one node less are from them.

    Of values and slopes the first axis runs over the nodes.
    """
    chosen = nearest(places, at)
    best, fewer = (_hermite(np.array(places)[c], values[c], slopes[c], at) for c in (chosen, chosen[:-1]))
    return best, np.abs(best - fewer)


def _hermite(places: Array, values: Array, slopes: Array, at: float) -> Array:
    """Newton's form with every node twice."""
    twice, count = np.repeat(places, 2), 2 * len(places)
    table = np.repeat(values, 2, axis=0).astype(float)
    total, product = table[0].copy(), 1.0
    for order in range(1, count):
        gaps = twice[order:] - twice[: count - order]
        rise = table[1 : count - order + 1] - table[: count - order]
        shape = (-1,) + (1,) * (table.ndim - 1)
        safe = np.where(gaps == 0.0, 1.0, gaps).reshape(shape)
        table = np.where((gaps == 0.0).reshape(shape), slopes[np.arange(count - order) // 2], rise / safe)
        product *= at - twice[order - 1]
        total = total + product * table[0]
    return np.asarray(total)
