"""Printing of SymPy expressions as NumPy source."""

from __future__ import annotations

from functools import reduce

import sympy as sp
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

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
}
_UNROLLED_POWERS = 4


class NumpyPrinter(StrPrinter):
    """NumPy source; small integer powers of names as products, since NumPy's general power is slow."""

    def _print_Function(self, expr: sp.Expr) -> str:
        name = type(expr).__name__
        if name not in _FUNCTIONS:
            raise TypeError(f"no NumPy form of {name}")
        return _FUNCTIONS[name].format(self._print(expr.args[0]))

    _print_Abs = _print_ExpBase = _print_log = _print_Function

    def _print_Max(self, expr: sp.Expr) -> str:
        texts = [self._print(a) for a in expr.args]
        return str(reduce(lambda left, right: f"np.maximum({left}, {right})", texts))

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
        single = len(below) == 1 and "*" not in below[0]
        return f"{text}/{below[0]}" if single else f"{text}/({'*'.join(below)})"

    def _term(self, expr: sp.Expr) -> str:
        return str(self.parenthesize(expr, PRECEDENCE["Mul"]))

    def _print_Rational(self, expr: sp.Rational) -> str:
        return repr(float(expr))

    _print_Half = _print_Integer = _print_One = _print_NegativeOne = _print_Zero = _print_Float = _print_Rational

    def _print_Pi(self, _: sp.Expr) -> str:
        return "np.pi"

    def _print_Exp1(self, _: sp.Expr) -> str:
        return "np.e"


def numpy_source(expr: sp.Expr) -> str:
    """The expression as NumPy source."""
    return str(NumpyPrinter().doprint(expr))
