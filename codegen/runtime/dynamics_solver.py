"""A trajectory of the training dynamics with its error, what happens on the way, and what to distrust of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.dynamics_averages import Averages, World, averages_at, best_value
from replicode.codegen.runtime.dynamics_flow import (
    Descent,
    Motion,
    Path,
    integrated,
    many_dimensions,
    tolerances,
)
from replicode.codegen.runtime.dynamics_kernel import (
    FACTORISED,
    INTEGRAND_DEGREE,
    OVERLAP_NAMES,
    POLYNOMIAL,
    SEQUENCES,
    SMOOTH,
)
from replicode.codegen.runtime.dynamics_nodes import MOST_LATTICE, dimensions
from replicode.codegen.runtime.inputs import (
    LEAST,
    MOST,
    MOST_NOISE,
    ArgumentError,
    asked_error,
    check_number,
    check_signal,
    named,
    parameter_values,
)
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.refinement import Safety, climbed, level_error, rested
from replicode.codegen.runtime.wording import too_large

SMALL_START = 0.01
RUNS_SAFETY = Safety(2.0, rounding=1e-12)
DESCENT = ("rate", "rate_v", "lambda_k", "lambda_v", "batch", "flow", "spherical")
MOST_LEVEL = {0: 0, 1: 9, 2: 9, 3: 8, 4: 6, 5: 4, 6: 4}
KINKED_LEVEL, GAINED_LEVEL, FACTORED_LEVEL = 4, 5, 4
AT_REST = 1e-6
PILOT = 5
FAR_OUT = 100.0  # where a trajectory diverges, digits are not worth their nodes


class Trajectory(NamedTuple):
    """Overlaps and test risk at evenly spaced times; `error` bounds the error of test_risk at all of them.

    `errors` bounds those of the overlaps. `escape` is when the loss is half-way from its plateau, the best loss of a k
    that knows nothing, to the end of the trajectory; `convergence` when all rates are small for good; either may be
    None. `plateau_risk` is the test risk at the plateau. `rates` are those at the end. `test_loss` is the average loss
    of a fresh sequence; of a square loss on Gaussian labels, half its risk, it is None.
    """

    time: tuple[float, ...]
    test_risk: tuple[float, ...]
    order_parameters: dict[str, tuple[float, ...]]
    plateau_risk: float
    escape: float | None
    convergence: float | None
    diverged: bool
    rates: dict[str, float]
    error: float
    errors: dict[str, float]
    warnings: tuple[str, ...]
    test_loss: tuple[float, ...] | None = None


def start_of(start: Mapping[str, float] | None) -> Array:
    """The overlaps to begin with: those that are not given are 0, norms 0.01 or what their m needs."""
    given = dict(start or {})
    if unknown := sorted(set(given) - set(OVERLAP_NAMES)):
        raise ArgumentError("start", ", ".join(unknown), f"only {', '.join(OVERLAP_NAMES)}")
    for name, value in given.items():
        check_number(f"start {name}", value, f"a number from {-MOST:g} to {MOST:g}", abs(value) <= MOST)
    for block in "kv":
        given.setdefault(f"q_{block}", max(SMALL_START, given.get(f"m_{block}", 0.0) ** 2))
    overlaps = np.array([float(given.get(name, 0.0)) for name in OVERLAP_NAMES])
    if least_norm(overlaps) < -1e-10 * max(1.0, float(np.abs(overlaps).max())):
        shown = ", ".join(f"{n}={v:g}" for n, v in zip(OVERLAP_NAMES, overlaps))
        raise ArgumentError("start", shown, "overlaps of two vectors with each other and with orthonormal teachers")
    return overlaps


def least_norm(overlaps: Array) -> float:
    """The least eigenvalue of the products of both students, less what lies along the teachers."""
    m_k, q_k, m_v, q_v, kv_star, vk_star, kv = overlaps
    along = np.array([[m_k, kv_star], [vk_star, m_v]])
    rest = np.array([[q_k, kv], [kv, q_v]]) - along @ along.T
    return float(np.linalg.eigvalsh(rest)[0])


def descent_of(
    rate: float,
    rate_v: float | None = None,
    lambda_k: float = 0.0,
    lambda_v: float = 0.0,
    batch: float = 1.0,
    flow: bool = False,
    spherical: bool = False,
) -> Descent:
    """The arguments of a descent, checked; without a rate of its own v has that of k, and 0 keeps it fixed."""
    check_number("rate", rate, f"a number from {LEAST:g} to {MOST:g}", LEAST <= rate <= MOST)
    of_v = rate if rate_v is None else rate_v
    check_number("rate_v", of_v, f"0, which keeps v fixed, or a number up to {MOST:g}", 0 <= of_v <= MOST)
    for name, value in (("lambda_k", lambda_k), ("lambda_v", lambda_v)):
        check_number(name, value, f"a number from 0 to {MOST:g}", 0 <= value <= MOST)
    check_number("batch", batch, f"a number of sequences from 1 to {MOST:g}", 1 <= batch <= MOST)
    return Descent(float(rate), float(of_v), lambda_k, lambda_v, batch, bool(flow), bool(spherical))


def world_of(nu: float, noise: float, parameters: Mapping[str, float]) -> World:
    """Signal, noise and parameters, checked."""
    check_signal(nu)
    heard = noise == 0 or LEAST <= noise <= MOST_NOISE
    check_number("noise", noise, f"0, or a number from {LEAST:g} to {MOST_NOISE:g}", heard)
    return World(float(nu), float(noise), parameter_values(parameters))


def solve(
    nu: float,
    noise: float = 0.0,
    *,
    rate: float,
    time: float,
    start: Mapping[str, float] | None = None,
    rate_v: float | None = None,
    lambda_k: float = 0.0,
    lambda_v: float = 0.0,
    batch: float = 1.0,
    flow: bool = False,
    spherical: bool = False,
    points: int = 101,
    tol: float | None = None,
    **parameters: float,
) -> Trajectory:
    """The overlaps from a start to a time = steps/D, under SGD or, with `flow`, in the limit of small steps.

    Of the flow rates are the speeds of k and v, and the step size is no part of it. `tol` is the error asked for on
    the test risk. Nodes are doubled until two runs, the second with a finer integrator, agree to it.
    """
    descent = descent_of(rate, rate_v, lambda_k, lambda_v, batch, flow, spherical)
    world, begin = world_of(nu, noise, parameters), start_of(start)
    check_number("time", time, f"a number from {LEAST:g} to {MOST:g}", LEAST <= time <= MOST)
    check_number("points", points, "a whole number from 2 to 100000", 2 <= points <= 100000 and points == int(points))
    aim, worst = asked_error(tol)
    check_number("tol", aim, "a number from 1e-10 to 1", 1e-10 <= aim <= 1)
    times = np.linspace(0.0, float(time), int(points))
    return _told(*_converged(descent, world, begin, times, aim), world, worst, times)


class _Run(NamedTuple):
    motion: Motion
    path: Path
    risks: Array
    losses: Array


def _run(motion: Motion, begin: Array, times: Array, tolerance: float) -> _Run:
    path = integrated(motion, begin, times, tolerance)
    found = [averages_at(o, motion.world, motion.level) for o in path.overlaps.T]
    return _Run(motion, path, np.array([f.risk for f in found]), np.array([f.loss for f in found]))


def _converged(descent: Descent, world: World, begin: Array, times: Array, aim: float) -> tuple[_Run, Array]:
    """The finer of two runs that agree, and by how much they differ in the risk and the overlaps."""
    rough = integrated(Motion(descent, world, 0), begin, times, 1e-4)
    coarse, fine = tolerances(world.nu, rough.diverged)
    enough = 1.0 if rough.diverged or many_dimensions(world.nu) else 0.5 * fine
    first, most = _first_level(descent, world, rough, times, aim), most_level(world.nu)

    def runs() -> Iterator[_Run]:
        yield _run(Motion(descent, world, first), begin, times, coarse)
        level, tolerance = first + 1, fine
        while True:
            yield _run(Motion(descent, world, level), begin, times, tolerance)
            if (rough.diverged or level > most) and tolerance < enough:
                return
            level, tolerance = level + (level <= most), max(0.1 * tolerance, 1e-12)

    found = climbed(runs(), lambda found: rested([numbers[0] for numbers in _together(found)], 0.5 * aim))
    return found[-1], level_error(_together(found), RUNS_SAFETY).max(axis=1)


def _together(found: Sequence[_Run]) -> list[Array]:
    """The risk and the overlaps of the last two runs, as long as both go on."""
    shared = min(run.path.times.size for run in found[-2:])
    return [np.vstack([run.risks, run.path.overlaps])[:, :shared] for run in found[-2:]]


def most_level(nu: float) -> int:
    """The most doublings of nodes that are affordable: none where nodes are exact, few where kinks slow them down."""
    if FACTORISED:
        return FACTORED_LEVEL
    if INTEGRAND_DEGREE and all(kernel.tokens <= MOST_LATTICE + 1 for kernel in SEQUENCES):
        return 0
    most = KINKED_LEVEL if not SMOOTH else GAINED_LEVEL if not POLYNOMIAL else MOST_LEVEL[1]
    return min(most, *_most_levels(nu))


def _most_levels(nu: float) -> list[int]:
    return [MOST_LEVEL.get(dimensions(kernel.tokens, nu), 0) for kernel in SEQUENCES]


def _first_level(descent: Descent, world: World, rough: Path, times: Array, aim: float) -> int:
    """The least level at which the rates on a rough trajectory no longer move by what would be seen."""
    near = rough.overlaps[:, np.abs(rough.overlaps).max(axis=0) < FAR_OUT]
    chosen = near[:, :: max(1, near.shape[1] // PILOT)].T
    level, most = 0, most_level(world.nu)
    # The averages scale with the overlaps; what matters is the change of the path over its whole length.
    scale = float(times[-1]) * max(descent.eta_k, descent.eta_v)
    for overlaps in chosen:
        while level < most:
            one, two = (Motion(descent, world, lv).rates(overlaps, s) for lv, s in ((level, 1), (level + 1, 2)))
            if np.abs(one - two).max() * min(scale, 10.0) <= aim * (1.0 + np.abs(one).max()):
                break
            level += 1
    return level


def _told(run: _Run, errors: Array, world: World, worst: float, times: Array) -> Trajectory:
    error, path, final = float(errors[0]), run.path, run.path.overlaps[:, -1]
    rates = run.motion.rates(final)
    plateau = at_plateau(world)
    doubts = []
    if not SMOOTH and not FACTORISED:
        doubts.append("kinks: the nodes do not follow those of this activation, and the error may be too small")
    if path.diverged or not path.finished:
        doubts.append(f"the overlaps diverge: the trajectory ends at time {path.times[-1]:.6g} of {times[-1]:.6g}")
    doubts += too_large(error, worst)
    return Trajectory(
        time=tuple(path.times.tolist()),
        test_risk=tuple(run.risks.tolist()),
        order_parameters={n: tuple(o) for n, o in zip(OVERLAP_NAMES, path.overlaps.tolist(), strict=True)},
        plateau_risk=plateau.risk,
        escape=_escape(path.times, run.losses, plateau.loss),
        convergence=_convergence(run),
        diverged=path.diverged,
        rates=named(OVERLAP_NAMES, rates),
        error=error,
        errors=named(OVERLAP_NAMES, errors[1:]),
        warnings=tuple(doubts),
        test_loss=None if POLYNOMIAL else tuple(run.losses.tolist()),
    )


def at_plateau(world: World) -> Averages:
    """The averages of the best v where k is zero: every token then has the same attention."""
    best = best_value(0.0, 0.0, world)
    return averages_at(np.r_[0.0, 0.0, best, best * best, np.zeros(3)], world, 0)


def _escape(times: Array, losses: Array, plateau: float) -> float | None:
    """When the loss comes half-way from the plateau to its end, between the two times around it."""
    if not (len(losses) and losses[-1] < plateau):
        return None
    half = 0.5 * (plateau + losses[-1])
    last = np.flatnonzero(losses > half)
    if not last.size:
        return 0.0
    i = int(last[-1])
    share = (losses[i] - half) / (losses[i] - losses[i + 1])
    return float(times[i] + share * (times[i + 1] - times[i]))


def _convergence(run: _Run) -> float | None:
    """From when on no rate is above AT_REST of the descent's speed."""
    d = run.motion.descent
    speed = AT_REST * max(d.eta_k, d.eta_v)
    if run.path.diverged:
        return None
    began = None
    for time, overlaps in zip(run.path.times[::-1], run.path.overlaps.T[::-1]):
        if np.abs(run.motion.rates(overlaps)).max() > speed:
            break
        began = float(time)
    return began


def motion_of(nu: float, noise: float, level: int, options: Mapping[str, Any]) -> Motion:
    """The motion of the options of `solve` that say how a student moves, with a rate of 1 where there is none."""
    how = {name: value for name, value in options.items() if name in DESCENT}
    own = {name: value for name, value in options.items() if name not in DESCENT}
    return Motion(descent_of(**{"rate": 1.0, **how}), world_of(nu, noise, own), min(level, most_level(nu)))
