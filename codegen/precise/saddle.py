"""The saddle point in arbitrary precision, where the prox-free integral has at most three dimensions.

A start in double precision is handed in; the same integral in double precision chooses the nodes that matter, weighs
the folds and gives the Jacobian. Each Newton step with that Jacobian gains some ten digits, so that a few evaluations
of the integral, with the kernels of the KernelIR on numbers of the precision asked for, suffice. The last one is on a
finer, wider and shifted lattice: what it still changes bounds the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath import mpf

from replicode.codegen.precise.integral import MARGIN, Grid, Physics, PreciseAverages, PreciseSystem, Vector
from replicode.codegen.precise.kernel import Numbers
from replicode.codegen.precise.scout import COARSE, Scout
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import Refusal
from replicode.theory.model import NOISE, Model

LARGEST_DIMENSION = 3
GUARD = 12
FOLD_WEIGHT = 10
FINER = 0.92
ROUNDS = 4
NEWTON_STEPS = 8
FIRST_PART = 0.75  # of the digits, in the first step


@dataclass(frozen=True)
class PreciseSaddle:
    """A saddle point with bounds on the errors of its test risk and, in the same order, of all else it is made of."""

    order: Vector
    order_errors: Vector
    conjugates: Vector
    conjugate_errors: Vector
    averages: PreciseAverages
    test_risk: mpf
    energy: mpf
    residual: mpf
    error: mpf
    train_error: mpf
    energy_error: mpf
    folded_mass: mpf
    evaluations: int
    nodes: int


class PreciseSolver:
    """Newton's iteration from a saddle point in double precision to one of the digits asked for."""

    def __init__(self, precise: PreciseSystem, scout: Scout, physics: Physics, digits: int) -> None:
        self.precise, self.scout, self.physics, self.digits = precise, scout, physics, digits
        self.evaluations = 0
        self._grid(COARSE, 0.0)
        self.matrix = scout.newton_matrix()

    def _grid(self, spacing: float, shift: float, more: int = 0) -> Grid:
        """A grid for the digits asked for and some more; refused where folds forbid these digits."""
        grid = self.scout.grid(spacing, self.digits + MARGIN + more, shift)
        if FOLD_WEIGHT * grid.folded_mass > 0.5 * 10.0**-self.digits:
            reached = int(-np.log10(2 * FOLD_WEIGHT * grid.folded_mass))
            raise Refusal(
                f"digits: {self.digits} asked for, but the map from the prox point to its field folds with mass "
                f"{grid.folded_mass:.2g}, which limits the prox-free integral to {max(reached, 0)}"
            )
        return grid

    def _step(self, order: Vector, grid: Grid) -> tuple[Vector, Vector, PreciseAverages]:
        """The Newton step at a point, with the conjugates and averages there."""
        averages = self.precise.averages(_inside(order, self.digits, self.precise.system.model), self.physics, grid)
        conjugates = self.precise.conjugates(averages, self.physics)
        image = self.precise.image(conjugates, self.physics)
        self.evaluations += 1
        moved = self.matrix * mpmath.matrix([a - b for a, b in zip(image, order)])
        return list(moved), conjugates, averages

    def solved(self) -> PreciseSaddle:
        """The saddle point, verified on a finer, wider and shifted lattice until that changes nothing."""
        spacing = self.scout.spacing(self.digits)
        order, first = self._begun(spacing)
        order, contraction = self._settled(order, self._grid(spacing, 0.0), first)
        for turn in range(1, ROUNDS + 1):
            grid = self._grid(FINER * spacing, turn / 3, 2 * turn)
            step, conjugates, averages = self._step(order, grid)
            change = max(abs(s) for s in step)
            order = [a + b for a, b in zip(order, step)]
            if change <= mpf(10) ** (-self.digits - 1):
                return self._result(order, step, conjugates, averages, grid)
            if change * contraction > mpf(10) ** (-self.digits - 2):
                order, contraction = self._settled(order, grid)
            gained = float(-mpmath.log10(change))
            spacing *= min(FINER, gained / (self.digits + 1))
        raise Refusal(f"digits: {self.digits} are not reached; successive lattices still differ by {_short(change)}")

    def _begun(self, spacing: float) -> tuple[Vector, mpf]:
        """One step from double precision on the few nodes that a part of the digits needs, and its size."""
        digits = FIRST_PART * self.digits
        grid = self.scout.grid(spacing * math.sqrt((self.digits + 1) / (digits + 1)), digits + MARGIN)
        step, _, _ = self._step(self.scout.order, grid)
        return [a + b for a, b in zip(self.scout.order, step)], max(abs(s) for s in step)

    def _settled(self, order: Vector, grid: Grid, first: mpf | None = None) -> tuple[Vector, mpf]:
        """Newton steps on one grid until the next, as the last ones shrank, would be below what is asked for.

        `first` is the size of a step that was taken already.
        """
        sizes = [mpf(1)] if first is None else [mpf(1), first]
        for turn in range(NEWTON_STEPS):
            step, _, _ = self._step(order, grid)
            sizes.append(max(abs(s) for s in step))
            order = [a + b for a, b in zip(order, step)]
            contraction = sizes[-1] / sizes[-2]
            if len(sizes) > 2 and sizes[-1] * contraction <= mpf(10) ** (-self.digits - 2):
                return order, contraction
            if contraction > 0.5 and (turn or first is None):  # the first step was on other nodes
                break
        raise Refusal("digits: Newton's iteration does not contract from the saddle point in double precision")

    def _result(
        self, order: Vector, step: Vector, conjugates: Vector, averages: PreciseAverages, grid: Grid
    ) -> PreciseSaddle:
        """What the last step moved bounds what is left to move; conjugates and averages are those before it."""
        folded, zero, size = mpf(grid.folded_mass), mpf(0), len(order)
        defect = abs(averages.mass - 1) + folded + averages.rounding
        least = FOLD_WEIGHT * defect + mpf(10) ** (-self.digits - 2)

        def bound(slopes: Iterable[mpf], value: mpf) -> mpf:
            return 2 * mpmath.fsum(abs(s * e) for s, e in zip(slopes, step)) + least * (1 + abs(value))

        rows = [self.scout.slopes[i, :] for i in range(size, 2 * size + 1)]
        alpha = self.physics.alpha
        return PreciseSaddle(
            order=order,
            order_errors=[bound([mpf(i == j) for j in range(size)], x) for i, x in enumerate(order)],
            conjugates=conjugates,
            conjugate_errors=[bound(row, c) for row, c in zip(rows, conjugates)],
            averages=averages,
            test_risk=self._risk(order),
            energy=self.precise.energy(order, conjugates, self.physics, averages.envelope),
            residual=max(abs(e) / (1 + abs(o)) for e, o in zip(step, order)),
            error=bound(self._risk_slopes(order), zero),
            train_error=bound(rows[-1], averages.train_loss),
            energy_error=bound([alpha * r for r in averages.rates], alpha * averages.envelope),
            folded_mass=folded,
            evaluations=self.evaluations,
            nodes=2 * grid.size,
        )

    def _risk(self, order: Vector) -> mpf:
        return self.precise.test_risk(
            _inside(order, self.digits, self.precise.system.model), self.physics, self.digits + 2
        )

    def _risk_slopes(self, order: Vector) -> Vector:
        """d test_risk / d order, to a few digits."""
        step = mpf(10) ** (-self.digits // 3)
        base = self._risk(order)
        moved = ([x + step * (j == i) for j, x in enumerate(order)] for i in range(len(order)))
        return [(self._risk(point) - base) / step for point in moved]


def noise_risk(model: Model, noise: mpf) -> mpf:
    """The part of the risk that is the label's own noise."""
    return mpf(sp.lambdify(NOISE, model.noise_risk(), modules="mpmath")(noise))


def _inside(order: Vector, digits: int, model: Model) -> Vector:
    """The point, or one next to it where q is not zero: where sigma ignores the scores the saddle has q_k = 0."""
    floor, norms = mpf(10) ** (-3 * digits), {model.index(b.q) for b in model.blocks}
    return [max(x, floor) if i in norms else x for i, x in enumerate(order)]


def _short(value: mpf) -> str:
    return str(mpmath.nstr(value, 3))


def check_dimension(module: ModuleType, parameters: Mapping[str, Any]) -> int:
    """The dimension of the prox-free integral, refused where it is too large for lattices of many digits."""
    if hasattr(module, "kink_points"):
        raise Refusal("digits: more than 12 are computed for smooth activations only, and this one has kinks")
    if "V_k" not in module.ORDER_NAMES or hasattr(module, "loss_value"):
        raise Refusal(
            "digits: more than 12 are computed for attention trained with a square loss on Gaussian labels only"
        )
    if module.LOCATION != "gaussian" or len(module.KERNELS) > 1:
        raise Refusal(
            "digits: more than 12 are computed for one length and a weight that leaves the scores Gaussian only"
        )
    values = np.array([float(parameters[p]) for p in module.PARAMETERS])
    dimension = sum(module.dimensions(module.Setting(0.0, 0.0, values)))
    if dimension > LARGEST_DIMENSION:
        raise Refusal(
            f"digits: more than 12 are computed only where the prox-free integral has at most {LARGEST_DIMENSION} "
            f"dimensions, and here it has {dimension}"
        )
    return int(dimension)


def precise_saddle(
    system: SaddleSystem, start: Sequence[float], physics: Physics, digits: int, numbers: Numbers
) -> PreciseSaddle:
    """The saddle point to an absolute error of 10^-digits on the test risk, from a start in double precision."""
    with numbers.working(digits + GUARD), np.errstate(all="ignore"):
        scout = Scout(system, _inside([mpf(float(x)) for x in start], digits, system.model), physics)
        return PreciseSolver(PreciseSystem(system, numbers), scout, physics, digits).solved()
