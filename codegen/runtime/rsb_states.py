"""The states at other energies than that of equilibrium, and the free energy with its gradient at any point.

The complexity as a function of the energy is followed in y, from the equilibrium down to the threshold, where it is
largest: below that y the branch is not physical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.inputs import check_number, named, unknowns
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.population import _population_risk
from replicode.codegen.runtime.rsb_averages import Rule
from replicode.codegen.runtime.rsb_balance import Balanced, foreseen, states_at
from replicode.codegen.runtime.rsb_channel import Tables
from replicode.codegen.runtime.rsb_evolution import Evaluated, Step, from_free
from replicode.codegen.runtime.rsb_grid import Grid
from replicode.codegen.runtime.rsb_kernel import (
    STEP_CONJUGATES,
    STEP_NAMES,
    step_free_energy,
    step_gradient,
    step_slope,
)
from replicode.codegen.runtime.rsb_nested import Nested
from replicode.codegen.runtime.rsb_solver import _found, _state_overlaps, _Task, _task, begun, fitting

FOLLOWED = 16
SHRINK = 0.88
CURVE_LEVEL = 1


class States(NamedTuple):
    """The states that a value of y selects; `threshold` marks those of the largest complexity."""

    y: float
    energy: float
    complexity: float
    free_energy: float
    test_risk: float
    train_loss: float
    order_parameters: dict[str, float]
    threshold: bool


def states(
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    *,
    start: Mapping[str, float] | None = None,
    count: int = FOLLOWED,
    **parameters: float,
) -> tuple[States, ...]:
    """The states from the equilibrium to just beyond the threshold; none where no equilibrium is found."""
    task = _task(alpha, nu, noise, lambda_k, lambda_v, parameters)
    check_number("count", count, "a whole number from 2", count >= 2)
    with np.errstate(all="ignore"):
        begin = begun(start, "informed", task)
        task = fitting(task, begin)
        found = _found(begin, task)
        followed = _followed(found, count, task) if found is not None else []
    most = int(np.argmax([e.complexity for e in followed])) if followed else 0
    return tuple(_selected(e, task, i == most) for i, e in enumerate(followed))


def _followed(found: Balanced, count: int, task: _Task) -> list[Evaluated]:
    """Along falling y while the complexity grows, and one beyond its largest value."""
    rest = found.on(task.step(CURVE_LEVEL).adapt(found.states.order))
    if not rest.known:
        return []
    followed, before = [rest.states], rest.before
    for _ in range(count - 1):
        now = followed[-1]
        y = SHRINK * now.y
        step = task.step(CURVE_LEVEL)
        there = states_at(step, from_free(foreseen(now, before, y)), y, rest.chord)
        if there is None:
            break
        followed.append(there[0])
        before = now
        if there[0].complexity < now.complexity:
            break
    return followed


def _selected(now: Evaluated, task: _Task, threshold: bool) -> States:
    risk, _ = _population_risk(_state_overlaps(now.order), task.settings, 1e-9)
    return States(
        y=now.y,
        energy=now.energy,
        complexity=now.complexity,
        free_energy=now.free_energy,
        test_risk=risk,
        train_loss=now.averages.train_loss,
        order_parameters=named(STEP_NAMES, now.order),
        threshold=threshold,
    )


class _Point(NamedTuple):
    """A point that need not be a solution, with everything there."""

    now: Evaluated
    conjugates: Array
    problem: tuple[float, float, float]

    @property
    def unknowns(self) -> tuple[Array, Array, float]:
        """Order parameters, conjugates and y."""
        return self.now.order, self.conjugates, self.now.y


def _rule(grid: tuple[float, float, int, int | float] | None, task: _Task) -> Rule:
    """The numbers of a `Grid`, or of a `Nested` rule where M has too many coordinates; those of `solve` where None."""
    if grid is None:
        return task.levels[-1]
    return Nested(grid[0], int(grid[1]), grid[2], int(grid[3])) if task.nested else Tables(Grid(*grid))


def at_any_point(value: Callable[[_Point], Any]) -> Callable[..., Any]:
    """The value as a function of any point, E[F] integrated on a grid."""

    def found(
        order_parameters: Mapping[str, float],
        conjugates: Mapping[str, float],
        y: float,
        alpha: float,
        nu: float,
        noise: float,
        lambda_k: float,
        lambda_v: float,
        *,
        grid: tuple[float, float, int, int | float] | None = None,
        **parameters: float,
    ) -> Any:
        order, conj = unknowns(order_parameters, STEP_NAMES), unknowns(conjugates, STEP_CONJUGATES)
        check_number("y", y, "a finite number above 0", y > 0)
        for b in ("k", "v"):
            m, q0, q1, v = (float(order_parameters[f"{n}_{b}"]) for n in ("m", "q0", "q1", "V"))
            check_number(f"q0_{b}", q0, f"a finite number above m_{b}^2 = {m * m:.6g}", q0 > m * m)
            check_number(f"q1_{b}", q1, f"a finite number of at least q0_{b} = {q0:.6g}", q1 >= q0)
            check_number(f"V_{b}", v, "a finite number above 0", v > 0)
        task = _task(alpha, nu, noise, lambda_k, lambda_v, parameters)
        step = Step(task.problem, task.settings, _rule(grid, task)).adapt(order)
        with np.errstate(all="ignore"):
            return value(_Point(step.at(order, y), conj, task.problem))

    found.__name__ = found.__qualname__ = value.__name__
    found.__doc__ = value.__doc__
    return found


@at_any_point
def free_energy(at: _Point) -> float:
    """The free energy of one step at any point, E[F] integrated numerically."""
    return float(step_free_energy(*at.unknowns, *at.problem, at.now.averages.envelope))


@at_any_point
def residual(at: _Point) -> Array:
    """The gradient of the free energy in the order parameters (m, q0, q1, V by block), the conjugates, and y."""
    found = at.now.averages
    slopes = step_gradient(*at.unknowns, *at.problem, found.rates, found.squares)
    return np.asarray(np.r_[slopes, step_slope(*at.unknowns, *at.problem, found.envelope, found.tilted)])
