"""The solver at one step of breaking: the equilibrium of states, its error by finer grids, and its own stability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.driver import driven, spectral_radius
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.inputs import (
    ArgumentError,
    OutOfReach,
    asked_error,
    check_setting,
    named,
    parameter_values,
    unknowns,
)
from replicode.codegen.runtime.kernel import ORDER_NAMES, Array, noise_risk
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.location import location_dimensions
from replicode.codegen.runtime.population import _population_risk, overlap_start, settings_of
from replicode.codegen.runtime.refinement import standard_error
from replicode.codegen.runtime.rsb_averages import Rule
from replicode.codegen.runtime.rsb_balance import Balanced, followed_to_balance
from replicode.codegen.runtime.rsb_channel import Tables
from replicode.codegen.runtime.rsb_evolution import (
    SPLITS,
    Evaluated,
    Penalised,
    Step,
    from_free,
    one_state,
    residual_of,
    settled,
    to_free,
)
from replicode.codegen.runtime.rsb_grid import Grid
from replicode.codegen.runtime.rsb_kernel import STEP_CONJUGATES, STEP_NAMES, step_stability
from replicode.codegen.runtime.rsb_nested import Nested

LEVELS = Tables(Grid(4.8, 1.2, 48, 6e4)), Tables(Grid(5.3, 1.7, 88, 2e5)), Tables(Grid(5.6, 2.2, 140, 3e5), 4)
QUICK_LEVELS = Tables(Grid(4.6, 1.0, 36, 2.5e4)), Tables(Grid(4.8, 1.2, 48, 5e4)), Tables(Grid(5.0, 1.4, 60, 5e4), 4)
FINER_LEVELS = Tables(Grid(4.8, 2.2, 800, 4.5e5)), Tables(Grid(5.0, 2.2, 800, 5e5)), Tables(Grid(5.3, 2.2, 800, 6e5), 4)
NESTED_LEVELS = Nested(400, 2, 2, 1), Nested(1000, 2, 2, 4), Nested(2500, 2, 3, 4)
QUICK_NESTED_LEVELS = Nested(200, 2, 2, 1), Nested(500, 2, 2, 3), Nested(1000, 2, 2, 4)
FALL, LAST_GAIN = 3.0, 3.0  # two levels may agree by chance: a step gains no more than these factors
UNRESOLVED_SAFETY = 8.0  # steps that are too long for the noise shrink by a fifth, and the error in proportion
UNRESOLVED_APART = 2.0  # the step may be larger than it is seen to be
DRAWN_SAFETY = 4.0  # standard errors, of a few sets
RESIDUAL_GAIN = 3.0  # a residual may move what is not an unknown by some times as much
TABULATED, MOST_COORDINATES, COMPARED_TOKENS = 3, 5, 2
OPENED = 0.3  # share of q that a start has as q1 - q0
SEARCHED = (1.0, 0.4)  # of the y that the energy suggests
CONVERGED, STILL_ENOUGH = 1e-3, 0.03  # the residual; what log y may be off, which is part of the errors
PARTED = 0.02  # the residual at which states are known well enough to be followed
MERGED, MERGING = 1e-5, 60
STATES_STABLE, STATES_JUMP = 1.0, 0.05
MOST_LOST = 1e-4
LEAST_COMPARED = 0.028  # of q1_k: what tells states apart is so much of it or more where a second way was taken
STABILITY = ("within", "between", "jumps")
REPORTED_STEP = (*STEP_NAMES, "y", "test_risk", "train_loss", "energy", "free_energy", "complexity")


class Solution(NamedTuple):
    """The equilibrium of states at one step of breaking; `error` bounds the absolute error of test_risk.

    Where one step gives nothing new, q1 and q0 are the same, there is one state, and y is not a number. `stability` has
    the spectral radii of the smooth de Almeida-Thouless matrices within a state and between states, and what the jumps
    of the prox weigh; `stable` is the verdict against a further step.
    """

    test_risk: float
    excess_risk: float
    train_loss: float
    energy: float
    free_energy: float
    order_parameters: dict[str, float]
    conjugates: dict[str, float]
    y: float
    complexity: float
    broken: bool
    stable: bool
    stability: dict[str, float]
    converged: bool
    residual: float
    error: float
    errors: dict[str, float]
    method: str
    warnings: tuple[str, ...]


class _Task(NamedTuple):
    """A problem with its settings and the rules of all levels."""

    problem: Penalised
    settings: tuple[Setting, ...]
    levels: tuple[Rule, ...] = LEVELS

    @property
    def nested(self) -> bool:
        """Whether M has too many coordinates for a table."""
        return isinstance(self.levels[0], Nested)

    def step(self, level: int) -> Step:
        """The map by the rule of a level."""
        return Step(self.problem, self.settings, self.levels[level])


def solve(
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    *,
    init: str = "informed",
    tol: float | None = None,
    start: Mapping[str, float] | None = None,
    quick: bool = False,
    **parameters: float,
) -> Solution:
    """The states at equilibrium, where df/dy = 0.

    `start` has the order parameters of replica symmetry, or those of the step at a neighbouring point, to follow states
    along a parameter; without it the start is that of `init`, informed or random. `tol` is the error of test_risk that
    needs no warning; `quick` takes coarser rules, and a few seconds.
    """
    task = _task(alpha, nu, noise, lambda_k, lambda_v, parameters)
    if quick:
        task = task._replace(levels=QUICK_NESTED_LEVELS if task.nested else QUICK_LEVELS)
    if init not in ("informed", "random"):
        raise ArgumentError("init", init, "'informed' or 'random'")
    asked_error(tol)
    with np.errstate(all="ignore"):
        begin = begun(start, init, task)
        task = fitting(task, begin)
        levels = _levels(begin, task)
        if (
            task.levels is LEVELS
            and levels.broken
            and not (levels.residual < CONVERGED and levels.still and _fine(levels.step))
        ):
            task = task._replace(levels=FINER_LEVELS)
            levels = _levels(begin, task)
        unresolved = levels.broken and not (levels.still and _fine(levels.step))
        together = _merged(task.step(1), begin, levels.found[-1].y) if unresolved else None
        return _solution(levels, together, task, tol)


def fitting(task: _Task, begin: Array) -> _Task:
    """The task with grids that are fine, as far as can be, for the states there are."""
    parted = _parted(task.step(0), begin) if task.levels is LEVELS else None
    if parted is None or _fine(task.step(-1).adapt(parted.order)):
        return task
    return task._replace(levels=FINER_LEVELS)


def _fine(step: Step) -> bool:
    """Whether the steps of the grids are short beside the noise of the states.

    Longer ones overestimate how far the tilt carries, the more the steeper M is: equilibrium may then not be found.
    """
    return all(layout.resolved for layout in step.layouts)


def _task(
    alpha: float, nu: float, noise: float, lambda_k: float, lambda_v: float, parameters: Mapping[str, float]
) -> _Task:
    check_setting(alpha, nu, noise, lambda_k, lambda_v)
    settings = settings_of(nu, noise, parameter_values(parameters))
    for setting in settings:
        if location_dimensions(setting):
            raise OutOfReach("one step of replica symmetry breaking has no grid for a task whose chi* is sampled")
        count = sum(dimensions(setting))
        if count > MOST_COORDINATES:
            raise OutOfReach(
                f"one step of replica symmetry breaking at {setting.tokens} tokens depends on {count} coordinates of "
                f"this activation, and rules are at hand for {MOST_COORDINATES}"
            )
    nested = max(sum(dimensions(s)) for s in settings) > TABULATED
    levels: tuple[Rule, ...] = NESTED_LEVELS if nested else LEVELS
    return _Task(Penalised(float(alpha), float(lambda_k), float(lambda_v)), settings, levels)


def begun(start: Mapping[str, float] | None, init: str, task: _Task) -> Array:
    """The order parameters to start from: those of another step as they are, those of replica symmetry opened."""
    if start is None:
        return _start(init, task)
    if set(start) == set(STEP_NAMES):
        return unknowns(start, STEP_NAMES)
    return _opened(unknowns(start, ORDER_NAMES))


def _opened(order: Array) -> Array:
    """Order parameters of replica symmetry with a share of q as q1 - q0."""
    found = named(ORDER_NAMES, order)
    opened = np.empty(len(STEP_NAMES))
    for (m, q0, q1, v), block in zip(SPLITS, ("k", "v"), strict=True):
        opened[m], opened[v], opened[q1] = found[f"m_{block}"], found[f"V_{block}"], found[f"q_{block}"]
        opened[q0] = opened[q1] - OPENED * (opened[q1] - opened[m] ** 2)
    return opened


def _start(init: str, task: _Task) -> Array:
    """Order parameters to start from, as those of the replica-symmetric solver, opened."""
    order = overlap_start(init, task.problem, task.settings)
    order[[ORDER_NAMES.index(name) for name in ("q_k", "q_v")]] *= 1.5
    return _opened(order)


def _levels(begin: Array, task: _Task) -> _Levels:
    """The equilibrium, or the one state that there is, at all levels."""
    found = _found(begin, task)
    if found is None:
        step = task.step(0)
        return _of_one_state(_merged(step, begin, _guessed_y(step, begin)), task)
    return _refined(found, task)


def _found(begin: Array, task: _Task) -> Balanced | None:
    """The equilibrium on the coarsest grid; nothing where there is one state only."""
    step = task.step(0)
    now = _parted(step, begin)
    return None if now is None else followed_to_balance(step, now)


def _guessed_y(step: Step, begin: Array) -> float:
    """A y by the size of the energy, of the order of that of equilibrium."""
    return 1.0 / max(abs(step.adapt(begin).at(begin, 1.0).free_energy), 1e-3)


def _parted(step: Step, begin: Array) -> Evaluated | None:
    """States at some y, roughly; nothing where there is one only."""
    scale = _guessed_y(step, begin)
    for factor in SEARCHED:
        now = settled(step, begin, factor * scale, PARTED)
        if not one_state(now.updated) and np.isfinite(residual_of(now)).all():
            return now
    return None


def _merged(step: Step, order: Array, y: float) -> Evaluated:
    """One state: the map with q1 = q0, of which only the sum of noise and outer variance matters."""
    step.adapt(_together(order))

    def at(order: Array) -> Evaluated:
        return step.at(_together(order), y)

    def moved(now: Evaluated) -> Array:
        return np.asarray(to_free(_together(now.updated)) - to_free(now.order))

    def following(now: Evaluated) -> Evaluated:
        return at(from_free(to_free(now.order) + moved(now)))

    now = driven(at(order), lambda now: not np.abs(moved(now)).max() > MERGED or None, following, MERGING).last
    return now._replace(updated=_together(now.updated))


def _together(order: Array) -> Array:
    """The same with q0 = q1."""
    merged = order.copy()
    for _, q0, q1, _ in SPLITS:
        merged[q0] = merged[q1]
    return merged


class _Levels(NamedTuple):
    """The solutions at all levels, the equilibrium at the finest with its map, and the solutions set by drawn set.

    Without an equilibrium there is one state. `every` says whether all drawn sets lead to an equilibrium of their own.
    """

    found: tuple[Evaluated, ...]
    rest: Balanced | None
    step: Step
    drawn: tuple[Evaluated, ...]
    every: bool = True

    @property
    def broken(self) -> bool:
        """Whether there is more than one state."""
        return self.rest is not None

    @property
    def residual(self) -> float:
        """How far the equations at the y found are from holding."""
        return float(np.abs(residual_of(self.found[-1])).max()) if self.rest is None else self.rest.residual

    @property
    def still(self) -> bool:
        """Whether y is that of equilibrium, if there are states."""
        return self.rest is None or (self.every and self.rest.known and abs(self.rest.missed) < STILL_ENOUGH)


def _refined(found: Balanced, task: _Task) -> _Levels:
    """The same states at finer levels, with the Jacobian of the coarsest where it leads to them."""
    levels = []
    for level in range(len(task.levels)):
        step = task.step(level).adapt(found.states.order)
        found = found.on(step)
        levels.append(found.states)
    drawn = [found.on(m) for m in step.members()]
    every = all(d.known and d.residual < CONVERGED for d in drawn)
    return _Levels(tuple(levels), found, step, tuple(d.at_rest for d in drawn), every)


def _of_one_state(now: Evaluated, task: _Task) -> _Levels:
    """One state at finer levels."""
    levels = []
    for level in range(len(task.levels)):
        step = task.step(level).adapt(now.order)
        now = _merged(step, now.order, now.y)
        levels.append(now)
    drawn = [_merged(m, now.order, now.y) for m in step.members()]
    return _Levels(tuple(levels), None, step, tuple(drawn))


def _reported(now: Evaluated, task: _Task) -> Array:
    """Everything that has an error, in the order of REPORTED_STEP."""
    risk, _ = _population_risk(_state_overlaps(now.order), task.settings, 1e-9)
    return np.array([*now.order, now.y, risk, now.averages.train_loss, now.energy, now.free_energy, now.complexity])


def _state_overlaps(order: Array) -> Array:
    """m and q1 of scores and of values, which the test risk depends on."""
    return np.array([order[place] for m, _, q1, _ in SPLITS for place in (m, q1)])


def _solution(levels: _Levels, together: Evaluated | None, task: _Task, tol: float | None) -> Solution:
    """The Solution at the finest level, with its errors."""
    now = levels.found[-1]
    reported = _reported(now, task)
    bounds = _bounds(levels, together, task)
    values, errors = (dict(zip(REPORTED_STEP, map(float, r), strict=True)) for r in (reported, bounds))
    converged = bool(levels.residual < CONVERGED and np.isfinite(reported).all())
    if not levels.broken:
        values["y"], errors["y"], values["complexity"] = np.nan, np.nan, 0.0
    stability, doubts = _stability(levels, task)
    stable = stability["within"] < STATES_STABLE and stability["between"] < STATES_STABLE
    stable = bool(converged and stable and stability["jumps"] < STATES_JUMP)
    return Solution(
        test_risk=values["test_risk"],
        excess_risk=values["test_risk"] - noise_risk(task.settings[0].noise),
        train_loss=values["train_loss"],
        energy=values["energy"],
        free_energy=values["free_energy"],
        order_parameters=named(STEP_NAMES, now.order),
        conjugates=named(STEP_CONJUGATES, now.conjugates),
        y=values["y"],
        complexity=values["complexity"],
        broken=levels.broken,
        stable=stable,
        stability=stability,
        converged=converged,
        residual=levels.residual,
        error=errors["test_risk"],
        errors=errors | doubts,
        method=_method(levels.step),
        warnings=(
            *_coarse(together),
            *_unconfirmed(task),
            *_doubts(now, converged, stable, stability, errors["test_risk"], tol),
        ),
    )


def _bounds(levels: _Levels, together: Evaluated | None, task: _Task) -> Array:
    """Errors by the scatter of the sets of nodes at the last level, and by what it changes; by that of y at the least.

    On grids too coarse for the noise of the states levels agree before they are right, and y is not known. How far they
    part is then known in its order alone: the error is at least twice what parts them from one state, `together`.
    """
    now = levels.found[-1]
    rows = [_reported(e, task) for e in levels.found]
    fall, last = np.abs(rows[-2] - rows[-3]) / FALL, np.abs(rows[-1] - rows[-2])
    bounds = DRAWN_SAFETY * standard_error([_reported(e, task) for e in levels.drawn]) + last / LAST_GAIN
    if together is not None:
        apart = UNRESOLVED_APART * np.abs(rows[-1] - _reported(together, task))
        apart[REPORTED_STEP.index("y")] = np.inf
        bounds = np.maximum(np.maximum(UNRESOLVED_SAFETY * np.maximum(fall, last), apart), bounds)
    if levels.rest is not None:
        bounds = bounds + np.abs(_reported(levels.rest.at_rest, task) - rows[-1])
        away = min(float(bounds[REPORTED_STEP.index("y")]) / now.y, 1.0)
        bounds = np.maximum(bounds, np.abs(_reported(levels.rest.seen_at(away), task) - rows[-1]))
    return np.asarray(bounds + (now.averages.lost + RESIDUAL_GAIN * levels.residual) * np.abs(rows[-1]))


def _method(step: Step) -> str:
    return ", ".join(layout.text for layout in step.layouts)


def _stability(levels: _Levels, task: _Task) -> tuple[dict[str, float], dict[str, float]]:
    """Spectral radii within and between states, and the jumps by what they add to 1/V_k = lambda_k + Vh_k; the errors.

    The means over the sets of nodes, and their scatter.
    """
    now = levels.found[-1]
    rows = [_radii(m, now, task) for m in levels.step.members()]
    errors = DRAWN_SAFETY * standard_error(rows)
    found, bounds = (named(STABILITY, r) for r in (np.mean(rows, axis=0), errors))
    return found, bounds


def _radii(step: Step, now: Evaluated, task: _Task) -> Array:
    """The numbers of STABILITY by one set of nodes."""
    found = step.response(now.order, now.y)
    matrices = step_stability(now.order, now.y, task.problem.alpha, found.within, found.between)
    smooth = task.problem.alpha * found.trace
    jumps = abs(now.conjugates[STEP_CONJUGATES.index("Vh_k")] - smooth) * now.order[STEP_NAMES.index("V_k")]
    return np.array([*map(spectral_radius, matrices), jumps])


def _coarse(together: Evaluated | None) -> tuple[str, ...]:
    """The warning of grids that do not resolve the noise."""
    if together is None:
        return ()
    return ("one step: states differ by less than the nodes resolve, so that y is not known, only that they part",)


def _unconfirmed(task: _Task) -> tuple[str, ...]:
    """The warning of nodes within nodes beyond two tokens, where only averages were compared with a second way."""
    if not task.nested or max(s.tokens for s in task.settings) <= COMPARED_TOKENS:
        return ()
    return ("one step: beyond two tokens the errors were not compared with a second way, and may be too small",)


def _doubts(
    now: Evaluated, converged: bool, stable: bool, stability: Mapping[str, float], error: float, tol: float | None
) -> list[str]:
    """All warnings."""
    told = [] if converged else ["one step: not converged"]
    if now.averages.lost > MOST_LOST:
        told.append(f"one step: a share {now.averages.lost:.1e} of the weight is outside of the grid")
    if tol is not None and not error <= tol:
        told.append(f"one step: the error {error:.1e} is above the {tol:.1e} asked for")
    q0, q1 = (float(now.order[STEP_NAMES.index(name)]) for name in ("q0_k", "q1_k"))
    if 0.0 < q1 - q0 < LEAST_COMPARED * q1:
        told.append(
            "one step: states are next to one another, where y and its errors were not compared with a second way"
        )
    if converged and not stable:
        parts = ", ".join(f"{name} {value:.3g}" for name, value in stability.items())
        told.append(f"one step: not the last word, a further step would change it ({parts})")
    return told
