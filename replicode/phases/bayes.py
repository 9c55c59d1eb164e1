"""The Bayes-optimal level over a plane: branches of the state evolution and their free entropies.

Where the informed branch wins and is not reached from nothing, the phase is hard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from replicode.branches.bayes_follow import FINENESS, Evolution
from replicode.cache import once
from replicode.codegen.runtime.bayes_solver import equilibrium, is_hard
from replicode.codegen.threads import one_thread
from replicode.modules import call
from replicode.phases.plane import INFORMED, ONE, UNINFORMED, Array, Linear, Look, Plane
from replicode.theory.errors import Refusal

TOLERANCE = 1e-5
DIFFERENCE = 1e-4
VERSION = 1
PHYSICS = ("alpha", "nu", "noise")


class BayesOptimal:
    """Branches at places of a plane, each kept in a ledger of the user's cache."""

    def __init__(
        self, module: ModuleType, content: tuple[object, ...], fixed: dict[str, float], plane: Plane, keep: bool
    ) -> None:
        self.module, self.fixed, self.plane, self.keep = module, fixed, plane, keep
        self.content = (VERSION, "bayes", *content, sorted((n, v) for n, v in fixed.items() if n not in plane.names))
        self.evolution = lru_cache(maxsize=64)(lambda nu, noise: Evolution(module, nu, noise, FINENESS[0]))

    def values(self, place: Sequence[float] | Array) -> dict[str, float]:
        """alpha, nu and noise at a place."""
        return {**self.fixed, **self.plane.values(place)}

    def look(self, place: tuple[float, float], near: Sequence[Look]) -> Look:
        """Branches from an informed and an uninformed start."""
        values = self.values(place)

        def build() -> dict[str, Any]:
            with one_thread():
                found = call(self.module, "branches", tol=TOLERANCE, **values)
            best = equilibrium(found)
            rows = [_row(b) for b in sorted(found, key=lambda b: b is not best)]
            phase = ONE if len(found) < 2 else INFORMED if is_hard(found) else UNINFORMED
            return {"phase": phase, "solutions": rows}

        key = (*self.content, sorted(values.items()))
        found = once("phase", key, build) if self.keep else build()
        return Look(place, found["phase"], tuple(found["solutions"]), True, -1.0)

    def linear(self, u: Array, place: Array, slopes: bool = True) -> Linear:
        """F and its slopes: explicit in alpha, by differences in the rest."""
        values = self.values(place)
        if values["noise"] <= 0.0:
            raise Refusal("lines are followed where there is noise: without it the recovered branch has no end")
        with one_thread():
            here = self.evolution(values["nu"], values["noise"])
            value, by_u, by_alpha = here(u, values["alpha"])
            names = self.plane.names if slopes else ()
            along = [by_alpha if name == "alpha" else self._slope(u, values, name) for name in names]
            noted = here.record(u, values["alpha"])
        columns = np.column_stack(along) * self.plane.slopes(place) if slopes else np.zeros((2, 0))
        return Linear(value, by_u, columns, -noted["free_entropy"], noted)

    def _slope(self, u: Array, values: dict[str, float], name: str) -> Array:
        step = DIFFERENCE * max(values[name], 0.1)
        ends = []
        for sign in (1.0, -1.0):
            moved = {**values, name: values[name] + sign * step}
            rates = self.evolution(moved["nu"], moved["noise"])._both(u)
            ends.append(np.log1p(values["alpha"] * rates))
        return np.asarray((ends[0] - ends[1]) / (2.0 * step))

    def margin(self, u: Array, place: Array) -> tuple[float, Array]:
        """The Bayes-optimal level is replica symmetric everywhere."""
        return -1.0, u


def _row(branch: Any) -> dict[str, Any]:
    return {
        "u": [float(-np.log1p(-min(q, 1.0 - 1e-15))) for q in (branch.q_k, branch.q_v)],
        "order": {"q_k": float(branch.q_k), "q_v": float(branch.q_v)},
        "test_risk": float(branch.test_risk),
        "error": float(branch.error),
        "potential": -float(branch.free_entropy),
        "how": f"start: {branch.start}",
    }
