"""Exact draws of the hidden token and of its teacher score, for the kinds of weight g that can be drawn.

The tokens are drawn from their base law first, so that their scores chi* = X k*/sqrt(D) are i.i.d. N(0, 1). Under
the weight g(eps, chi*) then
- log g a polynomial of degree two in chi*_eps: eps is uniform and chi*_eps Gaussian;
- log g a function of chi*_eps alone: eps is uniform and chi*_eps has the density exp(log g - x^2/2), by rejection;
- sum_e g the same for all scores: they keep their base law and eps has the probabilities g/L given them;
- its limit nu -> infinity: eps is the argmax, or the argmin.
Any other weight is refused. Hands a `Scores` to the sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Protocol

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from replicode.codegen.interpret.functions import evaluated, numpy_function
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L, TokenSum, X
from replicode.theory.language.task import Task
from replicode.theory.model import NU

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CELLS = 2048
SUBNODES = 8
DEPTH = 50.0  # the density is cut where it is e^-50 of its largest value: a mass below 1e-18
FARTHEST = 1e4


class Scores(Protocol):
    """The law of the hidden token and its score, at one number of tokens."""

    def draw(self, rng: np.random.Generator, chi: Array) -> tuple[Index, Array]:
        """Hidden tokens (n,) and the scores they must have (n,), given base draws chi (n, L) of the scores."""


@dataclass(frozen=True)
class GaussianScores:
    """eps uniform, chi*_eps ~ N(mean, std^2)."""

    mean: float
    std: float = 1.0

    def __post_init__(self) -> None:
        if not isfinite(self.mean):
            raise InputError("mean", self.mean, "a finite number")
        if not (isfinite(self.std) and self.std >= 0):
            raise InputError("std", self.std, "a finite number of at least 0 (a standard deviation)")

    def draw(self, rng: np.random.Generator, chi: Array) -> tuple[Index, Array]:
        """Uniform tokens and normal scores."""
        count, tokens = chi.shape
        eps = rng.integers(tokens, size=(count,))
        return eps, self.mean + self.std * rng.standard_normal((count,))


@dataclass(frozen=True, eq=False)
class OwnScores:
    """eps uniform, chi*_eps of density exp(log_density), drawn by rejection from steps above it.

    The step over the cell [edges_i, edges_i + width] has the height exp(log_steps_i). Every proposal is compared
    with its step, so that an envelope too low where it matters is a refusal and not a wrong law.
    """

    log_density: Callable[[Array], Array]
    edges: Array
    width: float
    log_steps: Array

    def draw(self, rng: np.random.Generator, chi: Array) -> tuple[Index, Array]:
        """Uniform tokens and accepted proposals."""
        count, tokens = chi.shape
        eps = rng.integers(tokens, size=(count,))
        kept = [self._accepted(rng, count)]
        while (missing := count - sum(part.size for part in kept)) > 0:
            kept.append(self._accepted(rng, missing))
        return eps, np.concatenate(kept)[:count]

    def _accepted(self, rng: np.random.Generator, count: int) -> Array:
        """What is accepted of a few more than `count` proposals."""
        heights = np.cumsum(np.exp(self.log_steps - self.log_steps.max()))
        number = count + count // 8 + 16
        cell = np.searchsorted(heights, rng.random(number) * heights[-1], side="right")
        x = self.edges[cell] + self.width * rng.random(number)
        below = self.log_density(x) - self.log_steps[cell]
        if not (below <= 0.0).all():
            raise Refusal(
                f"the weight of the hidden score is too rough to be drawn from near {x[np.argmax(below)]:.6g}"
            )
        accepted: Array = x[np.log1p(-rng.random(number)) < below]
        return accepted


@dataclass(frozen=True, eq=False)
class LocatedScores:
    """The scores as they are, and eps with probabilities exp(log_weight)/sum: the largest after Gumbel noise."""

    log_weight: Callable[[Array], Array]

    def draw(self, rng: np.random.Generator, chi: Array) -> tuple[Index, Array]:
        """Located tokens and their scores."""
        logs = self.log_weight(chi.T).T
        if not np.isfinite(logs).all():
            raise Refusal("the log-weight of the task is not finite at scores that were drawn")
        return _chosen(chi, logs + rng.gumbel(size=chi.shape))


@dataclass(frozen=True)
class ExtremeScores:
    """The scores as they are; eps is the argmax (sign +1) or the argmin (sign -1)."""

    sign: int

    def draw(self, rng: np.random.Generator, chi: Array) -> tuple[Index, Array]:
        """The extreme tokens and their scores."""
        return _chosen(chi, self.sign * chi)


def _chosen(chi: Array, merit: Array) -> tuple[Index, Array]:
    """The token of largest merit in every row and its score."""
    eps = merit.argmax(axis=1)
    return eps, np.take_along_axis(chi, eps[:, None], axis=1)[:, 0]


def scores_of(task: Task, nu: float, tokens: int) -> Scores:
    """The law of a task at a signal nu, infinite where the task has that limit, and a number of tokens."""
    if not nu >= 0:
        raise InputError("nu", nu, "a number of at least 0")
    if nu == inf:
        return ExtremeScores(task.hard_limit())
    if task.gaussian:
        return _gaussian(task, nu, tokens)
    if not task.log_weight.has(TokenSum):
        return _own(task, nu, tokens)
    if task.scores_unweighted:
        form = Activation("weight", task.own).token_form()
        return LocatedScores(lambda chi: evaluated(form, chi, {NU: nu}))
    raise Refusal(f"task {task.text}: its weight couples and changes the scores of all tokens; it cannot be sampled")


def _gaussian(task: Task, nu: float, tokens: int) -> GaussianScores:
    """The Gaussian law that the task derives, at these numbers."""
    at = {NU: sp.Float(nu, 17), L: sp.Integer(tokens)}
    mean, variance = (sp.N(e.subs(at)) for e in task.hidden_score())
    if not (mean.is_finite and variance.is_finite and variance > 0):
        raise Refusal(f"task {task.text}: at nu = {nu:g} its weight grows too fast, E[g] is infinite")
    return GaussianScores(float(mean), sqrt(float(variance)))


def _own(task: Task, nu: float, tokens: int) -> OwnScores:
    """The envelope of exp(log g - x^2/2), found by looking at ever smaller ranges that hold all of it."""
    compiled_own = numpy_function(task.own, (X, NU, L))

    def log_density(x: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.broadcast_to(compiled_own(x, nu, float(tokens)), x.shape) - x * x / 2

    low, high = _holding_range(log_density, f"task {task.text} at nu = {nu:g}")
    edges = np.linspace(low, high, CELLS + 1)
    within = np.linspace(low, high, CELLS * SUBNODES + 1)
    rows = np.arange(CELLS)[:, None] * SUBNODES + np.arange(SUBNODES + 1)
    logs = np.maximum(log_density(within), log_density(edges).max() - 3 * DEPTH)[rows]
    # Between two nodes a resolved function rises by less than it changes from node to node; 1e-9 is for rounding.
    log_steps = logs.max(axis=1) + np.abs(np.diff(logs, axis=1)).max(axis=1) + 1e-9
    return OwnScores(log_density, edges[:-1], float(edges[1] - edges[0]), log_steps)


def _holding_range(log_density: Callable[[Array], Array], name: str) -> tuple[float, float]:
    """Where the density is above e^-DEPTH of its largest value."""
    low, high = -40.0, 40.0
    while True:
        grid = np.linspace(low, high, CELLS * SUBNODES + 1)
        logs = log_density(grid)
        if np.isnan(logs).any() or not logs.max() < inf:
            raise Refusal(f"{name}: its log-weight is not a number, or not finite, between {low:g} and {high:g}")
        held = np.flatnonzero(logs > logs.max() - DEPTH)
        if held[0] == 0 or held[-1] == grid.size - 1:
            low, high = 2 * low, 2 * high
            if high > FARTHEST:
                raise Refusal(f"{name}: its weight grows too fast, E[g] is infinite")
            continue
        found = float(grid[held[0] - 1]), float(grid[held[-1] + 1])
        if found[1] - found[0] > 0.5 * (high - low):
            return found
        low, high = found
