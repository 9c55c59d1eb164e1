"""Averages of products with any gain: E[G a b] where G sees two normals, and a and b are Gaussian with them.

Given the scores, G = -dloss/df is a function of the output f and of what the label is drawn from; in an orthonormal
frame these are two normals u_1, u_2. The mean of a b given them is a polynomial of degree two, so that of G only its
moments with Hermite polynomials remain: G_0 = E[G], G_i = E[G u_i], G_ij = E[G (u_i u_j - delta_ij)].
"""

from __future__ import annotations

from typing import NamedTuple

import sympy as sp

NORMALS = sp.symbols("u_1 u_2", real=True)
MEAN_A, MEAN_B, COVARIANCE = sp.symbols("mean_a mean_b cov_a__b", real=True)
LOADS_A, LOADS_B = sp.symbols("a_1 a_2", real=True), sp.symbols("b_1 b_2", real=True)


class GainMoments(NamedTuple):
    """The moments of a gain with Hermite polynomials of both normals, of degree zero, one and two."""

    zero: sp.Symbol
    one: sp.Symbol
    two: sp.Symbol
    one_one: sp.Symbol
    one_two: sp.Symbol
    two_two: sp.Symbol

    @staticmethod
    def of(letter: str) -> GainMoments:
        """The symbols of those of G, or of its square."""
        return GainMoments(*[sp.Symbol(f"{letter}_{i}", real=True) for i in ("0", "1", "2", "11", "12", "22")])

    def average(self, polynomial: sp.Expr) -> sp.Expr:
        """E[G p] of a polynomial p of degree two in the normals."""
        by_powers = {
            (0, 0): self.zero,
            (1, 0): self.one,
            (0, 1): self.two,
            (2, 0): self.one_one + self.zero,
            (1, 1): self.one_two,
            (0, 2): self.two_two + self.zero,
        }
        terms = sp.Poly(polynomial, *NORMALS).terms()
        return sp.expand(sp.Add(*[coefficient * by_powers[powers] for powers, coefficient in terms]))


GAINS, SQUARED_GAINS = GainMoments.of("G"), GainMoments.of("GG")


def gained_product(moments: GainMoments) -> sp.Expr:
    """E[G a b]: a = mean_a + a_1 u_1 + a_2 u_2 + the rest, b likewise, which have the covariance cov_a__b in all."""
    a, b = (
        mean + sp.Add(*[c * u for c, u in zip(loads, NORMALS, strict=True)])
        for mean, loads in ((MEAN_A, LOADS_A), (MEAN_B, LOADS_B))
    )
    rest = COVARIANCE - sp.Add(*[x * y for x, y in zip(LOADS_A, LOADS_B, strict=True)])
    return moments.average(sp.expand(a * b + rest))
