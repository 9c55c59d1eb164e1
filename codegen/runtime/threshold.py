"""Averages in the limit nu -> infinity, where the hidden token is the one of the largest (or smallest) score.

A is L E[f_0 prod f_i 1(token 0 has the largest chi*)]: the other tokens are averaged up to a threshold by cumulative
Gauss-Legendre integration, and the threshold is integrated over last. Inverse powers of sums are Laplace integrals as
in `onetoken`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.nodes import COMPOSITE_NODES, gauss_legendre, gauss_panels, panel_integrals
from replicode.codegen.runtime.onetoken import LOG_STEP, SCAN, Law, Product, TokenAverages, TokenFunction, roughest

RESIDUAL_STEP = 0.5
RESIDUAL_REACH = 9.0
THRESHOLD_ROWS = 64
COARSE_THRESHOLDS = 100


class HardTokenAverages(TokenAverages):
    """`hard_value` is E over the base law of products times the indicator that token 0 has the largest score."""

    def __init__(self, law: Law, sign: int, params: Array, fineness: float = 1.0) -> None:
        super().__init__(law, 0.0, params, fineness)
        self.sign = sign
        self._roughness = 1.0

    def hard_value(self, products: Sequence[Product], lengths: Sequence[int]) -> Array:
        """L times the average, for each number of tokens."""
        return np.array([n * sum(self._hard_product(p, n) for p in products) for n in lengths])

    def _hard_product(self, product: Product, tokens: int) -> float:
        coefficient = self._number(product.coefficient, tokens)
        if coefficient == 0.0 or tokens < len(product.functions):
            return 0.0
        bodies, powers = [p.body for p in product.powers], [p.power for p in product.powers]
        functions = [*product.functions, product.every]
        carriers = [self._carrier(functions[:-1], b, p, tokens) for b, p in zip(bodies, powers, strict=True)]
        carried = [[p if i == c else 0.0 for p, c in zip(powers, carriers, strict=True)] for i in range(len(functions))]
        edges = self._edges(list(zip(functions, carried, strict=True)), bodies, False, tokens)
        self._note_roughness(functions, tokens)
        if self.law.q <= 0.0 or self.law.m == 0.0:
            edges = np.linspace(-9.5, 9.5, int(24 * self.fineness) + 1)
        spare = tokens - len(product.functions)

        def rates(axis: Array) -> Array:
            parts = []
            for begin in range(0, axis.size, THRESHOLD_ROWS):
                u = axis[begin : begin + THRESHOLD_ROWS]
                tables = [self._table(f, bodies, c, edges, u, tokens) for f, c in zip(functions, carried, strict=True)]
                parts.append(self._threshold_sum(tables, edges, spare))
            return np.concatenate(parts)

        if not bodies:
            return coefficient * float(rates(np.zeros(1))[0])
        offset = self._number(product.powers[0].offset, tokens)

        def damped(axis: Array) -> Array:
            return rates(axis) * np.exp(-offset * np.exp(np.minimum(axis, 700.0)))

        axis = self._axis(bodies, powers, edges, tokens, damped)
        return coefficient * float(damped(axis).sum() * (axis[1] - axis[0]) / special.gamma(powers[0]))

    def _axis(
        self,
        bodies: Sequence[TokenFunction],
        powers: Sequence[float],
        edges: Array,
        tokens: int,
        integrand: Callable[[Array], Array],
    ) -> Array:
        """The range of log s in which the integrand matters, from a coarse look, with its step."""
        x = self._scores(edges)[0]
        log = self._log(bodies[0], x, np.zeros_like(x), tokens)
        log = log[np.isfinite(log)]
        coarse = np.linspace(-log.max() - 45.0 / powers[0], -log.min() + 8.0, COARSE_THRESHOLDS)
        sizes = np.abs(integrand(coarse))
        relevant = coarse[sizes > 1e-19 * sizes.max()]
        margin = 2.0 * (coarse[1] - coarse[0])
        return np.arange(relevant[0] - margin, relevant[-1] + margin, LOG_STEP / self.fineness)

    def _scores(self, chi: Array) -> tuple[Array, Array]:
        """Scores m chi + sqrt(q - m^2) xi at every chi, with the logarithms of the weights of xi."""
        residual = self.law.q - self.law.m**2
        if residual <= 1e-14 * self.law.q:
            return self.law.m * chi[:, None], np.zeros(1)
        h = RESIDUAL_STEP / max(1.0, np.sqrt(residual) * self._roughness) / self.fineness
        xi = h * np.arange(-int(RESIDUAL_REACH / h), int(RESIDUAL_REACH / h) + 1)
        weights = np.exp(-(xi**2) / 2.0)
        return self.law.m * chi[:, None] + np.sqrt(residual) * xi, np.log(weights / weights.sum())

    def _note_roughness(self, functions: Sequence[TokenFunction], tokens: int) -> None:
        """The largest slope of the token functions in x, in units of their size, for the nodes of the residual."""
        if self.law.q <= self.law.m**2:
            return
        x, chi = self._scan(False)
        slopes = [1.0]
        for f in functions:
            sign, log = self._sized(f, x, chi, tokens)
            log = log - SCAN**2 / 2.0
            if np.isfinite(log).any():
                slopes.append(roughest(sign * np.exp(log - log[np.isfinite(log)].max())))
        self._roughness = max(slopes) / float(np.sqrt(self.law.q))

    def _table(
        self,
        function: TokenFunction,
        bodies: Sequence[TokenFunction],
        carried: Sequence[float],
        edges: Array,
        axis: Array,
        tokens: int,
    ) -> Array:
        """f averaged over the score given chi*, times the density of chi*, on (log s, chi*)."""
        chi, _ = gauss_panels(edges)
        x, log_weight = self._scores(chi)
        blank = np.zeros_like(x)
        sign, log = self._sized(function, x, blank, tokens)
        log = log + log_weight - chi[:, None] ** 2 / 2.0
        log = log - np.log(2.0 * np.pi) / 2.0
        if not bodies:
            return np.asarray((sign * np.exp(log)).sum(axis=1)[None])
        body = self._log(bodies[0], x, blank, tokens)
        with np.errstate(under="ignore", over="ignore"):
            rows = [(sign * np.exp(log + carried[0] * u - np.exp(u + body))).sum(axis=1) for u in axis]
        return np.array(rows)

    def _threshold_sum(self, tables: Sequence[Array], edges: Array, spare: int) -> Array:
        _, weights = gauss_panels(edges)
        below = [self._up_to(t, edges) for t in tables[1:]]
        product = tables[0] * below[-1] ** spare
        for table in below[:-1]:
            product = product * table
        return np.asarray(product @ weights)

    def _up_to(self, table: Array, edges: Array) -> Array:
        """The integral of each row from -infinity up to every node (from it on for the smallest score)."""
        half = np.diff(edges) / 2.0
        panels = table.reshape(table.shape[0], half.size, COMPOSITE_NODES)
        inside = np.einsum("ij,upj->upi", panel_integrals(), panels) * half[:, None]
        _, weights = gauss_legendre(COMPOSITE_NODES)
        whole = (panels @ weights) * half
        before = np.cumsum(whole, axis=1) - whole
        found = (before[:, :, None] + inside).reshape(table.shape)
        return np.asarray(found if self.sign > 0 else whole.sum(axis=1)[:, None] - found)
