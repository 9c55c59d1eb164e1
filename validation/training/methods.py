"""Full-batch minimisers of a training objective, which stop when its relative gradient norm is small enough.

`minimise` hands on the point where it stopped and how many steps it took; whether that is a minimum is for
the caller to say, with `relative_gradient_norm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Protocol

import numpy as np
from scipy.optimize import minimize

from replicode.theory.errors import InputError
from replicode.validation.data.sampling import Array

Objective = Callable[[Array], tuple[float, Array]]

_ROUNDING = 1e-9  # of an objective of data in single precision


class Method(Protocol):
    """A way to minimise."""

    def minimise(self, objective: Objective, params: Array, tolerance: float) -> tuple[Array, int]:
        """The point where the method stops, and the number of its steps."""


def relative_gradient_norm(params: Array, value: float, gradient: Array) -> float:
    """|gradient| sqrt(|params|^2 + D) / objective: the relative fall of the objective by a step of order one.

    Free of units and of the start. At curvatures of order one the error left in the overlaps is as small.
    """
    dim = params.size // 2
    reach = sqrt(float(params @ params) + dim)
    return float(np.linalg.norm(gradient)) * reach / max(value, np.finfo(float).tiny)


@dataclass(frozen=True)
class Lbfgs:
    """scipy's L-BFGS. It stops early now and then (line search, rounding); each round starts it from there."""

    rounds: int = 6
    iterations: int = 5000

    def minimise(self, objective: Objective, params: Array, tolerance: float) -> tuple[Array, int]:
        """The point and the number of iterations."""
        watched = _Watched(objective, tolerance)
        # scipy's own tests are off: its gtol is on the largest component, its ftol on the value.
        numbers = {"maxiter": self.iterations, "maxfun": 2 * self.iterations, "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
        how = {"method": "L-BFGS-B", "jac": True, "options": numbers, "callback": watched.count}
        try:
            for _ in range(self.rounds):
                params = np.asarray(minimize(watched, params, **how).x, dtype=np.float64)
                if not isfinite(watched.least):
                    break
        except _Settled as end:
            params = end.params
        return params, watched.steps


class _Settled(Exception):
    """Raised where the gradient is small enough."""

    def __init__(self, params: Array) -> None:
        self.params = params


class _Watched:
    """An objective that stops its minimiser at a settled point, unless one of lower value was seen before it."""

    def __init__(self, objective: Objective, tolerance: float) -> None:
        self.objective, self.tolerance = objective, tolerance
        self.least, self.steps = inf, 0

    def __call__(self, params: Array) -> tuple[float, Array]:
        """Value and gradient."""
        value, gradient = self.objective(params)
        lowest = value <= self.least + abs(self.least) * _ROUNDING if isfinite(self.least) else True
        if lowest and relative_gradient_norm(params, value, gradient) <= self.tolerance:
            raise _Settled(params.copy())
        self.least = min(self.least, value)
        return value, gradient

    def count(self, _: Array) -> None:
        """Called after every iteration."""
        self.steps += 1


@dataclass(frozen=True)
class GradientDescent:
    """params <- params - rate gradient, of the objective summed over the sequences (curvatures of order alpha)."""

    rate: float
    steps: int = 20_000

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def minimise(self, objective: Objective, params: Array, tolerance: float) -> tuple[Array, int]:
        """The point and the number of steps."""
        for step in range(self.steps):
            value, gradient = objective(params)
            if relative_gradient_norm(params, value, gradient) <= tolerance or not isfinite(value):
                return params, step
            params = params - self.rate * gradient
        return params, self.steps


@dataclass(frozen=True)
class Adam:
    """Adam on the full gradient, with a rate that falls like 1/sqrt(1 + step/steps_of_decay).

    At a constant rate full-batch Adam ends in small cycles about the minimum, never at it.
    """

    rate: float
    steps: int = 20_000
    decay_first: float = 0.9
    decay_second: float = 0.999
    steps_of_decay: int = 100

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def minimise(self, objective: Objective, params: Array, tolerance: float) -> tuple[Array, int]:
        """The point and the number of steps."""
        first, second = np.zeros_like(params), np.zeros_like(params)
        for step in range(self.steps):
            value, gradient = objective(params)
            if relative_gradient_norm(params, value, gradient) <= tolerance or not isfinite(value):
                return params, step
            first += (1 - self.decay_first) * (gradient - first)
            second += (1 - self.decay_second) * (gradient * gradient - second)
            mean = first / (1 - self.decay_first ** (step + 1))
            size = np.sqrt(second / (1 - self.decay_second ** (step + 1)))
            rate = self.rate / sqrt(1 + step / self.steps_of_decay)
            params = params - rate * mean / (size + 1e-12)
        return params, self.steps


def _check_rate(rate: float) -> None:
    """An InputError for a rate that is not one."""
    if not (isfinite(rate) and rate > 0):
        raise InputError("rate", rate, "a finite number above 0")
