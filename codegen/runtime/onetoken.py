"""Numerical values of averages that factorise over the tokens.

One-token averages are composite Gauss-Legendre sums over the student's score x, with panels split at kinks and graded
towards zeros of the bodies, times a trapezoid rule for the teacher's score given x. Laplace integrals are trapezoid
sums in log s, where their integrands are analytic in a strip of half width pi/2. Every function is carried as a sign
and a logarithm, so that scores of hundreds neither overflow nor cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.inputs import OutOfReach
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.nodes import gauss_panels

TokenFunction = Callable[[Array, Array, float, float, Array], tuple[Array | float, Array | float, tuple[float, ...]]]
TokenNumber = Callable[[float, float, Array], float]

TOKEN_PANEL = 0.8
LOG_STEP = 0.24
SCAN = np.linspace(-40.0, 40.0, 1601)
SCORE_REACH = 9.5
LOG_DEPTH = 42.0  # what is e^-42 below the largest is left out
LAPLACE_BLOCK = 4_000_000
COARSE_LOGS = 400
LARGEST_GRID = 1.5e9
LONGEST_AXIS = 200_000
GENTLE = 0.4
LOG_ROWS = 64
GONE = 6.8  # exp(-exp(6.8)) is 0
TOKEN_HERMITE = 20
SHARP = 0.02
ZOOMS = 14


class Law(NamedTuple):
    """Overlaps m_k, q_k and the law N(mean, variance) of chi* at the hidden token, where it is Gaussian."""

    m: float
    q: float
    hidden: tuple[float, float] | None


class InversePower(NamedTuple):
    """(offset + sum over the tokens of body)^-power."""

    offset: TokenNumber
    body: TokenFunction
    power: float


class Product(NamedTuple):
    """A row of population_kernel.py."""

    coefficient: TokenNumber
    functions: tuple[TokenFunction, ...]
    every: TokenFunction
    powers: tuple[InversePower, ...]
    any_length: bool


class Products(NamedTuple):
    """A, B and the mean weight as sums of products."""

    A: tuple[Product, ...]
    B: tuple[Product, ...]
    normalisation: tuple[Product, ...]


@lru_cache(maxsize=4)
def products_of(table: Callable[[], tuple[Any, ...]]) -> Products:
    """A table by its names."""
    return Products(*(tuple(_product_of(*row) for row in rows) for rows in table()))


def _product_of(
    coefficient: TokenNumber,
    functions: tuple[TokenFunction, ...],
    every: TokenFunction,
    powers: tuple[Any, ...],
    any_length: int,
) -> Product:
    return Product(coefficient, functions, every, tuple(InversePower(*p) for p in powers), bool(any_length))


class TokenAverages:
    """Products at a signal and parameter values: `value(products, lengths)` is one number per length."""

    def __init__(self, law: Law, nu: float, params: Array, fineness: float = 1.0) -> None:
        self.law, self.nu, self.params, self.fineness = law, nu, params, fineness
        self._totals: dict[tuple[TokenFunction, bool, int], float] = {}

    def value(self, products: Sequence[Product], lengths: Sequence[int]) -> Array:
        """The sum of the products for each number of tokens."""
        total = np.zeros(len(lengths))
        for product in products:
            if product.any_length and len(lengths) > 1:
                total += self._product(product, np.asarray(lengths), int(max(lengths)))
            else:
                total += [float(self._product(product, np.array([n]), n)[0]) for n in lengths]
        return total

    def _sized(self, function: TokenFunction, x: Array, chi: Array, tokens: int) -> tuple[Array, Array]:
        """Sign and logarithm of the size of a function."""
        shape = np.broadcast_shapes(np.shape(x), np.shape(chi))
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            sign, log, _ = function(x, chi, self.nu, float(tokens), self.params)
        return np.broadcast_to(np.asarray(sign), shape), np.broadcast_to(np.asarray(log), shape)

    def _log(self, function: TokenFunction, x: Array, chi: Array, tokens: int) -> Array:
        return self._sized(function, x, chi, tokens)[1]

    def _number(self, number: TokenNumber, tokens: int) -> float:
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            return float(number(self.nu, float(tokens), self.params))

    def _product(self, product: Product, lengths: Array, tokens: int) -> Array:
        coefficient = np.array([self._number(product.coefficient, int(n)) for n in lengths])
        coefficient[lengths < len(product.functions)] = 0.0
        if not coefficient.any():
            return coefficient
        spare = np.maximum(lengths - len(product.functions), 0)
        if not product.powers:
            numbers = [self._total(f, i == 0, tokens) for i, f in enumerate(product.functions)]
            rest = self._total(product.every, False, tokens) ** spare
            return np.asarray(coefficient * float(np.prod(numbers)) * rest)
        bodies = [p.body for p in product.powers]
        powers = [p.power for p in product.powers]
        carriers = [self._carrier(product.functions, body, p, tokens) for body, p in zip(bodies, powers, strict=True)]
        tables = []
        for index, function in enumerate((*product.functions, product.every)):
            carried = [p if index == c else 0.0 for p, c in zip(powers, carriers, strict=True)]
            tables.append(self._token_table(function, bodies, carried, index == 0, tokens))
        offsets = [self._number(p.offset, tokens) for p in product.powers]
        return coefficient * Laplace(powers, offsets, tables, spare).value(LOG_STEP / self.fineness)

    def _total(self, function: TokenFunction, hidden: bool, tokens: int) -> float:
        """The plain average of a function over one token."""
        key = (function, hidden, tokens)
        if key not in self._totals:
            self._totals[key] = self._token_table(function, (), (), hidden, tokens).total()
        return self._totals[key]

    def _carrier(self, functions: Sequence[TokenFunction], body: TokenFunction, power: float, tokens: int) -> int:
        """The token whose function a power s^p keeps bounded best: the one that grows with the body."""
        x, chi = self._scan(True)
        with np.errstate(invalid="ignore"):
            grown = [
                np.ptp(_finite(self._log(f, x, chi, tokens) - power * self._log(body, x, chi, tokens)))
                for f in functions
            ]
        return int(np.argmin(grown))

    def _scan(self, hidden: bool, at: Array = SCAN) -> tuple[Array, Array]:
        """A line of (x, chi*) through the law of one token, coarse unless points are given."""
        mean, scale = self._score_law(hidden)
        x = mean + scale * at
        return x, self._teacher_mean(x) if self.law.q > 0.0 else at

    def _score_law(self, hidden: bool) -> tuple[float, float]:
        m, q = self.law.m, self.law.q
        if not hidden or self.law.hidden is None:
            return 0.0, float(np.sqrt(q))
        mean, variance = self.law.hidden
        return m * mean, float(np.sqrt(max(q + m * m * (variance - 1.0), 0.0)))

    def _teacher_mean(self, x: Array) -> Array:
        return x * (self.law.m / self.law.q) if self.law.q > 0.0 else np.zeros_like(x)

    def _token_table(
        self,
        function: TokenFunction,
        bodies: Sequence[TokenFunction],
        carried: Sequence[float],
        hidden: bool,
        tokens: int,
    ) -> TokenTable:
        """On nodes fine enough for the sharpest body, split where something has a kink or vanishes."""
        mean, scale = self._score_law(hidden)
        zeta, log_zeta = self._teacher_nodes(bodies, hidden, tokens)
        x, log_x = np.array([mean]), np.zeros(1)
        if scale != 0.0:
            u, weights = gauss_panels(self._edges([(function, carried)], bodies, hidden, tokens))
            x, log_x = mean + scale * u, np.log(weights) - u**2 / 2.0 - np.log(2.0 * np.pi) / 2.0
        chi = self._teacher_mean(x)[:, None] + self._teacher_spread() * zeta
        x, chi = np.broadcast_to(x[:, None], chi.shape).ravel(), chi.ravel()
        sign, log = self._sized(function, x, chi, tokens)
        log = log + (log_x[:, None] + log_zeta).ravel()
        logs = [self._log(b, x, chi, tokens) for b in bodies]
        with np.errstate(invalid="ignore"):
            for p, b in zip(carried, logs, strict=True):
                log = log - p * b if p else log
        log = np.where(np.isnan(log), -np.inf, log)
        keep = (log > log.max() - LOG_DEPTH) & np.isfinite(log) if log.size else np.zeros(0, bool)
        return TokenTable(sign[keep], log[keep], tuple(b[keep] for b in logs), tuple(carried))

    def _teacher_nodes(self, bodies: Sequence[TokenFunction], hidden: bool, tokens: int) -> tuple[Array, Array]:
        """chi* given x, in units of its spread; one node where the teacher is not needed or follows from x."""
        degenerate = self.law.q > 0.0 and self.law.m**2 >= self.law.q * (1.0 - 1e-14)
        if self.law.hidden is not None or degenerate:
            return np.zeros(1), np.zeros(1)
        spread = self._teacher_spread()
        slopes = [_steepest(self._log(b, np.zeros_like(SCAN), SCAN, tokens), SCAN) for b in bodies]
        sharp = spread * max([1.0, *slopes])
        if sharp < GENTLE:
            hermite, weights = np.polynomial.hermite_e.hermegauss(int(TOKEN_HERMITE * self.fineness))
            return hermite, np.log(weights / weights.sum())
        h = min(0.5, 0.55 / sharp) / self.fineness
        zeta = h * np.arange(-int(SCORE_REACH / h), int(SCORE_REACH / h) + 1, dtype=np.float64)
        return zeta, np.log(h) - zeta**2 / 2.0 - np.log(2.0 * np.pi) / 2.0

    def _teacher_spread(self) -> float:
        """The standard deviation of chi* given x."""
        return float(np.sqrt(max(1.0 - self.law.m**2 / self.law.q, 0.0))) if self.law.q > 0.0 else 1.0

    def _edges(
        self,
        functions: Sequence[tuple[TokenFunction, Sequence[float]]],
        bodies: Sequence[TokenFunction],
        hidden: bool,
        tokens: int,
    ) -> Array:
        """Panel edges in units of the score's deviation, for token functions with the powers they carry."""
        mean, scale = self._score_law(hidden)
        x, chi = self._scan(hidden)
        logs = [self._log(b, x, chi, tokens) for b in bodies]
        reached = np.abs(SCAN) <= SCORE_REACH
        sizes: list[Array] = []
        for function, carried in functions:
            sign, log = self._sized(function, x, chi, tokens)
            with np.errstate(invalid="ignore"):
                for p, b in zip(carried, logs, strict=True):
                    log = log - p * b if p else log
            log = np.where(np.isfinite(log), log, -np.inf) - SCAN**2 / 2.0
            if np.isfinite(log).any():
                reached |= log > log.max() - LOG_DEPTH
                sizes.append(sign * np.exp(log - log.max()))
        low, high = SCAN[reached].min(), SCAN[reached].max()
        sharp = max([1.0, *[_steepest(b[reached], SCAN[reached]) for b in logs], *[roughest(s) for s in sizes]])
        edges = np.linspace(low, high, int(np.ceil((high - low) * sharp * self.fineness / TOKEN_PANEL)) + 1)
        if scale > 0.0:
            kinks = np.array([k for f in (*[f for f, _ in functions], *bodies) for k in self._kinks(f, tokens)])
            edges = np.r_[edges, (kinks - mean) / scale]
        for body, log in zip(bodies, logs, strict=True):
            lowest = _sharp_minima(log, reached)
            edges = np.r_[edges, _graded([self._lowest(body, u, hidden, tokens) for u in lowest])]
        return np.unique(np.clip(edges[np.isfinite(edges)], low, high))

    def _kinks(self, function: TokenFunction, tokens: int) -> tuple[float, ...]:
        blank = np.zeros(1)
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            return function(blank, blank, self.nu, float(tokens), self.params)[2]

    def _lowest(self, body: TokenFunction, near: float, hidden: bool, tokens: int) -> float:
        """Where a body is smallest, close to a point of the scan: in an interval ten times smaller, again and again."""
        reach = float(SCAN[1] - SCAN[0])
        for _ in range(ZOOMS):
            line = near + reach * np.linspace(-1.0, 1.0, 41)
            log = self._log(body, *self._scan(hidden, line), tokens)
            near, reach = float(line[np.argmin(np.where(np.isnan(log), np.inf, log))]), 0.1 * reach
        return near


class TokenTable(NamedTuple):
    """sum_i sign_i exp(log_i) prod_k (s_k b_ki)^carried_k exp(-s_k b_ki) over the nodes i of one token."""

    sign: Array
    log: Array
    bodies: tuple[Array, ...]
    carried: tuple[float, ...]

    def total(self) -> float:
        """The plain average, without sums in denominators."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return float(np.sum(self.sign * np.exp(self.log)))

    def at(self, axes: Sequence[Array]) -> Array:
        """On the grid of log s: a vector for one sum, a matrix for two."""
        if len(axes) == 1:
            return self._along(axes[0])
        with np.errstate(under="ignore", over="ignore"):
            first = self.sign * np.exp(self.log + self._exponent(0, axes[0], slice(None)))
            return np.asarray(first @ np.exp(self._exponent(1, axes[1], slice(None))).T)

    def _along(self, axis: Array) -> Array:
        """Along one axis: exp(-s b) is 1 or 0 but for a band of nodes, and (s b)^p exp(-s b) is 0 outside of it."""
        order = np.argsort(self.bodies[0], kind="stable")
        sorted_table = TokenTable(self.sign[order], self.log[order], (self.bodies[0][order],), self.carried)
        body, p = sorted_table.bodies[0], self.carried[0]
        depth = 45.0 / min(p, 1.0) if p else 40.0
        with np.errstate(under="ignore", over="ignore"):
            below = np.r_[0.0, np.cumsum(sorted_table.sign * np.exp(sorted_table.log))] if p == 0.0 else None
            found = np.empty(axis.size)
            for begin in range(0, axis.size, LOG_ROWS):
                u = axis[begin : begin + LOG_ROWS]
                band = slice(*np.searchsorted(body, [-depth - u[-1], GONE - u[0]]))
                terms = sorted_table.log[band] + sorted_table._exponent(0, u, band)
                found[begin : begin + LOG_ROWS] = (sorted_table.sign[band] * np.exp(terms)).sum(axis=1)
                if below is not None:
                    found[begin : begin + LOG_ROWS] += below[band.start]
        return found

    def _exponent(self, k: int, axis: Array, nodes: slice) -> Array:
        log_sb = axis[:, None] + self.bodies[k][nodes]
        carried, least = self.carried[k], -1e300 * (self.carried[k] > 0)
        return np.asarray(carried * np.where(np.isfinite(log_sb), log_sb, least) - np.exp(log_sb))


class Laplace(NamedTuple):
    """The integral over log s, one s for each inverse power, of the product over the tokens of their averages.

    All tokens but `spare` many of them have a table of their own; those share the last one.
    """

    powers: Sequence[float]
    offsets: Sequence[float]
    tables: Sequence[TokenTable]
    spare: Array

    def value(self, step: float) -> Array:
        """By trapezoid sums, for each number of spare tokens."""
        axes = self._axes(step)
        if axes[0].size == 1:
            return np.zeros(self.spare.size)
        cell = float(np.prod([a[1] - a[0] for a in axes]))
        norm = float(np.prod([special.gamma(p) for p in self.powers]))
        total = np.zeros(self.spare.size)
        most = max(t.log.size for t in self.tables)
        if (len(axes) > 1 and most * sum(a.size for a in axes) > LARGEST_GRID) or axes[0].size > LONGEST_AXIS:
            raise OutOfReach("the weights are too sharp for this quadrature: take a smaller nu or |k|, or nu = inf")
        rows = max(1, LAPLACE_BLOCK // most) if len(axes) > 1 else axes[0].size
        for begin in range(0, axes[0].size, rows):
            total += self._at([axes[0][begin : begin + rows], *axes[1:]]).sum(axis=tuple(range(1, len(axes) + 1)))
        return total * cell / norm

    def _axes(self, step: float) -> list[Array]:
        """The ranges of log s in which the integrand matters, from a coarse look."""
        coarse = []
        for k, power in enumerate(self.powers):
            logs = np.concatenate([t.bodies[k] for t in self.tables])
            logs = logs[np.isfinite(logs)]
            low, high = -logs.max() - 45.0 / power, -logs.min() + 8.0
            most = COARSE_LOGS // len(self.powers) ** 2
            coarse.append(np.linspace(low, high, int(min(most, high - low)) + 2))
        integrand = np.abs(self._at(coarse))
        if not integrand.max() > 0.0:
            return [np.zeros(1)] * len(coarse)
        grid = tuple(range(1, integrand.ndim))
        relevant = (integrand > 1e-19 * integrand.max(axis=grid, keepdims=True)).any(axis=0)
        axes = []
        for k, axis in enumerate(coarse):
            along = np.flatnonzero(relevant.any(axis=tuple(j for j in range(relevant.ndim) if j != k)))
            margin = 2.0 * (axis[1] - axis[0])
            axes.append(np.arange(axis[along[0]] - margin, axis[along[-1]] + margin, step))
        return axes

    def _at(self, axes: Sequence[Array]) -> Array:
        """The integrand on the grid of log s."""
        damping = [np.exp(-c * np.exp(np.minimum(a, 700.0))) for c, a in zip(self.offsets, axes, strict=True)]
        result = damping[0] if len(axes) == 1 else np.multiply.outer(damping[0], damping[1])
        for table in self.tables[:-1]:
            result = result * table.at(axes)
        return np.asarray(result * self.tables[-1].at(axes) ** self.spare.reshape(-1, *[1] * len(axes)))


def _finite(values: Array) -> Array:
    kept = values[np.isfinite(values)]
    return kept if kept.size else np.array([0.0, np.inf])


def _sharp_minima(log: Array, reached: Array) -> list[float]:
    """The points of the scan at which a body has a sharp minimum, where it may vanish."""
    inner = np.flatnonzero((log[1:-1] < log[:-2]) & (log[1:-1] <= log[2:]) & reached[1:-1]) + 1
    return [float(SCAN[i]) for i in inner if not min(log[i - 1], log[i + 1]) - log[i] <= SHARP]


def _graded(points: Sequence[float]) -> Array:
    """Edges that halve towards every point, from both sides."""
    steps = (SCAN[1] - SCAN[0]) * 2.0 ** -np.arange(-3.0, 30.0)
    return np.concatenate([np.zeros(0), *(np.r_[u - steps, u, u + steps] for u in points)])


def _steepest(log: Array, at: Array) -> float:
    """The largest slope of the logarithm of a body; what vanishes is graded instead."""
    with np.errstate(invalid="ignore"):
        slopes = np.abs(np.diff(log) / np.diff(at))
    slopes = slopes[np.isfinite(slopes)]
    return float(min(slopes.max(), max(8.0, float(np.quantile(slopes, 0.98))))) if slopes.size else 1.0


def roughest(sizes: Array) -> float:
    """The largest slope, in units of the largest size, of a function times the density along the scan."""
    return float(np.abs(np.diff(sizes)).max() / (SCAN[1] - SCAN[0]))
