"""The plane of two parameters in unit coordinates, and what a level tells at a point of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from replicode.inputs.ranges import Range

Array = np.ndarray[Any, np.dtype[Any]]
ONE, INFORMED, UNINFORMED, NONE = "one", "informed", "uninformed", "none"


class Linear(NamedTuple):
    """F(u) at a point of the plane, its slopes in u and in both coordinates, and what is reported there.

    Of several solutions the one of the least `potential` wins: the energy, or minus the free entropy.
    """

    value: Array
    by_u: Array
    by_plane: Array
    potential: float
    noted: Mapping[str, float]


@dataclass(frozen=True)
class Look:
    """What was found at a point: all solutions, the winner first, which phase that is, and how stable it is.

    `margin` is negative where replica symmetry holds. Solutions are mappings with `u`, `test_risk`, `potential`.
    """

    place: tuple[float, float]
    phase: str
    solutions: tuple[Mapping[str, Any], ...]
    stable: bool
    margin: float

    @property
    def u(self) -> Array:
        """The coordinates of the winner."""
        return np.array(self.solutions[0]["u"])

    @property
    def risk(self) -> float:
        """The winner's test risk."""
        return float(self.solutions[0]["test_risk"]) if self.solutions else float("nan")


class PlaneLevel(Protocol):
    """A theory over the plane."""

    def look(self, place: tuple[float, float], near: Sequence[Look]) -> Look:
        """All solutions that are found at a point, also from those of looks nearby."""

    def linear(self, u: Array, place: Array, slopes: bool = True) -> Linear:
        """F and its slopes, those in the plane where asked for."""

    def margin(self, u: Array, place: Array) -> tuple[float, Array]:
        """How far beyond the edge of stability the solution next to u is, and the solution."""


@dataclass(frozen=True)
class Plane:
    """Two ranges; a place has a coordinate from 0 to 1 along each."""

    x: Range
    y: Range

    @property
    def names(self) -> tuple[str, str]:
        """The two parameters."""
        return self.x.name, self.y.name

    def values(self, place: Sequence[float] | Array) -> dict[str, float]:
        """The parameters at a place, which may lie a little outside."""
        return {a.name: a.value_outside(_along(a, float(s))) for a, s in zip((self.x, self.y), place)}

    def slopes(self, place: Sequence[float] | Array) -> Array:
        """d value / d coordinate of both."""
        values = self.values(place)
        return np.array([a.slope(values[a.name]) * (a.ends[1] - a.ends[0]) for a in (self.x, self.y)])


def _along(axis: Range, share: float) -> float:
    low, high = axis.ends
    return low + share * (high - low)


def inside(place: Sequence[float] | Array, slack: float = 0.0) -> bool:
    """Whether a place is in the plane."""
    return all(-slack <= s <= 1.0 + slack for s in place)
