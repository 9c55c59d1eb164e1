"""The Bayes-optimal solution: all branches, the one of the largest free entropy, and what to distrust of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.bayes_evolution import FINE, Branch, branches, channel_at
from replicode.codegen.runtime.bayes_prior import entropy_at
from replicode.codegen.runtime.bayes_rates import BayesOverlaps
from replicode.codegen.runtime.inputs import asked_error, check_number, check_physics, unknowns
from replicode.codegen.runtime.kernel import noise_risk
from replicode.codegen.runtime.prior import spectrum_of
from replicode.codegen.runtime.wording import too_large

OVERLAP_NAMES, OVERLAP_CONJUGATES = ("q_k", "q_v"), ("qh_k", "qh_v")


class Solution(NamedTuple):
    """The equilibrium branch, and all branches found; `error` bounds the error of test_risk.

    `recovered`: without noise v* is found exactly and the free entropy is infinite.
    """

    test_risk: float
    excess_risk: float
    order_parameters: dict[str, float]
    free_entropy: float
    hard_phase: bool
    branches: tuple[dict[str, Any], ...]
    converged: bool
    error: float
    recovered: bool
    warnings: tuple[str, ...]


def solve(alpha: float, nu: float, noise: float = 0.0, *, tol: float | None = 1e-10, spectrum: Any = None) -> Solution:
    """The branch of the largest free entropy; `tol` is the absolute error asked for on test_risk.

    With `tol` None eight digits are aimed at, and three will do. A `spectrum` has the eigenvalues of structured tokens,
    and the teachers' weights, which the estimator knows. A hard phase is where an informed and an uninformed
    start end apart and the informed one has the larger free entropy: no known fast algorithm then reaches this risk.
    """
    aim, worst = asked_error(tol)
    found = branches(alpha, nu, noise, aim, spectrum)
    best = equilibrium(found)
    return Solution(
        test_risk=best.test_risk,
        excess_risk=max(best.test_risk - noise_risk(noise), 0.0),
        order_parameters={"q_k": best.q_k, "q_v": best.q_v},
        free_entropy=best.free_entropy,
        hard_phase=is_hard(found),
        branches=tuple(b._asdict() for b in found),
        converged=best.converged,
        error=best.error,
        recovered=best.recovered,
        warnings=tuple(_doubts(found, best, worst)),
    )


def equilibrium(found: tuple[Branch, ...]) -> Branch:
    """The branch of the largest free entropy."""
    return max(found, key=lambda b: b.free_entropy)


def is_hard(found: tuple[Branch, ...]) -> bool:
    """Whether the equilibrium is not reached from an uninformed start; branches that may be the same are one."""
    best = equilibrium(found)
    others = [b for b in found if b is not best and abs(b.test_risk - best.test_risk) > b.error + best.error]
    return bool(others) and best.start == "informed"


def _doubts(found: tuple[Branch, ...], best: Branch, worst: float) -> list[str]:
    """All warnings; `worst` is the largest error that needs none."""
    told = []
    if not best.converged:
        told.append(f"not converged: residual {best.residual:.1e}")
    told += too_large(best.error, worst)
    for other in found:
        if other is not best and not best.recovered:
            lead = best.free_entropy - other.free_entropy
            if lead <= best.entropy_error + other.entropy_error:
                told.append(f"two branches have the same free entropy within its error: the other is {other.start}")
    return told


def free_entropy(
    order_parameters: Mapping[str, float],
    conjugates: Mapping[str, float],
    alpha: float,
    nu: float,
    noise: float = 0.0,
    spectrum: Any = None,
) -> float:
    """Phi at q_k, q_v and qh_k, qh_v; it is stationary in all four at a fixed point."""
    check_physics(alpha, nu, noise)
    q_k, q_v = (float(q) for q in unknowns(order_parameters, OVERLAP_NAMES))
    qh = unknowns(conjugates, OVERLAP_CONJUGATES)
    for name, q in (("q_k", q_k), ("q_v", q_v)):
        check_number(name, q, "a number above 0 and below 1", 0.0 < q < 1.0)
    for name, value in zip(OVERLAP_CONJUGATES, qh, strict=True):
        check_number(name, float(value), "a finite number of at least 0", bool(np.isfinite(value)) and value >= 0.0)
    at = BayesOverlaps(q_k, 1.0 - q_k, q_v, 1.0 - q_v)
    found = channel_at(nu, noise).rates(at, FINE)
    return entropy_at(alpha, at, float(qh[0]), float(qh[1]), found.entropy, spectrum_of(spectrum))
