"""The Bayes-optimal risk along a range: solved at nodes, and between them a polynomial with an error.

Nodes are added where the polynomials through the nearest six, five and four nodes differ, down to a finest
distance. Where the risk jumps no polynomial is laid across. What is handed on is a `BayesLine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from replicode.branches.hermite import Array
from replicode.inputs.ranges import Range

FIRST_NODES = 9
NEAREST = 6
FINEST = 1.0 / 256.0
STEEPER = 4.0
LOOKED_AT = np.array([0.25, 0.5, 0.75])
CLAIMED = 2.0  # times the distance of two polynomials, as for the curves of activations

Risk = Callable[[float], tuple[float, float] | None]


@dataclass(frozen=True)
class Solved:
    """A node: its coordinate, the risk there and its error; neither where the risk is refused."""

    at: float
    risk: float | None
    error: float


@dataclass(frozen=True)
class BayesLine:
    """The nodes in order of their coordinates, and the intervals between neighbours across which the risk jumps."""

    axis: Range
    nodes: tuple[Solved, ...]
    jumps: tuple[tuple[float, float], ...] = ()

    def at(self, value: float) -> tuple[float | None, float | None]:
        """The risk at a value of the parameter, and its error; None where a neighbouring node has none."""
        place = self.axis.coordinate(value)
        for node in self.nodes:
            if abs(node.at - place) <= 1e-12 * max(1.0, abs(place)):
                return node.risk, None if node.risk is None else node.error
        return self.between(*self._around(place), place)

    def between(self, left: Solved, right: Solved, place: float) -> tuple[float | None, float | None]:
        """The risk between two neighbours: by the polynomial, or anything from one to the other where it jumps."""
        if left.risk is None or right.risk is None:
            return None, None
        solved = max(left.error, right.error)
        if (left.at, right.at) in self.jumps:
            return 0.5 * (left.risk + right.risk), solved + 0.5 * abs(left.risk - right.risk)
        middle = 0.5 * (left.at + right.at)
        side = sorted(self._side(middle), key=lambda n: abs(n.at - middle))[:NEAREST]
        return float(_polynomial(side, np.array([place]))[0]), solved + CLAIMED * _doubt(side, left.at, right.at)

    def _around(self, place: float) -> tuple[Solved, Solved]:
        return next((a, b) for a, b in pairwise(self.nodes) if place <= b.at or b is self.nodes[-1])

    def _side(self, place: float) -> list[Solved]:
        """The nodes with a risk that no jump and no refused node parts from a place."""
        walls = [0.5 * (a + b) for a, b in self.jumps] + [n.at for n in self.nodes if n.risk is None]
        known = [n for n in self.nodes if n.risk is not None]
        return [n for n in known if not any(min(n.at, place) < w < max(n.at, place) for w in walls)]


def _polynomial(nodes: list[Solved], places: Array) -> Array:
    """Lagrange's form."""
    at, itself = np.array([n.at for n in nodes]), np.eye(len(nodes), dtype=bool)
    factors = (places[:, None, None] - at) / np.where(itself, 1.0, at[:, None] - at)
    return np.asarray(np.where(itself, 1.0, factors).prod(axis=-1) @ np.array([n.risk for n in nodes], dtype=float))


def _doubt(nodes: list[Solved], low: float, high: float) -> float:
    """How far the polynomials through one and two nodes less are from that through all, over an interval."""
    places = low + LOOKED_AT * (high - low)
    best, fewer = _polynomial(nodes, places), [nodes[:-drop] for drop in (1, 2) if len(nodes) > drop]
    return max((float(np.abs(best - _polynomial(few, places)).max()) for few in fewer), default=0.0)


def bayes_line(axis: Range, risk: Risk, goal: float, say: Callable[[str], None]) -> BayesLine | None:
    """Solve at nodes until the error between them is below the goal; None where the first nodes have no risk at all."""
    low, high = axis.ends
    line = BayesLine(axis, ())
    for i in range(FIRST_NODES):
        line = _with_node(line, low + (high - low) * i / (FIRST_NODES - 1), risk, say)
        if i == 1 and all(n.risk is None for n in line.nodes):
            return None
    while opened := [pair for pair in _open(line, goal) if pair[1].at - pair[0].at > FINEST * (high - low)]:
        left, right = max(opened, key=lambda pair: pair[1].at - pair[0].at)
        line = _with_node(line, 0.5 * (left.at + right.at), risk, say)
    return BayesLine(axis, line.nodes, tuple((a.at, b.at) for a, b in _open(line, goal) if _jumps(line, a, b)))


def _jumps(line: BayesLine, left: Solved, right: Solved) -> bool:
    """Whether the risk changes far faster between two neighbours than beside them."""
    beside = [pair for pair in pairwise(line.nodes) if (pair[0] is right) != (pair[1] is left)]
    return _steepness(left, right) > STEEPER * max((_steepness(*pair) for pair in beside), default=0.0)


def _steepness(left: Solved, right: Solved) -> float:
    known = left.risk is not None and right.risk is not None
    return abs((right.risk or 0.0) - (left.risk or 0.0)) / (right.at - left.at) if known else 0.0


def _with_node(line: BayesLine, at: float, risk: Risk, say: Callable[[str], None]) -> BayesLine:
    value = line.axis.value(at)
    found = risk(value)
    say(f"Bayes-optimal: {line.axis.name} = {value:.6g}: " + ("refused" if found is None else f"{found[0]:.6g}"))
    node = Solved(at, None, 0.0) if found is None else Solved(at, *found)
    return BayesLine(line.axis, tuple(sorted((*line.nodes, node), key=lambda n: n.at)), line.jumps)


def _open(line: BayesLine, goal: float) -> list[tuple[Solved, Solved]]:
    """The neighbours between which the risk is not known well enough."""
    found = []
    for left, right in pairwise(line.nodes):
        if left.risk is None or right.risk is None or (left.at, right.at) in line.jumps:
            continue
        error = line.between(left, right, 0.5 * (left.at + right.at))[1]
        if error is not None and error > goal + max(left.error, right.error):
            found.append((left, right))
    return found
