"""Equilibrium: the y at which the complexity of the states vanishes, and falls with y.

At a given y the states are found by Newton's method. y has an iteration of its own around that: the complexity moves
with the order parameters far more than along the states, so that in one system for all unknowns y would hardly be
determined. The complexity falls with y from the threshold on; below it the branch is not physical.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.driver import driven
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.rsb_evolution import Corrected, Evaluated, Step, from_free, one_state, to_free

SETTLED, NEAR_ENOUGH, FAIR, FOUND = 1e-6, 3e-5, 2e-4, 1e-3  # residuals that end Newton's method, and that will do
RELAID = 2
STEPS_IN_Y, GROWTH, SHORTER = 16, 1.35, 0.3
LEAST_CUT, CLOSE = 0.1, 1.15  # of a bracket that a secant may not cut off; of its ends when the search is over
STILL, LARGEST_IN_Y, FARTHEST = 2e-3, 0.15, 0.3  # of log y: moves that end the iteration, the largest; what is in sight
TELLING, LIKELY = 0.03, 3.0  # moves from which on a slope is learned; one that differs by more from the last is noise
MOST_IN_Y, BALANCED = 5, 4e-6  # a complexity that moves the energy, by its y-th part, less than anything else


class Balanced(NamedTuple):
    """States next to equilibrium, with what is left of their equations, and of log y to first order.

    `slope` is that of the complexity in log y, and `before` has states at another y. Where equilibrium is not in sight,
    these are the last states that were found, and their y is kept.
    """

    states: Evaluated
    residual: float
    missed: float
    slope: float
    before: Evaluated
    chord: Corrected

    @property
    def known(self) -> bool:
        """Whether the complexity falls with y, and leads to an equilibrium from here."""
        return self.slope < 0.0 and abs(self.missed) < FARTHEST

    @property
    def at_rest(self) -> Evaluated:
        """The states with the order parameters and y that they have at equilibrium, to first order."""
        there = self.seen_at(self.missed if self.known else 0.0)
        return there._replace(order=from_free(to_free(there.order) + self.chord.missed(self.states)))

    def seen_at(self, away: float) -> Evaluated:
        """The states with the order parameters that they have so far away in log y, to first order."""
        y = self.states.y * float(np.exp(away))
        return self.states._replace(order=from_free(foreseen(self.states, self.before, y)), y=y)

    def on(self, step: Step) -> Balanced:
        """The equilibrium on other nodes, with a new Jacobian where the kept one does not lead there."""
        found = self._with(step, self.chord)
        if found.residual < FOUND or not self.known:
            return found
        one = next(iter(step.members()), step)
        return self._with(step, Corrected(one, one.at(self.states.order, self.states.y)))

    def _with(self, step: Step, chord: Corrected) -> Balanced:
        start = self._replace(chord=chord)._moved(step, self.states.order, self.states.y)
        moving = driven(start, lambda b: b._ended, lambda b: b._towards(step), MOST_IN_Y, lambda b: abs(b.missed))
        return moving.last

    @property
    def _ended(self) -> bool | None:
        if not (self.residual < FOUND and self.known):
            return False
        left = abs(self.chord.complexity(self.states))
        return (abs(self.missed) < STILL and left < BALANCED) or None

    def _towards(self, step: Step) -> Balanced | None:
        """The states at the y where the complexity should vanish, if they are found."""
        y = self.states.y * float(np.exp(np.clip(self.missed, -LARGEST_IN_Y, LARGEST_IN_Y)))
        there = self._moved(step, from_free(foreseen(self.states, self.before, y)), y)
        return there if there.residual < FOUND else None

    def _moved(self, step: Step, order: Array, y: float) -> Balanced:
        """The states at a y, from order parameters next to theirs."""
        there, size = self.chord.solve(step, step.at(order, y), SETTLED)
        complexity, slope, before = self.chord.complexity(there), self.slope, self.before
        apart = float(np.log(y / self.states.y))
        if abs(apart) > TELLING:
            told, before = (complexity - self.chord.complexity(self.states)) / apart, self.states
            slope = told if not slope < 0.0 or 1.0 / LIKELY < told / slope < LIKELY else slope
        return Balanced(there, size, -complexity / slope, slope, before, self.chord)


def foreseen(now: Evaluated, before: Evaluated, y: float) -> Array:
    """The unknowns at another y, by the line through two states."""
    here = to_free(now.order)
    if now.y == before.y:
        return here
    share = np.log(y / now.y) / np.log(now.y / before.y)
    return np.asarray(here + np.clip(share, -1.0, 1.0) * (here - to_free(before.order)))


class _Known(NamedTuple):
    """States at some y with their complexity, and the Jacobian that they were found by."""

    states: Evaluated
    chord: Corrected

    @property
    def complexity(self) -> float:
        """To first order where the equations are not quite met."""
        return self.chord.complexity(self.states)


class _Sides(NamedTuple):
    """States on the way to equilibrium: the last, those before, and the next ones on either side, as far as known."""

    now: _Known
    before: _Known
    below: _Known | None = None
    above: _Known | None = None
    growth: float = GROWTH

    def beyond(self, there: _Known) -> _Sides:
        """With these states as the last ones: the sign of the complexity tells the side."""
        sides = self._replace(now=there, before=self.now)
        return sides._replace(below=there) if there.complexity > 0.0 else sides._replace(above=there)

    @property
    def next_y(self) -> float:
        """By a secant where both sides are known, and else a step towards the side that is not."""
        now = self.now.states.y
        if self.below is None or self.above is None:
            return now * (self.growth if self.above is None else 1.0 / self.growth)
        rest, beyond = self.below.complexity, self.above.complexity
        share = float(np.clip(rest / (rest - beyond), LEAST_CUT, 1.0 - LEAST_CUT))
        return float(self.below.states.y * (self.above.states.y / self.below.states.y) ** share)

    @property
    def close(self) -> bool:
        """Whether both sides are near."""
        return self.below is not None and self.above is not None and self.above.states.y < CLOSE * self.below.states.y

    @property
    def balanced(self) -> Balanced:
        """The equilibrium by the line through the last two states."""
        (now, chord), before = self.now, self.before.states
        apart = np.log(now.y / before.y)
        slope = float((self.now.complexity - self.before.complexity) / apart) if apart else np.nan
        size = float(np.abs(chord.residual(now)).max())
        return Balanced(now, size, -self.now.complexity / slope, slope, before, chord)


def followed_to_balance(step: Step, start: Evaluated) -> Balanced:
    """Follow the states in y to either side of where their complexity vanishes."""

    def following(sides: _Sides) -> _Sides | None:
        now, chord = sides.now
        for growth in (sides.growth, GROWTH**SHORTER):
            sides = sides._replace(growth=growth)
            there = states_at(step, from_free(foreseen(now, sides.before.states, sides.next_y)), sides.next_y, chord)
            if there is not None or growth < GROWTH:
                break
        return None if there is None else sides.beyond(_Known(*there))

    there = states_at(step, start.order, start.y, None)
    first = _Known(*there) if there else _Known(start, Corrected(step.adapt(start.order), start))
    sides = _Sides(first, first).beyond(first)
    return driven(sides, lambda s: s.close or None, following, STEPS_IN_Y if there else 1).last.balanced


def states_at(step: Step, order: Array, y: float, chord: Corrected | None) -> tuple[Evaluated, Corrected] | None:
    """The states at a given y, from order parameters next to theirs; nothing where they merge or are not found."""
    for _ in range(RELAID + 1):
        here = step.adapt(order).at(order, y)
        chord = chord or Corrected(step, here)
        here, size = chord.solve(step, here, SETTLED)
        if one_state(here.order) or not np.isfinite(size):
            return None
        if size < NEAR_ENOUGH:
            return here, chord
        order, last, chord = here.order, chord, None
    return (here, last) if size < FAIR else None
