"""The right-hand side of the training dynamics, its Jacobian, and trajectories by an adaptive integrator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.dynamics_averages import LEAST_NORM, SCORE_M, SCORE_Q, World, averages_at
from replicode.codegen.runtime.dynamics_kernel import (
    INTEGRAND_DEGREE,
    OVERLAP_NAMES,
    SEQUENCES,
    mobility,
    overlap_rates,
    spherical_rates,
)
from replicode.codegen.runtime.dynamics_nodes import MOST_LATTICE, dimensions
from replicode.codegen.runtime.kernel import Array

DIVERGED = 1e6
DIFFERENCE = 2e-3
CROSS = [OVERLAP_NAMES.index(name) for name in ("kv_star", "vk_star", "kv")]  # no larger than the norms allow
CENTRAL = ((-2.0, 1.0 / 12.0), (-1.0, -2.0 / 3.0), (1.0, 2.0 / 3.0), (2.0, -1.0 / 12.0))
FORWARD = ((0.0, -25.0 / 12.0), (1.0, 4.0), (2.0, -3.0), (3.0, 4.0 / 3.0), (4.0, -0.25))


class Descent(NamedTuple):
    """How the students move: step sizes, weight decays, sequences per step, and which of the two variants."""

    eta_k: float
    eta_v: float
    lambda_k: float = 0.0
    lambda_v: float = 0.0
    batch: float = 1.0
    flow: bool = False
    spherical: bool = False


class Motion(NamedTuple):
    """Descent in a world; `level` says how many nodes the averages take."""

    descent: Descent
    world: World
    level: int

    def rates(self, overlaps: Array, seed: int = 1) -> Array:
        """d overlaps / d t; the scatter of single steps is left out of the flow."""
        d = self.descent
        derived = spherical_rates if d.spherical else overlap_rates
        found = averages_at(overlaps, self.world, self.level, seed)
        spreads = 0.0 * found.spreads if d.flow else found.spreads
        return np.asarray(derived(overlaps, found.pulls, spreads, d.eta_k, d.eta_v, d.lambda_k, d.lambda_v, d.batch))

    def risk(self, overlaps: Array, seed: int = 1) -> float:
        """The test risk."""
        return averages_at(overlaps, self.world, self.level, seed).risk

    def loss(self, overlaps: Array, seed: int = 1) -> float:
        """The average loss."""
        return averages_at(overlaps, self.world, self.level, seed).loss

    def mobility(self, overlaps: Array) -> Array:
        """The flow's rates are minus this times the slopes of the average loss, where weight decay is zero."""
        return np.asarray(mobility(overlaps, self.descent.eta_k, self.descent.eta_v))

    def jacobian(self, overlaps: Array) -> Array:
        """The derivatives of the rates, by differences of fourth order on common nodes."""
        return slopes_of(self.rates, overlaps)


def slopes_of(function: Callable[[Array], Any], overlaps: Array) -> Array:
    """The derivatives of a function of the overlaps in each of them, along the last axis.

    They are taken in m_k, q_k - m_k^2 and the others, so that no difference leaves what is possible; where
    q_k - m_k^2 is small its differences are taken to one side.
    """
    coordinates = np.array(overlaps, dtype=float)
    coordinates[SCORE_Q] = rest = overlaps[SCORE_Q] - overlaps[SCORE_M] ** 2

    def at(moved: Array) -> Any:
        return function(np.where(np.arange(moved.size) == SCORE_Q, moved + moved[SCORE_M] ** 2, moved))

    columns = []
    for i in range(coordinates.size):
        step = DIFFERENCE * max(0.1, abs(coordinates[i]))
        if i == SCORE_Q and rest > 0.0:
            step = DIFFERENCE * min(max(0.1, rest), 200.0 * rest)
        if i in CROSS:
            step = min(step, 0.3 * np.sqrt(max(overlaps[SCORE_Q], LEAST_NORM)))
        rule = FORWARD if i == SCORE_Q and rest < 1e-6 else CENTRAL
        step = DIFFERENCE * 0.1 if rule is FORWARD else step
        unit = step * np.eye(coordinates.size)[i]
        columns.append(sum(c * at(coordinates + s * unit) for s, c in rule) / step)
    columns[SCORE_M] = columns[SCORE_M] - 2.0 * overlaps[SCORE_M] * columns[SCORE_Q]
    return np.stack([np.asarray(c) for c in columns], axis=-1)


class Path(NamedTuple):
    """Overlaps (7, points) at given times, and whether the integrator got to the end."""

    times: Array
    overlaps: Array
    finished: bool
    diverged: bool


def integrated(motion: Motion, start: Array, times: Array, tolerance: float) -> Path:
    """The overlaps at the given times, by a Runge-Kutta method of order eight with error control.

    Where the averages are dear, by Adams' method, which needs fewer of them.
    """
    from scipy.integrate import solve_ivp

    def too_large(_: float, overlaps: Array) -> float:
        return float(DIVERGED - np.abs(overlaps).max())

    too_large.terminal = True  # type: ignore[attr-defined]

    def rates(_: float, overlaps: Array) -> Array:
        found = motion.rates(overlaps)
        return np.where(np.isfinite(found), found, 0.0)

    with np.errstate(over="ignore", invalid="ignore"):
        found = solve_ivp(
            rates,
            (float(times[0]), float(times[-1])),
            start,
            method="LSODA" if many_dimensions(motion.world.nu) else "DOP853",
            t_eval=times,
            rtol=tolerance,
            atol=0.01 * tolerance,
            events=too_large,
        )
    return Path(found.t, found.y, found.status == 0, found.status == 1)


def many_dimensions(nu: float) -> bool:
    """Whether lattices in so many dimensions resolve a few digits only."""
    return max(dimensions(kernel.tokens, nu) for kernel in SEQUENCES) > MOST_LATTICE - 2 and not INTEGRAND_DEGREE


def tolerances(nu: float, diverged: bool = False) -> tuple[float, float]:
    """Of the integrator: of the run that is compared with, and of the one that is reported.

    A trajectory that diverges becomes stiff on its way, and its digits are not worth so many steps.
    """
    return (1e-5, 1e-6) if many_dimensions(nu) else (1e-6, 1e-8) if diverged else (1e-8, 1e-10)
