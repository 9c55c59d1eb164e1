"""Printing of SymPy expressions as NumPy source."""

from __future__ import annotations

import math
from functools import reduce

import sympy as sp
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from replicode.theory.errors import Refusal

_FUNCTIONS = {
    "exp": "np.exp({})",
    "log": "np.log({})",
    "tanh": "np.tanh({})",
    "cos": "np.cos({})",
    "sin": "np.sin({})",
    "Abs": "np.abs({})",
    "erf": "special.erf({})",
    "erfc": "special.erfc({})",
    "sigmoid": "special.expit({})",
    "softplus": "np.logaddexp(0.0, {})",
    "relu": "np.maximum({}, 0.0)",
    "step": "np.heaviside({}, 0.0)",
    "sign": "np.sign({})",
    "log_ndtr": "special.log_ndtr({})",
    "erfcx": "special.erfcx({})",
    "softplus_mantissa": (
        "(np.maximum({0}, 0.0) + np.log1p(np.exp(-np.minimum(np.abs({0}), 690.0)))*np.exp(-np.clip({0}, -690.0, 0.0)))"
    ),
}
_FAR = 9.0  # from here on the recurrence of the integrals of erfc cancels, and SciPy's hyperu is accurate
_UNROLLED_POWERS = 4


class NumpyPrinter(StrPrinter):
    """NumPy source; small integer powers of names as products, since NumPy's general power is slow.

    A sum begins with a term to be added where there is one: a sign in front is a pass over the samples.
    """

    def _as_ordered_terms(self, expr: sp.Add, order: str | None = None) -> list[sp.Expr]:
        terms: list[sp.Expr] = super()._as_ordered_terms(expr, order=order)
        first = next((i for i, t in enumerate(terms) if not t.as_coeff_Mul()[0].is_negative), 0)
        return [terms[first], *terms[:first], *terms[first + 1 :]]

    def _print_Function(self, expr: sp.Expr) -> str:
        name = type(expr).__name__
        if name not in _FUNCTIONS:
            raise TypeError(f"no NumPy form of {name}")
        return _FUNCTIONS[name].format(self._print(expr.args[0]))

    _print_Abs = _print_ExpBase = _print_log = _print_Function

    def _print_Max(self, expr: sp.Expr) -> str:
        texts = [self._print(a) for a in expr.args]
        return str(reduce(lambda left, right: f"np.maximum({left}, {right})", texts))

    def _print_Min(self, expr: sp.Expr) -> str:
        texts = [self._print(a) for a in expr.args]
        return str(reduce(lambda left, right: f"np.minimum({left}, {right})", texts))

    def _print_erfc_mantissa(self, expr: sp.Expr) -> str:
        u, n = self.parenthesize(expr.args[0], PRECEDENCE["Mul"]), int(expr.args[1])
        last = f"special.erfcx(np.maximum({u}, 0.0))*special.erfc(np.minimum({u}, 0.0))"
        before = f"2.0*np.exp(-np.minimum({u}, 0.0)**2)/np.sqrt(np.pi)"
        for k in range(1, n + 1):
            near = f"({before} - 2.0*{u}*{last})/{2.0 * k}"
            far = f"special.hyperu({(k + 1) / 2}, 0.5, np.maximum({u}, {_FAR})**2)/({2.0**k}*np.sqrt(np.pi))"
            before, last = last, f"np.where({u} > {_FAR}, {far}, {near})"
        return f"({last})"

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        base, exponent = expr.as_base_exp() if not isinstance(expr, sp.exp) else (expr, sp.S.One)
        if exponent.could_extract_minus_sign():
            return self._print_Mul(sp.Mul(sp.S.One, expr, evaluate=False))
        if exponent == sp.Rational(1, 2):
            return f"np.sqrt({self._print(base)})"
        text = self.parenthesize(base, PRECEDENCE["Pow"] + 1)
        if base.is_Symbol and exponent.is_Integer and exponent <= _UNROLLED_POWERS:
            return "*".join([text] * int(exponent))
        power = str(int(exponent)) if exponent.is_Integer else self.parenthesize(exponent, PRECEDENCE["Pow"] + 1)
        return f"{text}**{power}"

    def _print_Mul(self, expr: sp.Mul) -> str:
        coefficient, rest = expr.as_coeff_Mul()
        factors = [rest] if rest.is_Pow else rest.as_ordered_factors()
        sign = "-" if coefficient < 0 else ""
        over, under = [], []
        for factor in factors:
            base, exponent = factor.as_base_exp()
            if not isinstance(factor, sp.exp) and exponent.could_extract_minus_sign():
                under.append(base**-exponent)
            else:
                over.append(factor)
        texts = [self._term(f) for f in over]
        if abs(coefficient) != 1 or not texts:
            texts.insert(0, self._print(abs(coefficient)))
        text = sign + "*".join(texts)
        if not under:
            return text
        below = [self._term(f) for f in under]
        single = len(below) == 1 and (under[0].is_Add or "*" not in below[0])
        return f"{text}/{below[0]}" if single else f"{text}/({'*'.join(below)})"

    def _term(self, expr: sp.Expr) -> str:
        return str(self.parenthesize(expr, PRECEDENCE["Mul"]))

    def _print_Rational(self, expr: sp.Rational) -> str:
        value = float(expr)
        if math.isinf(value) or (value == 0.0 and expr != 0):
            raise Refusal(f"a constant of the equations is 10^{_magnitude(expr)}, outside double precision")
        return repr(value)

    _print_Half = _print_Integer = _print_One = _print_NegativeOne = _print_Zero = _print_Float = _print_Rational

    def _print_Pi(self, _: sp.Expr) -> str:
        return "np.pi"

    def _print_Exp1(self, _: sp.Expr) -> str:
        return "np.e"


def _magnitude(expr: sp.Rational) -> int:
    """The power of ten of a number, of any size."""
    return int(sp.floor(sp.log(abs(expr), 10).n()))


def numpy_source(expr: sp.Expr) -> str:
    """The expression as NumPy source."""
    return str(NumpyPrinter().doprint(expr))
