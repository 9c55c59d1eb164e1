"""The fixed point of the saddle equations: Anderson-accelerated iteration, then Newton with the derived Jacobian.

Iterations run in coordinates (m, log(q - m^2), log V) of each block, in which every point is physical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel
from replicode.codegen.runtime.driver import Chord, Mixing, Rested, driven, forward_slopes
from replicode.codegen.runtime.hessian import second_rates
from replicode.codegen.runtime.kernel import (
    CONJUGATE_NAMES,
    ORDER_NAMES,
    Array,
    conjugates_from_rates,
    train_loss_slopes,
)
from replicode.codegen.runtime.places import BLOCKS, RATES, by_block, ordered
from replicode.codegen.runtime.prior import Problem, gradient_at, hessian_at, image_at, value_at

BESIDE = 0.03
LARGEST_GROWTH = 4.0
WORST_CONDITION = 1e12
SMALLEST_SPREAD = 1e-12
RUNAWAY = ordered(200.0, 1e8, 1e8 if len(BLOCKS) > 1 else 1e22)
REPORTED = (*ORDER_NAMES, *CONJUGATE_NAMES, "train_loss", "energy")
NOTICED_FOLD = 1e-6
WIDE_STEP = 0.03
SCALES = ordered(1.0, 1.0, 0.0)


class Evaluation(NamedTuple):
    """One application of the saddle-point map: where from, where to, and the averages on the way."""

    order: Array
    image: Array
    conjugates: Array
    averages: Averages

    @property
    def residual(self) -> float:
        """The undamped residual, relative to the size of each order parameter; V is compared with itself alone."""
        gap = np.abs(self.image - self.order) / (SCALES + np.abs(self.order))
        return float(gap.max()) if np.isfinite(gap).all() else np.inf


Converged = Rested[Evaluation]


class Budget:
    """The work that a solve may still do, counted in nodes so that it ends alike on every machine.

    Once the error is below `good`, only what is left of the `quick` part is spent on making it smaller.
    """

    def __init__(self, work: float = np.inf, quick: float = np.inf, good: float = 0.0) -> None:
        self.left, self.quick, self.good = work, quick, good

    def evaluations(self, channel: Channel, most: int) -> int:
        """How many evaluations of a channel are left, at most `most`, and never none."""
        return int(min(max(self.left / max(channel.work, 1.0), 1.0), most))

    def affords(self, work: float, error: float) -> bool:
        """Whether so much may be done where the error is this."""
        return work <= (self.quick if error <= self.good else self.left)

    def spend(self, channel: Channel, evaluations: int) -> None:
        """Count what was done."""
        self.left -= channel.work * evaluations
        self.quick -= channel.work * evaluations


def to_free(order: Array) -> Array:
    """Physical order parameters as six unconstrained coordinates; a block that collapses on its mean stops in time."""
    m, q, v = by_block(order)
    return ordered(m, np.log(np.maximum(q - m * m, SMALLEST_SPREAD)), np.log(v))


def from_free(free: Array) -> Array:
    """The order parameters of six unconstrained coordinates."""
    m, spread, v = by_block(free)
    return ordered(m, m * m + np.exp(spread), np.exp(v))


def runaways(order: Array) -> list[str]:
    """The order parameters that are beyond what any solution has been seen to reach."""
    return [n for n, x, limit in zip(ORDER_NAMES, order, RUNAWAY) if not abs(x) < limit]


def evaluate(channel: Channel, order: Array, problem: Problem, search: bool = False) -> Evaluation:
    """Apply the saddle-point map once; where the law of the fields is degenerate the image is not a number."""
    try:
        averages = channel.averages(order, search)
    except np.linalg.LinAlgError:
        averages = Averages(np.full(RATES, np.nan), np.nan, np.nan, np.nan, np.nan, 1.0)
    return mapped(averages, order, problem)


def mapped(averages: Averages, order: Array, problem: Problem) -> Evaluation:
    """The image of known averages; V <= 0 is replaced by the largest growth allowed, q - m^2 kept off zero."""
    conjugates = conjugates_from_rates(averages.rates, problem.alpha)
    image = image_at(conjugates, problem)
    for m, q, v in BLOCKS:
        if not 0.0 < image[v] <= LARGEST_GROWTH * order[v]:
            image[v] = LARGEST_GROWTH * order[v]
        image[q] = np.maximum(image[q], image[m] ** 2 + SMALLEST_SPREAD)
    return Evaluation(order, image, conjugates, averages)


def iterate(
    channel: Channel,
    start: Array,
    problem: Problem,
    tol: float,
    limit: int = 120,
    damping: float = 1.0,
    known: Array | None = None,
) -> Converged:
    """Anderson-accelerated fixed-point iteration from `start`; convergence is judged on the undamped residual.

    It also ends where it has come next to a `known` fixed point. Without convergence it is the best point that counts.
    """
    mixing = Mixing(to_free(start), damping)

    def at(free: Array) -> Evaluation:
        return evaluate(channel, from_free(free), problem)

    def ended(now: Evaluation) -> bool | None:
        if not np.isfinite(now.image).all() or runaways(now.order):
            return False
        return now.residual <= tol or (known is not None and beside(now.order, known)) or None

    def following(now: Evaluation) -> Evaluation:
        return at(mixing.after(to_free(now.image), now.residual))

    return driven(at(mixing.point), ended, following, limit, lambda now: now.residual)


def beside(order: Array, known: Array) -> bool:
    """Whether two points are so close that fixed points there, where f is stationary, have about the same energy."""
    return bool(np.abs(to_free(order) - to_free(known)).max() < BESIDE)


def reported(at: Evaluation, problem: Problem) -> Array:
    """The numbers that a solution reports besides the test risk: REPORTED."""
    averages = at.averages
    energy = value_at(at.order, at.conjugates, problem, averages.envelope)
    return np.concatenate([at.order, at.conjugates, [averages.train_loss, energy]])


class Linearised(NamedTuple):
    """The map near its fixed point in free coordinates: (I - dF)^-1, and d reported / d free.

    `bound` is what errors are propagated with, the sizes of the entries of the first unless given. `jumps` says that
    they are those of a map whose minima jump.
    """

    newton: Array
    slopes: Array
    evaluations: int = RATES
    bound: Array | None = None
    jumps: bool = False

    @property
    def attracts(self) -> bool:
        """Whether the map leads where Newton's method leads to: no eigenvalue of its slopes is above 1."""
        return bool(np.isfinite(self.newton).all() and np.linalg.eigvals(self.newton).real.min() > 0.0)

    def reach(self, gap: Array) -> Array:
        """How far errors `gap` of the map, of any signs, can move the fixed point."""
        return np.asarray((np.abs(self.newton) if self.bound is None else self.bound) @ np.abs(gap))


def derived_or_differenced(channel: Channel, at: Evaluation, problem: Problem) -> Linearised:
    """Derivatives of the map and of the reported numbers: derived where the channel has second rates.

    Where folds weigh, few nodes tell neither them nor differences well: errors then get the larger of both.
    """
    second = second_rates(channel, at.order)
    if second is None:
        return differenced(channel, at, problem)
    found = derived(second, at, problem)
    if at.averages.folded_mass < NOTICED_FOLD:
        return found
    other = differenced(channel, at, problem)
    slopes = np.where(np.abs(other.slopes) > np.abs(found.slopes), other.slopes, found.slopes)
    bound = np.maximum(np.abs(found.newton), np.abs(other.newton))
    return Linearised(found.newton, slopes, found.evaluations + other.evaluations, bound)


def derived(second: Array, at: Evaluation, problem: Problem) -> Linearised:
    """Newton on the twelve equations, the conjugates eliminated: its rows tell how they and the image follow."""
    full = hessian_at(at.order, at.conjugates, problem, second)
    conjugates, image = followed(full, full[:RATES, :RATES])
    gradient = gradient_at(at.order, at.conjugates, problem, at.averages.rates)
    energy = gradient[:RATES] + gradient[RATES:] @ conjugates
    train_loss = train_loss_slopes(at.order, at.averages.rates, second)
    free = free_slopes(at.order)
    slopes = np.vstack([np.eye(RATES), conjugates, train_loss, energy]) @ free
    return inverted(image_slopes(at.image) @ image @ free, slopes)._replace(evaluations=1)


def followed(full: Array, order: Array, conjugates: Array | float = 0.0) -> tuple[Array, Array]:
    """How conjugates and image follow what changes the gradient of f in the order parameters and in the conjugates."""
    cross = full[:RATES, RATES:]
    moved = -np.linalg.solve(cross, order)
    return moved, -np.linalg.solve(cross.T, full[RATES:, RATES:] @ moved + conjugates)


def free_slopes(order: Array) -> Array:
    """d order / d free."""
    slopes = np.zeros((RATES, RATES))
    for block in BLOCKS:
        m, q, v = (order[i] for i in block)
        slopes[np.ix_(block, block)] = [[1.0, 0.0, 0.0], [2.0 * m, q - m * m, 0.0], [0.0, 0.0, v]]
    return slopes


def image_slopes(image: Array) -> Array:
    """d free / d order; none for a block that has collapsed on its mean."""
    slopes = np.zeros((RATES, RATES))
    for block in BLOCKS:
        m, q, v = (image[i] for i in block)
        inverse = 1.0 / (q - m * m) if q - m * m > 2.0 * SMALLEST_SPREAD else 0.0
        slopes[np.ix_(block, block)] = [[1.0, 0.0, 0.0], [-2.0 * m * inverse, inverse, 0.0], [0.0, 0.0, 1.0 / v]]
    return slopes


def differenced(channel: Channel, at: Evaluation, problem: Problem) -> Linearised:
    """The same by forward differences."""
    base = _image_and_reported(at, problem)
    found = forward_slopes(values_of(channel, problem), to_free(at.order), base, 1e-4)
    return inverted(found[:RATES], found[RATES:])


def wide_slopes(channel: Channel, at: Evaluation, problem: Problem) -> Linearised:
    """The same by differences wide enough for many samples to jump, on a channel that finds their global minima."""
    value, free = values_of(channel, problem), to_free(at.order)
    moves = WIDE_STEP * np.eye(free.size)
    found = np.stack([(value(free + move) - value(free - move)) / (2.0 * WIDE_STEP) for move in moves], axis=1)
    return inverted(found[:RATES], found[RATES:])._replace(evaluations=2 * RATES, jumps=True)


def values_of(channel: Channel, problem: Problem) -> Callable[[Array], Array]:
    """The image in free coordinates and the reported numbers as functions of such coordinates."""
    return lambda free: _image_and_reported(evaluate(channel, from_free(free), problem), problem)


def _image_and_reported(now: Evaluation, problem: Problem) -> Array:
    return np.concatenate([to_free(now.image), reported(now, problem)])


linearised: Callable[[Channel, Evaluation, Problem], Linearised] = derived_or_differenced


def inverted(rate: Array, slopes: Array) -> Linearised:
    """From the derivatives of the image and of the reported numbers."""
    matrix = np.eye(len(rate)) - rate
    regular = np.isfinite(matrix).all() and np.linalg.cond(matrix) < WORST_CONDITION
    return Linearised(np.linalg.inv(matrix) if regular else np.full(matrix.shape, np.inf), slopes)


def polish(
    channel: Channel, start: Array, problem: Problem, matrix: Array, tol: float, limit: int = 12, more: int = 120
) -> Converged:
    """Newton steps with a fixed matrix; falls back to the accelerated iteration when they stop contracting."""
    chord = Chord(to_free(start), matrix)

    def at(free: Array, search: bool = False) -> Evaluation:
        return evaluate(channel, from_free(free), problem, search)

    def ended(now: Evaluation) -> bool | None:
        if now.residual <= tol:
            return True
        return None if chord.contracts(now.residual) else False

    found = driven(at(chord.point, True), ended, lambda now: at(chord.after(to_free(now.image))), limit)
    if found.converged or not chord.stalled:
        return found
    rest = iterate(channel, found.last.order, problem, tol, max(more - found.iterations, 1))
    return rest._replace(iterations=found.iterations + rest.iterations)
