"""Closed forms of the pulls and spreads of training dynamics, for element-wise sigma and any number of tokens.

Without sums between the tokens f = sum_l a(x_l) z_l, and every average is made of one-token averages
(factorised.py, S = 1). Given its score a token's other fields are Gaussian and enter as polynomials; what is left is an
average over the score, closed where the Gaussian calculus has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from replicode.theory.derive.factorised import (
    BOTTOM,
    BOTTOM_SLOPE,
    FIELDS,
    TOP,
    TOP_SLOPE,
    Ratio,
    Term,
    token_bodies,
)
from replicode.theory.gaussian.expectation import closed_form
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.gaussian.moments import polynomial_moment
from replicode.theory.language.nodes import L, X

_SCORE, _VALUE = FIELDS[2], FIELDS[3]
_ORDERS = 3  # powers of the output up to two
_LABEL_NOISE = sp.Symbol("xi", real=True)


class OneToken:
    """Closed averages of one token, by what is averaged; None where there is none."""

    def __init__(self, law: FieldLaw, of: Ratio) -> None:
        self.mean, self.variance = law.mean[2], law.covariance[2, 2]
        slopes = [law.covariance[i, 2] / self.variance for i in range(len(FIELDS))]
        given = [m + s * (X - self.mean) for m, s in zip(law.mean, slopes, strict=True)]
        self.means = {f: e for f, e in zip(FIELDS, given, strict=True) if f != _SCORE}
        self.rest = {
            (f, g): law.covariance[i, j] - slopes[i] * law.covariance[2, j]
            for i, f in enumerate(FIELDS)
            for j, g in enumerate(FIELDS)
        }
        top, top_slope, bottom, bottom_slope, _ = of.parts
        self.named = {TOP: top, TOP_SLOPE: top_slope, BOTTOM: bottom, BOTTOM_SLOPE: bottom_slope, _SCORE: X}
        self.known: dict[sp.Expr, sp.Expr | None] = {}

    def average(self, expr: sp.Expr) -> sp.Expr | None:
        """E of a polynomial in the fields and in a, a', of one token."""
        if expr not in self.known:
            variables = {**self.means, _LABEL_NOISE: sp.S.Zero}
            covariance = {**self.rest, (_LABEL_NOISE, _LABEL_NOISE): sp.S.One}
            given = polynomial_moment(expr, variables, lambda f, g: covariance.get((f, g), sp.S.Zero))
            self.known[expr] = closed_form(given.xreplace(self.named), [(X, self.mean, self.variance)])
        return self.known[expr]


def closed_terms(
    terms: Sequence[Term], of: Ratio, hidden: FieldLaw, idle: FieldLaw, label: tuple[sp.Expr, sp.Expr]
) -> dict[int, sp.Expr]:
    """The averages that are closed, by their number; those of all of whose terms one-token averages are."""
    tokens = OneToken(hidden, of), OneToken(idle, of)
    y = label[0] * FIELDS[1] + label[1] * _LABEL_NOISE
    found: dict[int, sp.Expr | None] = {}
    for term in terms:
        if term.body is not None and token_bodies()[term.body].has(BOTTOM_SLOPE):
            continue  # there is no sum that it would be the slope of
        body = sp.S.One if term.body is None else token_bodies()[term.body]
        part = _average(tokens, y**term.label, term.output, None if term.body is None else body)
        before = found.get(term.average, sp.S.Zero)
        found[term.average] = None if part is None or before is None else before + term.coefficient * part
    return {i: sp.factor_terms(e) for i, e in found.items() if e is not None}


def _average(tokens: tuple[OneToken, OneToken], label: sp.Expr, order: int, body: sp.Expr | None) -> sp.Expr | None:
    """E[y^i N^order T], T the sum of a body over the tokens, or 1."""
    try:
        hidden, idle = (_series(token, order) for token in tokens)
        plain = idle(sp.S.One)
        found = _times(hidden(label), _power(plain, L - 1)) if body is None else None
        if body is not None:
            at_hidden = _times(hidden(label * body), _power(plain, L - 1))
            at_idle = _times(_times(hidden(label), idle(body)), _power(plain, L - 2))
            found = [a + (L - 1) * b for a, b in zip(at_hidden, at_idle, strict=True)]
    except _Open:
        return None
    assert found is not None
    return sp.factorial(order) * found[order]


class _Open(Exception):
    """An average is not closed."""


def _series(token: OneToken, order: int) -> Callable[[sp.Expr], list[sp.Expr]]:
    """The coefficients of a token's averages of e exp(s a z) up to an order in s."""

    def of(expr: sp.Expr) -> list[sp.Expr]:
        found = []
        for k in range(_ORDERS):
            value = token.average(sp.expand(expr * (TOP * _VALUE) ** k)) if k <= order else sp.S.Zero
            if value is None:
                raise _Open
            found.append(value / sp.factorial(k))
        return found

    return of


def _times(one: list[sp.Expr], two: list[sp.Expr]) -> list[sp.Expr]:
    return [sp.Add(*[one[i] * two[k - i] for i in range(k + 1)]) for k in range(_ORDERS)]


def _power(plain: list[sp.Expr], count: sp.Expr) -> list[sp.Expr]:
    """A series that begins with 1, to a power that need not be a number."""
    _, one, two = plain
    return [sp.S.One, count * one, count * two + count * (count - 1) * one**2 / 2]
