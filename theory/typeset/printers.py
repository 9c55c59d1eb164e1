"""Two printers that set an expression out as a physicist would: LaTeX, and plain text such as `alpha (L - 1) E[G^2]`.

Both read the order, signs and fractions off `arranged.py`; names come from the caller. `rows` breaks LaTeX at the terms
of a sum, `width` is what a piece of LaTeX takes on the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from replicode.theory.language.nodes import TokenSum
from replicode.theory.typeset.arranged import Product, is_average, ordered_terms, product

Names = Callable[[str], str]
_WITHOUT_ARGUMENTS = ("EM", "EF", "ElogZ", "tau_", "kappa_", "psi_", "G_", "Q_")


def _signed(parts: list[tuple[bool, str]]) -> str:
    """Terms joined by their signs."""
    (minus, first), *rest = parts
    return ("-" if minus else "") + first + "".join(f" {'-' if m else '+'} {t}" for m, t in rest)


def _is_heavy(factor: sp.Expr) -> bool:
    return is_average(factor.base if factor.is_Pow else factor)


class _Arranged:
    """What both printers have: the names of the caller, and terms with their signs in the order of people."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names

    def term(self, term: sp.Expr) -> tuple[bool, str]:
        """Whether a term has a minus, and the term without it."""
        raise NotImplementedError

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        return self._names(expr.name)

    def _print_Add(self, expr: sp.Add, order: Any = None) -> str:
        return _signed([self.term(t) for t in ordered_terms(expr)])

    def _print_Mul(self, expr: sp.Mul) -> str:
        return _signed([self.term(expr)])


class Plain(_Arranged, StrPrinter):
    """Plain text."""

    def term(self, term: sp.Expr) -> tuple[bool, str]:
        """Whether a term has a minus, and the term without it."""
        split = product(term)
        heavy = [f for f in split.numerator if _is_heavy(f)]
        light = [f for f in split.numerator if not _is_heavy(f)]
        if heavy and (split.denominator or split.coefficient.q != 1) and (light or split.coefficient.p != 1):
            return split.negative, f"({self._fraction(split, light)}) {self._factors(heavy)}"
        return split.negative, self._fraction(split, [*light, *heavy])

    def _fraction(self, split: Product, above: list[sp.Expr]) -> str:
        over = self._factors(above, split.coefficient.p)
        under = self._factors(list(split.denominator), split.coefficient.q)
        if under == "1":
            return over
        several = len(split.denominator) + (split.coefficient.q != 1) > 1
        return f"{over}/({under})" if several else f"{over}/{under}"

    def _factors(self, factors: list[sp.Expr], number: int = 1) -> str:
        shown = [str(number)] if number != 1 or not factors else []
        return " ".join([*shown, *[f"({self._print(f)})" if f.is_Add else self._print(f) for f in factors]])

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        base, power = expr.as_base_exp()
        if power == sp.Rational(1, 2):
            return f"sqrt({self._print(base)})"
        if power.is_Rational and power < 0:
            return self._print_Mul(expr)
        inside = self._print(base)
        simple = base.is_Symbol or base.is_Function or (base.is_Integer and base >= 0)
        raised = (
            self._print(power) if power.is_Symbol or (power.is_Integer and power > 0) else f"({self._print(power)})"
        )
        return f"{inside if simple else f'({inside})'}^{raised}"

    def _print_E(self, expr: Any) -> str:
        return f"E[{self._print(expr.args[0])}]"

    def _print_TokenSum(self, expr: Any) -> str:
        return f"sum_l({self._print(at_token(expr.args[0], 'l'))})"

    def _print_Derivative(self, expr: sp.Derivative) -> str:
        order = f"^{len(expr.variables)}" if len(expr.variables) > 1 else ""
        below = " ".join(f"d{self._print(v)}" for v in expr.variables)
        if isinstance(expr.expr, AppliedUndef) and not order:
            return f"d{self._print(expr.expr)}/{below}"
        return f"(d{order}/{below}) [{self._print(expr.expr)}]"

    def _print_Integral(self, expr: sp.Integral) -> str:
        ((variable, low, high),) = expr.limits
        return f"int_({self._print(low)})^({self._print(high)}) {self._print(expr.function)} d{self._print(variable)}"

    def _print_Function(self, expr: Any) -> str:
        name = expr.func.__name__
        if name == "TokenSum":
            return self._print_TokenSum(expr)
        if isinstance(expr, AppliedUndef) and name.startswith(_WITHOUT_ARGUMENTS):
            return self._names(name)
        return f"{name}({', '.join(self._print(a) for a in expr.args)})"

    def _print_Abs(self, expr: sp.Abs) -> str:
        return f"|{self._print(expr.args[0])}|"


class Latex(_Arranged, LatexPrinter):
    """LaTeX."""

    def term(self, term: sp.Expr) -> tuple[bool, str]:
        """Whether a term has a minus, and the term without it."""
        split = product(term)
        heavy = [f for f in split.numerator if _is_heavy(f)]
        light = [f for f in split.numerator if not _is_heavy(f)]
        if not split.denominator and split.coefficient.q == 1:
            return split.negative, self._factors([*light, *heavy], split.coefficient.p)
        front = light if heavy else [f for f in light if not f.is_Add]
        behind = heavy if heavy else [f for f in light if f.is_Add]
        if not heavy and (not front or not split.denominator):
            front, behind = light, []
        over = self._bare(front, split.coefficient.p)
        fraction = rf"\frac{{{over}}}{{{self._bare(list(split.denominator), split.coefficient.q)}}}"
        return split.negative, f"{fraction} {self._factors(behind)}" if behind else fraction

    def _bare(self, factors: list[sp.Expr], number: int) -> str:
        """One side of a fraction: a single factor needs no brackets."""
        return str(self._print(factors[0])) if len(factors) == 1 and number == 1 else self._factors(factors, number)

    def _factors(self, factors: list[sp.Expr], number: int = 1) -> str:
        shown = [str(number)] if number != 1 or not factors else []
        return r" \, ".join([*shown, *[self._sum(f) if f.is_Add else str(self._print(f)) for f in factors]])

    def _sum(self, expr: sp.Expr) -> str:
        return rf"\left({self._print(expr)}\right)"

    def _print_E(self, expr: Any, exp: str | None = None) -> str:
        return rf"\mathbb{{E}}\left[{self._print(expr.args[0])}\right]" + (f"^{{{exp}}}" if exp else "")

    def _print_Derivative(self, expr: sp.Derivative) -> str:
        order = f"^{{{len(expr.variables)}}}" if len(expr.variables) > 1 else ""
        below = r" \, ".join(rf"\partial {self._print(v)}" for v in expr.variables)
        if isinstance(expr.expr, AppliedUndef):
            return rf"\frac{{\partial{order} {self._print(expr.expr)}}}{{{below}}}"
        return rf"\frac{{\partial{order}}}{{{below}}} \left[{self._print(expr.expr)}\right]"

    def _print_TokenSum(self, expr: Any, exp: str | None = None) -> str:
        text = rf"\sum_{{\ell}} {self._print(at_token(expr.args[0], 'l'))}"
        return rf"\left({text}\right)" + (f"^{{{exp}}}" if exp else "")

    def _print_Function(self, expr: Any, exp: str | None = None) -> str:
        name = expr.func.__name__
        if name == "TokenSum":
            return self._print_TokenSum(expr, exp)
        if isinstance(expr, AppliedUndef) and name.startswith(_WITHOUT_ARGUMENTS):
            return self._names(name) + (f"^{{{exp}}}" if exp else "")
        return str(super()._print_Function(expr, exp))


def at_token(expr: sp.Expr, index: str) -> sp.Expr:
    """The score, the value field and the score field of a token by that token's own."""
    sums = {node: sp.Dummy() for node in expr.atoms(TokenSum)}
    outside = expr.xreplace(sums)
    own = [s for s in outside.free_symbols if s.name in ("x", "w", "w_chi")]
    named = outside.xreplace({s: sp.Symbol(f"{s.name}_{index}", real=True) for s in own})
    return named.xreplace({dummy: node for node, dummy in sums.items()})


def width(latex: str) -> int:
    """About how many characters a piece of LaTeX takes on the line: of a fraction its longer part."""
    while r"\frac{" in latex:
        start = latex.rindex(r"\frac{")
        over, middle = _braced(latex, start + 5)
        under, end = _braced(latex, middle)
        longer = max(over, under, key=width)
        latex = f"{latex[:start]}{longer}i{latex[end:]}"
    operators = len(re.findall(r"(?<![{(\[_^])[-+=]|\\,", latex))
    latex = re.sub(r"\\(?:left|right|,|!|quad|[bB]igl?r?|limits|rm|mathbb|hat|tilde|text)\b|\\[,!;:]", "", latex)
    latex = re.sub(r"\\(log|cos|sin|exp|cosh|sinh|tanh|operatorname|max|min)\b", r"\1", latex)
    latex = re.sub(r"\\[A-Za-z]+", "a", latex)
    scripts = re.sub(r"[_^](?:\{([^{}]*)\}|(\w))", lambda m: "i" * ((len(m.group(1) or m.group(2)) + 1) // 2), latex)
    return len(re.sub(r"[{}\s]", "", scripts)) + operators * 2 // 3


def _braced(text: str, start: int) -> tuple[str, int]:
    """What stands between the braces that open at `start`, and where they end."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place], place + 1
    raise ValueError(f"braces do not close in {text[start : start + 40]}")


def rows(printer: Latex, expr: sp.Expr, first: int, most: int) -> list[str]:
    """The expression in lines of at most `most` characters, the first one shorter by `first`, broken between terms."""
    lines: list[str] = []
    for number, term in enumerate(ordered_terms(expr)):
        negative, text = printer.term(term)
        sign = ("-" if negative else "") if number == 0 else ("- " if negative else "+ ")
        room = most - (first if len(lines) <= 1 else 0)
        if lines and width(lines[-1]) + width(text) + 1 <= room:
            lines[-1] += f" {sign}{text}"
        else:
            lines.append(f"{sign}{text}")
    return lines
