"""Fixed points of the training dynamics and their stability, the way off the plateau, and the largest step size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.driver import driven
from replicode.codegen.runtime.dynamics_averages import SCORE_M, SCORE_Q, World, best_value
from replicode.codegen.runtime.dynamics_flow import CROSS, Descent, Motion, integrated
from replicode.codegen.runtime.dynamics_kernel import OVERLAP_NAMES
from replicode.codegen.runtime.dynamics_solver import least_norm, most_level, motion_of, start_of, world_of
from replicode.codegen.runtime.inputs import ArgumentError, named
from replicode.codegen.runtime.kernel import Array

POINT_LEVEL = 2
NEWTON_STEPS = 40
SHARES = 0.5 ** np.arange(12)
AT_POINT = 1e-9
SAME_POINT = 1e-4
SCORE_STARTS = ((0.0, 0.01), (0.5, 0.5), (-0.5, 0.5), (1.5, 2.5))
LONG = 60.0
FAR = 100.0  # rates that are small out there belong to a k that runs away


class FixedPoint(NamedTuple):
    """A point where all rates vanish, with the eigenvalues of their Jacobian there, largest real part first.

    `transverse` are those of the cross overlaps, which leave the manifold: it attracts near the point where all of
    their real parts are negative.
    """

    order_parameters: dict[str, float]
    test_risk: float
    stable: bool
    manifold_attracts: bool
    eigenvalues: tuple[float, ...]
    frequencies: tuple[float, ...]
    transverse: tuple[float, ...]
    residual: float


def fixed_points(
    nu: float, noise: float = 0.0, *, starts: Sequence[dict[str, float]] = (), **options: Any
) -> tuple[FixedPoint, ...]:
    """The fixed points that Newton steps find from the ends of a few trajectories and from their starts.

    Options are those of `solve`.
    """
    motion = motion_of(nu, noise, POINT_LEVEL, options)
    if motion.descent.spherical:
        raise ArgumentError("spherical", True, "False, as norms that are kept have no fixed points of their own")
    return points_of(motion, [start_of(s) for s in starts])


def points_of(motion: Motion, starts: Sequence[Array]) -> tuple[FixedPoint, ...]:
    """The same of a motion, least risk first."""
    found: list[Array] = []
    for begin in [*starts, *_begins(motion.world)]:
        for guess in (_settled(motion, begin), begin):
            point = None if guess is None else newton(motion, guess)
            if point is not None and not any(np.abs(point - other).max() < SAME_POINT for other in found):
                found.append(point)
    told = [told_point(motion, point) for point in found]
    return tuple(sorted(told, key=lambda p: p.test_risk))


def _begins(world: World) -> list[Array]:
    """Scores with, without and against the teacher, each with the best v along its own."""
    return [with_best_value(m, q, world) for m, q in SCORE_STARTS]


def with_best_value(m_k: float, q_k: float, world: World) -> Array:
    """These scores and the v = m_v v* that has the least loss."""
    best = best_value(m_k, q_k, world)
    return np.asarray(np.r_[m_k, q_k, best, best * best, np.zeros(3)])


def _settled(motion: Motion, begin: Array) -> Array | None:
    """Where a rough trajectory ends; None where it diverges."""
    speed = max(motion.descent.eta_k, motion.descent.eta_v)
    path = integrated(motion._replace(level=0), begin, np.array([0.0, LONG / speed]), 1e-6)
    return path.overlaps[:, -1] if path.finished and not path.diverged else None


def newton(motion: Motion, guess: Array) -> Array | None:
    """The zero of the rates that Newton steps, halved where they do not gain, reach; None where they reach none."""
    speed = max(motion.descent.eta_k, motion.descent.eta_v)

    def ended(now: tuple[Array, Array]) -> bool | None:
        size = float(np.abs(now[1]).max())
        return size <= AT_POINT * speed or (None if np.isfinite(size) else False)

    def following(now: tuple[Array, Array]) -> tuple[Array, Array] | None:
        at, rates = now
        step = np.linalg.lstsq(motion.jacobian(at) @ _by_rest(at), -rates, rcond=1e-10)[0]
        tried = ((moved, motion.rates(moved)) for moved in (_moved(at, share * step) for share in SHARES))
        return next((there for there in tried if np.abs(there[1]).max() < np.abs(rates).max()), None)

    rest = driven((guess, motion.rates(guess)), ended, following, NEWTON_STEPS)
    at, size = rest.last[0], float(np.abs(rest.last[0]).max())
    return at if rest.converged and size <= FAR and least_norm(at) >= -1e-6 * max(1.0, size) else None


def _by_rest(at: Array) -> Array:
    """The overlaps' derivatives in the same coordinates, but q_k - m_k^2 in place of q_k."""
    change = np.eye(at.size)
    change[SCORE_Q, SCORE_M] = 2.0 * at[SCORE_M]
    return change


def _moved(at: Array, step: Array) -> Array:
    """The overlaps after a step in these coordinates; q_k - m_k^2 stays at 0 or above."""
    moved = at + step
    moved[SCORE_Q] = max(at[SCORE_Q] - at[SCORE_M] ** 2 + step[SCORE_Q], 0.0) + moved[SCORE_M] ** 2
    return moved


def told_point(motion: Motion, point: Array) -> FixedPoint:
    """A fixed point with its stability."""
    jacobian = motion.jacobian(point)
    values = np.linalg.eigvals(jacobian)
    values = values[np.argsort(-values.real)]
    across = np.sort(np.linalg.eigvals(jacobian[np.ix_(CROSS, CROSS)]).real)[::-1]
    return FixedPoint(
        order_parameters=named(OVERLAP_NAMES, point),
        test_risk=motion.risk(point),
        stable=bool(values.real.max() < 0.0),
        manifold_attracts=bool(across.max() < 0.0),
        eigenvalues=tuple(values.real.tolist()),
        frequencies=tuple(values.imag.tolist()),
        transverse=tuple(across.tolist()),
        residual=float(np.abs(motion.rates(point)).max()),
    )


class Plateau(NamedTuple):
    """Where a k that knows nothing of its teacher comes to rest, and how it leaves.

    With a drift of m_k the way off takes a time that does not depend on D. Without, m_k grows from its first size of
    order D^(-1/2) at the rate `growth`: the time is log(D)/(2 growth), `per_log_dim` log(D), and infinite where
    nothing grows.
    """

    order_parameters: dict[str, float]
    test_risk: float
    drift: float
    growth: float
    per_log_dim: float | None


def plateau(nu: float, noise: float = 0.0, *, start: dict[str, float] | None = None, **options: Any) -> Plateau:
    """The end of the trajectory on which m_k and the cross overlaps are held at 0; options are those of `solve`."""
    from scipy.integrate import solve_ivp

    motion = motion_of(nu, noise, POINT_LEVEL, options)
    speed = max(motion.descent.eta_k, motion.descent.eta_v)
    kept = np.ones(len(OVERLAP_NAMES))
    kept[[SCORE_M, *CROSS]] = 0.0
    begin = start_of(start) * kept
    span = (0.0, LONG / speed)
    found = solve_ivp(lambda _, o: kept * motion.rates(o), span, begin, method="LSODA", rtol=1e-8, atol=1e-12)
    point = found.y[:, -1].copy()
    point[SCORE_Q] = max(point[SCORE_Q], 0.0)
    drift = float(motion.rates(point)[SCORE_M])
    growth = float(motion.jacobian(point)[SCORE_M, SCORE_M])
    slow = abs(drift) <= 1e-8 * speed and growth > 0.0
    return Plateau(named(OVERLAP_NAMES, point), motion.risk(point), drift, growth, 0.5 / growth if slow else None)


def critical_rate(
    nu: float,
    noise: float = 0.0,
    *,
    ratio: float = 1.0,
    lambda_k: float = 0.0,
    lambda_v: float = 0.0,
    batch: float = 1.0,
    **parameters: float,
) -> float | None:
    """The step size of k, that of v being `ratio` times it, up to which the flow's best fixed point stays and attracts.

    None where the flow itself has no such point, or where it stays at every step size that was tried.
    """
    world = world_of(nu, noise, parameters)
    speeds = Descent(1.0, ratio, lambda_k, lambda_v, flow=True)
    flows = points_of(Motion(speeds, world, min(POINT_LEVEL, most_level(nu))), ())
    stable = [p for p in flows if p.eigenvalues[0] < 1e-7]
    if not stable:
        return None
    point, eta, step = np.array(list(stable[0].order_parameters.values())), 0.0, 0.02
    level = min(2, most_level(nu))
    while step > 1e-4 * (eta + 1e-3):
        further = eta + step
        held = _held(Motion(Descent(further, ratio * further, lambda_k, lambda_v, batch), world, level), point)
        if held is None:
            step *= 0.3
        else:
            eta, point, step = further, held, 1.5 * step
        if eta > 1e3:
            return None
    return float(eta)


def _held(motion: Motion, guess: Array) -> Array | None:
    """The fixed point near a guess, where there is one and it attracts."""
    point = newton(motion, guess)
    if point is None or np.linalg.eigvals(motion.jacobian(point)).real.max() > 1e-7:
        return None
    return point


def field(nu: float, noise: float, m_k: Array, m_v: Array, at: dict[str, float], **options: Any) -> tuple[Array, Array]:
    """The rates of m_k and m_v on a grid of both, the other overlaps being those of a point, norms what they need."""
    motion = motion_of(nu, noise, 0, options)
    base, speeds = start_of(at), np.empty((2, m_v.size, m_k.size))
    of_k, norm_k, of_v, norm_v = (OVERLAP_NAMES.index(name) for name in ("m_k", "q_k", "m_v", "q_v"))
    rest_k, rest_v = base[norm_k] - base[of_k] ** 2, base[norm_v] - base[of_v] ** 2
    for i, v in enumerate(m_v):
        for j, k in enumerate(m_k):
            base[[of_k, norm_k, of_v, norm_v]] = k, rest_k + k * k, v, rest_v + v * v
            speeds[:, i, j] = motion.rates(base)[[of_k, of_v]]
    return speeds[0], speeds[1]
