"""Gaussian calculus on field laws: conditioning, tilting, Price's and Stein's theorems.

A `FieldLaw` is the joint Gaussian law of one token's fields. Price turns a derivative in a parameter of the law into
averages of derivatives of the function, Stein trades one of those for a factor linear in the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.language.nodes import X


@dataclass(frozen=True)
class FieldLaw:
    """N(mean, covariance) of the named fields."""

    fields: tuple[sp.Symbol, ...]
    mean: sp.ImmutableMatrix
    covariance: sp.ImmutableMatrix

    @staticmethod
    def of(combinations: Mapping[sp.Symbol, Mapping[str, sp.Expr]]) -> FieldLaw:
        """The law of linear combinations of independent standard normals, named by strings."""
        fields = tuple(combinations)
        sources = sorted({s for c in combinations.values() for s in c})
        loading = sp.Matrix([[combinations[f].get(s, 0) for s in sources] for f in fields])
        covariance = (loading * loading.T).applyfunc(sp.expand)
        return FieldLaw(fields, sp.ImmutableMatrix.zeros(len(fields), 1), sp.ImmutableMatrix(covariance))

    def reweighted(self, field: sp.Symbol, mean: sp.Expr, variance: sp.Expr) -> FieldLaw:
        """The law after one standard-normal field is given the law N(mean, variance) instead."""
        i = self.fields.index(field)
        column = self.covariance[:, i] / self.covariance[i, i]
        covariance = self.covariance + (variance - self.covariance[i, i]) * column * column.T
        return FieldLaw(
            self.fields,
            sp.ImmutableMatrix((self.mean + column * (mean - self.mean[i])).applyfunc(sp.simplify)),
            sp.ImmutableMatrix(covariance.applyfunc(sp.expand)),
        )

    def marginal(self, *fields: sp.Symbol) -> FieldLaw:
        """The law of some of the fields."""
        index = [self.fields.index(f) for f in fields]
        return FieldLaw(
            fields,
            sp.ImmutableMatrix([self.mean[i] for i in index]),
            sp.ImmutableMatrix(self.covariance.extract(index, index)),
        )

    def given(self, field: sp.Symbol) -> FieldLaw:
        """The conditional law of the other fields, its mean linear in `field`."""
        return _given(self, field)

    def score(self) -> tuple[sp.Expr, ...]:
        """C^-1 (fields - mean), which Stein's lemma puts in place of a derivative."""
        return _score(self)


@cache
def _given(law: FieldLaw, field: sp.Symbol) -> FieldLaw:
    i = law.fields.index(field)
    others = [j for j in range(len(law.fields)) if j != i]
    column = law.covariance.extract(others, [i]) / law.covariance[i, i]
    mean = sp.Matrix([law.mean[j] for j in others]) + column * (field - law.mean[i])
    covariance = law.covariance.extract(others, others) - column * column.T * law.covariance[i, i]
    return FieldLaw(
        tuple(law.fields[j] for j in others),
        sp.ImmutableMatrix(mean.applyfunc(sp.simplify)),
        sp.ImmutableMatrix(covariance.applyfunc(sp.simplify)),
    )


@cache
def _score(law: FieldLaw) -> tuple[sp.Expr, ...]:
    centred = sp.Matrix(law.fields) - law.mean
    return tuple(sp.simplify(e) for e in law.covariance.inv() * centred)


def price_stein(law: FieldLaw, gradient: Mapping[sp.Symbol, sp.Expr], theta: sp.Symbol) -> sp.Expr:
    """The integrand whose average is d/dtheta E[F], given the gradient of F in (some of) the fields.

    Price: sum_i mean_i' E[d_i F] + (1/2) sum_ij C_ij' E[d_i d_j F]; Stein: E[d_i d_j F] = E[score_i d_j F].
    Of each pair (i, j) the derivative is kept in the field whose gradient is known.
    """
    mean_rate = law.mean.diff(theta)
    cov_rate = law.covariance.diff(theta)
    score = law.score()
    total = sp.S.Zero
    for i, field in enumerate(law.fields):
        if mean_rate[i] != 0:
            if field not in gradient:
                raise Refusal(f"Price's theorem needs the gradient in {field}, whose mean depends on {theta}")
            total += mean_rate[i] * gradient[field]
        for j, other in enumerate(law.fields):
            if cov_rate[i, j] == 0:
                continue
            keep, score_of = (j, i) if other in gradient else (i, j)
            if law.fields[keep] not in gradient:
                raise Refusal(f"Stein's lemma needs the gradient in {law.fields[i]} or {law.fields[j]}")
            total += cov_rate[i, j] / 2 * score[score_of] * gradient[law.fields[keep]]
    return sp.factor_terms(sp.simplify(total))


def is_quadratic(log_weight: sp.Expr) -> bool:
    """Whether a log-weight is a polynomial of degree <= 2 in x."""
    return bool(log_weight.is_polynomial(X)) and bool(sp.Poly(log_weight, X).degree() <= 2)


def gaussian_from_log_weight(log_weight: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Mean and variance of N(0, 1) reweighted by exp(log_weight(x)), a polynomial of degree <= 2 in x."""
    if not is_quadratic(log_weight):
        raise Refusal(f"log-weight {log_weight}: only polynomials of degree <= 2 in x keep the scores Gaussian")
    poly = sp.Poly(log_weight, X)
    quadratic, linear = poly.coeff_monomial(X**2), poly.coeff_monomial(X)
    variance = 1 / (1 - 2 * quadratic)
    return sp.simplify(linear * variance), sp.simplify(variance)
