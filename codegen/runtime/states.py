"""Fixed points with bounds on their errors, by route: prox-free nodes, less the folds, folds cut out, global prox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.aligned import AlignedChannel
from replicode.codegen.runtime.channel import (
    PROX_WORK,
    SEARCHES,
    Afresh,
    Averages,
    Channel,
    Ensemble,
    Ladder,
    Response,
    mean_of,
    node_dimensions,
)
from replicode.codegen.runtime.fixedpoint import (
    REPORTED,
    SMALLEST_SPREAD,
    Budget,
    Converged,
    Evaluation,
    Linearised,
    evaluate,
    from_free,
    iterate,
    linearised,
    mapped,
    polish,
    reported,
    runaways,
    to_free,
    wide_slopes,
)
from replicode.codegen.runtime.kernel import VH_K, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed, parts_of
from replicode.codegen.runtime.places import OVERLAPS, RATES, by_block
from replicode.codegen.runtime.population import _population_risk
from replicode.codegen.runtime.prior import Problem, softness_at
from replicode.codegen.runtime.refinement import COVERAGE, Safety, slow_error, t_bound

LARGEST_LATTICE = 1_500_000
SCRAMBLES = 8
MANY_SCRAMBLES = 48  # of the last and largest sets: many more give a smaller t bound than fewer of their size
LOG2_FEWER = 2  # that each of them may have less, with more nodes in all
LOG2_SOBOL = (11, 13)
LOG2_FEW = 11
LOG2_MOST = 15
LOG2_RESPONSE = 13  # stability is looked at on sets up to this size
RISK_STEP = 1e-4
SCRAMBLED_FINEST = 1e-6  # nothing smaller is asked of them, nor of what goes with them
SCRAMBLED_ORDER = 0.5  # of the error of scrambled sets in all their nodes, at least
POPULATION_SHARE = 1e-3
FOLD_WEIGHT = 10.0
LEVEL_SAFETY = Safety(1.5)
WORST_MASS = 0.05
WORST_RESIDUAL = 1e-2
SETTLED = 0.1
NEGLIGIBLE_FOLD = 1e-5
FINEST_GAPS = 4
LONGEST = 120
SHORTEST = 12
NEWTON_POLISH, HELPING, MOST_IDLE, FARTHEST_STEP = 12, 0.7, 2, 3.0
ROUGH, WANDERING = 1e-3, 40  # with jumps: a residual that few nodes can reach, and steps towards it
FELT_JUMP = 0.05  # of V_k, by the jumps of the prox
WITH_JUMPS = 8  # evaluations of Newton's method with jumps
NEXT_LEVEL = 4  # evaluations that a finer level takes at least
FAR_MOVE = 1e-3
TANGENT_MOVE = 1e-2  # to which the risk follows its tangent well enough for a scatter
RESPONSE_NODES = 20_000
ROUNDING = 1e-13


UNBOUNDED = Budget()
dimensions_of: Callable[[Setting], int] = node_dimensions
scrambled: Callable[[int, int, Setting], AlignedChannel] = AlignedChannel.scrambled


class _State(NamedTuple):
    """A fixed point on some nodes, with bounds on the errors of the test risk and of REPORTED.

    `seen` are the channels to look at its stability on: the last of them decides, and one before it tells how well.
    `rows` is the last of them where folds are cut out of it and finer rows are to be had.
    """

    last: Evaluation
    iterations: int
    converged: bool
    errors: Array
    seen: Sequence[Channel]
    method: str
    refined: _Refined | None = None
    searched: bool = False  # whether global minima were searched for, and one may have been missed
    on: Sequence[Channel] = ()  # the nodes that it was found on, coarser ones first
    rows: Ladder | None = None

    @property
    def error(self) -> float:
        """That of the test risk."""
        return float(self.errors[0])


class _Refined(NamedTuple):
    """What a refinement ended with: its finest nodes, the derivatives there, and what the levels left open."""

    channel: Ladder
    near: Linearised
    slopes: Array
    gap: Array


class _Request(NamedTuple):
    """What is to be solved, how well, and with how much work."""

    settings: tuple[Setting, ...]
    problem: Problem
    tol: float
    budget: Budget = UNBOUNDED
    warm: bool = False  # whether the start is next to the solution
    known: float = np.inf  # the error of what another route has found

    @property
    def setting(self) -> Setting:
        """What all lengths share."""
        return self.settings[0]

    @property
    def dimensions(self) -> int:
        """The largest dimension of the averages."""
        return max(dimensions_of(s) for s in self.settings)


def _risk_slopes(order: Array, request: _Request, steps: Array) -> Array:
    """How the test risk changes with the free coordinates, by differences of these steps."""
    free, slopes = to_free(order), np.zeros(RATES)
    base, _ = _risk(order, request)
    for i in OVERLAPS:
        moved = free.copy()
        moved[i] += steps[i]
        slopes[i] = (_risk(from_free(moved), request)[0] - base) / steps[i]
    return slopes


def _risk_error(reach: Array, order: Array, request: _Request, slopes: Array) -> float:
    """Effect on the test risk of moving the fixed point by `reach`, component by component, without cancellation.

    Far moves get slopes of their own.
    """
    if not reach.max() < FAR_MOVE:
        slopes = _risk_slopes(order, request, np.clip(np.nan_to_num(reach, nan=0.1), 1e-4, 0.1))
    return float(np.abs(slopes) @ reach)


def _risk(order: Array, request: _Request) -> tuple[float, float]:
    return risk_at(order, request.settings, max(1e-13, POPULATION_SHARE * request.tol))


def overlap_risk(order: Array, settings: Sequence[Setting], tol: float) -> tuple[float, float]:
    """The test risk at these order parameters, and a bound on the error of its average over the scores."""
    return _population_risk(order[OVERLAPS], settings, tol)


risk_at: Callable[[Array, Sequence[Setting], float], tuple[float, float]] = overlap_risk


def _residual_tolerance(request: _Request) -> float:
    return float(min(1e-6, max(request.tol / 30.0, 1e-14)))


def _first(channel: Channel, start: Array, request: _Request, tol: float) -> Converged:
    """The accelerated iteration, damped when it does not settle."""
    found = _iterated(channel, start, request, tol)
    if found.converged or runaways(found.last.order):
        return found
    damped = _iterated(channel, start, request, tol, damping=0.3)
    return damped._replace(iterations=found.iterations + damped.iterations)


def _iterated(
    channel: Channel, start: Array, request: _Request, tol: float, limit: int = LONGEST, **options: Any
) -> Converged:
    """The accelerated iteration, within the budget."""
    limit = request.budget.evaluations(channel, limit)
    found = iterate(channel, start, request.problem, tol, limit, **options)
    request.budget.spend(channel, found.iterations)
    return found


def _by_newton(channel: Channel, start: Array, near: Linearised, request: _Request, tol: float) -> Converged:
    """Newton's method, within the budget."""
    more = request.budget.evaluations(channel, LONGEST)
    found = polish(channel, start, request.problem, near.newton, tol, limit=min(SHORTEST, more), more=more)
    request.budget.spend(channel, found.iterations)
    return found


def _levels(channel: Ladder, start: Array, request: _Request, largest_fold: float = 0.0) -> _State:
    """Refine the nodes until the fixed points of successive levels agree within the tolerance.

    Folds that are not cut are in the way of that, unless their mass is below `largest_fold`: they are seen to later.
    """
    found, near = _begun(channel, start, request)
    iterations = found.iterations
    if not (found.converged and abs(found.last.averages.mass - 1.0) < WORST_MASS):
        return _failed(found.last, iterations, [channel], channel.name)
    near = near or linearised(channel, found.last, request.problem)
    slopes = _risk_slopes(found.last.order, request, np.full(RATES, RISK_STEP))
    iterations, level, seen = iterations + near.evaluations, 0, [channel]
    numbers = [_numbers(found.last, request)]
    while True:
        level, before = level + 1, channel
        channel = channel.refined(level)
        seen = [seen[-1], channel] if channel.size(level) <= RESPONSE_NODES else seen
        found = _polished(channel, found.last.order, near, slopes, request)
        iterations += found.iterations
        numbers.append(_numbers(found.last, request))
        mass = found.last.averages.folded_mass
        folded = 0.0 if channel.cuts_folds or mass < largest_fold else FOLD_WEIGHT * mass
        gap = slow_error(numbers, LEVEL_SAFETY, channel.slack)
        errors = _errors(found.last, near, slopes, request, gap, folded)
        error = float(errors[0])
        # Where minima jump, the averages on few nodes jump too, and need not have a fixed point to all digits.
        settled = found.converged or found.last.residual <= SETTLED * gap[0]
        usable = found.last.residual < WORST_RESIDUAL and abs(found.last.averages.mass - 1.0) < WORST_MASS
        enough = level >= 2 and error <= request.tol and settled
        finer = channel.size(level + 1)
        spent = finer > LARGEST_LATTICE or not request.budget.affords(
            NEXT_LEVEL * channel.work * finer / channel.size(level), error
        )
        hopeless = level >= 2 and folded > max(request.tol, 0.5 * error)
        if enough or spent or hopeless or not usable:
            method = f"{channel.name}, lattice of {channel.size(level):.0f} nodes in {request.dimensions} dimensions"
            known = bool(usable and settled and np.isfinite(error))
            refined = _Refined(channel, near, slopes, gap)
            return _State(found.last, iterations, known, errors, seen, method, refined, on=(before, channel))


def _begun(channel: Ladder, start: Array, request: _Request) -> tuple[Converged, Linearised | None]:
    """The fixed point on the first nodes; by Newton's method at once from a start that is next to it."""
    channel.adapt(start)
    if request.warm:
        near = linearised(channel, evaluate(channel, start, request.problem), request.problem)
        found = _by_newton(channel, start, near, request, 1e-7)
        if found.converged:
            return found, near
    rough = _first(channel, start, request, 1e-4)
    channel.adapt(rough.last.order)
    found = _first(channel, rough.last.order, request, 1e-7)
    return found._replace(iterations=rough.iterations + found.iterations), None


def _polished(channel: Channel, order: Array, near: Linearised, slopes: Array, request: _Request) -> Converged:
    """The fixed point by Newton's method, once more where what is left of the residual would change the risk."""
    tol = _residual_tolerance(request)
    found = _by_newton(channel, order, near, request, tol)
    if found.converged and _left(found.last, near, slopes, request) > SETTLED * request.tol:
        again = _by_newton(channel, found.last.order, near, request, max(1e-4 * tol, 1e-14))
        best = min(found, again, key=lambda c: c.last.residual)
        found = best._replace(iterations=found.iterations + again.iterations, converged=True)
    return found


def _left(last: Evaluation, near: Linearised, slopes: Array, request: _Request) -> float:
    """What the residual leaves open of the risk."""
    return _risk_error(near.reach(to_free(last.image) - to_free(last.order)), last.order, request, slopes)


def _failed(last: Evaluation, iterations: int, seen: Sequence[Channel], method: str) -> _State:
    return _State(last, iterations, False, np.full(1 + len(REPORTED), np.inf), seen, method)


def _numbers(last: Evaluation, request: _Request) -> Array:
    """All numbers that get an error: the test risk, then REPORTED."""
    return np.asarray(np.r_[_risk(last.order, request)[0], reported(last, request.problem)])


def _errors(last: Evaluation, near: Linearised, slopes: Array, request: _Request, gap: Array, folded: float) -> Array:
    """Quadrature gap, residual, folds, mass defect, failed proxes and the population average, added up, per number."""
    reach = near.reach(to_free(last.image) - to_free(last.order))
    risk, population = _risk(last.order, request)
    moved = LEVEL_SAFETY.steps * np.r_[_left(last, near, slopes, request), np.abs(near.slopes) @ reach]
    moved[0] += population
    defect = folded + FOLD_WEIGHT * (abs(last.averages.mass - 1.0) + last.averages.unconverged)
    sizes = np.maximum(1.0, np.abs(np.r_[risk, reported(last, request.problem)]))
    m, q, _ = by_block(last.order)
    floor = SMALLEST_SPREAD if (q - m * m < 2.0 * SMALLEST_SPREAD).any() else 0.0
    total = gap + moved + (defect + floor + ROUNDING) * sizes
    return np.where(np.isnan(total), np.inf, total)


def _ensemble(start: Array, request: _Request) -> _State:
    """Fixed point of the mean over scrambled Sobol sets, with a t bound from their scatter; unbiased, jumps or not.

    Where an error was asked for, sets of the size that it needs follow, as far as there is work left.
    """
    request = request._replace(tol=max(request.tol, SCRAMBLED_FINEST))
    few = _scrambled(LOG2_FEW, SCRAMBLES, request)
    rough = _rough(start, request, few)
    if not rough.last.residual < WORST_RESIDUAL:
        return _failed(rough.last, rough.iterations, [few], "prox, one set of Sobol nodes")
    near = linearised(few, rough.last, request.problem)
    # what is worth searching is seen from fields alone, where the iteration ended: minima that are known flip no more
    afresh = _scrambled(LOG2_FEW, SCRAMBLES, request)
    evaluate(afresh, rough.last.order, request.problem, search=True)
    request.budget.spend(afresh, SEARCHES)
    searched = max(part.worth_searching() for _, part in parts_of(afresh) if isinstance(part, AlignedChannel))
    iterations, order = rough.iterations + near.evaluations, rough.last.order
    sizes, seen, sets = list(LOG2_SOBOL), list[Channel](), SCRAMBLES
    while sizes:
        log2 = sizes.pop(0)
        state = _on_scrambles(log2, order, near, request, searched=searched, sets=sets)
        if _cannot_compete(state.error, sets * 2.0**log2, request):
            break
        if sets == SCRAMBLES and not near.jumps and _jumps_are_felt(state, request):
            found, near = _with_jumps(
                _scrambled_sets(log2, 0, searched, sets, request, True), state.last.order, request
            )
            iterations, order = iterations + state.iterations + found.iterations + near.evaluations, found.last.order
            state = _on_scrambles(log2, order, near, request, searched=searched, sets=sets)
        seen = list(state.seen) if log2 <= LOG2_RESPONSE else seen
        iterations, order = iterations + state.iterations, state.last.order
        if state.error <= request.tol or not (state.converged or (near.jumps and np.isfinite(state.error))):
            break
        if not sizes and not request.budget.good:
            sizes, sets = _sizes_left(log2, sets, state.error, searched, request, near.jumps), MANY_SCRAMBLES
        work = _ensemble_work(sizes[0], request, searched, sets, near.jumps) if sizes else 0.0
        if not request.budget.affords(work, state.error):
            break
    return state._replace(iterations=iterations, seen=seen or state.seen)


def _cannot_compete(error: float, nodes: float, request: _Request) -> bool:
    """Whether the largest sets, as their error falls with their nodes, would not come below what is known."""
    sets, log2 = (SCRAMBLES, LOG2_SOBOL[-1]) if request.budget.good else (MANY_SCRAMBLES, LOG2_MOST)
    return bool(error * (nodes / (sets * 2.0**log2)) ** SCRAMBLED_ORDER > request.known)


def _jumps_are_felt(state: _State, request: _Request) -> bool:
    """Whether V_k owes the jumps of the prox more than a little."""
    gap, noise = jump_gap(state.on[0].response(state.last.order), state.last, request.problem)
    return bool(abs(gap) - noise > FELT_JUMP / softness_at(state.last.order, state.last.conjugates, request.problem))


def _with_jumps(sets: Ensemble, start: Array, request: _Request) -> tuple[Converged, Linearised]:
    """Where the map leads when every minimum is a global one, and its slopes there.

    Slopes along minima that are followed pass on too little: steps fall short, and so do the errors that they tell.
    """
    found = _iterated(sets, start, request, ROUGH, WANDERING)
    near = wide_slopes(sets, found.last, request.problem)
    request.budget.spend(sets, near.evaluations)
    return found, near


def jump_gap(response: Response, last: Evaluation, problem: Problem) -> tuple[float, float]:
    """What the jumps of the prox add to Vh_k, and the standard error of what its smooth part adds."""
    return float(last.conjugates[VH_K] - problem.alpha * response.trace), float(problem.alpha * response.noise)


def _rough(start: Array, request: _Request, few: Channel | None = None) -> Converged:
    """The fixed point with a global prox on few nodes."""
    return _first(few or _scrambled(LOG2_FEW, SCRAMBLES, request), start, request, 1e-5)


def _sizes_left(log2: int, sets: int, error: float, searched: float, request: _Request, jumps: bool) -> list[int]:
    """The size of many sets that promises the error asked for, or the largest that there is work for.

    The scatter of few sets is itself uncertain: so much less is aimed at.
    """
    smaller = error * float(np.divide(*(special.stdtrit(n - 1, COVERAGE) for n in (MANY_SCRAMBLES, sets))))
    aimed = request.tol * (1.0 - 1.0 / np.sqrt(2.0 * (sets - 1)))
    nodes = sets * 2.0**log2 * max(smaller / aimed, 1.0) ** (1.0 / SCRAMBLED_ORDER)
    least = log2 + 1 if sets == MANY_SCRAMBLES else log2 - LOG2_FEWER
    wanted = max(int(np.ceil(np.log2(nodes / MANY_SCRAMBLES))), least)
    affordable = [
        size
        for size in range(least, min(wanted, LOG2_MOST) + 1)
        if request.budget.affords(_ensemble_work(size, request, searched, MANY_SCRAMBLES, jumps), error)
    ]
    return affordable[-1:]


def _ensemble_work(
    log2: int, request: _Request, searched: float = 1.0, sets: int = SCRAMBLES, jumps: bool = False
) -> float:
    """What a solution on sets of this size takes at least; with `jumps`, minima are searched for at every step."""
    evaluations = WITH_JUMPS * (1.0 + SEARCHES * searched) if jumps else NEXT_LEVEL + SEARCHES * searched
    return sum(PROX_WORK * s.tokens * sets * 2.0**log2 * evaluations for s in request.settings)


def _scrambled(log2: int, seed: int, request: _Request, searched: float = 1.0) -> Channel:
    """Every length's averages on one scrambled Sobol set, of which a share is searched for minima."""

    def made(setting: Setting) -> Channel:
        channel = scrambled(log2, seed, setting)
        channel.searched = searched
        return channel

    return mixed(request.settings, made)


def _scrambled_sets(log2: int, first: int, searched: float, sets: int, request: _Request, jumps: bool) -> Ensemble:
    """Several such sets, each scrambled on its own; with `jumps`, minima are searched for at every evaluation."""
    channels = [_scrambled(log2, first + s, request, searched) for s in range(sets)]
    return Afresh(channels, searched) if jumps else Ensemble(channels)


def _on_scrambles(
    log2: int,
    order: Array,
    near: Linearised,
    request: _Request,
    first: int = 0,
    searched: float = 1.0,
    sets: int = SCRAMBLES,
) -> _State:
    """The fixed point on scrambled Sobol sets of this size, minima searched for afresh until nothing moves.

    They are not searched for again where the first search found that there is one alone; of many sets first on some,
    and on all only where that changes anything.
    """
    tol = max(_residual_tolerance(request), 1e-9)
    ensemble = _scrambled_sets(log2, first, searched, sets, request, near.jumps)
    if near.jumps:
        found = _newton_with_jumps(ensemble, evaluate(ensemble, order, request.problem), near, request, tol)
    else:
        found = _by_newton(ensemble, order, near, request, tol)
    iterations = found.iterations
    jumped, left = found.last.averages.jumped > 0.0 and not near.jumps, np.zeros(1 + len(REPORTED))
    if jumped and sets > SCRAMBLES:
        left = _left_to_flip(ensemble, found.last, near, request)
        jumped = bool(left[0] > SETTLED * request.tol)
    for _ in range(3 if jumped else 0):
        request.budget.spend(ensemble, SEARCHES)
        before, order = found.last, found.last.order
        last, left = evaluate(ensemble, order, request.problem, search=True), np.zeros_like(left)
        found = found._replace(last=last)
        if last.residual <= tol or not request.budget.affords(NEXT_LEVEL * ensemble.work, np.inf):
            break
        # what flips now may flip again where Newton's method ends, and is counted unless a later search finds it still
        left = np.abs(np.subtract(*(_passed_on(e.averages, last.image, order, near, request) for e in (before, last))))
        found = _by_newton(ensemble, last.order, near, request, tol)
        iterations += found.iterations + 1
    slopes = _risk_slopes(found.last.order, request, np.full(RATES, RISK_STEP))
    scatter = _scatter(ensemble, found.last, near, request, slopes) + left
    errors = _errors(found.last, near, slopes, request, scatter, 0.0)
    few = [part for _, part in parts_of(ensemble.channels[0]) if isinstance(part, AlignedChannel)]
    dim = max(part.dimensions for part in few)
    method = f"prox, {sets} x Sobol of {2**log2} nodes in {dim} dimensions"
    settled = found.last.residual <= max(tol, SETTLED * float(scatter[0]))
    if near.jumps:  # a map that is rough leaves a residual, which the errors count
        settled = near.attracts and found.last.residual < WORST_RESIDUAL
    last = found.last._replace(averages=found.last.averages._replace(folded_mass=np.nan))
    return _State(last, iterations, settled, errors, [ensemble], method, searched=True, on=[ensemble])


def _newton_with_jumps(channel: Channel, now: Evaluation, near: Linearised, request: _Request, tol: float) -> Converged:
    """Newton steps while they help, with slopes that each step corrects: samples that jump leave the map rough."""
    best, newton, idle, count = now, near.newton, 0, 0
    free = to_free(now.order)
    gap = to_free(now.image) - free
    while best.residual > tol and idle < MOST_IDLE and count < request.budget.evaluations(channel, NEWTON_POLISH):
        step = newton @ gap
        if not np.abs(step).max() < FARTHEST_STEP:
            break
        now = evaluate(channel, from_free(free + step), request.problem)
        idle = 0 if now.residual <= HELPING * best.residual else idle + 1
        best, count = min(best, now, key=lambda e: e.residual), count + 1
        fell, free = gap, to_free(now.order)
        gap = to_free(now.image) - free
        foreseen = newton @ (fell - gap)
        newton = newton + np.outer(step - foreseen, step @ newton) / (step @ foreseen)
    request.budget.spend(channel, count + 1)
    return Converged(evaluate(channel, best.order, request.problem, search=True), count + 1, best.residual <= tol)


def _left_to_flip(ensemble: Ensemble, last: Evaluation, near: Linearised, request: _Request) -> Array:
    """What minima that are searched for afresh, on some of the sets, change in all numbers."""
    before, some = mean_of(ensemble.members[:SCRAMBLES]), Ensemble(ensemble.channels[:SCRAMBLES])
    request.budget.spend(some, SEARCHES)
    found = (before, some.averages(last.order, search=True))
    return np.abs(np.subtract(*(_passed_on(a, last.image, last.order, near, request) for a in found)))


def _scatter(
    ensemble: Ensemble, last: Evaluation, near: Linearised, request: _Request, slopes: Array | None = None
) -> Array:
    """t bounds on all numbers from the scatter of the members, each propagated through the fixed point."""
    tangent = None if slopes is None else (_risk(last.order, request)[0], slopes)
    return t_bound([_passed_on(m, last.image, last.order, near, request, tangent) for m in ensemble.members])


def _passed_on(
    averages: Averages,
    image: Array,
    order: Array,
    near: Linearised,
    request: _Request,
    tangent: tuple[float, Array] | None = None,
) -> Array:
    """All numbers at the fixed point of other averages at the same order parameters, which these map to `image`.

    Next to it the risk follows its tangent, a value and slopes, where that is given.
    """
    here = mapped(averages, order, request.problem)
    move = near.newton @ (to_free(here.image) - to_free(image))
    if tangent is not None and np.abs(move).max() < TANGENT_MOVE:
        risk = tangent[0] + float(tangent[1] @ move)
    else:
        risk, _ = _risk(from_free(to_free(order) + move), request)
    return np.asarray(np.r_[risk, reported(here, request.problem) + near.slopes @ move])
