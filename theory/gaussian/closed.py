"""Closed forms of the population averages A = E_w sigma_eps and B = E_w sum sigma^2, where the rule table has them.

Products that factorise over the tokens (sequence.py) and hold no inverse power of a sum are averaged token by
token. In the limit nu -> infinity of a task that then picks the token of the largest score, the other tokens are
averaged below the hidden one's score first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from replicode.theory.gaussian.expectation import closed_form
from replicode.theory.gaussian.sequence import Product, WeightedAverages, weighted_averages
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L, X, step
from replicode.theory.language.task import Task
from replicode.theory.model import CHI_STAR, DEFAULT_MODEL

_THRESHOLD = sp.Symbol("chi_max", real=True)


_RESIDUAL = sp.Symbol("residual", positive=True)


@dataclass(frozen=True)
class ScoreOverlaps:
    """m_k and q_k; with `aligned` q_k = m_k^2, so that the score is m_k times the teacher's."""

    m: sp.Expr = DEFAULT_MODEL.scores.m
    q: sp.Expr = DEFAULT_MODEL.scores.q

    @staticmethod
    def aligned(m: sp.Expr) -> ScoreOverlaps:
        """k = m k*."""
        return ScoreOverlaps(m, m**2)

    def given_teacher(self) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        """The law of x given chi*; its variance q - m^2 is a positive symbol until the average is done."""
        return X, self.m * CHI_STAR, sp.S.Zero if self.q == self.m**2 else _RESIDUAL

    def hidden(self, law: tuple[sp.Expr, sp.Expr] | None) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        """The law of x where chi* ~ N(mean, variance), by default N(0, 1)."""
        mean, variance = law or (sp.S.Zero, sp.S.One)
        return X, self.m * mean, self.q + sp.factor(self.m**2 * (variance - 1))

    def restored(self, expr: sp.Expr | None) -> sp.Expr | None:
        """The average with q - m^2 written out again."""
        return None if expr is None else expr.subs(_RESIDUAL, self.q - self.m**2)


_GENERAL = ScoreOverlaps()


@dataclass(frozen=True)
class ClosedAverages:
    """A and B in m_k, q_k, nu, L and the parameters; None where no closed form was found."""

    A: sp.Expr | None
    B: sp.Expr | None

    def gain(self) -> sp.Expr | None:
        """A^2/B, what the best v takes off the risk."""
        return None if self.A is None or self.B is None else self.A**2 / self.B


def closed_averages(act: Activation, setting: Task, overlaps: ScoreOverlaps = _GENERAL) -> ClosedAverages:
    """Both averages for any L and nu."""
    averages = weighted_averages(act, setting)
    if averages is None:
        return ClosedAverages(None, None)
    over, under, square = (
        _sum_of_products(products, averages, overlaps) for products in (averages.A, averages.normalisation, averages.B)
    )
    weighted = square if setting.scores_unweighted else _ratio(square, under)
    return ClosedAverages(overlaps.restored(_ratio(over, under)), overlaps.restored(weighted))


def hard_averages(act: Activation, setting: Task, tokens: int, overlaps: ScoreOverlaps = _GENERAL) -> ClosedAverages:
    """Both averages in the limit nu -> infinity, at a given number of tokens."""
    sign = setting.hard_limit()
    products = weighted_averages(act, Task("uniform", sp.S.Zero))
    if products is None:
        return ClosedAverages(None, None)
    parts = [_hard_product(p, sign, tokens, overlaps) for p in products.A]
    a = None if any(p is None for p in parts) else tokens * sp.Add(*parts)
    b = _sum_of_products(products.B, products, overlaps)
    return ClosedAverages(overlaps.restored(a), None if b is None else b.xreplace({L: sp.Integer(tokens)}))


def _ratio(over: sp.Expr | None, under: sp.Expr | None) -> sp.Expr | None:
    return None if over is None or under is None else over / under


def _sum_of_products(
    products: Sequence[Product], averages: WeightedAverages, overlaps: ScoreOverlaps
) -> sp.Expr | None:
    terms = [_product(p, averages, overlaps) for p in products]
    return None if any(t is None for t in terms) else sp.Add(*terms)


def _product(product: Product, averages: WeightedAverages, overlaps: ScoreOverlaps) -> sp.Expr | None:
    if product.powers:
        return None
    hidden, *others = product.functions
    factors = [_token_average(hidden * product.every, averages.gaussian, overlaps)]
    factors += [_token_average(f * product.every, None, overlaps) for f in others]
    rest = _token_average(product.every, None, overlaps)
    if rest is None or any(f is None for f in factors):
        return None
    return product.coefficient * sp.Mul(*factors) * rest ** (L - len(factors))


def _token_average(function: sp.Expr, law: tuple[sp.Expr, sp.Expr] | None, overlaps: ScoreOverlaps) -> sp.Expr | None:
    """The average over one token: over x alone where the teacher's score does not enter, else over both."""
    if CHI_STAR not in function.free_symbols:
        return closed_form(function, (overlaps.hidden(law),))
    inner = closed_form(function, (overlaps.given_teacher(),))
    return None if inner is None else closed_form(inner, ((CHI_STAR, sp.S.Zero, sp.S.One),))


def _hard_product(product: Product, sign: int, tokens: int, overlaps: ScoreOverlaps) -> sp.Expr | None:
    """E[prod f_i 1(token 0 has the largest score)]: the others are averaged below a threshold, then it moves."""
    if product.powers:
        return None
    fixed = {L: sp.Integer(tokens)}
    coefficient, every = product.coefficient.xreplace(fixed), product.every.xreplace(fixed)
    if coefficient == 0:
        return sp.S.Zero
    own, *others = (_given_teacher(f.xreplace(fixed) * every, overlaps) for f in product.functions)
    below = [_below(f, sign) for f in others]
    rest = _below(_given_teacher(every, overlaps), sign)
    if own is None or rest is None or any(b is None for b in below):
        return None
    spare = tokens - len(product.functions)
    integrand = own.xreplace({CHI_STAR: _THRESHOLD}) * sp.Mul(*below) * rest**spare
    found = closed_form(integrand, ((_THRESHOLD, sp.S.Zero, sp.S.One),))
    return None if found is None else coefficient * found


def _given_teacher(function: sp.Expr, overlaps: ScoreOverlaps) -> sp.Expr | None:
    return closed_form(function, (overlaps.given_teacher(),))


def _below(function: sp.Expr | None, sign: int) -> sp.Expr | None:
    """The average over chi* up to the threshold (from it on for sign -1)."""
    if function is None:
        return None
    return closed_form(function * step(sign * (_THRESHOLD - CHI_STAR)), ((CHI_STAR, sp.S.Zero, sp.S.One),))
