"""How an expression is set out for people: signs, order of factors and terms, and what is taken together.

SymPy keeps -2 alpha (1/2 - L/2) E as it came; here it is alpha (L - 1) E. `product` splits a term into sign,
coefficient, numerator and denominator with every sum in it turned to begin with a plus; `ordered_terms`
puts the terms of a sum in the order of the notation; `arranged` gives an equal SymPy expression with rational contents
and signs gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp
from sympy.core.function import AppliedUndef

_ORDER = (
    *("z_star", "n_rep", "beta_T", "alpha", "L", "L_seq", "nu", "noise", "lambda"),
    *("m", "mh", "q", "q0", "q1", "Vh", "V", "qh", "qh0", "qh1", "y", "w", "x", "theta", "sigma"),
)
_RANK = {name: place for place, name in enumerate(_ORDER)}
_BLOCKS = ("_k", "_v")
_MOST_TERMS = 12
_WHOLE = ("EM", "EF", "ElogZ")
_AVERAGES = ("E", "TokenSum", *_WHOLE)


@dataclass(frozen=True)
class Product:
    """sign * coefficient * numerator / denominator, the coefficient a positive rational, the rest lists of factors."""

    negative: bool
    coefficient: sp.Rational
    numerator: tuple[sp.Expr, ...]
    denominator: tuple[sp.Expr, ...]


def is_average(expr: sp.Expr) -> bool:
    """Whether it is an average or a derivative, which stands behind its factors."""
    return isinstance(expr, (sp.Derivative, sp.Integral)) or expr.func.__name__ in _AVERAGES


def _rank(symbol: sp.Symbol) -> tuple[int, str]:
    name = symbol.name
    return _RANK.get(name, _RANK.get(name.split("_")[0], len(_ORDER))), name


def _factor_key(factor: sp.Expr) -> tuple[int, tuple[int, str], str]:
    base = factor.base if factor.is_Pow and factor.exp.is_number else factor
    if base.is_Symbol:
        return 1, _rank(base), str(factor)
    kind = 0 if base.is_number else 4 if is_average(base) else 2 if base.is_Add else 3
    return kind, (0, ""), str(factor)


def _blocks(expr: sp.Expr) -> tuple[int, ...]:
    """The blocks that the symbols of a term belong to, those inside an average left aside."""
    if isinstance(expr, AppliedUndef) or is_average(expr):
        return ()
    names = [s.name for s in expr.free_symbols if isinstance(s, sp.Symbol)]
    return tuple(i for i, end in enumerate(_BLOCKS) if any(n.endswith(end) for n in names))


def _group(term: sp.Expr) -> int:
    factors = sp.Mul.make_args(term)
    found = {b for f in factors for b in _blocks(f)}
    return len(_BLOCKS) if len(found) > 1 or any(f.func.__name__ in _WHOLE for f in factors) else sum(found)


def _negative(term: sp.Expr) -> bool:
    coefficient = term.as_coeff_Mul()[0]
    return bool(coefficient.is_extended_negative)


def _term_key(term: sp.Expr) -> tuple[int, int, bool, bool, tuple[int, tuple[int, str], str]]:
    if term.is_number:
        return (-1 if not _negative(term) else 9), 0, False, False, (0, (0, ""), "")
    split = product(term)
    first = min((_factor_key(f) for f in split.numerator), default=(5, (0, ""), ""))
    heavy = any(f.is_Add or (f.is_Pow and f.base.is_Add) for f in split.denominator)
    averaged = any(is_average(f) for f in split.numerator)
    idle = averaged and any(s.name in ("L", "L_seq") for s in term.free_symbols)
    return 0, _group(term), idle, heavy and not averaged, first


def ordered_terms(expr: sp.Expr) -> list[sp.Expr]:
    """The terms of a sum: constants first, one block after the other, and one with a plus in front."""
    terms = sorted(sp.Add.make_args(expr), key=_term_key)
    if _negative(terms[0]):
        first = next((t for t in terms if not _negative(t)), terms[0])
        terms.remove(first)
        terms.insert(0, first)
    return terms


def _balance(expr: sp.Expr) -> int:
    """Terms with a plus less terms with a minus."""
    return sum(-1 if _negative(t) else 1 for t in sp.Add.make_args(expr))


def _turned(expr: sp.Expr) -> sp.Expr:
    return sp.Add(*[-t for t in sp.Add.make_args(expr)])


def _inside(factor: sp.Expr) -> sp.Expr | None:
    """The sum in an average that can take a minus: the integrand, or a factor of it."""
    if factor.func.__name__ != "E":
        return None
    sums = [f for f in sp.Mul.make_args(factor.args[0]) if f.is_Add]
    return sums[0] if sums else None


def product(term: sp.Expr) -> Product:
    """A term, signs and rational contents gathered in front."""
    sign, coefficient = 1, sp.S.One
    above: list[sp.Expr] = []
    below: list[sp.Expr] = []
    for factor in sp.Mul.make_args(term):
        if factor.is_Rational:
            sign *= -1 if factor < 0 else 1
            coefficient *= abs(factor)
            continue
        base, power = factor.as_base_exp() if not isinstance(factor, sp.exp) else (factor, sp.S.One)
        if base.is_Add and power.is_Integer:
            content, base = base.primitive()
            coefficient *= content**power
            if _balance(base) < 0 or (-base).is_nonnegative:
                base, sign = _turned(base), sign * (-1) ** int(power)
        down = bool(power.is_Rational and power < 0)
        (below if down else above).append(sp.Pow(base, -power if down else power) if power != 1 else base)
    if sign < 0:
        sign = _sign_taken_in(above)
    above.sort(key=_factor_key)
    below.sort(key=_factor_key)
    return Product(sign < 0, coefficient, tuple(above), tuple(below))


def _sign_taken_in(factors: list[sp.Expr]) -> int:
    """+1 where a sum with as many minuses as pluses was turned round to take in the minus, else -1."""
    for place, factor in enumerate(factors):
        inside = factor if factor.is_Add else _inside(factor)
        if inside is not None and _balance(inside) == 0 and not inside.is_nonnegative:
            turned = _turned(inside)
            factors[place] = turned if factor.is_Add else factor.func(factor.args[0].xreplace({inside: turned}))
            return 1
    return -1


def _taken_together(expr: sp.Expr) -> sp.Expr:
    """A sum with a common symbol taken out of some of its terms, where that makes it shorter; averages stay apart."""
    if any(is_average(f) for t in expr.args for f in sp.Mul.make_args(t)):
        return expr
    best, size = expr, (sp.count_ops(expr), len(expr.args))
    for symbol in sorted(expr.free_symbols, key=_rank):
        if sum(symbol in t.free_symbols for t in expr.args) < 2:
            continue
        tried = sp.collect(expr, symbol)
        if (found := (sp.count_ops(tried), len(sp.Add.make_args(tried)))) < size:
            best, size = tried, found
    return best


def arranged(expr: sp.Expr) -> sp.Expr:
    """An equal expression: contents and signs gathered in every product, sums taken together where that is shorter."""
    if not expr.args or isinstance(expr, (sp.Derivative, sp.Integral, AppliedUndef)):
        return expr
    args = [arranged(a) if isinstance(a, sp.Expr) else a for a in expr.args]
    again = expr.func(*args) if tuple(args) != expr.args else expr
    if again.is_Add and len(again.args) <= _MOST_TERMS:
        return _taken_together(again)
    if again.is_Mul:
        split = product(again)
        sign = -1 if split.negative else 1
        return sp.Mul(sign * split.coefficient, *split.numerator, *[1 / d for d in split.denominator])
    return again
