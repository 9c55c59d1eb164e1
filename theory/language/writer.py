"""Expressions written back in the language: `unparse` is the inverse of `parse`."""

from __future__ import annotations

import sympy as sp
from sympy.printing.str import StrPrinter

from replicode.theory.errors import InputError
from replicode.theory.language.functions import BY_NAME
from replicode.theory.language.nodes import TokenSum

MAX_DIGITS = 30

_PRINTED = {f.node: name for name, f in BY_NAME.items() if f.node is not None} | {TokenSum: "sum", sp.sign: "sign"}


def unparse(expr: sp.Expr) -> str:
    """The text that `parse` reads as `expr`."""
    for part in sp.preorder_traversal(expr):
        if not (part.is_Add or part.is_Mul or part.is_Pow or part.func in _PRINTED or _is_leaf(part)):
            raise InputError("expression", expr, f"expressions built by parse, without {part.func.__name__}")
    return _Printer().write(expr)


def _is_leaf(part: sp.Basic) -> bool:
    """Whether `part` is a name or a constant of the language."""
    return bool(part.is_Symbol or part.is_Rational or part in (sp.pi, sp.E))


class _Printer(StrPrinter):
    """Writes an expression in the language: chains are flat, denominators follow one by one."""

    def write(self, expr: sp.Expr) -> str:
        """The text of an expression."""
        return str(self._print(expr))

    def _print_Function(self, expr: sp.Expr) -> str:
        return f"{_PRINTED[expr.func]}({self.write(expr.args[0])})"

    _print_Abs = _print_TokenSum = _print_Function

    def _print_Exp1(self, expr: sp.Expr) -> str:
        return "exp(1)"

    def _print_Integer(self, expr: sp.Expr) -> str:
        return _integer(int(expr))

    def _print_Rational(self, expr: sp.Expr) -> str:
        sign = "-" if expr.p < 0 else ""
        return f"{sign}({_integer(abs(expr.p))}/{_integer(expr.q)})"

    _print_Half = _print_Rational

    def _print_Add(self, expr: sp.Expr, order: str | None = None) -> str:
        first, *others = (self.write(term) for term in sorted(expr.args, key=sp.default_sort_key))
        return first + "".join(f" - {t[1:]}" if t.startswith("-") else f" + {t}" for t in others)

    def _print_Mul(self, expr: sp.Expr) -> str:
        number, rest = expr.as_coeff_Mul()
        factors = sorted(sp.Mul.make_args(rest), key=sp.default_sort_key)
        below = [f for f in factors if _is_below(f)]
        above = [self._factor(f) for f in factors if f not in below]
        if abs(number) != 1 or not above:
            above.insert(0, self.write(abs(number)))
        sign = "-" if number < 0 else ""
        return sign + "*".join(above) + "".join(f"/{self._root(f.base, -f.exp)}" for f in below)

    def _print_Pow(self, expr: sp.Expr, rational: bool = False) -> str:
        if _is_below(expr):
            return f"1/{self._root(expr.base, -expr.exp)}"
        return self._root(expr.base, expr.exp)

    def _factor(self, expr: sp.Expr) -> str:
        return f"({self.write(expr)})" if expr.is_Add else self.write(expr)

    def _root(self, base: sp.Expr, exponent: sp.Expr) -> str:
        if exponent == 1:
            return self._tight(base)
        if exponent == sp.S.Half:
            return f"sqrt({self.write(base)})"
        return f"{self._tight(base)}**{self._tight(exponent)}"

    def _tight(self, expr: sp.Expr) -> str:
        bare = expr.is_Symbol or expr.is_Function or expr in (sp.pi, sp.E) or (expr.is_Rational and expr >= 0)
        return self.write(expr) if bare else f"({self.write(expr)})"


def _is_below(factor: sp.Expr) -> bool:
    """Whether a factor is written in the denominator."""
    return bool(factor.is_Pow and factor.exp.is_Rational and factor.exp < 0)


def _integer(number: int) -> str:
    """An integer in literals that `parse` takes, in blocks of digits where one is too short."""
    digits = str(abs(number))
    sign = "-" if number < 0 else ""
    if len(digits) <= MAX_DIGITS:
        return sign + digits
    short = digits.rstrip("0")
    if len(short) <= MAX_DIGITS:
        return f"{sign}{short}e{len(digits) - len(short)}"
    ends = range(len(digits), 0, -MAX_DIGITS)
    blocks = {len(digits) - end: digits[max(0, end - MAX_DIGITS) : end].lstrip("0") for end in ends}
    return f"{sign}({' + '.join(f'{block}e{place}' for place, block in blocks.items() if block)})"
