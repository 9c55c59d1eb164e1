"""The free energy, its gradient and its Hessian at any point, as functions of their arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response, SmoothNodes
from replicode.codegen.runtime.inputs import asked_error, check_physical, check_setting, parameter_values, unknowns
from replicode.codegen.runtime.kernel import CONJUGATE_NAMES, ORDER_NAMES, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed
from replicode.codegen.runtime.population import settings_of
from replicode.codegen.runtime.prior import Problem, gradient_at, hessian_at, radii_of, spectrum_of, value_at
from replicode.codegen.runtime.refinement import climbed, slow_error
from replicode.codegen.runtime.routes import ROUTES
from replicode.codegen.runtime.sensitivity import WIDE_STEPS, rate_slopes
from replicode.codegen.runtime.states import FOLD_WEIGHT, LEVEL_SAFETY
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


Valued = Callable[[_Point, Channel], Array]


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


class _Rung(NamedTuple):
    """A value on some nodes, and what is folded, missing or not converged there."""

    value: Array
    defect: float


def _rungs(at: _Point, value: Valued) -> Iterator[_Rung]:
    """The value on more and more nodes; sets with the same averages bit for bit are the same nodes, and say nothing."""
    seen = np.empty(0)
    for count in NODE_LADDER:
        channel = at.channel(count)
        now = channel.averages(at.order)
        averages = np.r_[now.rates, now.envelope, now.train_loss]
        if not np.array_equal(averages, seen):
            seen = averages
            defect = FOLD_WEIGHT * (now.folded_mass + abs(now.mass - 1.0) + now.unconverged)
            yield _Rung(value(at, channel), defect)


def _open_after(found: Sequence[_Rung]) -> float:
    """What the nodes leave open, looked at as in `solve`, and the defect added."""
    sizes = np.maximum(1.0, np.abs(found[-1].value))
    opened = slow_error([rung.value.ravel() for rung in found], LEVEL_SAFETY, LADDER_SLACK)
    return float((opened + found[-1].defect * sizes.ravel()).max())


def _to_tolerance(at: _Point, value: Valued, nodes: float, tol: float | None) -> Array:
    """The value on so many nodes, or on more and more of them until it is known to `tol`; a warning if it is not."""
    with np.errstate(all="ignore"):
        if tol is None:
            return value(at, at.channel(nodes))
        asked_error(tol)
        found = climbed(_rungs(at, value), lambda found: _open_after(found) <= tol)
        error = _open_after(found)
    if not error <= tol:
        bound, asked = told_apart(error, tol)
        warnings.warn(f"tol: the bound {bound} is above the {asked} asked for", RuntimeWarning, stacklevel=3)
    return found[-1].value


def at_any_point(value: Valued) -> Callable[..., Any]:
    """The value as a function of a point that need not be a solution: E[M] is integrated on `nodes`, or to `tol`."""

    def found(
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
    ) -> Any:
        physics = alpha, nu, noise, lambda_k, lambda_v
        at = _point((order_parameters, conjugates), physics, (spectrum, radii), parameters)
        number = _to_tolerance(at, value, nodes, tol)
        return number if number.ndim else float(number)

    found.__name__ = found.__qualname__ = value.__name__
    found.__doc__ = value.__doc__
    return found


@at_any_point
def free_energy(at: _Point, channel: Channel) -> Array:
    """The replica-symmetric free energy."""
    return np.array(value_at(at.order, at.conjugates, at.problem, channel.averages(at.order).envelope))


@at_any_point
def residual(at: _Point, channel: Channel) -> Array:
    """The gradient of the free energy in m_k q_k V_k m_v q_v V_v, then mh_k qh_k Vh_k mh_v qh_v Vh_v."""
    return gradient_at(at.order, at.conjugates, at.problem, channel.averages(at.order).rates)


@at_any_point
def jacobian(at: _Point, channel: Channel) -> Array:
    """The derivatives of `residual` in the twelve unknowns, in its order: symmetric, 12 x 12."""
    second = rate_slopes(channel, at.order, WIDE_STEPS).value
    return np.asarray(hessian_at(at.order, at.conjugates, at.problem, second))
