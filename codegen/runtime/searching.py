"""The fixed point where folds are felt and scores have any dimension: signed prox-free averages and searched folds.

Both parts are refined on their own: the nodes of the first from level to level at a fixed point of both, the sets of
the second until their scatter is small enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Channel, Ladder, ProxChannel
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.fixedpoint import (
    REPORTED,
    Converged,
    Evaluation,
    Linearised,
    derived,
    evaluate,
    from_free,
    linearised,
    mapped,
    to_free,
)
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed, mixed_ladder, parts_of
from replicode.codegen.runtime.places import RATES
from replicode.codegen.runtime.refinement import slow_error, t_bound
from replicode.codegen.runtime.searched import AUDITED, SETS, SearchedChannel
from replicode.codegen.runtime.sensitivity import rate_slopes
from replicode.codegen.runtime.signed import SignedChannel
from replicode.codegen.runtime.states import (
    FOLD_WEIGHT,
    LEVEL_SAFETY,
    WORST_MASS,
    WORST_RESIDUAL,
    _errors,
    _failed,
    _passed_on,
    _Request,
    _risk_slopes,
    _State,
)

FIRST_LEVEL = 3
LOG2_SETS = (7, 14)  # nodes of each set, at first and at most
LOG2_SEEN = 9
LARGEST_SIGNED_LATTICE = 8_000_000
NEWTON_MOVES, FALLS = 12, 0.8
SEARCHED_AFRESH = 1e-3  # how far, in free coordinates, critical points are followed from where they were searched for
MOST_GROWN = 4  # doublings of a set at a time, so that the largest start next to where they end
FIRST_RESIDUAL, LEAST_RESIDUAL = 1e-5, 1e-10
LEAST_SEEN = 0.1  # of a step, that the matrix explains, to be mended by it
PLACING = 2  # evaluations that the first of some nodes counts for
AGAIN = 4  # evaluations on nodes that are chosen
POORLY_SEARCHED = 1e-3  # an error from which on the prox is tried too
STILL = 0.005  # of the error asked for, that is left open of the fixed point
SHARE_OF_LEVELS, SHARE_OF_SETS = 0.3, 0.5  # of the error asked for
ORDER_OF_SETS = 0.55  # of the error of a set in its size, as measured
JUMPS_WEIGH = 1e-3  # the folded mass from which on Newton's method needs what jumps change in the Jacobian


class _Plan(NamedTuple):
    """The level of the nodes of the signed averages, and the logarithm of the nodes of a set."""

    level: int
    log2: int

    def channel(self, ladder: Ladder, request: _Request, before: Channel | None = None) -> Channel:
        """The averages of every length with searched folds, looked for where those before were."""
        parts = dict(zip((s.tokens for s in request.settings), parts_of(ladder.refined(self.level)), strict=True))
        places = dict(zip(parts, parts_of(before), strict=True)) if before else {}

        def searched(setting: Setting) -> Channel:
            _, part = parts[setting.tokens]
            if not isinstance(part, SignedChannel):  # there are no scores
                return part
            known = places[setting.tokens][1] if places else None
            if not isinstance(known, SearchedChannel):
                return SearchedChannel(part, self.log2)
            same = known.smooth if known.smooth.level == part.level else part
            return SearchedChannel(same, self.log2, known.law)

        return mixed(request.settings, searched)

    def grown(self, sets: float, channel: Channel, request: _Request) -> int:
        """The logarithm of the nodes of a set that what is left open by the sets asks for, and the budget affords."""
        over = max(sets / (SHARE_OF_SETS * request.tol), 1.0)
        log2 = min(self.log2 + min(int(np.ceil(np.log2(over) / ORDER_OF_SETS)), MOST_GROWN), LOG2_SETS[1])
        evaluations = PLACING + AGAIN - 1
        while log2 > self.log2 and not request.budget.affords(
            evaluations * channel.work * 2.0 ** (log2 - self.log2), sets
        ):
            log2 -= 1
        return log2

    def method(self, ladder: Ladder, request: _Request) -> str:
        """In words."""
        sets = f"{SETS} x Sobol of {2**self.log2} nodes"
        lattice = f"lattice of {ladder.size(self.level):.0f} nodes in {request.dimensions} dimensions"
        return f"{SearchedChannel.name} on {sets}, {lattice}"


def searched_state(start: Array, request: _Request) -> _State:
    """The fixed point from a start nearby, refined until the error is what is asked for, or the budget is spent."""
    ladder = mixed_ladder(request.settings, lambda setting: _signed(setting, request.tol))
    ladder.adapt(start)
    order, plan, tol, iterations = start, _Plan(FIRST_LEVEL, LOG2_SETS[0]), FIRST_RESIDUAL, 0
    levels = np.full(1 + len(REPORTED), np.inf)
    channel: Channel | None = None
    near: Linearised | None = None
    state: _State | None = None
    while True:
        channel = plan.channel(ladder, request, channel)
        near = near or _near(channel, ladder.refined(plan.level), order, request)
        found = _settled(channel, order, near, request, tol)
        iterations, order = iterations + found.iterations, found.last.order
        if not (found.last.residual < WORST_RESIDUAL and abs(found.last.averages.mass - 1.0) < WORST_MASS):
            return state or _failed(found.last, iterations, [channel], channel.name)
        sets = t_bound([_passed_on(m, found.last.image, order, near, request) for m in channel.drawn()])
        if state is None:
            level, levels = _fine_enough(ladder, plan.level, order, near, request)
        state = _stated(found.last, iterations, levels + sets, near, plan, channel, ladder, request)
        finer = _Plan(level, plan.grown(float(sets[0]), channel, request))
        missing = FOLD_WEIGHT * found.last.averages.unconverged  # which neither larger sets nor finer nodes mend
        rest = float(levels[0]) + FOLD_WEIGHT * abs(found.last.averages.mass - 1.0) + missing  # and larger sets alone
        if (
            not state.converged
            or state.error <= request.tol
            or finer == plan
            or (finer.level == plan.level and rest > max(request.tol, float(sets[0])))
            or missing > max(request.tol, POORLY_SEARCHED)
        ):
            return state
        plan, tol = finer, max(LEAST_RESIDUAL, STILL * request.tol)


def _signed(setting: Setting, tol: float) -> Ladder:
    """Prox-free where there are scores to minimise over; else the prox is the field itself."""
    return SignedChannel.reaching(tol, setting) if dimensions(setting)[0] else ProxChannel.at_level(0, setting)


def _stated(
    last: Evaluation,
    iterations: int,
    opened: Array,
    near: Linearised,
    plan: _Plan,
    channel: Channel,
    ladder: Ladder,
    request: _Request,
) -> _State:
    """What is known at a fixed point."""
    slopes = _risk_slopes(last.order, request, np.full(RATES, 1e-4))
    errors = _errors(last, near, slopes, request, opened, 0.0)
    coarser = _Plan(plan.level - 1, plan.log2 - 2).channel(ladder, request, channel)
    seen = _Plan(plan.level, min(plan.log2, LOG2_SEEN)).channel(ladder, request, channel)
    method = plan.method(ladder, request)
    known = bool(np.isfinite(errors[0]))
    on, missed = [coarser, channel], AUDITED > 0  # signs that add up to one do not prove that no pair is missing
    return _State(last, iterations, known, errors, [seen], method, searched=missed, on=on)


def _fine_enough(ladder: Ladder, level: int, order: Array, near: Linearised, request: _Request) -> tuple[int, Array]:
    """The level at which the signed averages are known well enough at this point, and what it leaves open."""
    image = mapped(ladder.refined(level).averages(order), order, request.problem).image

    def numbers(at: int) -> Array:
        return _passed_on(ladder.refined(at).averages(order), image, order, near, request)

    found = [numbers(level + k) for k in (-2, -1, 0)]
    while (opened := slow_error(found, LEVEL_SAFETY, ladder.slack))[0] > SHARE_OF_LEVELS * request.tol:
        finer = ladder.refined(level + 1)
        affordable = request.budget.affords(AGAIN * finer.work, float(opened[0]))
        if ladder.size(level + 1) > LARGEST_SIGNED_LATTICE or not affordable:
            break
        request.budget.spend(finer, 1)
        level += 1
        found.append(numbers(level))
    return level, opened


def _near(channel: Channel, nodes: Ladder, order: Array, request: _Request) -> Linearised:
    """The map near its fixed point: what the jumps change in the Jacobian is differenced, where it weighs."""
    signed = evaluate(nodes, order, request.problem)
    if signed.averages.folded_mass < JUMPS_WEIGH:
        return linearised(nodes, signed, request.problem)
    at = evaluate(channel, order, request.problem, search=True)
    request.budget.spend(channel, PLACING + 2 * RATES)
    return derived(rate_slopes(channel, order).value, at, request.problem)._replace(evaluations=2 * RATES)


def _settled(channel: Channel, start: Array, near: Linearised, request: _Request, tol: float) -> Converged:
    """A few steps of Broyden's method; nodes are placed at the first, and minima that flip may keep it from more.

    What is found far from where minima were searched for is searched for again there.
    """
    free, matrix = to_free(start), near.newton
    best: Evaluation | None = None
    home: Array | None = None
    step: Array | None = None
    gap = np.zeros(RATES)
    for count in range(1, NEWTON_MOVES + 1):
        search, home = home is None, free if home is None else home
        now = evaluate(channel, from_free(free), request.problem, search=search)
        request.budget.spend(channel, PLACING if search else 1)
        slow = best is not None and not now.residual < FALLS * best.residual
        best = now if best is None or now.residual < best.residual else best
        if slow:
            break
        if now.residual <= tol and np.abs(free - home).max() > SEARCHED_AFRESH and count < NEWTON_MOVES:
            best = home = step = None
            continue
        if now.residual <= tol or not np.isfinite(matrix).all():
            break
        before, gap = gap, to_free(now.image) - free
        if step is not None:
            seen = matrix @ (before - gap)
            if abs(step @ seen) > LEAST_SEEN * (step @ step):
                matrix = matrix + np.outer(step - seen, step @ matrix) / (step @ seen)
        step = matrix @ gap
        free = free + step
    assert best is not None
    return Converged(best, count, best.residual <= tol)
