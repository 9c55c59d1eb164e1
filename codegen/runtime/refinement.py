"""Ladders of finer and finer nodes: how they are climbed, and what their values leave open.

A level hands over its values lazily, the coarsest first, and says when they are enough. What is left open it makes of
what the last nodes changed, with a `Safety` of its own; where nodes are drawn, their scatter tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import ONE_SIDED, Array

COVERAGE = 0.9995
Rung = TypeVar("Rung")


class Safety(NamedTuple):
    """What stays open of a value: so many times what the last nodes changed, and rounding."""

    steps: float
    rounding: float = 0.0


def climbed(rungs: Iterable[Rung], enough: Callable[[list[Rung]], bool]) -> list[Rung]:
    """What the nodes gave, from two of them on until it is enough, or there are none finer."""
    found: list[Rung] = []
    for rung in rungs:
        found.append(rung)
        if len(found) > 1 and enough(found):
            break
    return found


def rested(found: Sequence[Array], tol: float) -> bool:
    """Whether the last nodes changed no value by more than this, or some are no numbers."""
    gap = float(np.abs(found[-1] - found[-2]).max())
    return gap <= tol or not np.isfinite(gap)


def level_error(found: Sequence[Array] | Array, safety: Safety) -> Array:
    """What stays open of values after the last nodes; one alone says nothing."""
    steps = np.abs(np.diff(found, axis=0))
    return safety.steps * steps[-1] + safety.rounding if len(steps) else np.full(steps.shape[1:], np.inf)


def slow_error(found: Sequence[Array], safety: Safety, slack: float) -> Array:
    """The same, and a part of what the step before changed at least, lest one agreement by chance be believed.

    That part is `slack`, or what the steps of all values together fell by, where they fall more slowly. It is all of it
    where two sets of nodes may be off to the same side.
    """
    slack = 1.0 if ONE_SIDED else slack
    steps = np.abs(np.diff(found, axis=0))
    if len(steps) < 2:
        return np.full(steps.shape[1:], np.inf)
    last, before = (float((step / np.maximum(1.0, np.abs(found[-1]))).max()) for step in (steps[-1], steps[-2]))
    fell = np.clip(last / before, slack, 1.0) if before > 0.0 else slack
    return np.asarray(safety.steps * np.maximum(steps[-1], fell * steps[-2]) + safety.rounding)


def standard_error(found: Sequence[Any] | Array) -> Array:
    """That of the mean of independent values."""
    return np.asarray(np.std(found, axis=0, ddof=1) / np.sqrt(len(found)))


def t_bound(found: Sequence[Any] | Array) -> Array:
    """What the mean of independent values leaves open: a two-sided t bound of 99.9 %."""
    return np.asarray(special.stdtrit(len(found) - 1, COVERAGE) * standard_error(found))
