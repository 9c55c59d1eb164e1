"""One step of replica symmetry breaking beside a replica-symmetric solution."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.modules import call, module_for
from replicode.results import Solution
from replicode.theory.budget import BudgetSpent
from replicode.theory.errors import Refusal

if TYPE_CHECKING:
    from replicode.inputs.problem import Problem

AT_HAND, IN_REACH = 3, 5  # coordinates that a quick solve may have, and any solve
NOT_BESIDE = "one step of breaking takes a minute here and was not solved beside replica symmetry: rsb 1 asks for it"
COMPARED_TOKENS = 2
UNCOMPARED = (
    "one step of breaking at more than two tokens: its averages were compared with a second way to the numbers, the "
    "errors of what is solved for were not"
)


def beside_step(solution: Solution, posed: Problem, asked_for: bool) -> Solution:
    """The solution with one step of breaking, on fine grids where it is asked for.

    Else it is left out where replica symmetry is stable, not converged, or, with a word about it, the step takes long.
    """
    if not asked_for and (solution.rs_stable or not solution.converged):
        return solution
    if not asked_for and (count := _coordinates(posed)) > AT_HAND:
        said = (NOT_BESIDE,) if count <= IN_REACH and posed.learning.model is None else ()
        return solution._replace(warnings=(*solution.warnings, *said))
    try:
        found = step(posed, solution.order_parameters, quick=not asked_for)
    except BudgetSpent:
        raise
    except Refusal:
        if asked_for:
            raise
        return solution
    said = () if asked_for else (_beside(solution, found),)
    if max(k.tokens for k in posed.module.KERNELS) > COMPARED_TOKENS:
        said = (*said, UNCOMPARED)
    return solution._replace(rsb=found, warnings=(*solution.warnings, *said, *found.pop("warnings")))


def _beside(solution: Solution, found: Mapping[str, Any]) -> str:
    """What was solved beside replica symmetry, in words."""
    if not found["broken"]:
        return "one step of breaking was solved beside replica symmetry and is the same (rsb)"
    names = ("test_risk", "energy")
    moves = ", ".join(f"{n} {found[n]:.4g} instead of {getattr(solution, n):.4g}" for n in names)
    return f"one step of breaking was solved beside replica symmetry (rsb): {moves}"


def step(posed: Problem, start: Mapping[str, float], quick: bool) -> dict[str, Any]:
    """The equilibrium of states as plain names and numbers, its warnings among them."""
    found = of_step(posed, "solve", start=start, quick=quick)._asdict()
    if not found["broken"]:
        found["y"] = None
        found["errors"] = {name: error for name, error in found["errors"].items() if name != "y"}
    return dict(found)


def of_step(posed: Problem, name: str, start: Mapping[str, float], **options: Any) -> Any:
    """What a function of the module of one step returns, from the order parameters of replica symmetry."""
    module = module_of_step(posed)
    begin = {name: float(value) for name, value in start.items()}
    return call(module, name, **posed.values, start=begin, **options)


def module_of_step(posed: Problem) -> ModuleType:
    """The generated module of one step for this problem; refuses what the step is not derived for."""
    of = posed.act, posed.task, posed.law, posed.backend, posed.own, posed.learning.model
    return module_for(*of, level="1rsb")[0]


def _coordinates(posed: Problem) -> float:
    """How many coordinates the envelope has at the most of all lengths; no number where chi* is sampled."""
    module, given = posed.module, np.array(list(posed.own.values()))
    if module.LOCATION == "normalised":
        return np.inf
    free = [k.row_sum(given) in (None, 0.0) for k in module.KERNELS]
    counts = [2 * k.tokens - module.SHIFT_INVARIANT + more for k, more in zip(module.KERNELS, free, strict=True)]
    return float(max(counts))
