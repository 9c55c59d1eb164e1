"""The saddle point in arbitrary precision, where the prox-free integral has at most three dimensions.

A start in double precision is handed in; the same integral in double precision chooses the nodes that matter, weighs
the folds and gives the Jacobian. Each Newton step with that Jacobian gains some ten digits, so that a few evaluations
of the integral, with the kernels of the KernelIR on numbers of the precision asked for, suffice. The last one is on a
finer, wider and shifted lattice: what it still changes bounds the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath import mpf

from replicode.codegen.emit.mpmath import mpmath_function
from replicode.codegen.ir import Moment
from replicode.codegen.lower import equations, lower, parameter_symbol
from replicode.codegen.precise.kernel import Number, Numbers, Outers, Program, double_arrays
from replicode.codegen.runtime.linear import weighted_sum
from replicode.theory.derive.population import population_risk
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import Refusal
from replicode.theory.model import NOISE, Model, Y

LARGEST_DIMENSION = 3
LARGEST_NODES = 2_000_000
GUARD = 12
MARGIN = 4
FOLD_WEIGHT = 10
FARTHEST = 33.0
FINER = 0.92
CAUTION = 0.9
ROUNDS = 4
COARSE = 0.6
WIDEST = 1.6
DOUBLE = 15
ROUNDING = 1e-12
NEWTON_STEPS = 8
FIRST_PART = 0.75  # of the digits, in the first step
BLOCK = 200_000

Array = np.ndarray
Vector = list[mpf]


@dataclass(frozen=True)
class Physics:
    """The arguments of the saddle equations and the activation's parameters, as numbers of any precision."""

    alpha: mpf
    nu: mpf
    noise: mpf
    lambda_k: mpf
    lambda_v: mpf
    parameters: Mapping[str, mpf]


@dataclass(frozen=True)
class Frame:
    """Fields as functions of the nodes: w_chi = mean + factor tau, chi = origin + span u, (w_z, y) = values v."""

    mean: Vector
    factor: list[Vector]
    origin: Vector
    span: list[Vector]
    values: list[Vector]


@dataclass(frozen=True)
class PreciseAverages:
    """dE[M]/d(order parameters), E[M], E[loss], the mass, and what rounding did to the sums, where that is known."""

    rates: Vector
    envelope: mpf
    train_loss: mpf
    mass: mpf
    rounding: mpf


@dataclass(frozen=True)
class Grid:
    """Nodes of a body-centred lattice in half spacings, one of each pair that the flip of (w_z, y) maps on another."""

    spacing: float
    shift: float
    center: float
    scale: float
    indices: Array
    multiplicity: Array
    folded_mass: float

    @property
    def size(self) -> int:
        """How many nodes it has."""
        return int(self.multiplicity.size)

    @property
    def cell(self) -> mpf:
        """The volume of a node, with the normalisation of the Gaussian."""
        dim = len(self.indices)
        return mpf(self.scale) * mpf(self.spacing) ** dim / 2 / mpmath.sqrt(2 * mpmath.pi) ** dim


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


def reduced_factor(covariance: mpmath.matrix, invariant: Vector | None) -> list[Vector]:
    """F with F F^T the covariance, or, given an invariant direction, that of E[field | all functionals blind to it]."""
    size = covariance.rows
    if invariant is None:
        return _rows(mpmath.cholesky(covariance))
    if size == 1:
        return [[]]
    blind = mpmath.matrix(size - 1, size)
    for i in range(1, size):
        blind[i - 1, 0], blind[i - 1, i] = -invariant[i] / invariant[0], mpf(1)
    cross = covariance * blind.T
    return _rows(cross * mpmath.inverse(mpmath.cholesky(blind * cross)).T)


def _rows(matrix: mpmath.matrix) -> list[Vector]:
    return [[matrix[i, j] for j in range(matrix.cols)] for i in range(matrix.rows)]


class PreciseSystem:
    """The integrals and maps of one derived system on numbers of any precision."""

    def __init__(self, system: SaddleSystem, numbers: Numbers) -> None:
        if system.tokens is None:
            raise ValueError("a number of tokens is needed")
        self.system, self.numbers, self.tokens = system, numbers, system.tokens
        self.kernels = {k.name: k for k in lower(system).kernels}
        self.moments = equations.channel_moments(system)

    @cached_property
    def _closed(self) -> dict[str, Callable[..., Any]]:
        """The maps that need no integral."""
        system = self.system
        functions = [
            *equations.laws(system),
            equations.moment_functions(system, self.moments)[1],
            *equations.saddle_maps(system),
            equations.population_functions(population_risk(system.task, system.model), False)[0],
            equations.row_sum(system, self.tokens, system.balance),
        ]
        return {f.name: mpmath_function(f) for f in functions}

    def frame(self, order: Vector, at: Physics) -> Frame:
        """Factor the fields' covariance; along an invariance of M the fields are replaced by their conditional mean."""
        count = self.tokens
        mean, hidden = self._closed["hidden_law"](order, at.nu, at.noise)
        _, idle = self._closed["idle_law"](order, at.nu, at.noise)
        score = mpmath.diag([hidden[0][0]] + [idle[0][0]] * (count - 1))
        value = mpmath.diag([hidden[1][1]] + [idle[1][1]] * (count - 1) + [hidden[2][2]])
        value[0, count] = value[count, 0] = hidden[1][2]
        total = self._closed["row_sum"]([at.parameters[p] for p in self.system.activation.parameters])
        shift = self.system.properties.shift_invariant
        means = [mpf(mean[0])] + [mpf(0)] * (count - 1)
        try:
            factor = reduced_factor(score, [mpf(1)] * count if shift else None)
            values = reduced_factor(value, None if total is None else [mpf(1)] * count + [mpf(total)])
        except ValueError:
            raise Refusal("digits: the law of the fields is degenerate at this saddle point") from None
        return Frame(means, factor, _centred(means, shift), _centred_columns(factor, shift), values)

    @cached_property
    def _integral(self) -> Callable[..., list[Number]]:
        """The program of the prox-free integral; its dimensions follow from the reductions."""
        score, value = self.dimensions
        varying = [*(f"i{a}" for a in range(score)), *(f"j{a}" for a in range(value)), "pairs"]
        p = Program.of([*self._fixed_names, "u_step", "u_start", "v_step"], varying)
        v = [p.product_of(["v_step", f"j{a}"]) for a in range(value)]
        rows = [[f"values{r}_{a}" for a in range(value)] for r in range(self.tokens + 1)]
        *w_z, y = (p.dot(row, v) for row in rows)
        u = p.sum_of(["u_start", p.product_of(["u_step", "i0"])]) if score else "0"
        chi, inputs = self._scores(p, "origin", "span", u), self._scalar_names | {Y: y}
        at = p.outputs(self.kernels["gradient"], {"x": chi, "w": w_z}, inputs)
        tau, determinant = "0", "1"
        if score:
            curvature = p.outputs(self.kernels["hessian"], {"x": chi, "w": w_z}, inputs)["curvature"]
            tau, determinant = self._field(p, u, at["slope"], curvature)
        exponent = p.dot([tau, *v], [tau, *v])
        half = p.assigned(f"{exponent} / -2", exponent)
        weight = p.product_of([p.assigned(f"exp({half})", half), determinant, "pairs"])
        d_chi = [p.product_of([f"factor{l}", tau]) if score else "0" for l in range(self.tokens)]
        g_chi = [p.assigned(f"-{s}", s) if score else "0" for s in at["slope"]]
        g_z = [p.product_of([at["gain"], s]) for s in at["sigmas"]]
        arrays = {"d_chi": d_chi, "w_z": w_z, "g_chi": g_chi, "g_z": g_z, "y": [y] * self.tokens}
        parts = [self._moment(p, moment, arrays) for moment in self.moments.moments.values()]
        parts += [p.dot(g_chi, g_chi), at["value"], at["residual_loss"]]
        return p.loop([weight, *(p.product_of([weight, part]) for part in parts)], self.numbers.functions)

    def _scores(self, p: Program, start: str, direction: str, along: str) -> list[str]:
        """One score for each token on a line; without a score dimension, where the line starts."""
        tokens = range(self.tokens)
        if not self.dimensions[0]:
            return [f"{start}{l}" for l in tokens]
        return [p.sum_of([f"{start}{l}", p.product_of([f"{direction}{l}", along])]) for l in tokens]

    def _field(self, p: Program, u: str, slope: list[str], curvature: Outers) -> tuple[str, str]:
        """The coordinate tau of the field w = chi + V_k slope, and the derivative of tau in u."""
        span = [f"span{l}" for l in range(self.tokens)]
        norm = p.dot(span, span)
        rate = p.assigned(f"V_k / {norm}", "V_k", norm)
        tau = p.sum_of([u, p.product_of([rate, p.dot(span, slope)])])
        return tau, p.sum_of(["1", p.product_of([rate, p.bilinear(curvature, span, span)])])

    def _moment(self, p: Program, moment: Moment, arrays: Mapping[str, Sequence[str]]) -> str:
        """A product of fields of the hidden token, or summed over the idle ones."""
        places = range(1, self.tokens) if moment.idle else range(1)
        return p.sum_of([p.product_of([arrays[f.array][l] for f in moment.factors]) for l in places])

    @property
    def dimensions(self) -> tuple[int, int]:
        """Of the scores and of the values with the label."""
        score = self.tokens - bool(self.system.properties.shift_invariant)
        return score, self.tokens + (self.system.properties.row_sum is None)

    @property
    def _scalar_names(self) -> dict[sp.Symbol, str]:
        names = enumerate(self.system.activation.parameters)
        return {self.system.model.values.V: "V_v"} | {parameter_symbol(n): f"parameter{i}" for i, n in names}

    @property
    def _fixed_names(self) -> list[str]:
        score, value = self.dimensions
        tokens = range(self.tokens)
        names = ["V_k", "V_v", *(f"parameter{i}" for i in range(len(self.system.activation.parameters)))]
        for kind in ("mean", "origin"):
            names += [f"{kind}{l}" for l in tokens]
        for kind in ("factor", "span"):
            names += [f"{kind}{l}" for l in tokens if score]
        return names + [f"values{r}_{a}" for r in range(self.tokens + 1) for a in range(value)]

    def _fixed(self, frame: Frame, order: Vector, at: Physics) -> Vector:
        """The numbers of `_fixed_names`, in their order."""
        model = self.system.model
        values = [order[model.index(b.V)] for b in (model.scores, model.values)]
        values += [at.parameters[n] for n in self.system.activation.parameters]
        values += [*frame.mean, *frame.origin]
        return values + [e for rows in (frame.factor, frame.span, frame.values) for row in rows for e in row]

    def sums(self, order: Vector, at: Physics, grid: Grid, nodes: Iterable[tuple[Any, ...]]) -> list[Number]:
        """Sums over the nodes of the weight, and of the weight times each moment, in units of the cell."""
        frame = self.frame(order, at)
        half = mpf(grid.spacing) / 2
        step = mpf(grid.scale) * half
        fixed = [*self._fixed(frame, order, at), step, mpf(grid.center) + step * mpf(grid.shift), half]
        real = self.numbers.real
        return self._integral(real(mpf(1)), [real(f) for f in fixed], nodes)

    def averages(self, order: Vector, at: Physics, grid: Grid) -> PreciseAverages:
        """All averages at these order parameters on the nodes of a grid."""
        sums = self.sums(order, at, grid, self.nodes(grid))
        mass, *moments, strain, loss, train = (grid.cell * self.numbers.read(s) for s in sums)
        rates = self._closed["rates_from_moments"](order, at.nu, at.noise, moments)
        V_k = order[self.system.model.index(self.system.model.scores.V)]
        rounding = max(grid.cell * self.numbers.radius(s) for s in sums)
        return PreciseAverages(rates, V_k * strain / 2 + loss, train, mass, rounding)

    def nodes(self, grid: Grid) -> Iterable[tuple[Any, ...]]:
        """The nodes one by one, or all at once as arrays."""
        return zip(*grid.indices.tolist(), grid.multiplicity.tolist(), strict=True)

    def conjugates(self, averages: PreciseAverages, at: Physics) -> Vector:
        """The conjugates at which f is stationary in m, q, V."""
        return [mpf(c) for c in self._closed["conjugates_from_rates"](averages.rates, at.alpha)]

    def image(self, conjugates: Vector, at: Physics) -> Vector:
        """The order parameters at which f is stationary in the conjugates."""
        return [mpf(t) for t in self._closed["prior_update"](conjugates, at.lambda_k, at.lambda_v)]

    def energy(self, order: Vector, conjugates: Vector, at: Physics, envelope: mpf) -> mpf:
        """The free energy, given E[M]."""
        lambdas = (at.lambda_k, at.lambda_v)
        return mpf(self._closed["free_energy_value"](order, conjugates, at.alpha, *lambdas, envelope))

    @cached_property
    def _sigma_moments(self) -> Callable[..., list[Number]]:
        """The program of A and B along the one score direction that sigma sees."""
        p = Program.of([*self._fixed_names, "u_step"], ["i0"])
        u = p.product_of(["u_step", "i0"])
        chi = self._scores(p, "origin", "span", u)
        sigmas = p.outputs(self.kernels["sigma"], {"x": chi}, self._scalar_names)["sigmas"]
        square = p.product_of([u, u])
        half = p.assigned(f"{square} / -2", square)
        weight = p.assigned(f"exp({half})", half)
        return p.loop([p.product_of([weight, e]) for e in (sigmas[0], p.dot(sigmas, sigmas))], self.numbers.functions)

    def test_risk(self, order: Vector, at: Physics, digits: int) -> mpf:
        """The population risk at these overlaps, the trapezoid rule halved until it no longer changes."""
        frame = self.frame(order, at)
        real = self.numbers.real
        fixed = self._fixed(frame, order, at)
        reach = mpmath.sqrt(2 * mpmath.log(10) * (digits + MARGIN))
        before, step = None, mpf(1)
        while step > mpf(2) ** -14:
            step /= 2
            count = int(mpmath.ceil(reach / step))
            given = [real(f) for f in (*fixed, step)]
            sums = self._sigma_moments(real(mpf(1)), given, ((i,) for i in range(-count, count + 1)))
            now = [step * self.numbers.read(s) / mpmath.sqrt(2 * mpmath.pi) for s in sums]
            if before and max(abs(a - b) for a, b in zip(now, before)) < mpf(10) ** (-digits - 1):
                values = self.system.model.values
                m_v, q_v = (order[self.system.model.index(s)] for s in (values.m, values.q))
                return mpf(self._closed["risk_on_manifold"](m_v, q_v, at.noise, *now))
            before = now
        raise Refusal(f"digits: the population averages do not settle to {digits} digits")


def _centred(values: Vector, shift: bool) -> Vector:
    """The vector, orthogonal to (1, .., 1) where sigma is shift invariant."""
    middle = mpmath.fsum(values) / len(values) if shift else mpf(0)
    return [e - middle for e in values]


def _centred_columns(rows: list[Vector], shift: bool) -> list[Vector]:
    columns = [_centred(list(column), shift) for column in zip(*rows)]
    return [list(row) for row in zip(*columns)] if columns else [[] for _ in rows]


class DoubleSystem(PreciseSystem):
    """The same on arrays of doubles, all nodes at once."""

    def __init__(self, system: SaddleSystem) -> None:
        super().__init__(system, double_arrays())

    def nodes(self, grid: Grid) -> Iterable[tuple[Any, ...]]:
        """All nodes at once."""
        return [(*grid.indices.astype(float), grid.multiplicity.astype(float))]

    def node_weights(self, order: Vector, at: Physics, grid: Grid) -> Array:
        """The signed weight of every node in units of the cell."""
        return np.asarray(self.sums(order, at, grid, self.nodes(grid))[0])


class Scout:
    """The same integral in double precision: which nodes matter, how fine they must be, folds, and the Jacobian."""

    def __init__(self, system: SaddleSystem, start: Vector, physics: Physics) -> None:
        self.double, self.order, self.physics = DoubleSystem(system), start, physics
        self.score, self.value = self.double.dimensions
        self.center, self.scale = 0.0, 1.0
        if self.score:
            self._adapt()

    def _adapt(self) -> None:
        """Centre and scale the scores of the nodes on the law of the prox point."""
        for _ in range(2):
            grid = self.grid(COARSE, DOUBLE)
            u = self.center + self.scale * 0.5 * grid.spacing * grid.indices[0]
            weights = self.double.node_weights(self.order, self.physics, grid)
            weights /= weights.sum()
            self.center = float(weighted_sum(u, weights))
            self.scale = float(np.sqrt(weighted_sum((u - self.center) ** 2, weights)))

    def grid(self, spacing: float, digits: float, shift: float = 0.0) -> Grid:
        """The nodes whose weight is above 10^-digits, found by looking at ever more distant scores."""
        radius = float(np.sqrt(2.0 * np.log(10.0) * digits))
        dim = self.score + self.value
        if np.pi ** (dim / 2) / math.gamma(dim / 2 + 1) * (radius / spacing) ** dim > LARGEST_NODES:
            raise Refusal(f"digits: a lattice of spacing {spacing:.2g} has more than {LARGEST_NODES} nodes")
        values = _half_space(self.value, 2.0 * radius / spacing)
        if not self.score:
            return self._lattice(spacing, shift, values)
        reach = 1.25 * radius
        while reach <= FARTHEST:
            count = int(np.ceil(2.0 * reach / spacing))
            grid, edge = self._selected(values, self._lattice(spacing, shift, values), 10.0**-digits, count)
            if not edge:
                return grid
            reach *= 1.2
        raise Refusal("digits: the prox point lies too far from its field for a lattice of this many digits")

    def _lattice(self, spacing: float, shift: float, indices: Array, folded: float = 0.0) -> Grid:
        """The grid of these nodes; only those without any value are their own image under the flip."""
        pairs = np.where((indices[len(indices) - self.value :] == 0).all(axis=0), 1, 2)
        return Grid(spacing, shift, self.center, self.scale, indices, pairs, folded)

    def _selected(self, values: Array, like: Grid, threshold: float, count: int) -> tuple[Grid, bool]:
        """The nodes that matter among all scores up to `count`, and whether the outermost of these are among them."""
        kept, folded, edge = [], 0.0, False
        lines = max(1, BLOCK // (2 * count + 1))
        for begin in range(0, values.shape[1], lines):
            grid = self._lattice(like.spacing, like.shift, _with_scores(values[:, begin : begin + lines], count))
            weights = self.double.node_weights(self.order, self.physics, grid)
            folded -= float(weights[weights < 0.0].sum() * grid.cell)
            chosen = np.abs(weights) >= threshold
            edge = edge or bool((chosen & (np.abs(grid.indices[0]) >= count - 1)).any())
            kept.append(grid.indices[:, chosen])
        return self._lattice(like.spacing, like.shift, np.concatenate(kept, axis=1), folded), edge

    def spacing(self, digits: int) -> float:
        """The spacing for this many digits, from the fall exp(-c/h^2) of the error measured in double precision."""
        spacing, before, rate = WIDEST, None, 0.0
        while True:
            found = self.double.averages(self.order, self.physics, self.grid(spacing, DOUBLE, 0.5))
            now = np.array([float(x) for x in (*found.rates, found.envelope, found.train_loss, found.mass)])
            if before is not None:
                change = float((np.abs(now - before) / (1.0 + np.abs(now))).max())
                fall = -np.log(max(change, ROUNDING)) * (spacing / 0.85) ** 2
                if change <= ROUNDING:
                    rate = max(rate, fall)
                    break
                rate = fall
            before, spacing = now, 0.85 * spacing
        return CAUTION * float(np.sqrt(rate / (np.log(10.0) * (digits + 1))))

    @cached_property
    def slopes(self) -> mpmath.matrix:
        """How the image, the conjugates and the training loss move with the order parameters they depend on.

        By differences of fourth order.
        """
        grid, model = self.grid(COARSE, DOUBLE), self.double.system.model
        matrix = mpmath.zeros(2 * len(self.order) + 1, len(self.order))
        for block in model.blocks if self.score else (model.values,):
            places = [model.index(s) for s in (block.m, block.q, block.V)]
            m, q, v = (self.order[i] for i in places)
            for i, size in zip(places, (mpmath.sqrt(q - m * m), q - m * m, v), strict=True):
                step = 3 * size / 1000
                moved = {n: self._moved(grid, i, n * step) for n in (-2, -1, 1, 2)}
                for j in range(matrix.rows):
                    rise = 8 * (moved[1][j] - moved[-1][j]) - (moved[2][j] - moved[-2][j])
                    matrix[j, i] = rise / (12 * step)
        return matrix

    def newton_matrix(self) -> mpmath.matrix:
        """(I - dF)^-1 of the saddle-point map."""
        size = len(self.order)
        return mpmath.inverse(mpmath.eye(size) - self.slopes[:size, :])

    def _moved(self, grid: Grid, i: int, step: mpf) -> Vector:
        """Image, conjugates and training loss with one order parameter moved."""
        order = [x + step * (j == i) for j, x in enumerate(self.order)]
        averages = self.double.averages(order, self.physics, grid)
        conjugates = self.double.conjugates(averages, self.physics)
        return [*self.double.image(conjugates, self.physics), *conjugates, averages.train_loss]


def _half_space(dim: int, radius: float) -> Array:
    """Indices in a ball, of equal parity, of which the first that is not zero is positive."""
    line = np.arange(-int(radius), int(radius) + 1)
    indices = np.stack(np.meshgrid(*[line] * dim, indexing="ij")).reshape(dim, -1)
    inside = (indices * indices).sum(axis=0) <= radius * radius
    even = (indices % 2 == indices[0] % 2).all(axis=0)
    leading = np.zeros(indices.shape[1], dtype=int)
    for row in indices[::-1]:
        leading = np.where(row != 0, row, leading)
    return np.asarray(indices[:, inside & even & (leading >= 0)])


def _with_scores(values: Array, count: int) -> Array:
    """Every index of the values with every score index of the same parity."""
    scores = np.repeat(np.arange(-count, count + 1), values.shape[1])
    joined = np.concatenate([scores[None], np.tile(values, 2 * count + 1)])
    return np.asarray(joined[:, joined[0] % 2 == joined[1] % 2])


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
