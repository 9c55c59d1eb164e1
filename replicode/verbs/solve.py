"""`solve`: the saddle point of an activation at one point, beside the Bayes-optimal risk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeVar

from replicode.cache import cached
from replicode.inputs.arguments import BACKENDS, DOUBLE_DIGITS, INITS, MOST_DIGITS, error_asked, one_of
from replicode.inputs.content import task_content
from replicode.inputs.learned import DEFAULT, LABELS, LOSS, Learning, ModelTexts, signal
from replicode.inputs.problem import Problem, problem
from replicode.inputs.radii import RadiiLike
from replicode.inputs.spectrum import SpectrumLike
from replicode.kinds import ActivationLike, Model, Task
from replicode.results import Solution
from replicode.theory.budget import BudgetSpent
from replicode.theory.errors import InputError, Refusal
from replicode.theory.lengths import Tokens, lengths
from replicode.verbs.rsb import beside_step, module_of_step

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
    nu: float | None = None,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    loss: str = LOSS,
    labels: str = LABELS,
    digits: int | None = None,
    init: str = "informed",
    backend: str = "numpy",
    bayes: bool = True,
    derivatives: bool = False,
    branches: bool = False,
    rsb: int | None = None,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    radii: RadiiLike | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Solution:
    """Solve the saddle-point equations; the Solution carries its error, its warnings and the Bayes-optimal risk.

    Without `digits` eight are aimed at for a few seconds, and three will do: the error says how many were reached.
    `backend` is numpy, or fast for compiled loops, which need a C compiler; `bayes=False` leaves bayes_risk out.
    `derivatives=True` adds those of every quantity in every parameter, with their errors.
    `branches=True` searches for all solutions at this point, from six starts and by deflation, and says what was tried;
    without it one other start and a few deflated steps are. A lower energy is a warning in either case.
    `rsb=1` solves one step of replica symmetry breaking beside it, 0 does not; left out, it is done quickly where
    replica symmetry is not stable and the step is at hand.
    `loss` and `labels` are names or expressions; `model` says the same, and more, as an object. The default is a square
    loss on noisy values of the hidden token. `nu` may be left out where the activation is a constant.
    With a `spectrum` the tokens are structured: power:A:D, a file, or an array of eigenvalues, with a `teacher`;
    the overlaps then are in the metric of the covariance, and bayes_risk is that of an estimator that knows both.
    With `radii`, a file or an array, every token is a Gaussian one times a radius drawn from them.
    The activation's parameters are given in `parameters`, or as keywords where their names are no argument's.
    """
    tolerance = error_asked(digits, MOST_DIGITS)
    wanted = None if digits is None else int(digits)
    options = {
        "digits": wanted,
        "init": one_of("init", init, INITS),
        "backend": one_of("backend", backend, BACKENDS),
    }
    if derivatives and wanted is not None and wanted > DOUBLE_DIGITS:
        raise InputError("digits", digits, f"at most {DOUBLE_DIGITS} where derivatives are asked for")
    if rsb not in (None, 0, 1):
        raise InputError("rsb", rsb, "0 or 1: one step of breaking is what there is")
    if spectrum is not None or radii is not None:
        check_structured(wanted, rsb, "a spectrum" if radii is None else "radii")
    numbers = {"alpha": alpha, "nu": signal(act, nu), "noise": noise, "lambda_k": lambda_k, "lambda_v": lambda_v}
    texts = ModelTexts(model, loss, labels, spectrum, teacher, radii)
    posed = problem(act, task, tokens, numbers, parameters, more, texts, backend)
    if rsb:
        module_of_step(posed)  # what it is not derived for is refused before any work
    if wanted is not None and wanted > DOUBLE_DIGITS:
        from replicode.verbs.precise import precise_solution

        fields = precise_solution(posed, init, wanted)
    else:
        fields = posed.solve(tolerance, init, derivatives)._asdict()
    solution = _beside_branches(Solution(**fields, asked=posed.asked(**options)), posed, branches)
    if rsb or (rsb is None and wanted is None and spectrum is None and radii is None):
        solution = beside_step(solution, posed, asked_for=bool(rsb))
    return bayes_beside(solution, posed) if bayes else solution


def _beside_branches(solution: Solution, posed: Problem, wanted: bool) -> Solution:
    """The solution beside other branches: all that a search finds where wanted, else a warning of a lower one."""
    from replicode.branches.further import other_branch, searched

    if wanted:
        return searched(solution, posed)
    quick = (solution.asked.get("digits") or 0) <= DOUBLE_DIGITS and not posed.learning.data
    return other_branch(solution, posed) if quick else solution


def check_structured(digits: int | None, rsb: int | None, what: str = "a spectrum") -> None:
    """What is not there for structured tokens is refused with the reason."""
    if rsb:
        raise Refusal(f"rsb: one step of breaking with {what}; it is derived for isotropic Gaussian tokens alone")
    if digits is not None and digits > DOUBLE_DIGITS:
        raise Refusal(f"digits: {digits} of them with {what}; the averages over these are in double precision")


def slow_bayes(module: ModuleType) -> bool:
    """Whether the Bayes-optimal risk takes minutes: weights that couple the scores of many tokens."""
    return module.LOCATION in ("ranked", "normalised") and max(k.tokens for k in module.KERNELS) > BAYES_TOKENS


def bayes_reference(
    task: str | Task,
    tokens: Tokens,
    alpha: float,
    nu: float,
    noise: float,
    learning: Learning = DEFAULT,
) -> tuple[float, float] | None:
    """The Bayes-optimal test risk and its error, from the cache when it is there; None where it is refused."""
    law = lengths(tokens)
    point_of: dict[str, Any] = {"task": task, "tokens": law, "nu": nu, "alpha": alpha, "noise": noise}

    def build() -> dict[str, Any]:
        from replicode.verbs.bayes import bayes

        try:
            found = bayes(**point_of, digits=BAYES_DIGITS, model=learning.model, spectrum=learning.spectrum)
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

    key = task_content(task), repr(law), float(alpha), float(nu), float(noise), BAYES_DIGITS, *learning.content
    try:
        found = cached("bayes", key, build)
    except BudgetSpent:  # not kept: another machine, or a larger budget, may have it
        return None
    return None if found["risk"] is None else (float(found["risk"]), float(found["error"]))


def bayes_beside(solution: Found, posed: Problem) -> Found:
    """A solution of a problem with the Bayes-optimal risk beside it, where that does not take minutes.

    A warning says where the solution claims to beat it.
    """
    if posed.learning.radii is not None or slow_bayes(posed.module):
        return solution
    at = solution.asked
    here = at["alpha"], at["nu"], at["noise"]
    reference = bayes_reference(posed.task, posed.law, *here, posed.learning)
    if reference is None:
        return solution
    risk, error = reference
    warnings = solution.warnings
    if float(solution.test_risk) + float(solution.error) < risk - error:
        warnings = (*warnings, f"below the Bayes-optimal risk {risk:.6g}: no estimator is, the solution is spurious")
    return solution._replace(bayes_risk=risk, bayes_error=error, warnings=warnings)
