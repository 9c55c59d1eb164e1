"""The properties by name: those that `check` runs, and those that take longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import mpmath

from replicode.codegen.threads import one_thread
from replicode.theory.errors import Refusal
from replicode.validation.properties import kernels, population, ridge, saddle, solution, symmetries
from replicode.validation.properties.subject import DIGITS, Subject
from replicode.validation.properties.verdict import Property, Verdict, not_applicable

PROPERTIES: Mapping[str, Property] = {
    "equivariance": symmetries.equivariance,
    "sigma as typed": symmetries.sigma_as_typed,
    "normalisation": symmetries.normalisation,
    "shift invariance": symmetries.shift_invariance,
    "reflection": symmetries.reflection,
    "homogeneity": symmetries.homogeneity,
    "pullback": kernels.pullback,
    "gradient identity": kernels.gradient_identity,
    "jacobian identity": kernels.jacobian_identity,
    "token permutation of the loss": kernels.loss_permutation,
    "sign symmetry": kernels.sign_symmetry,
    "generated code": kernels.generated_code,
    "population averages": population.averages_agree,
    "risk from samples": population.risk_from_samples,
    "hard limit": population.hard_limit,
    "Bayes bound": population.bayes_bound,
    "Nishimori": population.nishimori_point,
    "posterior": population.posterior_twin,
    "residual is the gradient of the free energy": saddle.residual_is_gradient,
    "jacobian is the derivative of the residual": saddle.jacobian_is_derivative,
    "stein form is the derivative form": saddle.stein_is_derivative,
    "prox and prox-free averages": saddle.prox_is_prox_free,
    "total weight": saddle.total_weight,
    "scale covariance": saddle.scale_covariance,
    "ridge limit": ridge.ridge_limit,
    "ridge risk": ridge.ridge_risk,
    "ridge solution": ridge.ridge_solution,
    "stationarity": solution.stationarity,
    "energy identity": solution.energy_identity,
    "infinite data": solution.infinite_data,
    "infinite penalty": solution.infinite_penalty,
    "Bayes bound at finite samples": solution.finite_bayes_bound,
    "Bayes risk falls with samples": solution.bayes_monotony,
}

LONGER: Mapping[str, Property] = {
    "solver": solution.solver_agrees,
    "lengths mix": saddle.lengths_mix,
}


@one_thread()
def outcomes(of: Subject, names: Iterable[str] = tuple(PROPERTIES)) -> dict[str, Verdict]:
    """The named properties in turn, all that `check` runs by default; one that cannot be computed has failed."""
    known = {**PROPERTIES, **LONGER}
    with mpmath.workdps(DIGITS):
        return {name: _verdict(known[name], of) for name in names}


def _verdict(run: Property, of: Subject) -> Verdict:
    try:
        return run(of)
    except Refusal as refused:
        return not_applicable(str(refused))
    except Exception as error:
        return Verdict("failed", f"{type(error).__name__}: {error}")
