"""Averages of training dynamics that factorise over the tokens, for sigma = a(x)/(c + sum_l b(x_l)).

The output is f = N/S with N = sum_l a_l z_l and S = c + sum_l b_l; its slopes are f_N a'_l z_l + f_S b'_l in a score
and f_N a_l in a value. So every pull, spread and the risk is a sum of terms y^i N^j S^-p T, T = sum_l of a body of one
token. With S^-p as a Laplace integral, tokens are independent, and any number of them costs one-token averages.
Without sums (b = 0, S = 1) no integral is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L, X

TOP, TOP_SLOPE, BOTTOM, BOTTOM_SLOPE = sp.symbols("a da b db", real=True)
FIELDS = sp.symbols("chi_star z_star chi z", real=True)
_VALUE = FIELDS[-1]
_Y, _N = sp.symbols("y N", real=True)
_S = sp.Symbol("S", positive=True)
_SUMS = sp.symbols("T_:18", real=True)


@dataclass(frozen=True)
class Ratio:
    """sigma = top(x)/(offset + sum_l bottom(x_l)); bottom is 0 where there is no sum."""

    top: sp.Expr
    bottom: sp.Expr
    offset: sp.Expr

    @property
    def parts(self) -> tuple[sp.Expr, ...]:
        """a, a', b, b' and c."""
        return self.top, sp.diff(self.top, X), self.bottom, sp.diff(self.bottom, X), self.offset


@dataclass(frozen=True)
class Term:
    """coefficient y^label N^output S^-power T, of one average; without a body T is 1."""

    average: int
    coefficient: sp.Expr
    label: int
    output: int
    power: int
    body: int | None


def ratio(act: Activation) -> Ratio | None:
    """The activation as such a ratio, or None; c and the sum must be positive together, and not see L."""
    form = act.token_form()
    if form.f.has(L) or any(body.has(L) for _, body in form.sums):
        return None
    if not form.sums:
        return Ratio(form.f, sp.S.Zero, sp.S.One)
    if len(form.sums) > 1:
        return None
    ((total, body),) = form.sums
    inverse = sp.cancel(1 / form.f)
    slope = sp.diff(inverse, total)
    offset = sp.simplify((inverse - slope * total) / slope) if slope != 0 else sp.nan
    positive = body.is_positive or (body.is_nonnegative and offset.is_positive)
    if slope.has(total) or slope == 0 or offset.has(X, total) or not positive or offset.is_negative:
        return None
    return Ratio(sp.simplify(1 / slope), body, offset)


def token_bodies() -> tuple[sp.Expr, ...]:
    """The bodies of all token sums T, in a, a', b, b' and the fields of one token."""
    along_top = [TOP_SLOPE * _VALUE * h for h in FIELDS]
    along_bottom = [BOTTOM_SLOPE * h for h in FIELDS]
    of_value = [TOP * h for h in FIELDS]
    slope = (TOP_SLOPE * _VALUE, BOTTOM_SLOPE)
    squares = [slope[0] ** 2, slope[0] * slope[1], slope[1] ** 2, TOP * slope[0], TOP * slope[1], TOP**2]
    return (*along_top, *along_bottom, *of_value, *squares)


def factorised_terms(curvature: sp.Expr, risk: sp.Expr) -> tuple[Term, ...]:
    """Pulls (of k, then of v, along chi*, z*, chi, z), spreads kk, kv, vv, the risk and the loss.

    Loss and risk are curvature/2 and `risk` times (y - f)^2.
    """
    f = _N / _S
    by_top, by_bottom = sp.diff(f, _N), sp.diff(f, _S)
    top, bottom, value, squares = _SUMS[:4], _SUMS[4:8], _SUMS[8:12], _SUMS[12:]
    gain = curvature * (_Y - f)
    found = [gain * (by_top * t + by_bottom * b) for t, b in zip(top, bottom, strict=True)]
    found += [gain * by_top * t for t in value]
    found += [
        gain**2 * (by_top**2 * squares[0] + 2 * by_top * by_bottom * squares[1] + by_bottom**2 * squares[2]),
        gain**2 * by_top * (by_top * squares[3] + by_bottom * squares[4]),
        gain**2 * by_top**2 * squares[5],
        risk * (_Y - f) ** 2,
        curvature * (_Y - f) ** 2 / 2,
    ]
    return tuple(t for i, expr in enumerate(found) for t in _terms(i, expr))


def _terms(average: int, expr: sp.Expr) -> list[Term]:
    found = []
    for part in sp.Add.make_args(sp.expand(expr)):
        powers = part.as_powers_dict()
        sums = [i for i, t in enumerate(_SUMS) if powers.get(t, 0)]
        variables = _Y ** powers.get(_Y, 0) * _N ** powers.get(_N, 0) * _S ** powers.get(_S, 0)
        coefficient = part / variables / sp.Mul(*[_SUMS[i] for i in sums])
        exponents = [int(powers.get(s, 0)) for s in (_Y, _N, _S)]
        found.append(Term(average, coefficient, exponents[0], exponents[1], -exponents[2], sums[0] if sums else None))
    return found
