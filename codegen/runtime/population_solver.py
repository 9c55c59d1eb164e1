"""The population level solved: the best attention with infinite data, where it is, and what no estimator can beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.alltokens import own_sigma, posterior_sigma, sampled_moments
from replicode.codegen.runtime.inputs import (
    ArgumentError,
    OutOfReach,
    asked_error,
    check_physics,
    check_signal,
    parameter_values,
)
from replicode.codegen.runtime.kernel import (
    HARD_LIMIT,
    KERNELS,
    PARAMETERS,
    Array,
    best_value_overlap,
    noise_risk,
    risk_on_manifold,
)
from replicode.codegen.runtime.onetoken import Law, Products, TokenAverages, products_of
from replicode.codegen.runtime.optimum import CHECK, COARSE, FINE, Optimum, best
from replicode.codegen.runtime.population import settings_of
from replicode.codegen.runtime.population_kernel import (
    activation_products,
    mean_weight,
    posterior_products,
    teacher_law,
    winner_products,
)
from replicode.codegen.runtime.threshold import HardTokenAverages
from replicode.codegen.runtime.wording import too_large

LEVEL_OF = {COARSE: 0, CHECK: 1, FINE: 2}
LENGTHS = tuple(kernel.tokens for kernel in KERNELS)
SHARES = np.array([kernel.share for kernel in KERNELS])


class Solution(NamedTuple):
    """The best estimator; `error` bounds the error of excess_risk, `brackets` are ends at which the risk is larger.

    `bayes_risk` is the least risk of any estimator, known to `bayes_error`.
    """

    test_risk: float
    excess_risk: float
    bayes_risk: float
    order_parameters: dict[str, float]
    parameters: dict[str, float]
    A: float
    B: float
    error: float
    bayes_error: float
    brackets: dict[str, tuple[float, float]]
    flat_directions: tuple[str, ...]
    warnings: tuple[str, ...]


class LocationGain(NamedTuple):
    """E_w[p_eps] of the posterior p of the location given the teacher's scores, with its error."""

    gain: float
    error: float


def averages_at(m: float, tau: float, nu: float, params: Array, fineness: float = FINE) -> tuple[float, float]:
    """A and B over all lengths at q_k = m^2 + tau^2."""
    found = (hard_averages if np.isinf(nu) else soft_averages)(m, tau, nu, params, fineness)
    return float(found[0] @ SHARES), float(found[1] @ SHARES)


def _teacher(nu: float) -> tuple[float, float] | None:
    """The law of chi* at the hidden token, where it is Gaussian."""
    law = teacher_law(nu)
    if law is not None and not law[1] > 0.0:
        raise OutOfReach(f"at nu = {nu} the weight of the task has no finite average")
    return law


def _factorised(products: Products, m: float, tau: float, nu: float, params: Array, fineness: float) -> Array:
    """One token at a time, over the mean weight where the scores are not Gaussian."""
    hidden = _teacher(nu)
    found = TokenAverages(Law(m, m * m + tau * tau, hidden), nu, params, fineness)
    a, b = (found.value(rows, LENGTHS) for rows in (products.A, products.B))
    if hidden is not None:
        return np.array([a, b])
    means = [mean_weight(nu, float(n)) for n in LENGTHS]
    known = np.array([mean for mean in means if mean is not None])
    if known.size:
        return np.array([a / known, b])
    norm = TokenAverages(Law(1.0, 1.0, None), nu, params).value(products.normalisation, LENGTHS)
    return np.array([a / norm, b / norm])


def factorised(m: float, tau: float, nu: float, params: Array, fineness: float) -> Array:
    """A and B of every length, one token at a time."""
    return _factorised(products_of(activation_products), m, tau, nu, params, fineness)


def sampled(m: float, tau: float, nu: float, params: Array, fineness: float) -> Array:
    """The same on nodes over all tokens."""
    law = Law(m, m * m + tau * tau, None if np.isinf(nu) else _teacher(nu))
    settings = settings_of(nu, 0.0, params)
    return np.array([sampled_moments(law, s, own_sigma, LEVEL_OF[fineness]) for s in settings]).T


def by_threshold(m: float, tau: float, nu: float, params: Array, fineness: float) -> Array:
    """The same where the hidden token is that of the largest score, one token at a time."""
    products, law = products_of(winner_products), Law(m, m * m + tau * tau, None)
    a = HardTokenAverages(law, HARD_LIMIT, params, fineness).hard_value(products.A, LENGTHS)
    b = TokenAverages(law._replace(hidden=(0.0, 1.0)), 0.0, params, fineness).value(products.B, LENGTHS)
    return np.array([a, b])


def factorised_posterior(nu: float, fineness: float) -> Array:
    """E p_eps and E sum p^2 of every length."""
    return _factorised(products_of(posterior_products), 1.0, 0.0, nu, np.zeros(len(PARAMETERS)), fineness)


def sampled_posterior(nu: float, fineness: float) -> Array:
    """The same on nodes over all tokens."""
    law, settings = Law(1.0, 1.0, _teacher(nu)), settings_of(nu, 0.0, np.zeros(len(PARAMETERS)))
    return np.array([sampled_moments(law, s, posterior_sigma, LEVEL_OF[fineness]) for s in settings]).T


soft_averages: Callable[[float, float, float, Array, float], Array] = factorised
hard_averages: Callable[[float, float, float, Array, float], Array] = sampled
posterior_averages: Callable[[float, float], Array] = factorised_posterior


def location_gain(nu: float) -> LocationGain:
    """1 + noise^2 minus the Bayes risk; its Nishimori twin E[sum p^2] is computed too and counted in the error."""
    check_signal(nu)
    if np.isinf(nu):
        return LocationGain(1.0, 0.0)
    with np.errstate(all="ignore"):
        (gain, twin), (check, _) = (posterior_averages(nu, f) @ SHARES for f in (FINE, CHECK))
    return LocationGain(float(gain), float(abs(gain - twin) + abs(gain - check)) + 4e-16)


def optimum(nu: float, **parameters: float) -> Optimum:
    """The best k and parameters that are not given, by the gain A^2/B."""
    check_signal(nu)
    if unknown := sorted(set(parameters) - set(PARAMETERS)):
        raise ArgumentError("parameters", unknown, f"only {list(PARAMETERS)}")

    def averages(m: float, tau: float, values: Mapping[str, float], fineness: float) -> tuple[float, float]:
        return averages_at(m, tau, nu, parameter_values(values), fineness)

    with np.errstate(all="ignore"):
        return best(averages, [p for p in PARAMETERS if p not in parameters], parameters)


def solve(nu: float, noise: float = 0.0, *, tol: float | None = 1e-8, **parameters: float) -> Solution:
    """The least risk over k, v and the parameters that are not given; `tol` is the error that needs no warning."""
    check_physics(1.0, nu, noise)
    _, worst = asked_error(tol)
    found, bayes = optimum(nu, **parameters), location_gain(nu)
    m_v = float(best_value_overlap(found.A, found.B))
    scale = float(risk_on_manifold(0.0, 0.0, 0.0, 0.0, 1.0)) - noise_risk(0.0)
    excess, error = scale * (1.0 - found.gain), scale * found.error
    warnings = too_large(error, worst)
    if found.unbounded:
        warnings.append("the risk still falls as |k| grows: the value is that of the largest |k| tried")
    return Solution(
        test_risk=excess + noise_risk(noise),
        excess_risk=excess,
        bayes_risk=scale * (1.0 - bayes.gain) + noise_risk(noise),
        order_parameters={"m_k": found.m, "q_k": found.m**2 + found.tau**2, "m_v": m_v, "q_v": m_v * m_v},
        parameters=dict(found.parameters),
        A=found.A,
        B=found.B,
        error=error,
        bayes_error=scale * bayes.error,
        brackets=dict(found.brackets),
        flat_directions=found.flat,
        warnings=tuple(warnings),
    )
