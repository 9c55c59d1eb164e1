"""Ranges of a parameter, LO:HI or LO:HI:N, and the coordinate in which they are divided evenly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from replicode.theory.errors import InputError

ALLOWED = "a number, or a range LO:HI or LO:HI:N with LO < HI and N from 2 to 10000"
USUAL_COUNT = 65
MOST_COUNT = 10_000
WIDE = 4.0


@dataclass(frozen=True)
class Range:
    """A parameter from `low` to `high` at `count` values, evenly in its logarithm where the range is wide."""

    name: str
    low: float
    high: float
    count: int = USUAL_COUNT

    @property
    def logarithmic(self) -> bool:
        """Whether it is divided by ratios."""
        return self.low > 0.0 and self.high >= WIDE * self.low

    def coordinate(self, value: float) -> float:
        """Where a value is."""
        return math.log(value) if self.logarithmic else value

    def value(self, coordinate: float) -> float:
        """The value at a coordinate; the ends are exact."""
        found = math.exp(coordinate) if self.logarithmic else coordinate
        return min(max(found, self.low), self.high)

    def value_outside(self, coordinate: float) -> float:
        """The value at a coordinate that may lie beyond the ends."""
        return math.exp(coordinate) if self.logarithmic else coordinate

    def slope(self, value: float) -> float:
        """d value / d coordinate."""
        return value if self.logarithmic else 1.0

    @property
    def ends(self) -> tuple[float, float]:
        """The coordinates of both ends."""
        return self.coordinate(self.low), self.coordinate(self.high)

    def values(self) -> list[float]:
        """All values, both ends included."""
        low, high = self.ends
        step = (high - low) / (self.count - 1)
        return [self.value(low + i * step) for i in range(self.count)]


def read_range(name: str, given: Any) -> Range | float:
    """A number, or a range from text such as 0.5:10:50 or from a pair or triple of numbers."""
    if isinstance(given, Real) and not isinstance(given, bool):
        return float(given)
    parts: Any = given.split(":") if isinstance(given, str) else given
    try:
        numbers = [float(p) for p in parts]
    except (TypeError, ValueError):
        raise InputError(name, given, ALLOWED) from None
    if len(numbers) == 1 and isinstance(given, str):
        return numbers[0]
    count = numbers[2] if len(numbers) > 2 else USUAL_COUNT
    ordered = len(numbers) in (2, 3) and all(map(math.isfinite, numbers)) and numbers[0] < numbers[1]
    if not ordered or count != int(count) or not 2 <= count <= MOST_COUNT:
        raise InputError(name, given, ALLOWED)
    return Range(name, numbers[0], numbers[1], int(count))


def axes_of(
    count: int, given: Mapping[str, Any], parameters: Mapping[str, Any] | None, more: Mapping[str, Any]
) -> tuple[list[Range], dict[str, float]]:
    """So many ranges, and the numbers of all arguments, that of a range being its lower end.

    The arguments are `given`, and the activation's parameters, which are named otherwise.
    """
    own = parameters or {}
    if not isinstance(own, Mapping):
        raise InputError("parameters", own, "a mapping of names to numbers or ranges, such as {'c': '0:1'}")
    if twice := [name for name in own if name in given or name in more]:
        raise InputError("param", twice[0], f"each value once: {twice[0]} is given already")
    read = {name: read_range(name, value) for name, value in {**given, **own, **more}.items()}
    ranges = [value for value in read.values() if isinstance(value, Range)]
    if len(ranges) != count:
        told = ", ".join(r.name for r in ranges) or "no range"
        wanted = "one parameter as a range" if count == 1 else "two parameters as ranges"
        raise InputError("range", told, f"exactly {wanted}; each is {ALLOWED}")
    return ranges, {name: value.low if isinstance(value, Range) else value for name, value in read.items()}
