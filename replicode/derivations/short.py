"""Long expressions with common parts abbreviated: token sums T_i, common parts P_i, what is differentiated F_i."""

from __future__ import annotations

import sympy as sp

from replicode.theory.language.nodes import TokenSum

Abbreviations = list[tuple[sp.Symbol, sp.Expr]]
_SHORT = 40
_LONG = 110
_TRIVIAL = 2


def abbreviated(*sides: sp.Expr, short: int = _SHORT, long: int = _LONG) -> tuple[Abbreviations, list[sp.Expr]]:
    """Abbreviations and the expressions in terms of them; short expressions are left alone.

    Sums over tokens and derivatives bind their variables, so they are named (T_i, F_i) before common parts (P_i) are.
    """
    size = sum(sp.count_ops(e) for e in sides)
    if size <= short or any(e.has(sp.Integral) for e in sides):
        return [], list(sides)
    sums, summed = _without_sums(list(sides)) if size > long else ([], list(sides))
    functions: dict[sp.Expr, sp.Symbol] = {}
    rates: dict[sp.Expr, sp.Symbol] = {}
    for rate in sorted(set().union(*(e.atoms(sp.Derivative) for e in summed)), key=sp.default_sort_key):
        function = functions.setdefault(rate.expr, sp.Symbol(f"F_{len(functions) + 1}", real=True))
        variables = ", ".join(v.name for v in rate.variables)
        rates[rate] = sp.Symbol(f"diff({function.name}, {variables})", real=True)
    opaque = [e.xreplace(rates) for e in summed]
    parts, reduced = _common([*functions, *opaque]) if size > long else ([], [*functions, *opaque])
    named = list(zip(functions.values(), reduced))
    return [*sums, *parts, *named], reduced[len(named) :]


def _without_sums(exprs: list[sp.Expr]) -> tuple[Abbreviations, list[sp.Expr]]:
    """Token sums by symbols, innermost first."""
    named: Abbreviations = []
    while nodes := set().union(*(e.atoms(TokenSum) for e in exprs)):
        innermost = sorted((n for n in nodes if not n.args[0].has(TokenSum)), key=sp.default_sort_key)
        symbols = {n: sp.Symbol(f"T_{len(named) + i + 1}", real=True) for i, n in enumerate(innermost)}
        named += [(symbol, node) for node, symbol in symbols.items()]
        exprs = [e.xreplace(symbols) for e in exprs]
    return named, exprs


def _common(exprs: list[sp.Expr]) -> tuple[Abbreviations, list[sp.Expr]]:
    """Common parts worth a name, numbered in order."""
    found, reduced = sp.cse(exprs, symbols=sp.numbered_symbols("common", cls=sp.Dummy, real=True))
    names: dict[sp.Symbol, sp.Expr] = {}
    kept: Abbreviations = []
    for dummy, e in found:
        part = e.xreplace(names)
        worth = sp.count_ops(part) > _TRIVIAL
        names[dummy] = sp.Symbol(f"P_{len(kept) + 1}", real=True) if worth else part
        if worth:
            kept.append((names[dummy], part))
    return kept, [e.xreplace(names) for e in reduced]
