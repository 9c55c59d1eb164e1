"""`solve`: the saddle point of an activation at one point, beside the Bayes-optimal risk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from replicode.arguments import BACKENDS, DOUBLE_DIGITS, INITS, MOST_DIGITS, check_digits, one_of, point
from replicode.asked import asked
from replicode.cache import cached
from replicode.content import model_content, task_content
from replicode.modules import call, module_for
from replicode.results import Solution
from replicode.theory.budget import BudgetSpent
from replicode.theory.errors import InputError, Refusal
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import given_parameters

if TYPE_CHECKING:
    from replicode.problem import Problem
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.model import Model

BAYES_DIGITS = 6
BAYES_WORST = 1e-3
BAYES_TOKENS = 4
Found = TypeVar("Found", bound=Solution)


def solve(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    digits: int | None = None,
    init: str = "informed",
    backend: str = "numpy",
    bayes: bool = True,
    derivatives: bool = False,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Solution:
    """Solve the saddle-point equations; the Solution carries its error, its warnings and the Bayes-optimal risk.

    Without `digits` eight are aimed at for a few seconds, and three will do: the error says how many were reached.
    `backend` is numpy, or fast for compiled loops, which need a C compiler; `bayes=False` leaves bayes_risk out.
    `derivatives=True` adds those of every quantity in every parameter, with their errors.
    `model` says what is learned where that is not the default, a square loss on noisy values of the hidden token.
    The activation's parameters are given in `parameters`, or as keywords where their names are no argument's.
    """
    tolerance = None if digits is None else check_digits(digits, MOST_DIGITS)
    wanted, law = None if digits is None else int(digits), lengths(tokens)
    at = point(alpha, nu, noise, lambda_k, lambda_v)
    options = {
        "digits": wanted,
        "init": one_of("init", init, INITS),
        "backend": one_of("backend", backend, BACKENDS),
    }
    if derivatives and wanted is not None and wanted > DOUBLE_DIGITS:
        raise InputError("digits", digits, f"at most {DOUBLE_DIGITS} where derivatives are asked for")
    module, values = module_for(act, task, law, backend, given_parameters(parameters, more), model)
    if wanted is not None and wanted > DOUBLE_DIGITS:
        from replicode.precise import precise_solution

        fields = precise_solution((act, task, law, model), module, at, init, values, wanted)
    else:
        fields = call(module, "solve", **at, init=init, tol=tolerance, derivatives=derivatives, **values)._asdict()
    solution = Solution(**fields, asked=asked(act, task, law, values, model, **at, **options))
    if not bayes or slow_bayes(module):
        return solution
    return _beside_bayes(solution, bayes_reference(task, law, at["alpha"], at["nu"], at["noise"], model))


def slow_bayes(module: ModuleType) -> bool:
    """Whether the Bayes-optimal risk takes minutes: weights that couple the scores of many tokens."""
    return module.LOCATION in ("ranked", "normalised") and max(k.tokens for k in module.KERNELS) > BAYES_TOKENS


def bayes_reference(
    task: str | Task, tokens: Tokens, alpha: float, nu: float, noise: float, model: Model | None = None
) -> tuple[float, float] | None:
    """The Bayes-optimal test risk and its error, from the cache when it is there; None where it is refused."""
    law = lengths(tokens)

    def build() -> dict[str, Any]:
        from replicode.verbs.bayes import bayes

        try:
            found = bayes(task=task, tokens=law, nu=nu, alpha=alpha, noise=noise, digits=BAYES_DIGITS, model=model)
        except BudgetSpent:
            raise
        except Refusal as refusal:
            return {"made_for": f"Bayes-optimal risk, refused: {refusal}", "risk": None, "error": None}
        trusted = found.converged and math.isfinite(found.test_risk) and found.error < BAYES_WORST
        return {
            "made_for": f"Bayes-optimal risk, {law} tokens, alpha = {alpha:g}, nu = {nu:g}",
            "risk": found.test_risk if trusted else None,
            "error": found.error,
        }

    key = task_content(task), repr(law), float(alpha), float(nu), float(noise), BAYES_DIGITS, *model_content(model)
    try:
        found = cached("bayes", key, build)
    except BudgetSpent:  # not kept: another machine, or a larger budget, may have it
        return None
    return None if found["risk"] is None else (float(found["risk"]), float(found["error"]))


def bayes_beside(solution: Found, posed: Problem) -> Found:
    """A solution of a problem with the Bayes-optimal risk beside it, where that does not take minutes."""
    if slow_bayes(posed.module):
        return solution
    at = solution.asked
    reference = bayes_reference(posed.task, posed.law, at["alpha"], at["nu"], at["noise"], posed.model)
    return _beside_bayes(solution, reference)


def _beside_bayes(solution: Found, reference: tuple[float, float] | None) -> Found:
    """The solution with the Bayes-optimal risk and its error, and a warning where it claims to beat it."""
    if reference is None:
        return solution
    risk, error = reference
    warnings = solution.warnings
    if float(solution.test_risk) + float(solution.error) < risk - error:
        warnings = (*warnings, f"below the Bayes-optimal risk {risk:.6g}: no estimator is, the solution is spurious")
    return solution._replace(bayes_risk=risk, bayes_error=error, warnings=warnings)
