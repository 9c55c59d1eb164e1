"""A curve of solutions along one parameter: nodes where it bends, warm starts from node to node.

At each node the solution is known with its derivative, so that the polynomial through the nearest nodes, twice each,
tells the curve between them. Where it and the one through a node less differ by more than is asked, a node is added.
What is handed on is a `Traced`: the nodes in order, and the curve at any value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from replicode.branches.hermite import Array, interpolated, nearest
from replicode.cache import cached
from replicode.inputs.problem import Problem
from replicode.inputs.ranges import Range
from replicode.verbs.optimal import best

FIRST_NODES = 5
FINEST = 1.0 / 256.0
EDGE = 1.0 / 64.0
USUAL_ERROR = 1e-3  # three digits: what a figure shows
CLAIMED = 2.0
NOISE = 0.5  # of the errors of nodes, that interpolation may add to them
RISKS = ("test_risk", "train_loss", "energy")

Told = Callable[[float, dict[str, Any]], None]


@dataclass(frozen=True)
class Node:
    """A solved point: its coordinate, and what was found there."""

    at: float
    found: dict[str, Any]

    @property
    def usable(self) -> bool:
        """Whether it has a value and a slope."""
        return bool(self.found["converged"] and self.found["slopes"] is not None)


@dataclass
class Traced:
    """The nodes in order, and the intervals, by their left ends, across which the curve jumps."""

    axis: Range
    quantities: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    jumps: list[tuple[float, float]] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Put a node in its place."""
        self.nodes = sorted([*self.nodes, node], key=lambda n: n.at)

    def _side(self, at: float) -> list[Node]:
        """The usable nodes that no jump parts from a place."""
        found = [n for n in self.nodes if n.usable]
        for low, high in self.jumps:
            middle = 0.5 * (low + high)
            found = [n for n in found if (n.at < middle) == (at < middle)]
        return found

    def at(self, coordinate: float) -> tuple[Array, Array] | None:
        """All quantities at a place with what the interpolation leaves open; None where too few nodes are usable."""
        side = self._side(coordinate)
        for node in side:
            if node.at == coordinate:
                return np.array([node.found["values"][q] for q in self.quantities]), np.zeros(len(self.quantities))
        if len(side) < 2:
            return None
        places = [n.at for n in side]
        values, slopes = (
            np.array([[n.found[k][q] for q in self.quantities] for n in side]) for k in ("values", "slopes")
        )
        return interpolated(places, values, slopes, coordinate)

    def row(self, value: float) -> dict[str, Any]:
        """What is known at a value of the parameter: numbers, the error of the test risk, and the verdict."""
        coordinate = self.axis.coordinate(value)
        found = self.at(coordinate)
        around = [self.nodes[i] for i in nearest([n.at for n in self.nodes], coordinate, 2)]
        exact = [n for n in around if n.at == coordinate]
        stable = all(n.found["rs_stable"] for n in exact or around)
        converged = found is not None and all(n.found["converged"] for n in exact or around)
        if found is None:
            numbers, error = dict.fromkeys(self.quantities, float("nan")), float("inf")
        else:
            numbers = dict(zip(self.quantities, map(float, found[0])))
            error = float(max(n.found["error"] for n in exact or around) + CLAIMED * found[1][0])
        replicon = _between(around, coordinate, "replicon")
        return {
            **numbers,
            "error": error,
            "rs_stable": stable,
            "replicon": replicon,
            "converged": converged,
            "solved": bool(exact),
        }


def _between(around: list[Node], at: float, name: str) -> float:
    """A number that has no slope, on the straight line between two nodes."""
    numbers = [float(n.found[name]) for n in around]
    if len(around) < 2 or around[0].at == at:
        return numbers[0]
    share = (at - around[0].at) / (around[1].at - around[0].at)
    return float(numbers[0] + share * (numbers[1] - numbers[0]))


class Tracer:
    """Solves a problem at places along a range, each kept in the cache where asked."""

    def __init__(self, posed: Problem, axis: Range, tol: float | None, optimal: bool, keep: bool, told: Told) -> None:
        self.posed, self.axis, self.tol, self.optimal, self.keep, self.told = posed, axis, tol, optimal, keep, told
        self.order, self.over = tuple(posed.module.ORDER_NAMES), posed.strengths
        self.traced = Traced(axis, ("test_risk", *self.over) if optimal else (*RISKS, *self.order))
        self.quick, wanted = tol is None, USUAL_ERROR if tol is None else tol
        self.node_tol, self.goal = (0.25 * wanted, 0.3 * wanted) if self.quick else (0.5 * wanted, 0.2 * wanted)

    def trace(self) -> Traced:
        """Nodes at even distances, then wherever the curve is not known well enough, then at the edge of stability."""
        low, high = self.axis.ends
        for at in np.linspace(low, high, FIRST_NODES):
            self._solve(float(at), branches=True)
        while (place := self._worst()) is not None:
            self._solve(place)
        while (place := self._edge()) is not None:
            self._solve(place)
        return self.traced

    def _worst(self) -> float | None:
        """The middle of the interval where the curve is known least, if that is not enough; jumps are noted."""
        low, high = self.axis.ends
        open_places = []
        for left, right in pairwise(self.traced.nodes):
            if (left.at, right.at) in self.traced.jumps or not (left.usable and right.usable):
                continue
            middle = 0.5 * (left.at + right.at)
            found = self.traced.at(middle)
            error = np.inf if found is None else float(found[1][0])
            claimed = max(left.found["error"], right.found["error"])
            if error > max(self.goal, NOISE * claimed):
                if right.at - left.at > FINEST * (high - low):
                    open_places.append((error, middle))
                elif self._parted(left, right):
                    self.traced.jumps.append((left.at, right.at))
                    return self._worst()
        return max(open_places)[1] if open_places else None

    def _parted(self, left: Node, right: Node) -> bool:
        """Whether the slopes at two nodes next to each other do not lead from one to the other."""
        (a, s), (b, t) = ((n.found["values"]["test_risk"], n.found["slopes"]["test_risk"]) for n in (left, right))
        return bool(abs(b - a - 0.5 * (s + t) * (right.at - left.at)) > self.goal)

    def _edge(self) -> float | None:
        """The middle of an interval in which replica symmetry begins to break."""
        low, high = self.axis.ends
        for left, right in pairwise(self.traced.nodes):
            parted = left.found["rs_stable"] != right.found["rs_stable"]
            if parted and right.at - left.at > EDGE * (high - low):
                return 0.5 * (left.at + right.at)
        return None

    def _solve(self, at: float, branches: bool = False) -> None:
        value = self.axis.value(at)

        def build() -> dict[str, Any]:
            found = self._best(value, at) if self.optimal else self._plain(value, at, branches)
            return {"made_for": f"curve, {self.axis.name} = {value:g}", **found}

        axis = self.axis.name
        key = *self.posed.content(axis), axis, self.tol, self.optimal, value
        found = cached("curve", key, build) if self.keep else build()
        self.traced.add(Node(at, found))
        self.told(value, found)

    def _start(self, at: float) -> Any:
        """The order parameters that the nodes so far foretell, or those of the nearest."""
        usable = [n for n in self.traced.nodes if n.usable]
        if not usable:
            return "informed"
        near = usable[nearest([n.at for n in usable], at, 1)[0]]
        foretold = self.traced.at(at)
        order = dict(zip(self.traced.quantities, foretold[0])) if foretold else near.found["values"]
        if not all(order[f"q_{b}"] > order[f"m_{b}"] ** 2 and order[f"V_{b}"] > 0.0 for b in self.posed.blocks):
            order = near.found["values"]
        return {name: float(order[name]) for name in self.order}

    def _plain(self, value: float, at: float, branches: bool) -> dict[str, Any]:
        here = self.posed.with_values(**{self.axis.name: value})
        start = "informed" if branches else self._start(at)  # beyond the nodes so far a polynomial foretells nothing
        found = here.solve(self.node_tol, start, (self.axis.name,), branches, True, self.quick)
        if not found.converged and start != "informed":
            found = here.solve(self.node_tol, "informed", (self.axis.name,), branches, True, self.quick)
        return kept(found, self.axis, value)

    def _best(self, value: float, at: float) -> dict[str, Any]:
        """At the best lambdas the risk moves as it does at fixed ones."""
        usable = [n for n in self.traced.nodes if n.usable]
        here = self.posed.with_values(**{self.axis.name: value})
        start: Any = "informed"
        if usable:
            near = usable[nearest([n.at for n in usable], at, 1)[0]].found["values"]
            here, start = here.with_values(**{n: near[n] for n in self.over}), {n: near[n] for n in self.order}
        fields = best(here, self.over, None if self.quick else self.node_tol, start, (self.axis.name,))
        found = kept(SimpleNamespace(**fields), self.axis, value)
        return {**found, "values": {**found["values"], **fields["optimum"]}, "at_bound": list(fields["at_bound"])} | (
            {"slopes": {**found["slopes"], **dict.fromkeys(self.over, 0.0)}} if found["slopes"] else {}
        )


def kept(found: Any, axis: Range, value: float) -> dict[str, Any]:
    """What a node keeps of a solution."""
    numbers = {name: getattr(found, name) for name in RISKS}
    slopes = (found.derivatives or {}).get(axis.name)
    scale = axis.slope(value)
    return {
        "values": {**numbers, **found.order_parameters},
        "slopes": None if slopes is None else {q: scale * slopes[q] for q in (*numbers, *found.order_parameters)},
        "error": found.error,
        "rs_stable": found.rs_stable,
        "replicon": found.replicon,
        "converged": found.converged,
        "warnings": [w for w in found.warnings if not w.startswith("replica symmetry")],
    }
