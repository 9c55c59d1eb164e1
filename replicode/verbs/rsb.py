"""One step of replica symmetry breaking beside a replica-symmetric solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.modules import call, step_module
from replicode.results import Solution
from replicode.theory.budget import BudgetSpent
from replicode.theory.errors import Refusal

if TYPE_CHECKING:
    from replicode.inputs.problem import Problem

AT_HAND = 3  # coordinates that a quick solve may have


def beside_step(solution: Solution, posed: Problem, asked_for: bool) -> Solution:
    """The solution with one step of breaking, on fine grids where it is asked for.

    Else it is left out where replica symmetry is stable, not converged, or the step would take long.
    """
    if not asked_for and (solution.rs_stable or not solution.converged or not _quick(posed)):
        return solution
    try:
        found = step(posed, solution.order_parameters, quick=not asked_for)
    except BudgetSpent:
        raise
    except Refusal:
        if asked_for:
            raise
        return solution
    return solution._replace(rsb=found, warnings=(*solution.warnings, *found.pop("warnings")))


def step(posed: Problem, start: Mapping[str, float], quick: bool) -> dict[str, Any]:
    """The equilibrium of states as plain names and numbers, its warnings among them."""
    found = of_step(posed, "solve", start=start, quick=quick)._asdict()
    if not found["broken"]:
        found["y"] = None
        found["errors"] = {name: error for name, error in found["errors"].items() if name != "y"}
    return dict(found)


def of_step(posed: Problem, name: str, start: Mapping[str, float], **options: Any) -> Any:
    """What a function of the module of one step returns, from the order parameters of replica symmetry."""
    module, _ = step_module(posed.act, posed.task, posed.law, posed.own, posed.model)
    begin = {name: float(value) for name, value in start.items()}
    return call(module, name, **posed.values, start=begin, **options)


def _quick(posed: Problem) -> bool:
    """Whether the envelope has so few coordinates, at every length, that its table is quick to make."""
    module, given = posed.module, np.array(list(posed.own.values()))
    free = [k.row_sum(given) in (None, 0.0) for k in module.KERNELS]
    counts = [2 * k.tokens - module.SHIFT_INVARIANT + more for k, more in zip(module.KERNELS, free, strict=True)]
    return bool(module.LOCATION != "normalised" and max(counts) <= AT_HAND)
