"""The population level solved: the best attention with infinite data, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.inputs import ArgumentError, check_number, check_physics, parameter_values
from replicode.codegen.runtime.kernel import LOCATION, PARAMETERS, best_value_overlap, noise_risk, risk_on_manifold
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.optimum import CHECK, COARSE, FINE, best
from replicode.codegen.runtime.population import PopulationAverages, population_averages, settings_of
from replicode.codegen.runtime.wording import told_apart

AVERAGED_TO = {COARSE: 1e-6, CHECK: 1e-10, FINE: 1e-13}
WEIGHTED = 1e-11
BESIDE_THE_SCORE = 1e-8
GOOD_ENOUGH = 1e-3


class Solution(NamedTuple):
    """The best estimator; `error` bounds the error of excess_risk, `brackets` are ends at which the risk is larger."""

    test_risk: float
    excess_risk: float
    order_parameters: dict[str, float]
    parameters: dict[str, float]
    A: float
    B: float
    error: float
    brackets: dict[str, tuple[float, float]]
    flat_directions: tuple[str, ...]
    warnings: tuple[str, ...]


def averages_at(m: float, tau: float, settings: tuple[Setting, ...], tol: float) -> PopulationAverages:
    """A and B at q_k = m^2 + tau^2; a weight that needs chi* beside the score is continued to tau = 0."""
    norm = m * m + tau * tau
    if LOCATION == "gaussian":
        return population_averages(m, norm, settings, tol)
    near, far = (population_averages(m, norm + n * BESIDE_THE_SCORE, settings, max(tol, WEIGHTED)) for n in (1.0, 2.0))
    return PopulationAverages(2.0 * near.A - far.A, 2.0 * near.B - far.B, 2.0 * near.error + far.error)


def solve(nu: float, noise: float = 0.0, *, tol: float | None = 1e-8, **parameters: float) -> Solution:
    """The least risk over k, v and the parameters that are not given; `tol` is the error that needs no warning."""
    check_physics(1.0, nu, noise)
    if tol is not None:
        check_number("tol", tol, "a finite number above 0, or None", tol > 0)
    if unknown := sorted(set(parameters) - set(PARAMETERS)):
        raise ArgumentError("parameters", unknown, f"only {list(PARAMETERS)}")

    def averages(m: float, tau: float, values: Mapping[str, float], fineness: float) -> PopulationAverages:
        return averages_at(m, tau, settings_of(nu, noise, parameter_values(values)), AVERAGED_TO[fineness])

    with np.errstate(all="ignore"):
        free = [p for p in PARAMETERS if p not in parameters]
        found = best(lambda *point: averages(*point)[:2], free, parameters)
        at = averages(found.m, found.tau, found.parameters, FINE)
    m_v = float(best_value_overlap(at.A, at.B))
    risk = float(risk_on_manifold(m_v, m_v * m_v, noise, at.A, at.B))
    scale = float(risk_on_manifold(0.0, 0.0, noise, 0.0, 1.0)) - noise_risk(noise)
    error = float(scale * found.error + at.error * (2.0 * abs(m_v) + m_v * m_v))
    worst = GOOD_ENOUGH if tol is None else tol
    warnings = [] if error <= worst else ["the error {} is above {}".format(*told_apart(error, worst))]
    if found.unbounded:
        warnings.append("the risk still falls as |k| grows: the value is that of the largest |k| tried")
    return Solution(
        test_risk=risk,
        excess_risk=risk - noise_risk(noise),
        order_parameters={"m_k": found.m, "q_k": found.m**2 + found.tau**2, "m_v": m_v, "q_v": m_v * m_v},
        parameters=dict(found.parameters),
        A=at.A,
        B=at.B,
        error=error,
        brackets=dict(found.brackets),
        flat_directions=found.flat,
        warnings=tuple(warnings),
    )
