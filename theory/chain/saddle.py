"""The saddle-point equations: stationarity in conjugates and order parameters, by Price and Stein."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from replicode.theory.derive.replica import Step
from replicode.theory.derive.saddle import ChannelAverage, E, SaddleSystem, given_fields, is_field
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.model import ALPHA, Block, Model, TokenFields
from replicode.theory.typeset.notation import average


def conjugates(system: SaddleSystem) -> Iterator[Step]:
    """m, q, V from stationarity in mh, qh, Vh, and the prior with the conjugates eliminated."""
    for b in system.model.blocks:
        value = system.priors[b.name].value
        linear = b.m * b.mh - b.q * b.Vh / 2 + b.V * b.qh / 2
        response = sp.factor(linear - value)
        for unknown in (b.V, b.m, b.q):
            conjugate = b.conjugate_of[unknown]
            weight = sp.diff(linear, conjugate, unknown)
            yield Step(
                f"stationarity in {conjugate.name}: {unknown.name} is",
                sp.Derivative(response, conjugate) / weight,
                system.prior_update[unknown],
            )
        if not system.model.structured:
            yield _prior_in_overlaps(system, b)


def _prior_in_overlaps(system: SaddleSystem, block: Block) -> Step:
    """The prior's free energy as a function of m, q, V alone."""
    m, q, v, mh, qh, vh = block.m, block.q, block.V, block.mh, block.qh, block.Vh
    (width,) = sp.solve(system.prior_update[v] - v, vh)
    (field,) = sp.solve((system.prior_update[m] - m).subs(vh, width), mh)
    (spread,) = sp.solve((system.prior_update[q] - q).subs({vh: width, mh: field}), qh)
    eliminated = system.priors[block.name].value.subs({vh: width, mh: field, qh: spread}, simultaneous=True)
    return Step(
        f"with the conjugates eliminated, the prior's part of the free energy ({block.name})",
        eliminated,
        sp.Add(system.model.penalty_curvature(block) * q / 2, -(q - m**2) / (2 * v)),
    )


@dataclass(frozen=True)
class ExponentialTest:
    """exp(t.w) over one hidden and one idle token, whose averages under a law are closed."""

    laws: tuple[FieldLaw, ...]
    model: Model

    @property
    def tokens(self) -> tuple[TokenFields, TokenFields]:
        """The fields of both tokens."""
        return self.model.hidden, self.model.idle

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
        for law, fields, integrand in zip(self.laws, self.tokens, (average.hidden, average.idle)):
            total += integrand.xreplace({**self.tilted(law), **self._gradient(fields)})
        return total

    def price(self, average: ChannelAverage) -> sp.Expr:
        """The derivative form for F = exp(t.w)."""
        total = sp.S.Zero
        for fields, integrand in zip(self.tokens, (average.hidden, average.idle)):
            gradient = self._gradient(fields)
            names = {g.name: value for g, value in gradient.items()}
            rates = {
                d: names[d.expr.func.__name__] * self.exponent(d.variables[0]) for d in integrand.atoms(sp.Derivative)
            }
            total += integrand.xreplace(rates).xreplace(gradient)
        return total

    def _gradient(self, fields: TokenFields) -> dict[sp.Symbol, sp.Expr]:
        slopes = {fields.slopes[b.name]: self.exponent(b.teacher) for b in self.model.blocks}
        return slopes | {fields.g[b]: -self.exponent(w) for b, w in fields.w.items()}


def channel(system: SaddleSystem) -> Iterator[Step]:
    """d E[M] / d theta as averages of G: Price and Stein, tested on exp(t.w), and the explicit rate in V."""
    test = ExponentialTest(system.joint_laws, system.model)
    for theta in system.model.overlaps:
        rate = sp.Derivative(test.average, theta)
        yield Step(
            f"Price's theorem, derivative form: d/d{theta.name} of the average of exp(t.w) at the hidden and one "
            "idle token",
            rate,
            test.price(system.derivative_form[theta]) * test.average,
        )
        yield Step(
            f"Stein form of the same, free of derivatives of G: d/d{theta.name}",
            rate,
            test.stein(system.channel[theta]) * test.average,
        )
    prox, field = sp.symbols("prox field_w", real=True)
    for b in system.model.blocks:
        v, g = b.V, system.model.hidden.g[b.name]
        yield Step(
            f"M depends on {v} by itself: d/d{v} of (prox - w)^2/(2 {v}) at fixed prox is -G^2/2",
            sp.Derivative((prox - field) ** 2 / (2 * v), v),
            system.channel[v].hidden.subs(g, (prox - field) / v),
        )


def equations(system: SaddleSystem) -> Iterator[Step]:
    """The conjugates in terms of named averages, and the energy at the saddle."""
    equations = system.equations()
    for theta in system.model.order_parameters:
        unknown = system.model.conjugate_of(theta)
        factor = system.rate_factor(theta)
        yield Step(
            f"stationarity in {theta.name}: {unknown.name} = ({factor}) dE[M]/d{theta.name}, in averages over "
            "sequences",
            sp.Mul(factor, _averaged_raw(system, theta), evaluate=False),
            equations[unknown.name].replace(E, averaged),
        )
    yield _energy(system)


def _averaged_raw(system: SaddleSystem, theta: sp.Symbol) -> sp.Expr:
    """d E[M] / d theta by Price and Stein before any simplification, the score of the kept field's partner in full."""
    total = sp.S.Zero
    model, (hidden, idle) = system.model, system.joint_laws
    for law, fields, given, times in (
        (hidden, model.hidden, system.channel[theta].hidden, sp.S.One),
        (idle, model.idle, system.channel[theta].idle, system.length - 1),
    ):
        in_law = theta in model.overlaps
        total += _raw(law, fields, theta, times, model) if in_law else averaged(times * given)
    return total


def _raw(law: FieldLaw, fields: TokenFields, theta: sp.Symbol, times: sp.Expr, model: Model) -> sp.Expr:
    gradient = {w: -fields.g[b] for b, w in fields.w.items()}
    score = law.covariance.inv() * (sp.Matrix(law.fields) - law.mean)
    mean_rate, rate = law.mean.diff(theta), law.covariance.diff(theta)
    total = sp.S.Zero
    for i, first in enumerate(law.fields):
        total += averaged(times * mean_rate[i] * gradient[first]) if mean_rate[i] != 0 else 0
        for j, second in enumerate(law.fields):
            if rate[i, j] != 0:
                keep, by = (second, i) if second in gradient else (first, j)
                known = given_fields(score[by], law, fields, model)
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
    update, blocks = system.prior_update, system.model.blocks
    springs = [b.V * b.qh / (2 * ALPHA) for b in blocks]
    free = sp.Add(*[system.priors[b.name].value for b in blocks]) + ALPHA * (sp.Add(*springs) + loss)
    energy = ALPHA * loss + sp.Add(*[_penalty(system, b) for b in blocks])
    return Step(
        "the energy at the saddle: E[M] is train_loss plus the springs' V E|G|^2/2 = V qh/(2 alpha), so the free "
        "energy is alpha train_loss plus the penalties, here in terms of the conjugates",
        free.subs(update, simultaneous=True),
        energy.subs(update, simultaneous=True),
    )


def _penalty(system: SaddleSystem, block: Block) -> sp.Expr:
    """What the penalty of a block adds to the energy: of structured tokens the squared norm is not q."""
    if system.model.structured:
        return (block.mh * block.m + block.qh * block.V - block.Vh * block.q) / 2
    return system.model.penalty_curvature(block) * block.q / 2
