"""`landscape`: what training finds from many starts on the same data, against RS and one step of breaking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicode.cache import work_ledger
from replicode.figures.drawing import picture_asked_for
from replicode.inputs.arguments import point
from replicode.inputs.learned import signal
from replicode.inputs.problem import Problem, problem
from replicode.results import LandscapeReport, Solution
from replicode.theory.errors import Refusal
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import whole_number
from replicode.verbs.rsb import of_step, step
from replicode.verbs.solve import solve

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task

LEAST_DIM = 20
CURVE = 14
KEPT = ("energy", "test_risk", "train_loss", "order_parameters", "y", "complexity")


def landscape(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: float,
    nu: float | None = None,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    dim: int = 200,
    starts: int = 25,
    seeds: int = 2,
    output: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> LandscapeReport:
    """Train from many starts on the same data, and set energies, test risks and overlaps against both theories.

    The starts are of five kinds in turn: informed, shaken, random, slow gradient descent, basin hopping. `seeds` is the
    number of data sets. What is done is kept, and the same call goes on from there. `output` names a figure to draw.
    """
    at: dict[str, Any] = point(alpha, signal(act, nu), noise, lambda_k, lambda_v)
    dim, starts = whole_number("dim", dim, LEAST_DIM), whole_number("starts", starts, 1)
    seeds = whole_number("seeds", seeds, 1)
    law, target = lengths(tokens), picture_asked_for(output)
    from replicode.validation import landscape as room
    from replicode.validation.ledger import training_source
    from replicode.validation.studies.cost import check_cost

    check_cost(law, at["alpha"], (dim,), seeds * starts, "starts times seeds")
    posed = problem(act, task, law, at, parameters, more)
    symmetric = solve(act, **posed.arguments(), rsb=0, bayes=False)
    attention, signature = posed.attention(), posed.module.METADATA["signature"]
    theory, notes = _theory(symmetric, posed)
    content = (training_source(), room.minima.__doc__, signature, sorted(posed.own.items()), at)
    penalties = (at["lambda_k"], at["lambda_v"])
    kept = work_ledger("landscape", *content)
    found = room.explore(attention, at["alpha"], penalties, dim, starts, seeds, kept, progress)
    numbers = room.summary(found)
    warnings = [*notes, *_doubts(numbers, len(found.minima))]
    return LandscapeReport(
        theory=theory,
        **numbers,
        dim=dim,
        starts=starts,
        seeds=seeds,
        figure=None if target is None else _drawn(found, theory, target),
        asked=posed.asked(dim=dim, starts=starts, seeds=seeds),
        warnings=tuple(warnings),
    )


def _drawn(found: Any, theory: Mapping[str, Any], target: Path) -> str:
    from replicode.figures.landscape import landscape_figure

    return landscape_figure(found, theory, target)


def _theory(symmetric: Solution, posed: Problem) -> tuple[dict[str, Any], list[str]]:
    """RS, the equilibrium and the threshold of one step where there is one, and the warnings of both."""
    rs = {name: getattr(symmetric, name) for name in ("energy", "test_risk", "train_loss", "order_parameters")}
    theory: dict[str, Any] = {"rs": {**rs, "stable": symmetric.rs_stable}, "equilibrium": None, "threshold": None}
    notes = list(symmetric.warnings)
    try:
        one = step(posed, symmetric.order_parameters, quick=True)
    except Refusal as refusal:
        return theory, [*notes, str(refusal)]
    theory["equilibrium"] = {name: one[name] for name in (*KEPT, "stable", "stability", "error", "errors")}
    notes += one["warnings"]
    if one["broken"]:
        curve = of_step(posed, "states", symmetric.order_parameters, count=CURVE)
        theory["states"] = [{name: getattr(s, name) for name in KEPT} for s in curve]
        theory["threshold"] = next((row for row, s in zip(theory["states"], curve) if s.threshold), None)
    return theory, notes


def _doubts(numbers: Mapping[str, Any], total: int) -> list[str]:
    failures = int(numbers["failures"])
    return [f"{failures} of {total} trainings did not converge and are left out"] if failures else []
