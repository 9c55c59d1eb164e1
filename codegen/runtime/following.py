"""The saddle-point map and its slopes at any point, in free coordinates: what a branch is followed with.

Unknowns are u = (m, log(q - m^2), log V) of both blocks. At a point, not necessarily a solution, F(u) - u, its Jacobian
in u and its slope in one parameter are those of the averages on one set of nodes, adapted to that point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from replicode.codegen.runtime.channel import Channel, node_dimensions
from replicode.codegen.runtime.fixedpoint import (
    Evaluation,
    evaluate,
    followed,
    free_slopes,
    from_free,
    image_slopes,
    reported,
    to_free,
)
from replicode.codegen.runtime.inputs import (
    ArgumentError,
    OutOfReach,
    check_physical,
    check_setting,
    named,
    parameter_values,
    unknowns,
)
from replicode.codegen.runtime.kernel import ORDER_NAMES, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed_ladder
from replicode.codegen.runtime.places import OVERLAPS, RATES
from replicode.codegen.runtime.population import LATTICE_DIMENSIONS, _population_risk, settings_of
from replicode.codegen.runtime.prior import STRENGTHS, Problem, hessian_at, spectrum_of
from replicode.codegen.runtime.routes import _smooth
from replicode.codegen.runtime.sensitivity import (
    ALL_PARAMETERS,
    _explicit_in_problem,
    _explicit_in_setting,
    differentiable,
    rate_slopes,
)


def prox_free_nodes(order: Array, settings: tuple[Setting, ...], level: int) -> Channel:
    """The nodes of a level, adapted to a point."""
    if max(node_dimensions(s) for s in settings) > LATTICE_DIMENSIONS:
        raise OutOfReach(f"branches are followed in at most {LATTICE_DIMENSIONS} dimensions")
    channel = mixed_ladder(settings, _smooth)
    channel.adapt(order)
    return channel.refined(level)


def no_nodes(order: Array, settings: tuple[Setting, ...], level: int) -> Channel:
    """Where sigma has kinks there is no set of nodes on which the averages are smooth."""
    raise OutOfReach("branches are followed where the activation is smooth")


followed_on: Callable[[Array, tuple[Setting, ...], int], Channel] = prox_free_nodes


def free_coordinates(order_parameters: Mapping[str, float]) -> Array:
    """The unknowns u of physical order parameters."""
    order = unknowns(order_parameters, ORDER_NAMES)
    check_physical(order)
    return to_free(order)


def linearised_map(
    free: Array,
    parameter: str | Sequence[str],
    alpha: float,
    nu: float,
    noise: float,
    lambda_k: float,
    lambda_v: float,
    *,
    level: int = 2,
    **parameters: float,
) -> tuple[Array, Array, Array, dict[str, float]]:
    """F(u) - u, its Jacobian in u, its slope in a parameter, and the numbers that are reported there.

    Of several parameters the slopes are columns.
    """
    check_setting(alpha, nu, noise, lambda_k, lambda_v)
    names = (parameter,) if isinstance(parameter, str) else tuple(parameter)
    if unknown := sorted(set(names) - set(ALL_PARAMETERS)):
        raise ArgumentError("parameter", unknown, f"some of {', '.join(ALL_PARAMETERS)}")
    settings = settings_of(nu, noise, parameter_values(parameters))
    problem, order = (
        Problem(float(alpha), float(lambda_k), float(lambda_v), spectrum_of(None)),
        from_free(np.asarray(free, dtype=float)),
    )
    with np.errstate(all="ignore"):
        channel = followed_on(order, settings, level)
        at = evaluate(channel, order, problem)
        full = hessian_at(order, at.conjugates, problem, rate_slopes(channel, order).value)
        to_image = image_slopes(at.image)
        by_u = to_image @ followed(full, full[:RATES, :RATES])[1] @ free_slopes(order) - np.eye(RATES)
        slopes = [_in_parameter(channel, at, problem, settings[0], name) for name in names]
        explicit = np.stack(slopes, axis=1) if slopes else np.zeros((full.shape[0], 0))
        by_p = to_image @ followed(full, explicit[:RATES], explicit[RATES:])[1]
        by_p = by_p[:, 0] if isinstance(parameter, str) else by_p
        return to_free(at.image) - to_free(order), by_u, by_p, _noted(at, problem, settings)


def _in_parameter(channel: Channel, at: Evaluation, problem: Problem, setting: Setting, name: str) -> Array:
    """d(grad f)/dtheta at fixed unknowns."""
    if name in STRENGTHS:
        return _explicit_in_problem(at, problem)[name].gradient
    steps = differentiable(setting, (name,))
    if not steps:
        raise OutOfReach(f"{name} has no derivative at the end of its range")
    return _explicit_in_setting(channel, at, problem, steps, False)[name].gradient


def _noted(at: Evaluation, problem: Problem, settings: tuple[Setting, ...]) -> dict[str, float]:
    """Order parameters, training loss, energy, test risk and folded mass at a point."""
    *_, train_loss, energy = (float(x) for x in reported(at, problem))
    risk, _ = _population_risk(at.order[OVERLAPS], settings, 1e-10)
    told = {"train_loss": train_loss, "energy": energy, "test_risk": risk, "envelope": at.averages.envelope}
    return named(ORDER_NAMES, at.order) | told | {"folded_mass": at.averages.folded_mass}
