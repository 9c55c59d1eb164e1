"""The free energy, its gradient and its Hessian at any point, as functions of their arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response, SmoothNodes
from replicode.codegen.runtime.inputs import check_number, check_physical, check_setting, parameter_values, unknowns
from replicode.codegen.runtime.kernel import CONJUGATE_NAMES, ORDER_NAMES, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed
from replicode.codegen.runtime.population import settings_of
from replicode.codegen.runtime.prior import Problem, gradient_at, hessian_at, radii_of, spectrum_of, value_at
from replicode.codegen.runtime.routes import ROUTES
from replicode.codegen.runtime.sensitivity import WIDE_STEPS, rate_slopes
from replicode.codegen.runtime.states import FOLD_WEIGHT, _level_error
from replicode.codegen.runtime.wording import told_apart

NODE_LADDER = tuple(5_000.0 * 4.0**level for level in range(5))
LADDER_SLACK = 0.1


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
    """A point that need not be a solution, and what is asked there."""

    order: Array
    conjugates: Array
    problem: Problem
    settings: tuple[Setting, ...]

    def channel(self, nodes: float) -> Channel:
        """All lengths on so many nodes."""
        return mixed(self.settings, lambda s: _Fixed(s, nodes))


def _point(
    points: tuple[Mapping[str, float], Mapping[str, float]],
    physics: tuple[float, float, float, float, float],
    data: tuple[Any, Any],
    parameters: Mapping[str, float],
) -> _Point:
    """The checked arguments."""
    check_setting(*physics)
    alpha, nu, noise, lambda_k, lambda_v = physics
    order, conjugates = unknowns(points[0], ORDER_NAMES), unknowns(points[1], CONJUGATE_NAMES)
    check_physical(order)
    radii = radii_of(data[1])
    settings = tuple(s._replace(radii=radii) for s in settings_of(nu, noise, parameter_values(parameters)))
    problem = Problem(alpha, lambda_k, lambda_v, spectrum_of(data[0]))
    return _Point(order, conjugates, problem, settings)


def _to_tolerance(at: _Point, value: Callable[[Channel], Array], nodes: float, tol: float | None) -> Array:
    """The value on so many nodes, or on more and more of them until it is known to `tol`; a warning if it is not.

    What successive sets change is looked at as in `solve`, and what is folded, missing or not converged is added. Sets
    that lead to the same averages bit for bit are the same nodes, and say nothing.
    """
    with np.errstate(all="ignore"):
        if tol is None:
            return value(at.channel(nodes))
        check_number("tol", tol, "a finite number above 0, or None", tol > 0)
        found, seen, error = list[Array](), list[Array](), np.inf
        for count in NODE_LADDER:
            channel = at.channel(count)
            now = channel.averages(at.order)
            averages = np.r_[now.rates, now.envelope, now.train_loss]
            if seen and np.array_equal(averages, seen[-1]):
                continue
            seen.append(averages)
            found.append(np.ravel(value(channel)))
            defect = FOLD_WEIGHT * (now.folded_mass + abs(now.mass - 1.0) + now.unconverged)
            sizes = np.maximum(1.0, np.abs(found[-1]))
            error = np.inf if len(found) < 2 else float((_level_error(found, LADDER_SLACK) + defect * sizes).max())
            if error <= tol:
                break
    if not error <= tol:
        bound, asked = told_apart(error, tol)
        warnings.warn(f"tol: the bound {bound} is above the {asked} asked for", RuntimeWarning, stacklevel=3)
    return found[-1]


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
    tol: float | None = None,
    spectrum: Any = None,
    radii: Any = None,
    **parameters: float,
) -> float:
    """The replica-symmetric free energy at any point, E[M] integrated numerically: on `nodes`, or to `tol`."""
    at = _point((order_parameters, conjugates), (alpha, nu, noise, lambda_k, lambda_v), (spectrum, radii), parameters)

    def value(channel: Channel) -> Array:
        return np.array([value_at(at.order, at.conjugates, at.problem, channel.averages(at.order).envelope)])

    return float(_to_tolerance(at, value, nodes, tol)[0])


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
    tol: float | None = None,
    spectrum: Any = None,
    radii: Any = None,
    **parameters: float,
) -> Array:
    """The gradient of the free energy in m_k q_k V_k m_v q_v V_v, then mh_k qh_k Vh_k mh_v qh_v Vh_v."""
    at = _point((order_parameters, conjugates), (alpha, nu, noise, lambda_k, lambda_v), (spectrum, radii), parameters)

    def value(channel: Channel) -> Array:
        return gradient_at(at.order, at.conjugates, at.problem, channel.averages(at.order).rates)

    return _to_tolerance(at, value, nodes, tol)


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
    tol: float | None = None,
    spectrum: Any = None,
    radii: Any = None,
    **parameters: float,
) -> Array:
    """The derivatives of `residual` in the twelve unknowns, in its order: symmetric, 12 x 12."""
    at = _point((order_parameters, conjugates), (alpha, nu, noise, lambda_k, lambda_v), (spectrum, radii), parameters)

    def value(channel: Channel) -> Array:
        second = rate_slopes(channel, at.order, WIDE_STEPS).value
        return np.asarray(hessian_at(at.order, at.conjugates, at.problem, second))

    size = len(at.order) + len(at.conjugates)
    return _to_tolerance(at, value, nodes, tol).reshape(size, size)
