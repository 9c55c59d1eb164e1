"""Derivatives of a solution in the parameters, by the implicit function theorem on the twelve equations.

dx/dtheta = -H^-1 d(grad f)/dtheta, H being the Hessian of f. In alpha and the lambdas d(grad f)/dtheta is derived, and
needs no further pass over the nodes. Signal, noise and the activation's parameters enter through E[M] and its rates:
these are differenced on the same nodes at fixed order parameters, which are smooth there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Ensemble
from replicode.codegen.runtime.fixedpoint import REPORTED, SCALES, Evaluation
from replicode.codegen.runtime.hessian import second_rates
from replicode.codegen.runtime.inputs import OutOfReach, named
from replicode.codegen.runtime.kernel import (
    PARAMETERS,
    Array,
    noise_risk_slope,
    risk_slopes_on_manifold,
    train_loss_slopes,
)
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import parts_of
from replicode.codegen.runtime.places import OVERLAPS, RATES, by_block, ordered
from replicode.codegen.runtime.population import PopulationAverages, population_averages
from replicode.codegen.runtime.prior import STRENGTHS, Problem, gradient_at, hessian_at, slopes_at, value_at
from replicode.codegen.runtime.refinement import level_error, t_bound
from replicode.codegen.runtime.states import FOLD_WEIGHT, LEVEL_SAFETY, _Request, _State

CLOSE_STEP, WIDE_STEPS = 1e-2, 3e-2  # relative steps on smooth averages, and where the prox may jump
LEAST_SCALE = 0.1
STEP_SAFETY = 10.0
POINT_SAFETY = 10.0
SLOPE_ROUNDING = 1e-13
BEST_POPULATION = 1e-13
DERIVED, DIFFERENCED = "derived", "differences on the same nodes"
RISKS = 2
QUANTITIES = ("test_risk", "excess_risk", *REPORTED)


class Sensitivities(NamedTuple):
    """d quantity / d parameter with bounds on the errors, and how each parameter's own derivative was had."""

    values: dict[str, dict[str, float]]
    errors: dict[str, dict[str, float]]
    method: dict[str, str]


class _Slope(NamedTuple):
    """A derivative and a bound on what its formula leaves open."""

    value: Array
    error: Array


def no_second_rates(channel: Channel, order: Array) -> Array | None:
    """Where the law of the fields does not hold all that moves."""
    return None


derived_rates: Callable[[Channel, Array], Array | None] = second_rates


def differenced_slope(function: Callable[[float], Array], step: float, relative: float = CLOSE_STEP) -> _Slope:
    """A central difference of fourth order; those of second order at two steps tell what is left."""
    near, far = (central_slope(function, h * step) for h in (1.0, 2.0))
    left = STEP_SAFETY * relative**2 * np.abs(near.value - far.value) + near.error
    return _Slope((4.0 * near.value - far.value) / 3.0, left)


def central_slope(function: Callable[[float], Array], step: float) -> _Slope:
    """A central difference of second order, with what rounding leaves open."""
    above, below = function(step), function(-step)
    return _Slope((above - below) / (2.0 * step), np.abs(above) * SLOPE_ROUNDING / abs(step))


def differentiable(setting: Setting, wanted: Sequence[str]) -> dict[str, float]:
    """The parameters of the setting that have a derivative here, each with its step: not at the end of its range."""
    values = {"nu": setting.nu, "noise": setting.noise, **dict(zip(PARAMETERS, map(float, setting.params)))}
    steps = {name: CLOSE_STEP * max(abs(values[name]), LEAST_SCALE) for name in values if name in wanted}
    if "nu" in steps and not 2.0 * steps["nu"] < setting.nu < np.inf:
        del steps["nu"]
    return steps


def moved_setting(setting: Setting, name: str, move: float) -> Setting:
    """The setting with one of its parameters moved."""
    if name == "nu":
        return setting._replace(nu=setting.nu + move)
    if name == "noise":
        return setting._replace(noise=setting.noise + move)
    return setting._replace(params=setting.params + move * (np.array(PARAMETERS) == name))


def on_same_nodes(channel: Channel, name: str, move: float) -> Channel:
    """The channel, or the channels that it is made of, on the same nodes in another setting."""
    moved = copy(channel)
    for key, value in vars(channel).items():
        if isinstance(value, Setting):
            setattr(moved, key, moved_setting(value, name, move))
        elif key == "smooth":
            setattr(moved, key, on_same_nodes(value, name, move))
        elif key in ("channels", "kept"):
            setattr(moved, key, [on_same_nodes(c, name, move) for c in value])
        elif key in ("taken_at", "seen"):  # what was found at the last point is of the setting as it was
            setattr(moved, key, None)
    return moved


def _vector(found: Averages) -> Array:
    return np.asarray(np.r_[found.rates, found.envelope, found.train_loss])


def rate_slopes(channel: Channel, order: Array, step: float = CLOSE_STEP) -> _Slope:
    """The Hessian of E[M] on the nodes of a channel, length by length."""
    parts = [(share, _rate_slopes_of_length(part, order, step)) for share, part in parts_of(channel)]
    value, error = (np.sum([s * getattr(slope, field) for s, slope in parts], axis=0) for field in _Slope._fields)
    return _Slope(value, error)


def _rate_slopes_of_length(channel: Channel, order: Array, step: float) -> _Slope:
    """Derived, or by differences of the rates; where folds are subtracted, only what is subtracted is differenced."""
    second = derived_rates(channel, order)
    if second is not None:
        return _Slope(second, np.zeros((RATES, RATES)))
    parts = channel.less_folds()
    if parts is not None and (smooth := derived_rates(parts[0], order)) is not None:
        folded = _differenced_rates(parts[1], order, CLOSE_STEP, central_slope)
        return _Slope(smooth - folded.value, folded.error + CLOSE_STEP**2 * np.abs(folded.value))
    return _differenced_rates(lambda at: channel.averages(at).rates, order, step, differenced_slope)


def _differenced_rates(
    rates: Callable[[Array], Array],
    order: Array,
    step: float,
    slope: Callable[[Callable[[float], Array], float], _Slope],
) -> _Slope:
    """The derivatives of rates in the order parameters, made symmetric."""
    m, q, v = by_block(order)
    columns = []
    for move in np.diag(ordered(np.sqrt(q) - np.abs(m), q - m * m, v)):
        value, error = slope(lambda h, move=move: rates(order + h * move), step)  # type: ignore[misc]
        columns.append((value / move.sum(), error / move.sum()))
    value, error = (np.stack(part, axis=1) for part in zip(*columns))
    return _Slope(0.5 * (value + value.T), error + 0.5 * np.abs(value - value.T))


class _Explicit(NamedTuple):
    """d/dtheta at fixed order parameters: of grad f, of f, of the training loss, and bounds on the first."""

    gradient: Array
    energy: float
    train_loss: float
    error: Array


def _explicit_in_problem(last: Evaluation, problem: Problem) -> dict[str, _Explicit]:
    """In alpha and the lambdas: derived."""
    rows = slopes_at(last.order, last.conjugates, problem, last.averages.envelope, last.averages.rates)
    return {n: _Explicit(row[1:], float(row[0]), 0.0, np.zeros(row.size - 1)) for n, row in zip(STRENGTHS, rows)}


def _explicit_in_setting(
    channel: Channel, last: Evaluation, problem: Problem, steps: Mapping[str, float], wide: bool
) -> dict[str, _Explicit]:
    """In what the averages depend on: by differences on the same nodes; f and grad f are linear in E[M] and rates."""
    order, conjugates = last.order, last.conjugates
    zero = np.zeros(RATES)
    base = gradient_at(order, conjugates, problem, zero)
    energy = value_at(order, conjugates, problem, 1.0) - value_at(order, conjugates, problem, 0.0)
    found = {}
    for name, step in steps.items():

        def averages(move: float, name: str = name) -> Array:
            return _vector(on_same_nodes(channel, name, move).averages(order))

        widened = WIDE_STEPS / CLOSE_STEP if wide else 1.0
        value, error = differenced_slope(averages, widened * step, widened * CLOSE_STEP)
        gradient = gradient_at(order, conjugates, problem, value[:RATES]) - base
        bound = gradient_at(order, conjugates, problem, error[:RATES]) - base
        envelope, train_loss = map(float, value[RATES:])
        found[name] = _Explicit(gradient, energy * envelope, train_loss, np.abs(bound))
    return found


class RiskSlopes(NamedTuple):
    """d risk / d order, and d risk / d theta at fixed order parameters."""

    order: Array
    explicit: dict[str, float]


def risk_slopes(order: Array, settings: Sequence[Setting], steps: Mapping[str, float]) -> RiskSlopes:
    """The slopes of the test risk: derived in m_v, q_v, noise, A and B, of which A and B are differenced."""
    m_k, q_k, m_v, q_v = order[OVERLAPS]
    base = population_averages(m_k, q_k, settings, BEST_POPULATION)
    by_m, by_q, by_noise, *by_averages = risk_slopes_on_manifold(m_v, q_v, settings[0].noise, base.A, base.B)

    def slope(averages: Callable[[float], PopulationAverages], step: float) -> float:
        found = differenced_slope(lambda h: np.array(averages(h)[:2]), step).value
        return float(np.dot(by_averages, found))

    in_m = slope(lambda h: population_averages(m_k + h, q_k, settings, BEST_POPULATION), CLOSE_STEP * np.sqrt(q_k))
    in_q = slope(lambda h: population_averages(m_k, q_k + h, settings, BEST_POPULATION), CLOSE_STEP * (q_k - m_k * m_k))
    explicit = {"noise": float(by_noise)}
    for name, step in steps.items():

        def averages(h: float, name: str = name) -> PopulationAverages:
            return population_averages(m_k, q_k, [moved_setting(s, name, h) for s in settings], BEST_POPULATION)

        if name != "noise":
            explicit[name] = slope(averages, step)
    whole = np.zeros(RATES)
    whole[OVERLAPS] = [in_m, in_q, by_m, by_q]
    return RiskSlopes(whole, explicit)


def _on_channel(
    channel: Channel, state: _State, request: _Request, risk: RiskSlopes, steps: Mapping[str, float]
) -> dict[str, _Slope]:
    """All derivatives with the averages of one set of nodes: by parameter, in the order of QUANTITIES."""
    wide = isinstance(channel, Ensemble) or state.searched
    second = rate_slopes(channel, state.last.order, WIDE_STEPS if wide else CLOSE_STEP)
    last, problem = state.last, request.problem
    explicit = _explicit_in_problem(last, problem) | _explicit_in_setting(channel, last, problem, steps, wide)
    hessian = hessian_at(last.order, last.conjugates, problem, second.value)
    inverse = np.linalg.inv(hessian) if np.isfinite(hessian).all() else np.full(hessian.shape, np.nan)
    loss = train_loss_slopes(last.order, last.averages.rates, second.value)
    noise = request.setting.noise
    found = {}
    for name, own in explicit.items():
        moves = -inverse @ own.gradient
        order = moves[:RATES]
        open_rates = second.error @ np.abs(order)
        bound = np.abs(gradient_at(last.order, last.conjugates, problem, open_rates))
        bound -= np.abs(gradient_at(last.order, last.conjugates, problem, np.zeros(RATES)))
        reach = np.abs(inverse) @ (np.abs(bound) + own.error)
        test = float(risk.order @ order) + risk.explicit.get(name, 0.0)
        excess = test - (noise_risk_slope(noise) if name == "noise" else 0.0)
        in_risk, in_loss = np.abs(risk.order) @ reach[:RATES], np.abs(loss) @ reach[:RATES]
        value = np.r_[test, excess, moves, loss @ order + own.train_loss, own.energy]
        found[name] = _Slope(value, np.r_[in_risk, in_risk, reach, in_loss, 0.0])
    return found


ALL_PARAMETERS = (*STRENGTHS, "nu", "noise", *PARAMETERS)


def sensitivities(state: _State, request: _Request, wanted: Sequence[str] = ALL_PARAMETERS) -> Sensitivities | None:
    """The derivatives of a solution in these parameters, or None where none was found, or none can be had there."""
    if not (state.converged and state.on):
        return None
    steps = differentiable(request.setting, wanted)
    risk = risk_slopes(state.last.order, request.settings, steps)
    finest = state.on[-1]
    sets = finest.apart() if isinstance(finest, Ensemble) else list(state.on)
    found = [_on_channel(channel, state, request, risk, steps) for channel in sets]
    random = isinstance(finest, Ensemble)
    values, errors = {}, {}
    for name in (n for n in found[-1] if n in wanted):
        table = np.array([f[name].value for f in found])
        value = table.mean(axis=0) if random else table[-1]
        spread = t_bound(table) if random else level_error(table, LEVEL_SAFETY)
        size = np.abs(value)
        size[:RISKS] = np.maximum(size[:RISKS], np.abs(risk.order) @ size[RISKS : RISKS + RATES])  # nothing cancels
        error = spread + found[-1][name].error + _point_share(state) * size
        values[name] = named(QUANTITIES, value)
        errors[name] = named(QUANTITIES, np.nan_to_num(error, nan=np.inf))
    how = {n: DERIVED if n in STRENGTHS else DIFFERENCED for n in values}
    return Sensitivities(values, errors, how)


def no_slopes(state: _State, request: _Request, wanted: Sequence[str] = ALL_PARAMETERS) -> Sensitivities | None:
    """Of labels that are no fields, of tokens with radii, and of regression, there are none."""
    told = "attention on Gaussian tokens, whose labels are Gaussian given the teacher's value"
    raise OutOfReach(f"derivatives: they are there for {told}")


slopes_of: Callable[[_State, _Request, Sequence[str]], Sensitivities | None] = sensitivities


def _point_share(state: _State) -> float:
    """How much of a derivative is open because the solution, and what folds at it uncut, is known to its error only."""
    own = state.errors[1 : 1 + RATES] / (SCALES + np.abs(state.last.order))
    uncut = not getattr(state.on[-1], "cuts_folds", True)
    return float(POINT_SAFETY * own.max()) + (FOLD_WEIGHT * state.last.averages.folded_mass if uncut else 0.0)
