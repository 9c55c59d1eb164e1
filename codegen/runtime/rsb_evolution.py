"""The saddle-point equations of one step as a map, and its fixed points at a given y and at equilibrium.

A `Step` averages on the layouts of one rule, which stay where they are while it is iterated: on fixed nodes the map is
smooth, so that Newton's method applies. The unknowns are m, log(q0 - m^2), log(q1 - q0) and log V of every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.driver import driven, forward_slopes
from replicode.codegen.runtime.kernel import ORDER_NAMES, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import weighted_record
from replicode.codegen.runtime.rsb_averages import (
    Layout,
    Rule,
    TiltedAverages,
    TiltedResponse,
)
from replicode.codegen.runtime.rsb_kernel import (
    STEP_NAMES,
    step_conjugates,
    step_free_energy,
    step_slope,
    step_update,
)

TOGETHER = 1e-4  # q1 - q0 relative to q1 from which on there is one state
LEAST_NOISE = 1e-12
STEP_DAMPING = 0.7
ROUGHLY, MOST_STEPS = 3e-3, 80
DIFFERENCE = 1e-2
LARGEST_MOVE, LARGEST_FALL, LARGEST_CHORD = 0.5, 3.0, 0.2
CHORDS = 12
PARTS = (1.0, 0.4, 0.15)
SLOW_FALL, MOST_SLOW, ENOUGH = 0.6, 3, 3e-5
SPLITS = tuple(tuple(STEP_NAMES.index(f"{n}_{b}") for n in ("m", "q0", "q1", "V")) for b in ("k", "v"))


class Penalised(NamedTuple):
    """Samples per dimension and the strengths of the penalties."""

    alpha: float
    lambda_k: float
    lambda_v: float


class Evaluated(NamedTuple):
    """Averages, conjugates, updated order parameters, free energy and df/dy at order parameters and y."""

    order: Array
    y: float
    averages: TiltedAverages
    conjugates: Array
    updated: Array
    free_energy: float
    slope: float

    @property
    def complexity(self) -> float:
        """The logarithm of the number of states per dimension."""
        return self.y**2 * self.slope

    @property
    def energy(self) -> float:
        """The energy of a state."""
        return self.free_energy + self.y * self.slope


def outer_order(order: Array) -> Array:
    """The vector of the replica-symmetric functions, with q0 in the place of q."""
    places = [STEP_NAMES.index(name.replace("q_", "q0_")) for name in ORDER_NAMES]
    return np.asarray(order[places])


def noise_of(order: Array) -> tuple[float, float]:
    """q1 - q0 of scores and of values."""
    (_, k0, k1, _), (_, v0, v1, _) = SPLITS
    return max(float(order[k1] - order[k0]), LEAST_NOISE), max(float(order[v1] - order[v0]), LEAST_NOISE)


def one_state(order: Array) -> bool:
    """Whether q1 and q0 are the same, so that replica symmetry is back."""
    return all(order[q1] - order[q0] <= TOGETHER * order[q1] for _, q0, q1, _ in SPLITS)


def to_free(order: Array) -> Array:
    """Unknowns that may have any value."""
    free = np.empty(len(order))
    for m, q0, q1, v in SPLITS:
        free[m] = order[m]
        free[q0] = np.log(max(order[q0] - order[m] ** 2, LEAST_NOISE))
        free[q1] = np.log(max(order[q1] - order[q0], LEAST_NOISE))
        free[v] = np.log(order[v])
    return free


def from_free(free: Array) -> Array:
    """The order parameters of unknowns."""
    order = np.empty(len(free))
    for m, q0, q1, v in SPLITS:
        order[m] = free[m]
        order[q0] = free[m] ** 2 + np.exp(free[q0])
        order[q1] = order[q0] + np.exp(free[q1])
        order[v] = np.exp(free[v])
    return order


class Step:
    """The map at one problem, on layouts for the order parameters that it was last adapted to."""

    def __init__(self, problem: Penalised, settings: Sequence[Setting], rule: Rule) -> None:
        self.problem, self.settings, self.rule = problem, settings, rule
        self.shares = np.array([s.kernel.share for s in settings])
        self.layouts: list[Layout] = []

    def adapt(self, order: Array) -> Step:
        """Lay the nodes anew where those that are there do not serve."""
        outer, noise = outer_order(order), noise_of(order)
        if not self.layouts or not all(layout.serves(outer, noise) for layout in self.layouts):
            self.layouts = [self.rule.laid(outer, noise, s) for s in self.settings]
        return self

    def members(self) -> list[Step]:
        """The same on each of the sets of nodes that the layouts are made of, if any."""
        found = []
        for layouts in zip(*(layout.members for layout in self.layouts), strict=True):
            step = Step(self.problem, self.settings, self.rule)
            step.layouts = list(layouts)
            found.append(step)
        return found

    def at(self, order: Array, y: float) -> Evaluated:
        """One evaluation of everything."""
        outer, noise = outer_order(order), noise_of(order)
        averages = weighted_record([layout.averages(outer, noise, y) for layout in self.layouts], self.shares)
        alpha, lambda_k, lambda_v = self.problem
        conjugates = step_conjugates(y, alpha, averages.rates, averages.squares)
        physics = alpha, lambda_k, lambda_v
        return Evaluated(
            order=order,
            y=y,
            averages=averages,
            conjugates=conjugates,
            updated=step_update(conjugates, y, lambda_k, lambda_v),
            free_energy=float(step_free_energy(order, conjugates, y, *physics, averages.envelope)),
            slope=float(step_slope(order, conjugates, y, *physics, averages.envelope, averages.tilted)),
        )

    def response(self, order: Array, y: float) -> TiltedResponse:
        """Squared responses, averaged over the lengths."""
        outer, noise = outer_order(order), noise_of(order)
        return weighted_record([layout.response(outer, noise, y) for layout in self.layouts], self.shares)


def residual_of(now: Evaluated) -> Array:
    """How far the unknowns move in one step of the map."""
    return np.asarray(to_free(now.updated) - to_free(now.order))


def shares(order: Array) -> Array:
    """What a relative change of each unknown is of its order parameter: of q1 - q0 it is small where that is."""
    found = np.ones(len(order))
    for _, q0, q1, _ in SPLITS:
        found[q1] = max((order[q1] - order[q0]) / order[q1], TOGETHER)
    return found


def settled(step: Step, order: Array, y: float, tol: float = ROUGHLY) -> Evaluated:
    """The damped map, the grid laid anew each time, until what it moves is of the size of the grid's own error."""
    least = np.full(len(order), -LARGEST_MOVE)
    least[[q1 for _, _, q1, _ in SPLITS]] = -LARGEST_FALL  # states that merge do so quickly

    def at(order: Array) -> Evaluated:
        return step.adapt(order).at(order, y)

    def ended(now: Evaluated) -> bool | None:
        moved = residual_of(now)
        if not np.isfinite(moved).all() or one_state(now.updated):
            return False
        return bool(np.abs(moved).max() < tol) or None

    def following(now: Evaluated) -> Evaluated:
        return at(from_free(to_free(now.order) + STEP_DAMPING * np.clip(residual_of(now), least, LARGEST_MOVE)))

    return driven(at(order), ended, following, MOST_STEPS).last


class _Walk(NamedTuple):
    """Where Newton's method is, its residual, how many steps were slow, and whether the residual is small enough."""

    now: Evaluated
    size: float
    slow: int = 0
    enough: bool = False

    @property
    def ended(self) -> bool:
        """Whether no more is to be gained."""
        return self.enough or self.slow > MOST_SLOW


class Corrected:
    """Newton's method at a given y with a Jacobian that is kept, and corrected where it leads nowhere."""

    def __init__(self, step: Step, now: Evaluated) -> None:
        self.scale = shares(now.order)
        slopes = forward_slopes(
            lambda free: self._told(step.at(from_free(free), now.y)), to_free(now.order), self._told(now), DIFFERENCE
        )
        self.jacobian, self.of_complexity = slopes[:-1], slopes[-1]

    def residual(self, now: Evaluated) -> Array:
        """What is to vanish, in its effect on the order parameters."""
        return np.asarray(self.scale * residual_of(now))

    def missed(self, now: Evaluated) -> Array:
        """How far the unknowns are from where the residual vanishes, to first order."""
        return np.asarray(-np.linalg.lstsq(self.jacobian, self.residual(now), rcond=1e-10)[0])

    def complexity(self, now: Evaluated) -> float:
        """That of the states next to these, to first order: unlike the free energy it is not stationary there."""
        return now.complexity + float(self.of_complexity @ self.missed(now))

    def _told(self, now: Evaluated) -> Array:
        return np.append(self.residual(now), now.complexity)

    def solve(self, step: Step, now: Evaluated, tol: float) -> tuple[Evaluated, float]:
        """Steps until the residual is below `tol` or falls no more; and the last residual."""
        start = _Walk(now, float(np.abs(self.residual(now)).max()))
        rest = driven(start, lambda w: w.ended or not w.size > tol or None, lambda w: self._step(step, w), CHORDS + 1)
        return rest.last.now, rest.last.size

    def _step(self, step: Step, walk: _Walk) -> _Walk:
        """The better of here and after a step."""
        now, size = walk.now, walk.size
        move = self.missed(now)
        move *= min(1.0, LARGEST_CHORD / max(float(np.abs(move).max()), 1e-300))
        there, found = self._shortened(step, now, move, size)
        slow = not found <= SLOW_FALL * size
        if slow:
            self._learn(now, there)
        enough = slow and min(found, size) < ENOUGH
        after = walk._replace(slow=walk.slow + slow, enough=enough)
        return after._replace(now=there, size=found) if found < size else after

    def _learn(self, now: Evaluated, there: Evaluated) -> None:
        """Correct the Jacobian along a move by what the move did (Broyden)."""
        moved = to_free(there.order) - to_free(now.order)
        missed = self.residual(there) - self.residual(now) - self.jacobian @ moved
        if np.isfinite(missed).all() and moved @ moved > 0.0:
            self.jacobian = self.jacobian + np.outer(missed, moved) / (moved @ moved)

    def _shortened(self, step: Step, now: Evaluated, move: Array, size: float) -> tuple[Evaluated, float]:
        """After the move, or a part of it that makes the residual fall."""
        for part in PARTS:
            there = step.at(from_free(to_free(now.order) + part * move), now.y)
            found = float(np.abs(self.residual(there)).max())
            if found < size:
                break
        return there, found
