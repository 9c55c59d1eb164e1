"""The Bayes-optimal reference at finite samples: the best test risk that any estimator can reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replicode.codegen.threads import one_thread
from replicode.inputs.arguments import error_asked, not_negative, positive
from replicode.inputs.asked import asked
from replicode.inputs.learned import ModelTexts
from replicode.inputs.spectrum import SpectrumLike
from replicode.kinds import Model, Task
from replicode.modules import bayes_module, call
from replicode.results import Result
from replicode.theory.lengths import Tokens, lengths


@dataclass(frozen=True, repr=False)
class Bayes(Result):
    """The equilibrium branch, and all branches found; `error` bounds the error of test_risk.

    `recovered`: without noise v* is found exactly and the free entropy is infinite.
    """

    headline = ("test_risk", "error", "converged", "hard_phase")
    bounded = ("test_risk", "excess_risk")

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
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
) -> Bayes:
    """The Bayes-optimal test risk: the branch of the largest free entropy among informed and uninformed starts.

    A hard phase is where they end apart and the informed one has the larger free entropy: no known fast algorithm
    then reaches this risk from an uninformed start. With a `spectrum` the tokens are structured, as in `solve`, and the
    estimator knows their covariance and the variances of the teacher's weights, t_i.
    """
    tolerance, law = error_asked(digits), lengths(tokens)
    at: dict[str, Any] = {
        "alpha": positive("alpha", alpha),
        "nu": not_negative("nu", nu, True),
        "noise": not_negative("noise", noise),
    }
    learning = ModelTexts(model, spectrum=spectrum, teacher=teacher).read()
    module = bayes_module(task, law, learning.model)
    with one_thread():
        found = call(module, "solve", **at, **learning.data, tol=tolerance)
    told = {"digits": None if digits is None else int(digits), **learning.question()}
    return Bayes(**found._asdict(), asked=asked(None, task, law, None, learning.model, **at, **told))
