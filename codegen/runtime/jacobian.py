"""The Jacobian of the twelve saddle-point equations at any point: the Hessian of the free energy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replicode.codegen.runtime.inputs import check_physical, check_setting, parameter_values, unknowns
from replicode.codegen.runtime.kernel import CONJUGATE_NAMES, ORDER_NAMES, Array
from replicode.codegen.runtime.population import settings_of
from replicode.codegen.runtime.prior import Problem, hessian_at, spectrum_of
from replicode.codegen.runtime.routes import ROUTES


def jacobian(
    order_parameters: Mapping[str, float],
    conjugates: Mapping[str, float],
    alpha: float,
    nu: float,
    noise: float,
    lambda_k: float,
    lambda_v: float,
    *,
    nodes: float = 200_000,
    spectrum: Any = None,
    **parameters: float,
) -> Array:
    """The derivatives of `residual` in the twelve unknowns, in its order: symmetric, 12 x 12."""
    check_setting(alpha, nu, noise, lambda_k, lambda_v)
    order, conj = unknowns(order_parameters, ORDER_NAMES), unknowns(conjugates, CONJUGATE_NAMES)
    check_physical(order)
    settings = settings_of(nu, noise, parameter_values(parameters))
    problem = Problem(alpha, lambda_k, lambda_v, spectrum_of(spectrum))
    with np.errstate(all="ignore"):
        second = np.sum([s.kernel.share * ROUTES.second(order, s, nodes) for s in settings], axis=0)
        return hessian_at(order, conj, problem, second)
