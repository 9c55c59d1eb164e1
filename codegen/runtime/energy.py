"""The free energy and its gradient at any point, and the population risk, as functions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response
from replicode.codegen.runtime.inputs import (
    check_number,
    check_physical,
    check_setting,
    check_signal,
    parameter_values,
    unknowns,
)
from replicode.codegen.runtime.kernel import CONJUGATE_NAMES, ORDER_NAMES, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed
from replicode.codegen.runtime.population import _population_risk, settings_of
from replicode.codegen.runtime.prior import Problem, gradient_at, spectrum_of, value_at
from replicode.codegen.runtime.routes import ROUTES


class _Fixed(Channel):
    """The averages of a length on one fine set of nodes, at points that need not be solutions."""

    name = "fixed nodes"
    work = 0.0

    def __init__(self, setting: Setting, nodes: float) -> None:
        self.setting, self.nodes = setting, nodes

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages."""
        return ROUTES.averages(order, self.setting, self.nodes)

    def response(self, order: Array) -> Response:
        """Not asked for."""
        raise NotImplementedError


def _evaluated(
    points: tuple[Mapping[str, float], Mapping[str, float]],
    physics: tuple[float, float, float, float, float],
    nodes: float,
    parameters: Mapping[str, float],
) -> tuple[Array, Array, Averages]:
    """Checked order parameters and conjugates as arrays, and the averages there."""
    check_setting(*physics)
    order, conjugates = unknowns(points[0], ORDER_NAMES), unknowns(points[1], CONJUGATE_NAMES)
    check_physical(order)
    settings = settings_of(physics[1], physics[2], parameter_values(parameters))
    with np.errstate(all="ignore"):
        return order, conjugates, mixed(settings, lambda s: _Fixed(s, nodes)).averages(order)


def free_energy(
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
) -> float:
    """The replica-symmetric free energy at any point, E[M] integrated numerically."""
    physics = (alpha, nu, noise, lambda_k, lambda_v)
    problem = Problem(alpha, lambda_k, lambda_v, spectrum_of(spectrum))
    order, conj, averages = _evaluated((order_parameters, conjugates), physics, nodes, parameters)
    return value_at(order, conj, problem, averages.envelope)


def residual(
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
    """The gradient of the free energy in m_k q_k V_k m_v q_v V_v, then mh_k qh_k Vh_k mh_v qh_v Vh_v."""
    physics = (alpha, nu, noise, lambda_k, lambda_v)
    problem = Problem(alpha, lambda_k, lambda_v, spectrum_of(spectrum))
    order, conj, averages = _evaluated((order_parameters, conjugates), physics, nodes, parameters)
    return gradient_at(order, conj, problem, averages.rates)


def population_risk(
    m_k: float, q_k: float, m_v: float, q_v: float, nu: float, noise: float = 0.0, **parameters: float
) -> float:
    """E (y - f)^2 of an estimator with these overlaps, cross overlaps zero."""
    check_number("q_k", q_k, "a finite number above 0", q_k > 0)
    check_signal(nu)
    return _population_risk(np.array([m_k, q_k, m_v, q_v]), settings_of(nu, noise, parameter_values(parameters)))[0]
