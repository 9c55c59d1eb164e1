"""`optimal`: the least test risk over the regularisation, and over the activation's parameters when asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.branches.minimise import Array, Minimised, Trial, minimise
from replicode.branches.stable_side import NEXT_TO_EDGE, constrained
from replicode.inputs.arguments import error_asked
from replicode.inputs.learned import LABELS, LOSS, ModelTexts, signal
from replicode.inputs.problem import Problem, Start, problem
from replicode.inputs.spectrum import SpectrumLike
from replicode.results import Solution
from replicode.theory.errors import InputError
from replicode.theory.lengths import Tokens
from replicode.verbs.solve import bayes_beside

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.model import Model

OVER = ("lambda_k", "lambda_v")
LEAST, MOST = 1e-4, 1e4
FARTHEST = 20.0  # of an activation's parameter from where it starts
MOST_EVALUATIONS = 40


@dataclass(frozen=True)
class Thrift:
    """How far a search goes: it ends with a step below `resolution` or one that promises less than `gain`.

    On its way solutions are known to `tol`; the one at the optimum is as good as asked for. Where replica symmetry is
    broken there, `inside` looks for the best on the stable side, which takes many solves.
    """

    resolution: float = 5e-5  # in logarithms: four digits
    tol: float = 1e-6  # enough for the gradient
    gain: float = 0.0
    inside: bool = True


@dataclass(frozen=True, repr=False)
class Optimum(Solution):
    """The solution at the least test risk; `optimum` are the parameters there, each known to `optimum_errors`.

    `at_bound` names those that ran to the end of the range searched. Where replica symmetry is broken at the minimum,
    `optimum` is the best on the stable side, and `unconstrained` the parameters and the test risk of the minimum.
    """

    headline = ("test_risk", "error", "optimum", "evaluations")

    optimum: Mapping[str, float] = field(default_factory=dict)
    optimum_errors: Mapping[str, float] = field(default_factory=dict)
    evaluations: int = 0
    at_bound: tuple[str, ...] = ()
    unconstrained: Mapping[str, float] | None = None


def optimal(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: float,
    nu: float | None = None,
    noise: float = 0.0,
    over: str | Sequence[str] = OVER,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    digits: int | None = None,
    init: Start = "informed",
    bayes: bool = True,
    loss: str = LOSS,
    labels: str = LABELS,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Optimum:
    """The least test risk over the parameters named in `over`, from those given, by a quasi-Newton method.

    Lambdas are searched from 1e-4 to 1e4 in logarithms, parameters of the activation within 20 of their start. The
    search is local: it goes downhill from the start. Loss, labels, spectrum and teacher are as in `solve`.
    """
    physics = {"alpha": alpha, "nu": signal(act, nu), "noise": noise, "lambda_k": lambda_k, "lambda_v": lambda_v}
    tol = error_asked(digits)
    texts = ModelTexts(model, loss, labels, spectrum, teacher)
    posed = problem(act, task, tokens, physics, parameters, more, texts)
    names = searched(over, posed)
    found = best(posed, names, tol, init)
    solution = Optimum(**found, asked=posed.asked(over=list(names), digits=digits))
    return bayes_beside(solution, posed) if bayes else solution


def searched(over: str | Sequence[str], posed: Problem) -> tuple[str, ...]:
    """The parameters to search over, checked."""
    if not isinstance(over, (str, Sequence)):
        raise InputError("over", over, "names separated by commas, or a list of them")
    names = tuple(over.split(",") if isinstance(over, str) else over)
    allowed = (*posed.strengths, *posed.module.PARAMETERS)
    if names == OVER:
        names = posed.strengths  # of regression, which has no scores, that of the values alone
    for name in names:
        if name not in allowed:
            raise InputError("over", name, f"some of {', '.join(allowed)}, separated by commas")
    if not names or len(set(names)) < len(names):
        raise InputError("over", ",".join(names), f"some of {', '.join(allowed)}, each once")
    return names


class Search:
    """Trials of a problem in the coordinates of the search: logarithms of lambdas, parameters as they are."""

    def __init__(
        self,
        posed: Problem,
        names: Sequence[str],
        tol: float | None,
        init: Start,
        also: Sequence[str] = (),
        way: float = Thrift.tol,
    ) -> None:
        self.posed, self.names, self.tol, self.init = posed, tuple(names), tol, init
        self.way = max(tol or 0.0, way)
        self.also = tuple(also)  # parameters whose derivatives are wanted at the end
        self.logs = np.array([name in OVER for name in names])
        self.evaluations = 0

    def values(self, place: Array) -> dict[str, float]:
        """The parameters at a place."""
        return {n: math.exp(z) if log else float(z) for n, z, log in zip(self.names, place, self.logs)}

    def place(self) -> Array:
        """Where the problem starts."""
        start = [self.posed.values[n] for n in self.names]
        return np.array([math.log(max(v, LEAST)) if log else v for v, log in zip(start, self.logs)])

    def bounds(self) -> tuple[Array, Array]:
        """The range searched."""
        start = self.place()
        low = np.where(self.logs, math.log(LEAST), start - FARTHEST)
        return low, np.where(self.logs, math.log(MOST), start + FARTHEST)

    def solve(self, place: Array, checks: bool = False, slopes: bool = True) -> Any:
        """The solution at a place, from the last one."""
        self.evaluations += 1
        wanted = (*self.names, *(self.also if checks else ())) if slopes else False
        here = self.posed.with_values(**self.values(place))
        tol = self.tol if checks else self.way
        found = here.solve(tol, self.init, wanted, checks, checks)
        if not found.converged and not isinstance(self.init, str):
            found = here.solve(tol, "informed", wanted, checks, checks)
        if found.converged:
            self.init = found.order_parameters
        return found

    def trial(self, place: Array) -> Trial:
        """Value and gradient of the test risk; no number where there is no solution."""
        return self.tried(place, self.solve(place))

    def tried(self, place: Array, found: Any) -> Trial:
        """A solution as a trial."""
        if not (found.converged and found.derivatives):
            nothing = np.full(place.size, np.nan)
            return Trial(place, np.inf, nothing, np.inf, nothing, found)
        scale = np.where(self.logs, np.exp(np.where(self.logs, place, 0.0)), 1.0)
        slopes, errors = (
            scale * np.array([table[n]["test_risk"] for n in self.names])
            for table in (found.derivatives, found.derivative_errors)
        )
        return Trial(place, found.test_risk, slopes, found.error, errors, found)


def best(
    posed: Problem,
    names: Sequence[str],
    tol: float | None,
    init: Start = "informed",
    also: Sequence[str] = (),
    thrift: Thrift = Thrift(),
) -> dict[str, Any]:
    """The fields of an Optimum; derivatives also in the parameters of `also`."""
    search = Search(posed, names, tol, init, also, thrift.tol)
    low, high = search.bounds()
    found = minimise(search.trial, search.place(), low, high, thrift.resolution, MOST_EVALUATIONS, thrift.gain)
    place, unconstrained = found.best.place, None
    final = search.solve(place, checks=True)
    warnings = []
    if not found.converged:
        warnings.append(f"optimum: not settled after {search.evaluations} solves")
    elif final.converged and not final.rs_stable:
        warnings.append("optimum: replica symmetry is broken at the minimum")
        inside = constrained(search, found, max(thrift.resolution, NEXT_TO_EDGE)) if thrift.inside else None
        unconstrained = {**search.values(place), "test_risk": final.test_risk} if thrift.inside else None
        if inside is not None:
            warnings[-1] += "; this is the best on the stable side"
            place, final = inside
        elif thrift.inside:
            warnings[-1] += ", and no stable side was found"
    at_bound = tuple(n for n, z, lo, hi in zip(search.names, place, low, high) if not lo < z < hi)
    if at_bound:
        warnings.append(f"optimum: {', '.join(at_bound)} at the end of the range searched")
    return {
        **final._asdict(),
        "warnings": (*final.warnings, *warnings),
        "optimum": search.values(place),
        "optimum_errors": _errors(search, found, search.tried(place, final)),
        "evaluations": search.evaluations,
        "at_bound": at_bound,
        "unconstrained": unconstrained,
    }


def _errors(search: Search, found: Minimised, at: Trial) -> dict[str, float]:
    """What the gradient at the optimum and its errors leave open of the parameters that are held by nothing."""
    inverse = np.linalg.inv(found.curvature)
    reach = np.abs(inverse) @ at.gradient_error + np.abs(inverse @ np.where(found.held, 0.0, at.gradient))
    moved = zip(search.names, reach, at.place, search.logs)
    return {n: float(r * math.exp(z) if log else r) for n, r, z, log in moved}
