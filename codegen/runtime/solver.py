"""The solver: nodes refined level by level until the stated error meets the tolerance, and the Solution it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from codegen.runtime.channel import Averages, Channel, Ensemble, Ladder, ProxChannel, Response, node_dimensions
from codegen.runtime.fields import dimensions
from codegen.runtime.fixedpoint import (
    REPORTED,
    SMALLEST_SPREAD,
    Converged,
    Evaluation,
    Linearised,
    Problem,
    beside,
    evaluate,
    from_free,
    iterate,
    linearised,
    mapped,
    polish,
    reported,
    runaways,
    to_free,
)
from codegen.runtime.folds import FoldedChannel
from codegen.runtime.gaps import GapChannel
from codegen.runtime.inputs import (
    CONJUGATE_NAMES,
    ORDER_NAMES,
    check_number,
    check_physical,
    check_setting,
    check_signal,
    parameter_values,
    unknowns,
)
from codegen.runtime.kernel import Array, free_energy_gradient, free_energy_value, stability_matrix
from codegen.runtime.lengths import Setting
from codegen.runtime.mixture import mixed, mixed_ladder, parts_of
from codegen.runtime.nodes import lattice, level_count, sobol
from codegen.runtime.population import LATTICE_DIMENSIONS, _population_risk, informed_overlaps, settings_of
from codegen.runtime.proxfree import ProxFreeChannel, symmetries

LARGEST_LATTICE = 1_500_000
SCRAMBLES = 8
LOG2_SOBOL = (11, 13)
LOG2_FEW = 11
POPULATION_SHARE = 1e-3
COVERAGE = 0.9995
STABLE_REPLICON = 1.0
STABLE_JUMP = 0.05
UNCERTIFIED_JUMP = 0.01
FOLD_WEIGHT = 10.0
LEVEL_SAFETY = 1.5
WORST_MASS = 0.05
WORST_RESIDUAL = 1e-2
SETTLED = 0.1
NEGLIGIBLE_FOLD = 1e-5
FELT_FOLD = 1e-7
LARGEST_TAKEN = 2e-3
FINEST_GAPS = 4
SMOOTH_ERROR = 1e-3
FAR_MOVE = 1e-3
RESPONSE_NODES = 20_000
COARSE_DEFECT = 0.02
COARSE_SAFETY = 3.0
ROUNDING = 1e-13


class Solution(NamedTuple):
    """A solved saddle point; `error` bounds the absolute error of test_risk, `warnings` say what to distrust."""

    test_risk: float
    excess_risk: float
    train_loss: float
    energy: float
    order_parameters: dict[str, float]
    conjugates: dict[str, float]
    converged: bool
    iterations: int
    residual: float
    error: float
    rs_stable: bool
    replicon: float
    jump_weight: float
    folded_mass: float  # not a number where the method does not see it
    method: str
    bayes_risk: float | None
    warnings: tuple[str, ...]
    errors: dict[str, float]  # bounds on the order parameters, conjugates, train_loss, energy and replicon


class _State(NamedTuple):
    """A fixed point on some nodes, with the bound on its error; `seen` are the channels to look at its stability on.

    The last of them decides, and one before it tells how well.
    """

    last: Evaluation
    iterations: int
    converged: bool
    error: float
    errors: Array
    seen: Sequence[Channel]
    method: str
    refined: _Refined | None = None
    searched: bool = False  # whether global minima were searched for, and one may have been missed


class _Refined(NamedTuple):
    """What a refinement ended with: its finest nodes, the derivatives there, and what the levels left open."""

    channel: Ladder
    near: Linearised
    slopes: Array
    gap: Array


class _Task(NamedTuple):
    """What is to be solved, and how well."""

    settings: tuple[Setting, ...]
    problem: Problem
    tol: float

    @property
    def setting(self) -> Setting:
        """What all lengths share."""
        return self.settings[0]

    @property
    def dimensions(self) -> int:
        """The largest dimension of the averages."""
        return max(node_dimensions(s) for s in self.settings)


def _start(init: str, task: _Task) -> Array:
    """Order parameters to start from: the population optimum, or next to nothing known of the teacher."""
    if init == "informed":
        m_k, q_k, m_v, q_v = informed_overlaps(task.setting.nu, task.setting.params)
    else:
        m_k, q_k, m_v, q_v = 0.02, 0.3, 0.02, 0.3
    fit = task.problem.alpha / (1.0 + task.problem.alpha)
    v_k, v_v = (1.0 / (penalty + 0.3 * fit + 1e-3) for penalty in (task.problem.lambda_k, task.problem.lambda_v))
    return np.array([m_k, q_k, v_k, m_v, q_v, v_v])


def _risk_slopes(order: Array, task: _Task, steps: Array) -> Array:
    """How the test risk changes with the free coordinates, by differences of these steps."""
    free, slopes = to_free(order), np.zeros(6)
    base, _ = _risk(order, task)
    for i in (0, 1, 3, 4):
        moved = free.copy()
        moved[i] += steps[i]
        slopes[i] = (_risk(from_free(moved), task)[0] - base) / steps[i]
    return slopes


def _risk_error(reach: Array, order: Array, task: _Task, slopes: Array) -> float:
    """Effect on the test risk of moving the fixed point by `reach`, component by component, without cancellation.

    Far moves get slopes of their own.
    """
    if not reach.max() < FAR_MOVE:
        slopes = _risk_slopes(order, task, np.clip(np.nan_to_num(reach, nan=0.1), 1e-4, 0.1))
    return float(np.abs(slopes) @ reach)


def _risk(order: Array, task: _Task) -> tuple[float, float]:
    tol = max(1e-13, POPULATION_SHARE * task.tol)
    return _population_risk(order[[0, 1, 3, 4]], task.settings, tol)


def _residual_tolerance(task: _Task) -> float:
    return float(min(1e-6, max(task.tol / 30.0, 1e-14)))


def _first(channel: Channel, start: Array, task: _Task, tol: float) -> Converged:
    """The accelerated iteration, damped when it does not settle."""
    found = iterate(channel, start, task.problem, tol)
    if found.converged or runaways(found.last.order):
        return found
    damped = iterate(channel, start, task.problem, tol, damping=0.3)
    return damped._replace(iterations=found.iterations + damped.iterations)


def _levels(channel: Ladder, start: Array, task: _Task, largest_fold: float = 0.0) -> _State:
    """Refine the nodes until the fixed points of successive levels agree within the tolerance.

    Folds that are not cut are in the way of that, unless their mass is below `largest_fold`: they are seen to later.
    """
    channel.adapt(start)
    found = _first(channel, start, task, 1e-4)
    channel.adapt(found.last.order)
    rough, found = found, _first(channel, found.last.order, task, 1e-7)
    iterations = rough.iterations + found.iterations
    if not (found.converged and abs(found.last.averages.mass - 1.0) < WORST_MASS):
        return _failed(found.last, iterations, [channel], channel.name)
    near = linearised(channel, found.last, task.problem)
    slopes = _risk_slopes(found.last.order, task, np.full(6, 1e-4))
    iterations, level, seen = iterations + near.evaluations, 0, [channel]
    numbers = [_numbers(found.last, task)]
    while True:
        level += 1
        channel = channel.refined(level)
        seen = [seen[-1], channel] if channel.size(level) <= RESPONSE_NODES else seen
        found = _polished(channel, found.last.order, near, slopes, task)
        iterations += found.iterations
        numbers.append(_numbers(found.last, task))
        mass = found.last.averages.folded_mass
        folded = 0.0 if channel.cuts_folds or mass < largest_fold else FOLD_WEIGHT * mass
        gap = _level_error(numbers, channel.slack)
        errors = _errors(found.last, near, slopes, task, gap, folded)
        error = float(errors[0])
        # Where minima jump, the averages on few nodes jump too, and need not have a fixed point to all digits.
        settled = found.converged or found.last.residual <= SETTLED * gap[0]
        usable = found.last.residual < WORST_RESIDUAL and abs(found.last.averages.mass - 1.0) < WORST_MASS
        enough = level >= 2 and error <= task.tol and settled
        spent = channel.size(level + 1) > LARGEST_LATTICE
        hopeless = level >= 2 and folded > max(task.tol, 0.5 * error)
        if enough or spent or hopeless or not usable:
            method = f"{channel.name}, lattice of {channel.size(level):.0f} nodes in {task.dimensions} dimensions"
            known = bool(usable and settled and np.isfinite(error))
            refined = _Refined(channel, near, slopes, gap)
            return _State(found.last, iterations, known, error, errors[1:], seen, method, refined)


def _polished(channel: Channel, order: Array, near: Linearised, slopes: Array, task: _Task) -> Converged:
    """The fixed point by Newton's method, once more where what is left of the residual would be felt in the risk."""
    tol = _residual_tolerance(task)
    found = polish(channel, order, task.problem, near.newton, tol)
    if found.converged and _left(found.last, near, slopes, task) > SETTLED * task.tol:
        again = polish(channel, found.last.order, task.problem, near.newton, max(1e-4 * tol, 1e-14))
        found = again._replace(iterations=found.iterations + again.iterations, converged=True)
    return found


def _left(last: Evaluation, near: Linearised, slopes: Array, task: _Task) -> float:
    """What the residual leaves open of the risk."""
    return _risk_error(near.reach(to_free(last.image) - to_free(last.order)), last.order, task, slopes)


def _failed(last: Evaluation, iterations: int, seen: Sequence[Channel], method: str) -> _State:
    return _State(last, iterations, False, np.inf, np.full(len(REPORTED), np.inf), seen, method)


def _numbers(last: Evaluation, task: _Task) -> Array:
    """All numbers that get an error: the test risk, then REPORTED."""
    return np.asarray(np.r_[_risk(last.order, task)[0], reported(last, task.problem)])


def _level_error(numbers: list[Array], slack: float) -> Array:
    """What the last step changed, or `slack` of what the step before did, lest one agreement by chance be believed."""
    steps = np.abs(np.diff(numbers, axis=0))
    return np.asarray(
        LEVEL_SAFETY * (np.maximum(steps[-1], slack * steps[-2]) if len(steps) > 1 else steps[-1] + np.inf)
    )


def _errors(last: Evaluation, near: Linearised, slopes: Array, task: _Task, gap: Array, folded: float) -> Array:
    """Quadrature gap, residual, folds, mass defect, failed proxes and the population average, added up, per number."""
    reach = near.reach(to_free(last.image) - to_free(last.order))
    risk, population = _risk(last.order, task)
    moved = LEVEL_SAFETY * np.r_[_left(last, near, slopes, task), np.abs(near.slopes) @ reach]
    moved[0] += population
    defect = folded + FOLD_WEIGHT * (abs(last.averages.mass - 1.0) + last.averages.unconverged)
    sizes = np.maximum(1.0, np.abs(np.r_[risk, reported(last, task.problem)]))
    m, q, _ = last.order.reshape(2, 3).T
    floor = SMALLEST_SPREAD if (q - m * m < 2.0 * SMALLEST_SPREAD).any() else 0.0
    total = gap + moved + (defect + floor + ROUNDING) * sizes
    return np.where(np.isnan(total), np.inf, total)


def _ensemble(start: Array, task: _Task) -> _State:
    """Fixed point of the mean over scrambled Sobol sets, with a t bound from their scatter; unbiased, jumps or not."""
    few = _scrambled(LOG2_FEW, SCRAMBLES, task)
    rough = _first(few, start, task, 1e-5)
    if not rough.last.residual < WORST_RESIDUAL:
        return _failed(rough.last, rough.iterations, [few], "prox, one set of Sobol nodes")
    near = linearised(few, rough.last, task.problem)
    iterations, order = rough.iterations + near.evaluations, rough.last.order
    for log2 in LOG2_SOBOL:
        state = _on_scrambles(log2, order, near, task)
        iterations, order = iterations + state.iterations, state.last.order
        if state.error <= task.tol or not state.converged:
            break
    return state._replace(iterations=iterations)


def _scrambled(log2: int, seed: int, task: _Task) -> Channel:
    """Every length's averages on one scrambled Sobol set."""
    return mixed(task.settings, lambda s: ProxChannel(sobol(node_dimensions(s), log2, seed), s))


def _on_scrambles(log2: int, order: Array, near: Linearised, task: _Task, first: int = 0) -> _State:
    """The fixed point on scrambled Sobol sets of this size, minima searched for afresh until nothing moves.

    They are not searched for again where the first search found that there is one alone.
    """
    tol = max(_residual_tolerance(task), 1e-9)
    ensemble = Ensemble([_scrambled(log2, first + s, task) for s in range(SCRAMBLES)])
    found = polish(ensemble, order, task.problem, near.newton, tol)
    iterations = found.iterations
    for _ in range(3 if found.last.averages.jumped else 0):
        last = evaluate(ensemble, found.last.order, task.problem, search=True)
        found = found._replace(last=last)
        if last.residual <= tol:
            break
        found = polish(ensemble, last.order, task.problem, near.newton, tol)
        iterations += found.iterations + 1
    scatter = _scatter(ensemble, found.last, near, task)
    errors = _errors(found.last, near, _risk_slopes(found.last.order, task, np.full(6, 1e-4)), task, scatter, 0.0)
    method = f"prox, {SCRAMBLES} x Sobol of {2**log2} nodes in {task.dimensions} dimensions"
    settled = found.last.residual <= max(tol, SETTLED * float(scatter[0]))
    last = found.last._replace(averages=found.last.averages._replace(folded_mass=np.nan))
    return _State(last, iterations, settled, float(errors[0]), errors[1:], [ensemble], method, searched=True)


def _scatter(ensemble: Ensemble, last: Evaluation, near: Linearised, task: _Task) -> Array:
    """t bounds on all numbers from the scatter of the members, each propagated through the fixed point."""
    free = to_free(last.order)
    found = []
    for member in ensemble.members:
        here = mapped(member, last.order, task.problem)
        move = near.newton @ (to_free(here.image) - to_free(last.image))
        found.append(np.r_[_risk(from_free(free + move), task)[0], reported(here, task.problem) + near.slopes @ move])
    spread = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    return np.asarray(special.stdtrit(len(found) - 1, COVERAGE) * spread)


def _best_state(start: Array, task: _Task) -> _State:
    """Prox-free while the dimension allows and no fold matters; else with the folds cut out; else the global prox."""
    if task.dimensions > LATTICE_DIMENSIONS:
        return _ensemble(start, task)
    cuttable = all(_cuttable(s) for s in task.settings)
    smooth = _levels(mixed_ladder(task.settings, _smooth), start, task, LARGEST_TAKEN if cuttable else 0.0)
    if not any(dimensions(s)[0] for s in task.settings):
        return smooth
    mass = smooth.last.averages.folded_mass
    taken = None
    if cuttable and smooth.converged and mass < LARGEST_TAKEN:
        smooth = smooth._replace(seen=[_shifted_rows(task)] if mass > FELT_FOLD else smooth.seen)
        if smooth.error < FOLD_WEIGHT * mass and task.tol < smooth.error + FOLD_WEIGHT * mass:
            taken = _without_gaps(smooth, task)
        smooth = _with_folds(smooth, task)
    folded = FOLD_WEIGHT * mass
    good = max(task.tol, min(0.5 * (smooth.error - folded), NEGLIGIBLE_FOLD * FOLD_WEIGHT))
    if taken is not None and taken.converged and taken.error <= task.tol:
        return taken
    if smooth.converged and folded <= good and smooth.error <= max(task.tol, SMOOTH_ERROR):
        return smooth
    again = smooth.last.order if smooth.converged else start
    if cuttable:
        cut = _levels(mixed_ladder(task.settings, _cut), again, task)._replace(seen=[_shifted_rows(task)])
        if cut.converged:
            found = [s for s in (cut, smooth, taken) if s is not None and s.converged]
            return min(found, key=lambda s: s.error)
    jumping = _ensemble(again, task)
    if smooth.converged:
        averages = jumping.last.averages._replace(folded_mass=smooth.last.averages.folded_mass)
        jumping = jumping._replace(last=jumping.last._replace(averages=averages))
    return jumping if jumping.error <= smooth.error or not smooth.converged else smooth


def _with_folds(state: _State, task: _Task) -> _State:
    """The state with what its folds may do counted in the errors."""
    folded = FOLD_WEIGHT * state.last.averages.folded_mass
    sizes = np.maximum(1.0, np.abs(_numbers(state.last, task)))
    return state._replace(error=state.error + folded * sizes[0], errors=state.errors + folded * sizes[1:])


def _without_gaps(state: _State, task: _Task) -> _State | None:
    """The fixed point with what folds add taken off, on rows that get finer until the error is what is asked for."""
    if state.refined is None:
        return None
    channel, near, slopes, gap = state.refined
    order, iterations = state.last.order, state.iterations
    numbers = [_numbers(state.last, task)]
    for fineness in range(-1, FINEST_GAPS + 1):
        found = polish(_less_gaps(channel, fineness, task), order, task.problem, near.newton, _residual_tolerance(task))
        order, iterations = found.last.order, iterations + found.iterations
        numbers.append(_numbers(found.last, task))
        errors = _errors(found.last, near, slopes, task, gap + _level_error(numbers, channel.slack), 0.0)
        if errors[0] <= task.tol:
            break
    method = state.method.replace(channel.name, GapChannel.name, 1)
    return _State(found.last, iterations, found.converged, float(errors[0]), errors[1:], state.seen, method)


def _shifted_rows(task: _Task) -> Channel:
    """Rows to see the response on where folds weigh: it is singular where they begin, so that shifts tell its error."""
    return mixed(task.settings, lambda s: Ensemble([_cut(s, shift) for shift in range(SCRAMBLES)]))


def _less_gaps(channel: Ladder, fineness: int, task: _Task) -> Channel:
    """The same nodes, less the gaps on rows of some fineness."""
    parts = {s.tokens: part for s, part in zip(task.settings, parts_of(channel), strict=True)}

    def less_gaps(setting: Setting) -> Channel:
        part = parts[setting.tokens]
        return GapChannel(part, fineness) if isinstance(part, ProxFreeChannel) else part

    return mixed(task.settings, less_gaps)


def _smooth(setting: Setting) -> Ladder:
    """Prox-free where there are scores to minimise over; else the prox is the field itself."""
    return (ProxFreeChannel if dimensions(setting)[0] else ProxChannel).at_level(0, setting)


def _cuttable(setting: Setting) -> bool:
    return not dimensions(setting)[0] or FoldedChannel.applies(setting)


def _cut(setting: Setting, shift: int | None = None) -> Ladder:
    """The folds cut out, where there are scores."""
    return FoldedChannel(0, setting, shift) if dimensions(setting)[0] else _smooth(setting)


def solve(
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    *,
    init: str = "informed",
    tol: float = 1e-10,
    **parameters: float,
) -> Solution:
    """Solve the saddle-point equations; `tol` is the absolute error asked for on test_risk."""
    check_setting(alpha, nu, noise, lambda_k, lambda_v)
    check_number("tol", tol, "a finite number above 0", tol > 0)
    if init not in ("informed", "random"):
        raise ValueError(f"init: got {init!r}, allowed is 'informed' or 'random'")
    settings = settings_of(nu, noise, parameter_values(parameters))
    task = _Task(settings, Problem(float(alpha), float(lambda_k), float(lambda_v)), float(tol))
    with np.errstate(all="ignore"):  # what is not finite ends as not converged, and is said so
        state = _best_state(_start(init, task), task)
        return _solution(state, task, _lower_branch(state, init, task))


def _lower_branch(state: _State, init: str, task: _Task) -> list[str]:
    """A warning when the other start ends, on coarse nodes, at a clearly lower energy."""
    if not state.converged:
        return []
    other = "random" if init == "informed" else "informed"
    found = _other_branch(_start(other, task), state.last.order, task)
    if not found.converged or beside(found.last.order, state.last.order):
        return []
    # Minima are searched for afresh where the iteration ended, and coarse nodes move the known solution too.
    found, home = (_settled_on_coarse(p.last.order, task) for p in (found, state))
    base = (home if home.converged else state).last.order
    if not found.converged or beside(found.last.order, base):
        return []
    here, there = (_energy(mixed(task.settings, _coarse), order, task) for order in (base, found.last.order))
    fine = _free_energy(state.last.order, state.last.conjugates, task, state.last.averages.envelope)
    if not there < here - 1e-3 * (abs(here) + abs(there)) - COARSE_SAFETY * abs(here - fine):
        return []
    risk, _ = _risk(found.last.order, task)
    return [
        f"another branch, from the {other} start, has lower energy ({there:.4g} < {here:.4g}), test risk {risk:.4g}"
    ]


def _other_branch(start: Array, known: Array, task: _Task) -> Converged:
    """Where coarse nodes lead from a start; the prox decides unless nodes without it lead to the known solution."""
    if task.dimensions <= LATTICE_DIMENSIONS:
        smooth = mixed_ladder(task.settings, _smooth)
        smooth.adapt(start)
        found = iterate(smooth, start, task.problem, 1e-5, limit=100, known=known)
        defect = found.last.averages.folded_mass + abs(found.last.averages.mass - 1.0)
        if found.converged and defect < COARSE_DEFECT and beside(found.last.order, known):
            return found
    return _on_coarse(start, task, known)


def _on_coarse(start: Array, task: _Task, known: Array | None = None, tol: float = 1e-5) -> Converged:
    return iterate(mixed(task.settings, _coarse), start, task.problem, tol, limit=100, known=known)


def _settled_on_coarse(start: Array, task: _Task) -> Converged:
    """As far as the iteration goes, where it is so slow that a small residual is still far from the fixed point."""
    rough = _on_coarse(start, task)
    fine = _on_coarse(rough.last.order, task, tol=1e-9) if rough.converged else rough
    return fine if fine.converged else rough


def _coarse(setting: Setting) -> Channel:
    """The prox on few nodes."""
    dim = node_dimensions(setting)
    nodes = lattice(dim, level_count(dim, 0), 0) if dim <= LATTICE_DIMENSIONS else sobol(dim, 10, 0)
    return ProxChannel(nodes, setting)


def _energy(channel: Channel, order: Array, task: _Task) -> float:
    now = evaluate(channel, order, task.problem)
    return _free_energy(order, now.conjugates, task, now.averages.envelope)


def _free_energy(order: Array, conjugates: Array, task: _Task, envelope: float) -> float:
    alpha, lambda_k, lambda_v = task.problem
    return float(free_energy_value(order, conjugates, alpha, lambda_k, lambda_v, envelope))


def _solution(state: _State, task: _Task, notes: list[str]) -> Solution:
    """The Solution of a state, with stability and all warnings."""
    last = state.last
    risk, _ = _risk(last.order, task)
    responses = [channel.response(last.order) for channel in state.seen]
    known = float(state.errors[REPORTED.index("Vh_k")])
    replicon, jump, shift = _stability(responses[-1], last, task, known if np.isfinite(known) else 0.0)
    replicon_error = _replicon_error(responses, last, task)
    stable = bool(state.converged and replicon < STABLE_REPLICON and shift < STABLE_JUMP)
    warnings = [] if state.converged else [_not_converged(last)]
    if not state.error <= task.tol:
        warnings.append(f"error: the bound {state.error:.2g} is above the {task.tol:.2g} asked for")
    if state.searched and shift > UNCERTIFIED_JUMP:
        warnings.append(
            f"jumps: the error does not cover global minima that the search missed (jump weight {jump:.3g})"
        )
    if state.converged and not stable:
        warnings.append(f"replica symmetry: not to be trusted here (replicon {replicon:.3g}, jump weight {jump:.3g})")
    if state.converged and abs(replicon - STABLE_REPLICON) < replicon_error:
        warnings.append(
            f"replica symmetry: the replicon {replicon:.3g} +- {replicon_error:.2g} may be on either side of 1"
        )
    return Solution(
        test_risk=risk,
        excess_risk=risk - task.setting.noise**2,
        train_loss=last.averages.train_loss,
        energy=_free_energy(last.order, last.conjugates, task, last.averages.envelope),
        order_parameters=dict(zip(ORDER_NAMES, map(float, last.order), strict=True)),
        conjugates=dict(zip(CONJUGATE_NAMES, map(float, last.conjugates), strict=True)),
        converged=state.converged,
        iterations=state.iterations,
        residual=last.residual,
        error=float(state.error),
        rs_stable=stable,
        replicon=replicon,
        jump_weight=jump,
        folded_mass=last.averages.folded_mass,
        method=state.method,
        bayes_risk=None,
        warnings=tuple(warnings + notes),
        errors=dict(zip(REPORTED, map(float, state.errors), strict=True)) | {"replicon": replicon_error},
    )


def _not_converged(last: Evaluation) -> str:
    if away := runaways(last.order):
        return f"not converged: {', '.join(away)} ran away, no solution of finite size was found from this start"
    return f"not converged: the undamped residual {last.residual:.2g} stays above its tolerance"


def _stability(response: Response, last: Evaluation, task: _Task, known: float) -> tuple[float, float, float]:
    """Spectral radius of the smooth de Almeida-Thouless matrix, and what the jumps of the prox weigh.

    The jumps are weighed twice: relative to Vh_k, or to the error to which it is `known` (`jump_weight`), and, for the
    verdict, as the relative change of 1/V_k = lambda_k + Vh_k, less three standard errors where nodes are random: jumps
    in a Vh_k that is itself negligible beside the regulariser do not break anything.
    """
    radius = _radius(response.squares, last, task)
    stein, smooth = last.conjugates[2], task.problem.alpha * response.trace
    if not np.isfinite(radius):
        return np.inf, np.inf, 0.0
    gap, noise = abs(stein - smooth), task.problem.alpha * response.noise
    scale = max(abs(stein), known, 1e-4 / last.order[2])
    return radius, float(gap / scale), float((gap - 3.0 * noise) * last.order[2])


def _radius(squares: Array, last: Evaluation, task: _Task) -> float:
    matrix = stability_matrix(last.order, task.problem.alpha, squares)
    return float(np.abs(np.linalg.eigvals(matrix)).max()) if np.isfinite(matrix).all() else np.inf


def _replicon_error(responses: Sequence[Response], last: Evaluation, task: _Task) -> float:
    """What coarser nodes change, or a t bound from the scatter of random ones; the radius grows with the squares."""
    finest = responses[-1]
    quantile = float(special.stdtrit(SCRAMBLES - 1, COVERAGE))
    radius, above = (_radius(finest.squares + t * finest.scatter, last, task) for t in (0.0, quantile))
    levels = abs(_radius(responses[0].squares, last, task) - radius) if len(responses) > 1 else 0.0
    return float(np.nan_to_num(LEVEL_SAFETY * levels + above - radius, nan=np.inf))


class _Fixed:
    """The averages of a length on one fine set of nodes, at points that need not be solutions."""

    name = "fixed nodes"

    def __init__(self, setting: Setting, nodes: float) -> None:
        self.setting, self.nodes = setting, nodes

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages."""
        return _averages_at(order, self.setting, self.nodes)

    def response(self, order: Array) -> Response:
        """Not asked for."""
        raise NotImplementedError


def _averages_at(order: Array, setting: Setting, count: float) -> Averages:
    """Averages at a point that need not be a solution, on one fine set of nodes."""
    dim = node_dimensions(setting)
    if dim > LATTICE_DIMENSIONS:
        return ProxChannel(sobol(dim, int(np.log2(count)), 0), setting).averages(order)
    if dimensions(setting)[0]:
        flips = symmetries(setting)
        smooth = ProxFreeChannel(lattice(dim, count * 2.0 ** len(flips), 0, flips), setting)
        smooth.adapt(order)
        found = smooth.averages(order)
        if FOLD_WEIGHT * (found.folded_mass + abs(found.mass - 1.0)) < NEGLIGIBLE_FOLD:
            return found
    if FoldedChannel.applies(setting):
        level = max(0, round(np.log(count / 20_000.0) / np.log(3.0)))
        return FoldedChannel(min(level, 2), setting).averages(order)
    return ProxChannel(lattice(dim, min(count, 50_000.0), 0), setting).averages(order)


def _evaluated(
    points: tuple[Mapping[str, float], Mapping[str, float]],
    physics: tuple[float, float, float, float, float],
    nodes: float,
    parameters: Mapping[str, float],
) -> tuple[Array, Array, Averages]:
    """Checked order parameters and conjugates as arrays, and the averages there."""
    check_setting(*physics)
    order, conjugates = unknowns(points[0], ORDER_NAMES), unknowns(points[1], CONJUGATE_NAMES)
    check_physical(order)
    settings = settings_of(physics[1], physics[2], parameter_values(parameters))
    with np.errstate(all="ignore"):
        return order, conjugates, mixed(settings, lambda s: _Fixed(s, nodes)).averages(order)


def free_energy(
    order_parameters: Mapping[str, float],
    conjugates: Mapping[str, float],
    alpha: float,
    nu: float,
    noise: float,
    lambda_k: float,
    lambda_v: float,
    *,
    nodes: float = 200_000,
    **parameters: float,
) -> float:
    """The replica-symmetric free energy at any point, E[M] integrated numerically."""
    physics = (alpha, nu, noise, lambda_k, lambda_v)
    order, conj, averages = _evaluated((order_parameters, conjugates), physics, nodes, parameters)
    return float(free_energy_value(order, conj, alpha, lambda_k, lambda_v, averages.envelope))


def residual(
    order_parameters: Mapping[str, float],
    conjugates: Mapping[str, float],
    alpha: float,
    nu: float,
    noise: float,
    lambda_k: float,
    lambda_v: float,
    *,
    nodes: float = 200_000,
    **parameters: float,
) -> Array:
    """The gradient of the free energy in m_k q_k V_k m_v q_v V_v, then mh_k qh_k Vh_k mh_v qh_v Vh_v."""
    physics = (alpha, nu, noise, lambda_k, lambda_v)
    order, conj, averages = _evaluated((order_parameters, conjugates), physics, nodes, parameters)
    return np.asarray(free_energy_gradient(order, conj, alpha, lambda_k, lambda_v, averages.rates))


def population_risk(
    m_k: float, q_k: float, m_v: float, q_v: float, nu: float, noise: float = 0.0, **parameters: float
) -> float:
    """E (y - f)^2 of an estimator with these overlaps, cross overlaps zero."""
    check_number("q_k", q_k, "a finite number above 0", q_k > 0)
    check_signal(nu)
    return _population_risk(np.array([m_k, q_k, m_v, q_v]), settings_of(nu, noise, parameter_values(parameters)))[0]
