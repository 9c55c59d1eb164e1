"""The free energy, its gradient and its Hessian at any point, as functions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response, SmoothNodes
from replicode.codegen.runtime.inputs import check_physical, check_setting, parameter_values, unknowns
from replicode.codegen.runtime.kernel import CONJUGATE_NAMES, ORDER_NAMES, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed
from replicode.codegen.runtime.population import settings_of
from replicode.codegen.runtime.prior import Problem, gradient_at, hessian_at, spectrum_of, value_at
from replicode.codegen.runtime.routes import ROUTES
from replicode.codegen.runtime.sensitivity import WIDE_STEPS, rate_slopes


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

    def smooth_nodes(self, order: Array) -> Sequence[SmoothNodes] | None:
        """Nodes of their own, while the prox does not jump."""
        channel = ROUTES.whole(order, self.setting, self.nodes)
        return None if channel is None else channel.smooth_nodes(order)


class _Point(NamedTuple):
    """A point that need not be a solution: what is asked there, and the channel of all lengths."""

    order: Array
    conjugates: Array
    problem: Problem
    channel: Channel


def _point(
    points: tuple[Mapping[str, float], Mapping[str, float]],
    physics: tuple[float, float, float, float, float],
    nodes: float,
    spectrum: Any,
    parameters: Mapping[str, float],
) -> _Point:
    """The checked arguments."""
    check_setting(*physics)
    alpha, nu, noise, lambda_k, lambda_v = physics
    order, conjugates = unknowns(points[0], ORDER_NAMES), unknowns(points[1], CONJUGATE_NAMES)
    check_physical(order)
    settings = settings_of(nu, noise, parameter_values(parameters))
    problem = Problem(alpha, lambda_k, lambda_v, spectrum_of(spectrum))
    return _Point(order, conjugates, problem, mixed(settings, lambda s: _Fixed(s, nodes)))


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
    at = _point((order_parameters, conjugates), physics, nodes, spectrum, parameters)
    with np.errstate(all="ignore"):
        return value_at(at.order, at.conjugates, at.problem, at.channel.averages(at.order).envelope)


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
    at = _point((order_parameters, conjugates), physics, nodes, spectrum, parameters)
    with np.errstate(all="ignore"):
        return gradient_at(at.order, at.conjugates, at.problem, at.channel.averages(at.order).rates)


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
    physics = (alpha, nu, noise, lambda_k, lambda_v)
    at = _point((order_parameters, conjugates), physics, nodes, spectrum, parameters)
    with np.errstate(all="ignore"):
        second = rate_slopes(at.channel, at.order, WIDE_STEPS).value
        return hessian_at(at.order, at.conjugates, at.problem, second)
