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

AT_HAND = 3  # coordinates that a quick solve may have
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

    Else it is left out where replica symmetry is stable, not converged, or the step would take long.
    """
    if not asked_for and (solution.rs_stable or not solution.converged or not _quick(module, values)):
        return solution
    try:
        found = step(of, at, values, solution.order_parameters, quick=not asked_for, backend=backend)
    except BudgetSpent:
        raise
    except Refusal:
        if asked_for:
            raise
        return solution
    return solution._replace(rsb=found, warnings=(*solution.warnings, *found.pop("warnings")))


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


def _quick(module: ModuleType, values: Mapping[str, float]) -> bool:
    """Whether the envelope has so few coordinates, at every length, that its table is quick to make."""
    given = np.array([values[name] for name in module.PARAMETERS])
    free = [k.row_sum(given) in (None, 0.0) for k in module.KERNELS]
    counts = [2 * k.tokens - module.SHIFT_INVARIANT + more for k, more in zip(module.KERNELS, free, strict=True)]
    return bool(module.LOCATION != "normalised" and max(counts) <= AT_HAND)
