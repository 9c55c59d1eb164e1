"""The saddle-point equations: stationarity in conjugates and order parameters, by Price and Stein."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from replicode.theory.gaussian import FieldLaw
from replicode.theory.model import (
    ALPHA,
    BLOCKS,
    CHI_STAR,
    LAMBDA,
    LAMBDAS,
    MH,
    ORDER_PARAMETERS,
    QH,
    VH,
    M,
    Q,
    V,
)
from replicode.theory.notation import average
from replicode.theory.replica import (
    Step,
)
from replicode.theory.saddle import (
    HIDDEN,
    IDLE,
    ChannelAverage,
    E,
    SaddleSystem,
    TokenFields,
    conjugate_of,
    given_fields,
    is_field,
)


def conjugates(system: SaddleSystem) -> list[Step]:
    """m, q, V from stationarity in mh, qh, Vh, and the prior with the conjugates eliminated."""
    steps = []
    for b in BLOCKS:
        value = system.priors[b].value
        linear = M[b] * MH[b] - Q[b] * VH[b] / 2 + V[b] * QH[b] / 2
        response = sp.factor(linear - value)
        for unknown, conjugate in ((V[b], QH[b]), (M[b], MH[b]), (Q[b], VH[b])):
            weight = sp.diff(linear, conjugate, unknown)
            steps.append(
                Step(
                    f"stationarity in {conjugate.name}: {unknown.name} is",
                    sp.Derivative(response, conjugate) / weight,
                    system.prior_update[unknown],
                )
            )
        steps.append(_prior_in_overlaps(system, b))
    return steps


def _prior_in_overlaps(system: SaddleSystem, block: str) -> Step:
    """The prior's free energy as a function of m, q, V alone."""
    m, q, v, mh, qh, vh = (s[block] for s in (M, Q, V, MH, QH, VH))
    (width,) = sp.solve(system.prior_update[v] - v, vh)
    (field,) = sp.solve((system.prior_update[m] - m).subs(vh, width), mh)
    (spread,) = sp.solve((system.prior_update[q] - q).subs({vh: width, mh: field}), qh)
    eliminated = system.priors[block].value.subs({vh: width, mh: field, qh: spread}, simultaneous=True)
    ridge = system.model.penalty_curvature().subs(LAMBDA, LAMBDAS[block])
    return Step(
        f"with the conjugates eliminated, the prior's part of the free energy ({block})",
        eliminated,
        sp.Add(ridge * q / 2, -(q - m**2) / (2 * v)),
    )


@dataclass(frozen=True)
class ExponentialTest:
    """exp(t.w) over one hidden and one idle token, whose averages under a law are closed."""

    laws: tuple[FieldLaw, ...]

    @staticmethod
    def exponent(field: sp.Symbol) -> sp.Symbol:
        """The t of a field."""
        return sp.Symbol("t_" + field.name.removeprefix("w_"), real=True)

    def exponents(self, law: FieldLaw) -> sp.Matrix:
        """Those of all fields of a law."""
        return sp.Matrix([self.exponent(f) for f in law.fields])

    @cached_property
    def average(self) -> sp.Expr:
        """E exp(t.w) = exp(t.mean + t.C t/2)."""
        parts = [
            (t.T * law.mean + t.T * law.covariance * t / 2)[0] for law in self.laws for t in (self.exponents(law),)
        ]
        return sp.exp(sp.Add(*[sp.expand(p) for p in parts]))

    def tilted(self, law: FieldLaw) -> dict[sp.Symbol, sp.Expr]:
        """The means of the fields under exp(t.w), whose covariance is the law's: E[w F] = (mean + C t) E[F]."""
        return dict(zip(law.fields, law.mean + law.covariance * self.exponents(law)))

    def stein(self, average: ChannelAverage) -> sp.Expr:
        """A channel average for F = exp(t.w), with G = -grad F = -t F."""
        total = sp.S.Zero
        for law, fields, integrand in zip(self.laws, (HIDDEN, IDLE), (average.hidden, average.idle)):
            total += integrand.xreplace({**self.tilted(law), **self._gradient(fields)})
        return total

    def price(self, average: ChannelAverage) -> sp.Expr:
        """The derivative form for F = exp(t.w)."""
        total = sp.S.Zero
        for fields, integrand in zip((HIDDEN, IDLE), (average.hidden, average.idle)):
            gradient = self._gradient(fields)
            names = {g.name: value for g, value in gradient.items()}
            rates = {
                d: names[d.expr.func.__name__] * self.exponent(d.variables[0]) for d in integrand.atoms(sp.Derivative)
            }
            total += integrand.xreplace(rates).xreplace(gradient)
        return total

    def _gradient(self, fields: TokenFields) -> dict[sp.Symbol, sp.Expr]:
        slope = {fields.slope: self.exponent(CHI_STAR)}
        return slope | {fields.g[b]: -self.exponent(fields.w[b]) for b in BLOCKS}


def channel(system: SaddleSystem) -> list[Step]:
    """d E[M] / d theta as averages of G: Price and Stein, tested on exp(t.w), and the explicit rate in V."""
    test = ExponentialTest(system.joint_laws)
    steps = []
    for theta in (s[b] for b in BLOCKS for s in (M, Q)):
        rate = sp.Derivative(test.average, theta)
        steps.append(
            Step(
                f"Price's theorem, derivative form: d/d{theta.name} of the average of exp(t.w) at the hidden and one "
                "idle token",
                rate,
                test.price(system.derivative_form[theta]) * test.average,
            )
        )
        steps.append(
            Step(
                f"Stein form of the same, free of derivatives of G: d/d{theta.name}",
                rate,
                test.stein(system.channel[theta]) * test.average,
            )
        )
    prox, field = sp.symbols("prox field_w", real=True)
    for b in BLOCKS:
        g = sp.Symbol(HIDDEN.g[b].name, real=True)
        steps.append(
            Step(
                f"M depends on V_{b} by itself: d/dV_{b} of (prox - w)^2/(2 V_{b}) at fixed prox is -G^2/2",
                sp.Derivative((prox - field) ** 2 / (2 * V[b]), V[b]),
                system.channel[V[b]].hidden.subs(g, (prox - field) / V[b]),
            )
        )
    return steps


def equations(system: SaddleSystem) -> list[Step]:
    """The conjugates in terms of named averages, and the energy at the saddle."""
    equations = system.equations()
    steps = []
    for theta in ORDER_PARAMETERS:
        unknown = conjugate_of(theta)
        raw = _averaged_raw(system, theta)
        factor = system.rate_factor(theta)
        final = equations[unknown.name].replace(E, averaged)
        steps.append(
            Step(
                f"stationarity in {theta.name}: {unknown.name} = ({factor}) dE[M]/d{theta.name}, in averages over "
                "sequences",
                sp.Mul(factor, raw, evaluate=False),
                final,
            )
        )
    return [*steps, _energy(system)]


def _averaged_raw(system: SaddleSystem, theta: sp.Symbol) -> sp.Expr:
    """d E[M] / d theta by Price and Stein before any simplification, the score of the kept field's partner in full."""
    total = sp.S.Zero
    hidden, idle = system.joint_laws
    for law, fields, given, times in (
        (hidden, HIDDEN, system.channel[theta].hidden, sp.S.One),
        (idle, IDLE, system.channel[theta].idle, system.length - 1),
    ):
        total += averaged(times * given) if theta in V.values() else _raw(law, fields, theta, times)
    return total


def _raw(law: FieldLaw, fields: TokenFields, theta: sp.Symbol, times: sp.Expr) -> sp.Expr:
    gradient = {fields.w[b]: -fields.g[b] for b in BLOCKS}
    score = law.covariance.inv() * (sp.Matrix(law.fields) - law.mean)
    mean_rate, rate = law.mean.diff(theta), law.covariance.diff(theta)
    total = sp.S.Zero
    for i, first in enumerate(law.fields):
        total += averaged(times * mean_rate[i] * gradient[first]) if mean_rate[i] != 0 else 0
        for j, second in enumerate(law.fields):
            if rate[i, j] != 0:
                keep, by = (second, i) if second in gradient else (first, j)
                known = given_fields(score[by], law, fields)
                total += averaged(times * rate[i, j] / 2 * known * gradient[keep])
    return total


def averaged(integrand: sp.Expr) -> sp.Expr:
    """The average of a polynomial in the fields, each monomial's named."""
    if integrand == 0:
        return sp.S.Zero
    fields = sorted((s for s in integrand.free_symbols if is_field(s)), key=lambda s: s.name)
    poly = sp.Poly(integrand, *fields)
    return sp.Add(*[c * average((f, p) for f, p in zip(fields, powers) if p) for powers, c in poly.terms()])


def _energy(system: SaddleSystem) -> Step:
    """f at the saddle = alpha train_loss + the penalties: E[M] is the springs' energies V qh/(2 alpha) and the loss."""
    loss = sp.Symbol("train_loss", real=True)
    update = system.prior_update
    springs = [V[b] * QH[b] / (2 * ALPHA) for b in BLOCKS]
    free = sp.Add(*[system.priors[b].value for b in BLOCKS]) + ALPHA * (sp.Add(*springs) + loss)
    ridges = {b: system.model.penalty_curvature().subs(LAMBDA, LAMBDAS[b]) for b in BLOCKS}
    energy = ALPHA * loss + sp.Add(*[ridges[b] * Q[b] / 2 for b in BLOCKS])
    return Step(
        "the energy at the saddle: E[M] is train_loss plus the springs' V E|G|^2/2 = V qh/(2 alpha), so the free "
        "energy is alpha train_loss plus the penalties, here in terms of the conjugates",
        free.subs(update, simultaneous=True),
        energy.subs(update, simultaneous=True),
    )
