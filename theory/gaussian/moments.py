"""Moments of jointly Gaussian variables by Stein's recursion: E[x g] = E[x] E[g] + sum_i cov(x, x_i) E[dg/dx_i].

`moment` gives the average of a product of such variables in terms of their means and covariances, and
`polynomial_moment` that of a polynomial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sympy as sp

Covariance = Callable[[sp.Symbol, sp.Symbol], sp.Expr]


def moment(factors: Sequence[sp.Symbol], mean: Mapping[sp.Symbol, sp.Expr], covariance: Covariance) -> sp.Expr:
    """E of the product of the factors, each of which may occur several times."""
    if not factors:
        return sp.S.One
    first, *rest = factors
    total = mean[first] * moment(rest, mean, covariance)
    for i, other in enumerate(rest):
        total += covariance(first, other) * moment([*rest[:i], *rest[i + 1 :]], mean, covariance)
    return sp.expand(total)


def polynomial_moment(expr: sp.Expr, mean: Mapping[sp.Symbol, sp.Expr], covariance: Covariance) -> sp.Expr:
    """E of a polynomial in the variables that have a mean."""
    variables = tuple(mean)
    found = sp.S.Zero
    for powers, coefficient in sp.Poly(expr, *variables).terms():
        factors = [v for v, power in zip(variables, powers, strict=True) for _ in range(power)]
        found += coefficient * moment(factors, mean, covariance)
    return found
