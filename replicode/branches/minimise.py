"""A minimum from values and gradients that are costly: damped BFGS in a trust region, within bounds.

What is handed on is a `Minimised`: the best trial, its model of the curvature, and what stands in its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
FIRST_STEP = 1.0
LONGEST_STEP = 1.5
SHORTEST_STEP = 1e-7
ENOUGH = 0.1
DAMPED = 0.2
NOISE_SAFETY = 4.0
SHORT_STEP = 0.01  # in logarithms: 1 %
STALLED = 0.5


@dataclass(frozen=True)
class Trial:
    """A place, the value and the gradient there with their errors, and whatever else was found."""

    place: Array
    value: float
    gradient: Array
    error: float
    gradient_error: Array
    found: Any = None


@dataclass(frozen=True)
class Minimised:
    """The best trial, the curvature there, all trials in order, and the coordinates that are held at a bound.

    `step` is how far the next step would go: what is still open of the place.
    """

    best: Trial
    curvature: Array
    trials: tuple[Trial, ...]
    held: Array
    step: Array
    converged: bool


def minimise(
    trial: Callable[[Array], Trial],
    start: Array,
    low: Array,
    high: Array,
    resolution: float,
    most: int,
    gain: float = 0.0,
) -> Minimised:
    """Downhill from a start until the next step is below the resolution in every coordinate, or no step helps.

    It ends too where that step promises less than `gain`, and where the gradient is its own noise: short steps then
    lead about, and the errors tell what is open.
    """
    now = trial(np.clip(start, low, high))
    trials, curvature, radius, fresh = [now], np.eye(now.place.size), FIRST_STEP, True
    if not np.isfinite(now.value):
        return Minimised(now, curvature, (now,), np.zeros(now.place.size, bool), np.full(now.place.size, np.inf), False)
    while True:
        held = _held(now, low, high)
        if fresh:
            curvature = np.eye(now.place.size) * max(float(np.linalg.norm(now.gradient * ~held)), 1e-12) / radius
        whole = _newton(now.gradient, curvature, held)
        step = np.clip(now.place + _within(whole, radius), low, high) - now.place
        left = np.clip(now.place + whole, low, high) - now.place
        # What a step that the bounds cut promises says nothing of how far down they are.
        little = np.allclose(left, whole) and 0.0 <= -0.5 * float(now.gradient @ left) < gain
        done = not fresh and bool(np.abs(left).max() < resolution or little)
        if done or len(trials) >= most or np.abs(step).max() < SHORTEST_STEP:
            return Minimised(now, curvature, tuple(trials), held, whole, done or bool(held.all()))
        there = trial(now.place + step)
        trials.append(there)
        if not fresh and np.abs(step).max() < SHORT_STEP and _noisy(now, there, held):
            now = min(now, there, key=lambda t: float(np.linalg.norm(t.gradient[~held])))
            return Minimised(now, curvature, tuple(trials), held, whole, True)
        if not (np.isfinite(there.value) and np.isfinite(there.gradient).all()):
            radius = 0.25 * float(np.linalg.norm(step))
            continue
        curvature = _updated(_scaled(curvature, step, there.gradient - now.gradient, fresh), step, there, now)
        fresh = False
        expected = float(now.gradient @ step + 0.5 * step @ curvature @ step)
        slack = NOISE_SAFETY * (there.error + now.error)
        if there.value <= now.value + ENOUGH * min(expected, 0.0) + slack:
            grown = 2.0 * float(np.linalg.norm(step))
            radius, now = min(max(radius, grown), LONGEST_STEP), there
        else:
            radius = 0.5 * float(np.linalg.norm(step))


def _noisy(now: Trial, there: Trial, held: Array) -> bool:
    """Whether a short step did not lessen a gradient that its error covers: what is left is noise."""
    before, after = (float(np.linalg.norm(t.gradient[~held])) for t in (now, there))
    return bool((np.abs(there.gradient) <= there.gradient_error)[~held].all()) and after > STALLED * before


def _held(now: Trial, low: Array, high: Array) -> Array:
    """Coordinates at a bound beyond which the value falls."""
    return np.asarray(((now.place <= low) & (now.gradient > 0.0)) | ((now.place >= high) & (now.gradient < 0.0)))


def _newton(gradient: Array, curvature: Array, held: Array) -> Array:
    step, free = np.zeros(gradient.size), ~held
    if free.any():
        step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
    return step


def _within(step: Array, radius: float) -> Array:
    length = float(np.linalg.norm(step))
    return step if length <= radius else step * (radius / length)


def _scaled(curvature: Array, step: Array, change: Array, fresh: bool) -> Array:
    """Before the first update: the size of the curvature along the first step."""
    along = float(step @ change)
    return np.eye(step.size) * (abs(along) / float(step @ step)) if fresh and along != 0.0 else curvature


def _updated(curvature: Array, step: Array, there: Trial, now: Trial) -> Array:
    """BFGS, damped as Powell does so that it stays positive."""
    change, bent = there.gradient - now.gradient, curvature @ step
    along, own = float(step @ change), float(step @ bent)
    if along < DAMPED * own:
        weight = (1.0 - DAMPED) * own / (own - along)
        change = weight * change + (1.0 - weight) * bent
        along = float(step @ change)
    return np.asarray(curvature - np.outer(bent, bent) / own + np.outer(change, change) / along)
