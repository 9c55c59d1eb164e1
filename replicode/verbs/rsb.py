"""One step of replica symmetry breaking beside a replica-symmetric solution."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.modules import call, step_module
from replicode.results import Solution
from replicode.theory.budget import BudgetSpent
from replicode.theory.errors import Refusal

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.lengths import Lengths
    from replicode.theory.model import Model

AT_HAND, IN_REACH = 3, 5  # coordinates that a quick solve may have, and any solve
NOT_BESIDE = "one step of breaking takes a minute here and was not solved beside replica symmetry: rsb 1 asks for it"
Subject = tuple["ActivationLike", "str | Task", "Lengths", "Model | None"]


def beside_step(
    solution: Solution,
    module: ModuleType,
    of: Subject,
    at: Mapping[str, float],
    values: Mapping[str, float],
    asked_for: bool,
    backend: str = "numpy",
) -> Solution:
    """The solution with one step of breaking, on fine grids where it is asked for.

    Else it is left out where replica symmetry is stable, not converged, or, with a word about it, the step takes long.
    """
    if not asked_for and (solution.rs_stable or not solution.converged):
        return solution
    if not asked_for and (count := _coordinates(module, values)) > AT_HAND:
        said = (NOT_BESIDE,) if count <= IN_REACH and of[3] is None else ()
        return solution._replace(warnings=(*solution.warnings, *said))
    try:
        found = step(of, at, values, solution.order_parameters, quick=not asked_for, backend=backend)
    except BudgetSpent:
        raise
    except Refusal:
        if asked_for:
            raise
        return solution
    said = () if asked_for else (_beside(solution, found),)
    return solution._replace(rsb=found, warnings=(*solution.warnings, *said, *found.pop("warnings")))


def _beside(solution: Solution, found: Mapping[str, Any]) -> str:
    """What was solved beside replica symmetry, in words."""
    if not found["broken"]:
        return "one step of breaking was solved beside replica symmetry and is the same (rsb)"
    names = ("test_risk", "energy")
    moves = ", ".join(f"{n} {found[n]:.4g} instead of {getattr(solution, n):.4g}" for n in names)
    return f"one step of breaking was solved beside replica symmetry (rsb): {moves}"


def step(
    of: Subject,
    at: Mapping[str, float],
    values: Mapping[str, float],
    start: Mapping[str, float],
    quick: bool,
    backend: str = "numpy",
) -> dict[str, Any]:
    """The equilibrium of states as plain names and numbers, its warnings among them."""
    act, task, law, model = of
    module, _ = step_module(act, task, law, values, model, backend)
    begin = {name: float(value) for name, value in start.items()}
    found = call(module, "solve", **at, start=begin, quick=quick, **values)._asdict()
    if not found["broken"]:
        found["y"] = None
        found["errors"] = {name: error for name, error in found["errors"].items() if name != "y"}
    return dict(found)


def _coordinates(module: ModuleType, values: Mapping[str, float]) -> float:
    """How many coordinates the envelope has at the most of all lengths; no number where chi* is sampled."""
    if module.LOCATION == "normalised":
        return np.inf
    given = np.array([values[name] for name in module.PARAMETERS])
    free = [k.row_sum(given) in (None, 0.0) for k in module.KERNELS]
    counts = [2 * k.tokens - module.SHIFT_INVARIANT + more for k, more in zip(module.KERNELS, free, strict=True)]
    return float(max(counts))
