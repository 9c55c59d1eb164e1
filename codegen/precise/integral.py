"""The integrals and maps of one derived system, on numbers of any precision or on arrays of doubles.

The prox-free integral is a sum over the nodes of a lattice, with the kernels of the KernelIR as straight-line programs;
laws, moments and conjugate maps are the functions of the IR, printed by the mpmath emitter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath import mpf

from replicode.codegen.emit.mpmath import mpmath_function
from replicode.codegen.ir import Moment
from replicode.codegen.lower import equations, lower, parameter_symbol
from replicode.codegen.precise.kernel import Number, Numbers, Outers, Program, double_arrays
from replicode.theory.derive.population import population_risk
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import Refusal
from replicode.theory.model import Y

MARGIN = 4

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
