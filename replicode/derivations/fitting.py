"""Equations that fit on the line: where one term is too wide, sums in it are named Q_i and defined behind it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import sympy as sp

from replicode.theory.language.nodes import TokenSum
from replicode.theory.typeset.notation import latex
from replicode.theory.typeset.printers import width

ROW = 80


@dataclass(frozen=True)
class Equation:
    """left = right; the left side by a name of the notation, in words, or as an expression of its own."""

    left: str | sp.Expr
    right: sp.Expr


def fitted(equations: list[Equation]) -> list[Equation]:
    """The equations with every term at most a line wide, each followed by what it names."""
    numbers = count(1)
    shown: list[Equation] = []
    waiting = list(equations)
    while waiting:
        equation = waiting.pop(0)
        named: dict[sp.Expr, sp.Symbol] = {}
        left = equation.left if isinstance(equation.left, str) else _narrow(equation.left, named, numbers)
        shown.append(Equation(left, _narrow(equation.right, named, numbers)))
        waiting = [*[Equation(symbol, e) for e, symbol in named.items()], *waiting]
    return shown


def _narrow(expr: sp.Expr, named: dict[sp.Expr, sp.Symbol], numbers: count[int]) -> sp.Expr:
    terms = []
    for term in sp.Add.make_args(expr):
        while width(latex(term)) > ROW - 8 and (part := _widest_sum(term)) is not None:
            symbol = named.setdefault(part, sp.Symbol(f"Q_{next(numbers)}", real=True))
            term = _replaced(term, part, symbol)
        terms.append(term)
    return sp.Add(*terms) if len(terms) > 1 else terms[0]


def _widest_sum(term: sp.Expr) -> sp.Expr | None:
    """The widest sum inside a term that does not fill the line by itself, or the widest of all; none in token sums."""
    sums = {n for n in _outside_of_sums(term) if n.is_Add and n != term}
    worth = [n for n in sums if width(latex(n)) > 4]
    fitting = [n for n in worth if width(latex(n)) <= ROW]
    return max(fitting or worth, key=lambda n: (width(latex(n)), str(n)), default=None)


def _outside_of_sums(expr: sp.Expr) -> list[sp.Expr]:
    if isinstance(expr, TokenSum) or not isinstance(expr, sp.Expr):
        return []
    return [expr, *[n for a in expr.args for n in _outside_of_sums(a)]]


def _replaced(expr: sp.Expr, part: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """The part by its name; a derivative of something named stays a derivative."""
    if isinstance(expr, sp.Derivative):
        named = sp.Function(symbol.name)(*expr.variables) if expr.expr == part else None
        inside = named if named is not None else _replaced(expr.expr, part, symbol)
        return sp.Derivative(inside, *expr.variables) if inside.has(*expr.variables) else expr
    if expr == part:
        return symbol
    if isinstance(expr, TokenSum) or not expr.args:
        return expr
    return expr.func(*[_replaced(a, part, symbol) if isinstance(a, sp.Expr) else a for a in expr.args])
