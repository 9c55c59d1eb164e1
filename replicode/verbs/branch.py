"""`branch`: a branch of saddle points in any parameter, followed through its folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replicode.branches.arclength import Array, FollowedBranch, Steps, follow
from replicode.inputs.arguments import one_of
from replicode.inputs.learned import ModelTexts
from replicode.inputs.problem import Problem, Start, problem
from replicode.inputs.ranges import Range, axes_of
from replicode.modules import call
from replicode.results import Result
from replicode.theory.lengths import Tokens

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.model import Model

LEVEL = 2
FOLDED = 1e-3
ENDS = ("low", "high")
LEFT_OPEN = "the branch was not followed to the end of the range"
STEPS = Steps(first=0.05, least=1e-5, most=0.5, tolerance=1e-8)


@dataclass(frozen=True, repr=False)
class BranchResult(Result):
    """Columns along a branch, and the values of the parameter at its folds, in the order met.

    `complete`: it was followed until it left the range. `energy` tells which of several solutions is the lowest.
    """

    headline = ("parameter", "spinodals", "complete")

    parameter: str
    columns: Mapping[str, tuple[float, ...]]
    spinodals: tuple[float, ...]
    complete: bool


class Along:
    """F(u, p) of a problem along one parameter; what was found at the last point is kept for the record."""

    def __init__(self, posed: Problem, axis: Range) -> None:
        self.posed, self.axis, self.noted = posed, axis, dict[tuple[float, ...], dict[str, float]]()

    def __call__(self, u: Array, p: float) -> tuple[Array, Array, Array]:
        """F, F_u and F_p, p being the coordinate of the range."""
        value = self.axis.value_outside(p)
        here = self.posed.with_values(**{self.axis.name: value}).values
        found, by_u, by_p, noted = call(
            self.posed.module, "linearised_map", free=u, parameter=self.axis.name, level=LEVEL, **here
        )
        self.noted = {(*u, p): noted}
        return found, by_u, by_p * self.axis.slope(value)

    def record(self, u: Array, p: float) -> dict[str, float]:
        """What is reported at a point."""
        if (*u, p) not in self.noted:
            self(u, p)
        return self.noted[(*u, p)]


def branch(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: Any,
    nu: Any,
    noise: Any = 0.0,
    lambda_k: Any = 1.0,
    lambda_v: Any = 1.0,
    start: str = "low",
    init: Start = "informed",
    told: Callable[[str], None] | None = None,
    model: Model | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> BranchResult:
    """Follow the branch of a solution along one parameter, given as a range, from its low or high end.

    Averages are prox-free on one set of nodes per point: where folds of the prox weigh, a warning says so.
    """
    given = {"alpha": alpha, "nu": nu, "noise": noise, "lambda_k": lambda_k, "lambda_v": lambda_v}
    (axis,), fixed = axes_of(1, given, parameters, more)
    begin = axis.low if one_of("start", start, ENDS) == "low" else axis.high
    posed = problem(act, task, tokens, {**fixed, axis.name: begin}, texts=ModelTexts(model))
    first = posed.solve(1e-6, init, False, False, False)
    if not first.converged:
        return BranchResult(axis.name, {}, (), False, warnings=("no solution at the start",), asked=posed.asked())
    system, say = Along(posed, axis), told or (lambda _: None)
    u = call(posed.module, "free_coordinates", order_parameters=first.order_parameters)
    towards = 1.0 if start == "low" else -1.0
    found = follow(
        system, u, axis.coordinate(begin), towards, axis.ends, STEPS, system.record,
        lambda p: say(f"{axis.name} = {axis.value_outside(p.p):.6g}: test risk {p.record['test_risk']:.6f}"),
    )  # fmt: skip
    return _result(found, axis, posed, start)


def _result(found: FollowedBranch, axis: Range, posed: Problem, start: str) -> BranchResult:
    columns = found.columns(axis.name, axis.value_outside)
    warnings = [] if found.complete else [LEFT_OPEN]
    if (folded := max(columns.get("folded_mass", ()), default=0.0)) > FOLDED:
        warnings.append(f"folds of the prox weigh up to {folded:.2g}: the branch is that without them")
    spinodals = tuple(axis.value_outside(p.p) for p in found.folds)
    asked = posed.asked(range=[axis.low, axis.high], parameter=axis.name, start=start)
    return BranchResult(axis.name, columns, spinodals, found.complete, warnings=tuple(warnings), asked=asked)
