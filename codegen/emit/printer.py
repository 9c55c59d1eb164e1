"""Printing of SymPy expressions as NumPy source."""

from __future__ import annotations

import keyword
import math
from functools import reduce

import sympy as sp
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.functions import BY_NODE

_UNROLLED_POWERS = 4


def identifier(name: str) -> str:
    """The name, if it can be printed as one; nothing else reaches emitted code under the guise of a symbol."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise InputError("symbol", name, "an identifier of ASCII letters, digits and underscores, no keyword")
    return name


class NumpyPrinter(StrPrinter):
    """NumPy source; small integer powers of names as products, since NumPy's general power is slow.

    A sum begins with a term to be added where there is one: a sign in front is a pass over the samples.
    """

    def _as_ordered_terms(self, expr: sp.Add, order: str | None = None) -> list[sp.Expr]:
        terms: list[sp.Expr] = super()._as_ordered_terms(expr, order=order)
        first = next((i for i, t in enumerate(terms) if not t.as_coeff_Mul()[0].is_negative), 0)
        return [terms[first], *terms[:first], *terms[first + 1 :]]

    def _print_Symbol(self, expr: sp.Symbol) -> str:
        return identifier(expr.name)

    def _print_Function(self, expr: sp.Expr) -> str:
        if type(expr) not in BY_NODE:
            raise TypeError(f"no NumPy form of {type(expr).__name__}")
        u, *order = expr.args
        text = self.parenthesize(u, PRECEDENCE["Mul"]) if order else self._print(u)
        return BY_NODE[type(expr)].numpy_text(text, *map(str, order))

    def _print_loss_prox(self, expr: sp.Expr) -> str:
        return f"loss_prox({', '.join(map(self._print, expr.args))})"

    _print_Abs = _print_ExpBase = _print_log = _print_Function

    def _print_Max(self, expr: sp.Expr) -> str:
        texts = [self._print(a) for a in expr.args]
        return str(reduce(lambda left, right: f"np.maximum({left}, {right})", texts))

    def _print_Min(self, expr: sp.Expr) -> str:
        texts = [self._print(a) for a in expr.args]
        return str(reduce(lambda left, right: f"np.minimum({left}, {right})", texts))

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
