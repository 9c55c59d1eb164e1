"""Terms counted before an expression is expanded, for SymPy expands (a + b + c + d)**64 without asking."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from replicode.theory.language.nodes import TokenSum

MAX_EXPANDED = 5000


def expanded(expr: sp.Expr) -> sp.Expr:
    """The expression expanded, or as it stands where that would make too many terms."""
    return sp.expand(expr) if expanded_terms(expr) <= MAX_EXPANDED else expr


def expanded_terms(expr: sp.Expr) -> float:
    """An upper bound on the terms that expanding makes, in the expression or any of its parts."""
    return _size(expr).most


@dataclass(frozen=True)
class _Size:
    """Terms of an expanded expression, the most in any of its parts, and its degree in what it is a polynomial of."""

    terms: float
    most: float
    degrees: Mapping[sp.Basic, float]


def _size(expr: sp.Basic) -> _Size:
    parts = [_size(a) for a in expr.args]
    most = max((p.most for p in parts), default=1.0)
    if expr.is_Add or isinstance(expr, TokenSum):
        terms, degrees = sum(p.terms for p in parts), _combined(parts, max)
    elif expr.is_Mul:
        terms, degrees = math.prod(p.terms for p in parts), _combined(parts, sum)
    elif expr.is_Pow and expr.args[1].is_Integer:
        power = abs(int(expr.args[1]))
        terms = _powers(parts[0].terms, power)
        degrees = {g: d * power for g, d in parts[0].degrees.items()}
    else:
        return _Size(1.0, most, {} if expr.is_number else {expr: 1.0})
    terms = min(terms, math.prod(d + 1.0 for d in degrees.values()))
    if expr.is_Pow and expr.args[1].is_negative:
        return _Size(1.0, max(most, terms), {expr: 1.0})
    return _Size(terms, max(most, terms), degrees)


def _combined(parts: Sequence[_Size], rule: Callable[[list[float]], float]) -> dict[sp.Basic, float]:
    generators = dict.fromkeys(g for p in parts for g in p.degrees)
    return {g: rule([p.degrees.get(g, 0.0) for p in parts]) for g in generators}


def _powers(terms: float, power: int) -> float:
    """The monomials of a power of a sum."""
    log = math.lgamma(power + terms) - math.lgamma(power + 1.0) - math.lgamma(terms)
    return math.exp(min(log, 700.0))
