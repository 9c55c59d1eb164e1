"""Stable rewrites: sums of exponentials are taken relative to their largest term.

With P = exp(shift), S = P S' and exp(u) = P exp(u - shift), sigma does not depend on the shift, so it is a constant to
every derivative; what overflows at scores of 800 is gone when P cancels, and enters as 1/P <= 1 when it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from theory.activation import TokenForm
from theory.nodes import X

SHIFT = sp.Symbol("shift", real=True)
_INVERSE = sp.Symbol("inverse_scale", positive=True)
_TERM = sp.Symbol("term", positive=True)


@dataclass(frozen=True)
class StableForm:
    """A token form whose exponentials are relative to `shift` = max over tokens (and `floor`) of `exponent`."""

    form: TokenForm
    exponent: sp.Expr | None
    floor: bool


def stabilised(form: TokenForm) -> StableForm:
    """Shift the exponent shared by the sums, when sigma is a rational function of the exponential and the sums."""
    unchanged = StableForm(form, None, False)
    exponent = _shared_exponent(form)
    if exponent is None:
        return unchanged
    bodies = {s: _in_powers(b, exponent) for s, b in form.sums}
    degrees = {s: d for s, b in bodies.items() if (d := _degree(b)) is not None}
    f = _in_powers(form.f, exponent)
    if len(degrees) < len(bodies) or any(e.has(sp.exp(exponent)) for e in (f, *bodies.values())):
        return unchanged
    scaled = {s: s * _INVERSE ** -degrees[s] for s in degrees}
    f = sp.cancel(sp.together(f.xreplace({**scaled, _TERM: _TERM / _INVERSE})))
    if not f.is_rational_function(_INVERSE):
        return unchanged
    free_of_scale = _INVERSE not in f.free_symbols
    back = {_TERM: sp.exp(exponent - SHIFT), _INVERSE: sp.exp(-SHIFT)}
    sums = tuple((s, b.xreplace(back)) for s, b in bodies.items())
    return StableForm(TokenForm(f.xreplace(back), sums), exponent, not free_of_scale)


def _shared_exponent(form: TokenForm) -> sp.Expr | None:
    """The one u for which every exponential of the form is exp(k u + constant), k a positive integer."""
    if not form.sums or any(set(b.free_symbols) & {s for s, _ in form.sums} for _, b in form.sums):
        return None
    expressions = (form.f, *(b for _, b in form.sums))
    arguments = {e.args[0] for expr in expressions for e in expr.atoms(sp.exp) if X in e.free_symbols}
    candidates = sorted({a.as_independent(X, as_Add=True)[1] for a in arguments}, key=sp.default_sort_key)
    for candidate in candidates:
        if all(_multiple(a, candidate) is not None for a in arguments):
            return candidate
    return None


def _multiple(argument: sp.Expr, exponent: sp.Expr) -> tuple[int, sp.Expr] | None:
    """(k, constant) with argument = k exponent + constant, k a positive integer."""
    ratio = sp.simplify(sp.diff(argument, X) / sp.diff(exponent, X))
    if not (ratio.is_Integer and ratio > 0):
        return None
    constant = sp.simplify(argument - ratio * exponent)
    return None if X in constant.free_symbols else (int(ratio), constant)


def _in_powers(expr: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """exp(k u + constant) -> exp(constant) term^k."""

    def powers(argument: sp.Expr) -> sp.Expr:
        found = _multiple(argument, exponent) if X in argument.free_symbols else None
        return sp.exp(argument) if found is None else sp.exp(found[1]) * _TERM ** found[0]

    return expr.replace(sp.exp, powers)


def _degree(body: sp.Expr) -> int | None:
    """k when the body is proportional to term^k."""
    degree = sp.simplify(_TERM * sp.diff(body, _TERM) / body)
    return int(degree) if degree.is_Integer else None
