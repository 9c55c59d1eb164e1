"""The Bayes-optimal reference at finite samples: the best test risk that any estimator can reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from replicode.arguments import accuracy, not_negative, positive
from replicode.asked import asked
from replicode.codegen.bayes import BayesChannel, Branch, branches
from replicode.codegen.runtime.wording import told_apart
from replicode.results import Result
from replicode.theory.bayes import derive_bayes
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.theory.task import Task
from replicode.theory.task import task as task_of

USUAL_DIGITS = 8


@dataclass(frozen=True, repr=False)
class Bayes(Result):
    """The equilibrium branch, and all branches found; `error` bounds the error of test_risk.

    `recovered`: without noise v* is found exactly and the free entropy is infinite.
    """

    headline = ("test_risk", "error", "converged", "hard_phase")

    test_risk: float
    excess_risk: float
    order_parameters: Mapping[str, float]
    free_entropy: float
    hard_phase: bool
    branches: tuple[Mapping[str, Any], ...]
    converged: bool
    error: float
    recovered: bool


def bayes(
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    nu: float,
    alpha: float,
    noise: float = 0.0,
    digits: int | None = None,
    model: Model | None = None,
) -> Bayes:
    """The Bayes-optimal test risk: the branch of the largest free entropy among informed and uninformed starts.

    A hard phase is where they end apart and the informed one has the larger free entropy: no known fast algorithm
    then reaches this risk from an uninformed start.
    """
    goal, law = accuracy(digits, USUAL_DIGITS), lengths(tokens)
    at: dict[str, Any] = {
        "alpha": positive("alpha", alpha),
        "nu": not_negative("nu", nu, True),
        "noise": not_negative("noise", noise),
    }
    channel = bayes_channel(task, law, at["nu"], at["noise"], model)
    found = branches(channel, at["alpha"], goal.aim)
    best = equilibrium(found)
    return Bayes(
        test_risk=best.test_risk,
        excess_risk=max(best.test_risk - channel.noise_risk, 0.0),
        order_parameters={"q_k": best.q_k, "q_v": best.q_v},
        free_entropy=best.free_entropy,
        hard_phase=is_hard(found),
        branches=tuple(asdict(b) for b in found),
        converged=best.converged,
        error=best.error,
        recovered=best.recovered,
        warnings=_warnings(found, best, goal.worst),
        asked=asked(None, task, law, None, model, **at, digits=goal.digits),
    )


def bayes_channel(
    task: str | Task, tokens: Tokens, nu: float, noise: float, model: Model | None = None
) -> BayesChannel:
    """The channel of a setting, its arguments checked."""
    signal, spread, law = not_negative("nu", nu, True), not_negative("noise", noise), lengths(tokens)
    return BayesChannel(derive_bayes(task_of(task).at(law), model or DEFAULT_MODEL), signal, spread, law)


def equilibrium(found: tuple[Branch, ...]) -> Branch:
    """The branch of the largest free entropy."""
    return max(found, key=lambda b: b.free_entropy)


def is_hard(found: tuple[Branch, ...]) -> bool:
    """Whether the equilibrium is not reached from an uninformed start; branches that may be the same are one."""
    best = equilibrium(found)
    others = [b for b in found if b is not best and abs(b.test_risk - best.test_risk) > b.error + best.error]
    return bool(others) and best.start == "informed"


def _warnings(found: tuple[Branch, ...], best: Branch, tolerance: float) -> tuple[str, ...]:
    told = []
    if not best.converged:
        told.append(f"not converged: residual {best.residual:.1e}")
    if best.error > tolerance:
        told.append("the error {} is above {}".format(*told_apart(best.error, tolerance)))
    for other in found:
        if other is not best and not best.recovered:
            lead = best.free_entropy - other.free_entropy
            if lead <= best.entropy_error + other.entropy_error:
                told.append(f"two branches have the same free entropy within its error: the other is {other.start}")
    return tuple(told)
