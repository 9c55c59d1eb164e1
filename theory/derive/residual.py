"""All critical points of the prox at once, where sigma is affine in its own score and the loss is a square.

With r = -de/dU, U = sigma.w and N = sigma.sigma, the objective is stationary where every token has
(sigma_l - s_l)/V = r w_l - 2 (de/dN) sigma_l, s being sigma at the field of the scores and V their response times the
square of the slope of sigma. de/dN is a function of r (Hamilton-Jacobi), so that given r the tokens part; what they add
to U and N closes an equation for r alone, a polynomial.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from replicode.theory.derive.channel import N, U, ValueElimination, hamilton_jacobi
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import TokenSum, X

R, WIDTH = sp.Symbol("r", real=True), sp.Symbol("V", positive=True)
OWN, VALUE = sp.symbols("s_l w_l", real=True)
OWN_SQUARE, MIXED, VALUE_SQUARE = sp.symbols("S2 SW W2", real=True)
_SIGMA = sp.Symbol("sigma_l", real=True)


@dataclass(frozen=True)
class ResidualEquation:
    """sigma of a token at the residual r, and the polynomial that r is a root of: its coefficients, highest first."""

    point: sp.Expr
    coefficients: tuple[sp.Expr, ...]


def is_affine(act: Activation) -> bool:
    """Whether sigma is affine in the token's own score, as it is written, and sees no other."""
    return not act.expr.has(TokenSum) and act.expr.has(X) and not sp.diff(act.expr, X).has(X)


def residual_equation(values: ValueElimination) -> ResidualEquation:
    """Stationarity of a token given r, and what the sums over tokens make of it."""
    slope = -R
    balance = (_SIGMA - OWN) / WIDTH + slope * VALUE + 2 * hamilton_jacobi(slope, values.v) * _SIGMA
    (point,) = sp.solve(balance, _SIGMA)
    by_own, by_value = (sp.diff(point, s) for s in (OWN, VALUE))
    square = by_own**2 * OWN_SQUARE + 2 * by_own * by_value * MIXED + by_value**2 * VALUE_SQUARE
    sums = {N: square, U: by_own * MIXED + by_value * VALUE_SQUARE}
    numerator, _ = sp.fraction(sp.cancel(sp.together(values.derivative(U).subs(sums, simultaneous=True) - slope)))
    return ResidualEquation(sp.factor(point), tuple(map(sp.factor, sp.Poly(numerator, R).all_coeffs())))
