"""The Bayes-optimal reference at finite samples: the best test risk that any estimator can reach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from codegen.bayes import BayesChannel, Branch, branches
from theory.bayes import derive_bayes
from theory.errors import InputError
from theory.lengths import Lengths, lengths
from theory.task import Task


@dataclass(frozen=True)
class Bayes:
    """The equilibrium branch, and all branches found; `error` bounds the error of test_risk."""

    test_risk: float
    excess_risk: float
    order_parameters: Mapping[str, float]
    free_entropy: float
    hard_phase: bool
    branches: tuple[Mapping[str, Any], ...]
    converged: bool
    error: float
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields in order, ready for JSON."""
        return asdict(self)


def bayes(
    *,
    task: str | Task = "spiked",
    tokens: int | str | Lengths,
    nu: float,
    alpha: float,
    noise: float = 0.0,
    digits: int = 8,
) -> Bayes:
    """The Bayes-optimal test risk: the branch of the largest free entropy among informed and uninformed starts.

    A hard phase is where they end apart and the informed one has the larger free entropy.
    """
    from replicode.api import check_digits

    tolerance = check_digits(digits)
    for name, value, least in (("alpha", alpha, 0.0), ("nu", nu, 0.0), ("noise", noise, 0.0)):
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
            raise InputError(name, value, "a finite number of at least 0")
    if alpha == 0:
        raise InputError("alpha", alpha, "a positive number")
    channel = BayesChannel(derive_bayes(task), float(nu), float(noise), lengths(tokens))
    found = branches(channel, float(alpha), tolerance)
    best = max(found, key=lambda b: b.free_entropy)
    hard = len(found) > 1 and best.start == "informed"
    return Bayes(
        test_risk=best.test_risk,
        excess_risk=best.test_risk - noise**2,
        order_parameters={"q_k": best.q_k, "q_v": best.q_v},
        free_entropy=best.free_entropy,
        hard_phase=hard,
        branches=tuple(asdict(b) for b in found),
        converged=best.converged,
        error=best.error,
        warnings=_warnings(best, tolerance, hard),
    )


def _warnings(best: Branch, tolerance: float, hard: bool) -> tuple[str, ...]:
    told = []
    if not best.converged:
        told.append(f"not converged: residual {best.residual:.1e}")
    if best.error > tolerance:
        told.append(f"the error {best.error:.1e} is above the {tolerance:.0e} asked for")
    if hard:
        told.append("hard phase: no known fast algorithm reaches this risk from an uninformed start")
    return tuple(told)
