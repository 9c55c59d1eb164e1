"""The replica-symmetric level over a plane: solutions of an activation, their energies and their stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replicode.branches.further import free, order_of, search
from replicode.branches.stable_side import margin
from replicode.cache import once
from replicode.inputs.problem import Problem
from replicode.modules import call
from replicode.phases.plane import INFORMED, NONE, ONE, UNINFORMED, Array, Linear, Look, Plane
from replicode.theory.errors import Refusal

TOLERANCE = 1e-5
LEVELS = (2, 3, 4)
RESOLVED = 1e-5
NAMES = "informed", "random"
VERSION = 2
DIFFERENT, MOST_NEARBY = 0.5, 4


class ReplicaSymmetric:
    """Solutions at places of a plane, each kept in a ledger of the user's cache."""

    def __init__(self, posed: Problem, plane: Plane, keep: bool) -> None:
        self.posed, self.plane, self.keep = posed, plane, keep
        self.level, self.residual, self.folded = LEVELS[0], float("inf"), 0.0
        self.content = (VERSION, *posed.content(*plane.names))

    def at(self, place: Sequence[float] | Array) -> Problem:
        """The problem at a place."""
        return self.posed.with_values(**self.plane.values(place))

    def look(self, place: tuple[float, float], near: Sequence[Look]) -> Look:
        """Solutions from both starts and from those of looks nearby."""
        known = [(f"nearby {i}", s["order"]) for i, s in enumerate(_other(near))]

        def build() -> dict[str, Any]:
            return self._looked(place, known)

        values = sorted(self.plane.values(place).items())
        found = once("phase", (*self.content, values, [k[1] for k in known]), build) if self.keep else build()
        return Look(place, found["phase"], tuple(found["solutions"]), found["stable"], found["margin"])

    def _looked(self, place: tuple[float, float], known: Sequence[tuple[str, Mapping[str, float]]]) -> dict[str, Any]:
        here = self.at(place)
        found = search(here, TOLERANCE, known, NAMES, deflated=False)
        if not found.solutions:
            return {"phase": NONE, "solutions": [], "stable": False, "margin": float("nan")}
        best = found.solutions[0].solution
        checked = here.solve(TOLERANCE, best.order_parameters, False, False, True)
        checked = checked if checked.converged else best
        rows = [_row(f.u, f.solution, f.how) for f in found.solutions]
        return {
            "phase": phase_of(rows),
            "solutions": rows,
            "stable": bool(checked.rs_stable),
            "margin": margin(checked),
        }

    def linear(self, u: Array, place: Array, slopes: bool = True) -> Linear:
        """F and its slopes on prox-free nodes."""
        if self.posed.learning.spectrum is not None:
            raise Refusal("with a spectrum branches are not followed")
        here, names = self.at(place), self.plane.names if slopes else ()
        value, by_u, by_p, noted = call(
            here.module, "linearised_map", free=u, parameter=names, level=self.level, **here.values
        )
        by_plane = by_p * self.plane.slopes(place) if slopes else by_p
        self.folded = max(self.folded, float(noted["folded_mass"]))
        return Linear(value, by_u, by_plane, noted["energy"], noted)

    def margin(self, u: Array, place: Array) -> tuple[float, Array]:
        """From a solve with the look into stability."""
        here, start = self.at(place), order_of(u)
        found = here.solve(TOLERANCE, start, False, False, True)
        if not found.converged:
            return float("nan"), u
        return margin(found), free(found.order_parameters)

    def resolve(self, look: Look) -> float:
        """Take nodes on which a known solution is one; returns by how much it misses."""
        place = np.array(look.place)
        best = self.at(look.place).solve(1e-7, look.solutions[0]["order"], False, False, False)
        u = free(best.order_parameters)
        for self.level in LEVELS:
            self.residual = float(np.abs(self.linear(u, place).value).max())
            if self.residual < RESOLVED:
                break
        return self.residual


def _row(u: Array, solution: Any, how: str) -> dict[str, Any]:
    return {
        "u": [float(x) for x in u],
        "order": dict(solution.order_parameters),
        "test_risk": float(solution.test_risk),
        "error": float(solution.error),
        "potential": float(solution.energy),
        "how": how,
    }


def _other(near: Sequence[Look]) -> list[Mapping[str, Any]]:
    """The different solutions of looks nearby: what the starts alone may miss."""
    found: list[Mapping[str, Any]] = []
    for solution in (s for look in near for s in look.solutions):
        if all(np.abs(np.subtract(solution["u"], f["u"])).max() > DIFFERENT for f in found):
            found.append(solution)
    return found[:MOST_NEARBY]


def phase_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which branch wins: that of the larger overlap with the teacher, that of the smaller, or the only one."""
    if len(rows) < 2:
        return ONE if rows else NONE
    winner, *others = (abs(r["order"]["m_k"]) + abs(r["order"]["m_v"]) for r in rows)
    return INFORMED if winner >= max(others) else UNINFORMED
