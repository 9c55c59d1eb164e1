"""The saddle-point system: free energy, its gradient in twelve unknowns, and the Gaussian averages in it.

`derive` puts the stages together: prior (replica.py), channel (channel.py), Price and Stein on the fields' law
(gaussian/), staged derivatives of the eliminated loss (calculus/tokens.py), and hands on one frozen `SaddleSystem`; the
numbered chain that leads to it (chain.py) is written only when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import sympy as sp

from replicode.theory.budget import budget
from replicode.theory.calculus.tokens import StagedDerivatives, staged_derivatives
from replicode.theory.derive.channel import N, U, ValueElimination, eliminate_values
from replicode.theory.derive.label import LabelLaw, even_loss, label_law
from replicode.theory.derive.location import Location, location, nowhere, radial_location
from replicode.theory.derive.replica import (
    GaussianChannel,
    PriorFreeEnergy,
    Step,
    gaussian_channel,
    prior_free_energies,
)
from replicode.theory.derive.spectrum import coordinate_mean
from replicode.theory.gaussian.laws import FieldLaw, price_stein
from replicode.theory.language.activation import Activation, TokenForm, activation
from replicode.theory.language.nodes import L, W, X
from replicode.theory.language.task import Task, task
from replicode.theory.lengths import Lengths, lengths
from replicode.theory.model import ALPHA, DEFAULT_MODEL, SIGMA, Block, Model, TokenFields, Y
from replicode.theory.properties.domain import check_domain
from replicode.theory.properties.symbolic import Properties, properties
from replicode.theory.typeset.arranged import arranged
from replicode.theory.typeset.notation import latex

SEQUENCE_LENGTH = sp.Symbol("L_seq", integer=True, positive=True)


def is_field(symbol: sp.Symbol) -> bool:
    """Whether a symbol varies from sequence to sequence."""
    return symbol in (Y, SEQUENCE_LENGTH) or symbol.name.startswith(("w_", "G_", "S_"))


class E(sp.Function):
    """Average over the fields of one sequence (and its length, where that varies); what is no field is pulled out."""

    nargs = 1

    @classmethod
    def eval(cls, integrand: sp.Expr) -> sp.Expr | None:
        """Pull out the factors without fields."""
        if integrand == 0:
            return sp.S.Zero
        fields = [s for s in integrand.free_symbols if is_field(s)]
        outside, inside = integrand.as_independent(*fields, as_Add=False)
        return None if outside == 1 else outside * cls(inside)


def envelope_of(model: Model) -> sp.Expr:
    """E[M], of which only the derivatives in the order parameters are known."""
    return sp.Function("EM")(*model.order_parameters)


@dataclass(frozen=True)
class ChannelAverage:
    """E[hidden + sum over the L - 1 idle tokens of idle]."""

    hidden: sp.Expr
    idle: sp.Expr

    def expression(self, tokens: sp.Expr, factor: sp.Expr = sp.S.One) -> sp.Expr:
        """`factor` times the average, written with E(...); idle tokens are exchangeable."""
        hidden = factor * E(self.hidden) if self.hidden != 0 else sp.S.Zero
        idle = factor * E((tokens - 1) * self.idle) if self.idle != 0 else sp.S.Zero
        return sp.Add(hidden, idle)


@dataclass(frozen=True)
class Reduction:
    """A reduction found by the algebra, with its consequence in words."""

    name: str
    statement: str


@dataclass(frozen=True, repr=False)
class SaddleSystem:
    """All that is derived for one (activation, task, number of tokens or distribution of it).

    `joint_laws` are those of the hidden and of an idle token with chi*, where the weight is not in the fields' law.
    """

    activation: Activation
    task: Task
    location: Location
    label: LabelLaw
    lengths: Lengths | None
    model: Model
    properties: Properties
    hidden_law: FieldLaw
    idle_law: FieldLaw
    joint_laws: tuple[FieldLaw, FieldLaw]
    priors: Mapping[str, PriorFreeEnergy]
    gaussian: GaussianChannel
    values: ValueElimination
    loss: StagedDerivatives
    free_energy: sp.Expr
    gradient: Mapping[sp.Symbol, sp.Expr]
    channel: Mapping[sp.Symbol, ChannelAverage]
    derivative_form: Mapping[sp.Symbol, ChannelAverage]
    prior_update: Mapping[sp.Symbol, sp.Expr]
    reductions: tuple[Reduction, ...]

    def __repr__(self) -> str:
        return f"SaddleSystem({self.activation.text}, task {self.task.text}, tokens {self.lengths or 'L'})"

    @property
    def tokens(self) -> int | None:
        """The number of tokens where it is given and does not vary."""
        return self.lengths.fixed if self.lengths else None

    @property
    def length(self) -> sp.Expr:
        """The number of tokens: a number, the symbol L, or the symbol of what is drawn for each sequence."""
        if self.lengths is None:
            return L
        return SEQUENCE_LENGTH if self.tokens is None else sp.Integer(self.tokens)

    def rate_factor(self, theta: sp.Symbol) -> sp.Expr:
        """The factor of d E[M] / d theta in the conjugate that stationarity in theta determines."""
        balance = self.gradient[theta]
        return -sp.diff(balance, rate_symbol(theta)) / sp.diff(balance, self.model.conjugate_of(theta))

    @cached_property
    def conjugate_update(self) -> dict[sp.Symbol, sp.Expr]:
        """The conjugates at which f is stationary in the order parameters, in the rates of E[M]."""
        pairs = [(self.model.conjugate_of(t), self.gradient[t]) for t in self.model.order_parameters]
        solved = {conjugate: sp.solve(balance, conjugate)[0] for conjugate, balance in pairs}
        return {conjugate: solved[conjugate] for conjugate in self.model.conjugates}

    @property
    def even(self) -> bool:
        """Whether (w_z, y) -> -(w_z, y) changes nothing; the activation does not see them."""
        return self.label.even and even_loss(self.model)

    @property
    def balance(self) -> sp.Expr | None:
        """The c of sigma summing to c where M sees (w_z, y) through y - c w_z alone; None where it sees more."""
        differences = self.model.translated and not self.label.weighted
        return self.properties.row_sum if differences else None

    def equations(self) -> dict[str, sp.Expr]:
        """The twelve saddle-point equations, unknown by unknown, and the derivative forms of Vh."""
        found = {s.name: e for s, e in self.prior_update.items()} | self._means()
        derived = self.derivative_equations()
        for theta in self.model.order_parameters:
            unknown = self.model.conjugate_of(theta).name
            found[unknown] = self.channel[theta].expression(self.length, self.rate_factor(theta))
            if theta == self.model.block_of(theta).q:
                found[f"{unknown}_derivative_form"] = derived[unknown]
        return found

    def _means(self) -> dict[str, sp.Expr]:
        """What tau and kappa of structured tokens are: means over the coordinates."""
        parts = {name: p.spectral for name, p in self.priors.items() if p.spectral}
        return {f"{n}_{b}": coordinate_mean(getattr(part, n)) for b, part in parts.items() for n in ("tau", "kappa")}

    def derivative_equations(self) -> dict[str, sp.Expr]:
        """mh and Vh by Price alone, with derivatives of G; right only while the prox does not jump."""
        return {
            self.model.conjugate_of(theta).name: form.expression(self.length, self.rate_factor(theta))
            for theta, form in self.derivative_form.items()
        }

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The numbered chain from the replicated partition function to the equations."""
        from replicode.theory.chain.steps import chain

        return chain(self)

    def _repr_latex_(self) -> str:
        shown = {"f": self.free_energy} | {conjugate: e for conjugate, e in self.equations().items()}
        lines = [f"{latex(sp.Symbol(n))} &= {latex(arranged(e))}" for n, e in shown.items() if "_form" not in n]
        return "$$" + r"\begin{aligned}" + r"\\".join(lines) + r"\end{aligned}$$"


def rate_symbol(theta: sp.Symbol) -> sp.Symbol:
    """The placeholder of d E[M] / d theta in the gradient of the free energy."""
    return sp.Symbol(f"dEM_{theta.name}", real=True)


def rates_of(model: Model) -> dict[sp.Expr, sp.Symbol]:
    """The derivatives of E[M] in the order parameters, by their placeholders."""
    return {sp.diff(envelope_of(model), t): rate_symbol(t) for t in model.order_parameters}


@budget("deriving the saddle-point system")
def derive(
    act: str | Activation,
    task_spec: str | Task = "spiked",
    tokens: int | str | Lengths | None = None,
    model: Model | None = None,
) -> SaddleSystem:
    """Derive the replica-symmetric saddle-point system of an activation on a task."""
    law = None if tokens is None else lengths(tokens)
    act, setting, model = activation(act), task(task_spec).at(law), model or DEFAULT_MODEL
    for length in law.tokens if law else (None,):
        check_domain(act, length)
    model = model if act.expr.has(X) and model.scores else model.without_scores()
    values = eliminate_values(model)
    priors = prior_free_energies(model)
    free_energy = sum((p.value for p in priors.values()), sp.S.Zero) + ALPHA * envelope_of(model)
    place = (radial_location if model.radial else location)(setting) if model.has_scores else nowhere()
    told = label_law(model)
    joint = joint_laws(setting, place, model)
    label = () if told.weighted else (Y,)
    hidden_law = joint[0].marginal(*model.hidden.w.values(), *label)
    idle_law = joint[1].marginal(*model.idle.w.values())
    found = _seen(properties(act), model)
    return SaddleSystem(
        activation=act,
        task=setting,
        location=place,
        label=told,
        lengths=law,
        model=model,
        properties=found,
        hidden_law=hidden_law,
        idle_law=idle_law,
        joint_laws=joint,
        priors=priors,
        gaussian=gaussian_channel(model),
        values=values,
        loss=loss_derivatives(act.token_form().multiplied(model.radius), values),
        free_energy=free_energy,
        gradient={
            s: sp.diff(free_energy, s).xreplace(rates_of(model)) for s in (*model.order_parameters, *model.conjugates)
        },
        channel={t: _channel_average(t, joint, model) for t in model.order_parameters},
        derivative_form={t: _derivative_form(t, joint, model) for t in model.overlaps},
        prior_update=_prior_update(free_energy, model),
        reductions=reductions(found, model) + _location_reductions(place) + _label_reductions(told),
    )


def _seen(found: Properties, model: Model) -> Properties:
    """What an activation of the scores has as one of the fields: those of tokens with radii are not its scores."""
    return replace(found, row_sum=None, shift_invariant=False) if model.radial else found


def joint_laws(setting: Task, place: Location, model: Model) -> tuple[FieldLaw, FieldLaw]:
    """The law of (w_chi, w_z, y) at the hidden token and of (w_chi, w_z) at an idle one.

    A Gaussian weight of the location is put into it; else it is the base law, with the token's chi* in front. A label
    that is no Gaussian field is left out, and the hidden token's z* stands in front.
    """
    w_hidden, w_idle = model.hidden.w, model.idle.w
    hidden, idle = model.token_law(w_hidden), model.token_law(w_idle)
    label = (Y,) if model.label_in_law else ()
    star = () if model.label_in_law else (model.values.teacher,)
    if not model.has_scores:
        return hidden.marginal(*star, *w_hidden.values(), *label), idle.marginal(*w_idle.values())
    chi = model.scores.teacher
    if place.weighted:
        return hidden.marginal(chi, *star, *w_hidden.values(), *label), idle.marginal(chi, *w_idle.values())
    hidden = hidden.reweighted(chi, *setting.hidden_score())
    return hidden.marginal(*star, *w_hidden.values(), *label), idle.marginal(*w_idle.values())


def loss_derivatives(form: TokenForm, values: ValueElimination) -> StagedDerivatives:
    """The z-eliminated loss as a function of the token sums S_a, U = sum f w, N = sum f^2, with its derivatives."""
    rate = values.rate.xreplace({SIGMA: form.f})
    return staged_derivatives([*form.sums, (U, rate * W), (N, rate**2)], values.envelope, derivative=values.derivative)


def _prior_update(free_energy: sp.Expr, model: Model) -> dict[sp.Symbol, sp.Expr]:
    """m, q, V of each block from stationarity in the conjugates."""
    return {s: _stationary(sp.diff(free_energy, model.conjugate_of(s)), s) for s in model.order_parameters}


@cache
def _stationary(slope: sp.Expr, unknown: sp.Symbol) -> sp.Expr:
    (found,) = sp.solve(slope, unknown)
    return sp.factor(found)


@cache
def _channel_average(theta: sp.Symbol, laws: tuple[FieldLaw, FieldLaw], model: Model) -> ChannelAverage:
    """d E[M] / d theta; G = -grad_w M by the envelope theorem, and M depends on V explicitly."""
    tokens = (model.hidden, model.idle)
    block = model.block_of(theta)
    if theta == block.V:
        return ChannelAverage(*[explicit_rate(block, fields) for fields in tokens])
    parts = [
        given_fields(price_stein(law, {w: -fields.g[b] for b, w in fields.w.items()}, theta), law, fields, model)
        for law, fields in zip(laws, tokens, strict=True)
    ]
    return ChannelAverage(*parts)


def given_fields(integrand: sp.Expr, law: FieldLaw, fields: TokenFields, model: Model) -> sp.Expr:
    """The integrand, linear in chi*, averaged over chi* given w with the weight g: E[chi* g | w] = (mu + s^2 S) gbar.

    This is Stein's lemma in the conditional law N(mu, s^2) of chi*, S being d log gbar / d mu. The label's law is to z*
    what the weight of the location is to chi*.
    """
    kept = [b for b in model.blocks if b.teacher in law.fields]
    for block in kept:
        star, w = block.teacher, fields.w[block.name]
        conditional = law.marginal(star, w).given(w)
        replaced = conditional.mean[0] + conditional.covariance[0, 0] * fields.slopes[block.name]
        integrand = sp.factor_terms(sp.simplify(integrand.subs(star, replaced)))
    return integrand


def explicit_rate(block: Block, fields: TokenFields) -> sp.Expr:
    """d/dV of (prox - w)^2/(2 V) at fixed prox = w + V G."""
    prox, w, v = sp.Symbol("prox", real=True), fields.w[block.name], block.V
    rate = sp.diff((prox - w) ** 2 / (2 * v), v)
    return sp.simplify(rate.subs(prox, w + v * fields.g[block.name]))


@cache
def _derivative_form(theta: sp.Symbol, laws: tuple[FieldLaw, FieldLaw], model: Model) -> ChannelAverage:
    """d E[M] / d theta by Price alone; it misses the jumps of a discontinuous prox."""
    tokens = zip(laws, (model.hidden, model.idle), strict=True)
    return ChannelAverage(*[_price(law, fields, theta, model) for law, fields in tokens])


def _price(law: FieldLaw, fields: TokenFields, theta: sp.Symbol, model: Model) -> sp.Expr:
    """-sum_i mean_i' G_i - (1/2) sum_ij C_ij' dG_i/dw_j, of each pair the G that exists, which depends on both.

    The derivative in chi* or z* falls on the weight, and is its slope.
    """
    slopes = {b.teacher: fields.slopes[b.name] for b in model.blocks}
    g = {w: fields.g[b] for b, w in fields.w.items()}
    mean_rate, rate = law.mean.diff(theta), law.covariance.diff(theta)
    total = sp.Add(*[-mean_rate[i] * g[w] for i, w in enumerate(law.fields) if mean_rate[i] != 0])
    for i, first in enumerate(law.fields):
        for j, second in enumerate(law.fields):
            if rate[i, j] != 0:
                of, by = (first, second) if first in g else (second, first)
                moved = sp.Derivative(sp.Function(g[of].name)(by), by)
                total -= rate[i, j] / 2 * (slopes[by] * g[of] if by in slopes else moved)
    return total


def _location_reductions(place: Location) -> tuple[Reduction, ...]:
    """What is averaged over chi* given w beforehand."""
    told = {
        "own": "chi* is averaged given w: gbar is a function of the hidden token's w_chi alone",
        "ranked": "chi* is averaged given w: gbar is one integral over the noise of the largest of chi* + Gumbel",
        "normalised": "chi* is sampled beside w, with the weight g itself",
        "radial": "c* and the radii are sampled beside w, with the weight g of r c* itself",
    }
    return (Reduction("weight of the location", told[place.kind]),) if place.weighted else ()


def _label_reductions(told: LabelLaw) -> tuple[Reduction, ...]:
    """What is averaged over z* given w beforehand."""
    done = {
        "threshold": "z* is averaged given w: each value of the label has the weight of a normal distribution function",
        "chances": "z* is averaged given w: each value of the label has a weight in the hidden token's w_z alone",
        "lines": "z* is averaged given w: the label is one of several Gaussian fields",
        "sampled": "z* and the label's noise are sampled beside w",
    }
    return (Reduction("law of the label", done[told.kind]),) if told.weighted else ()


def reductions(found: Properties, model: Model = DEFAULT_MODEL) -> tuple[Reduction, ...]:
    """What the properties of an activation save, each with its consequence."""
    if not model.has_scores:
        return (Reduction("no scores", "the activation is a constant: there is no k, and nothing is minimised over"),)
    saved = [Reduction("value channel linear", "z is eliminated exactly; only the scores are minimised over")]
    if found.shift_invariant:
        saved.append(Reduction("shift invariant", "one dimension of the scores drops out of every average"))
    if found.row_sum is not None and found.row_sum != 0 and model.translated and model.label_in_law:
        times = "" if found.row_sum == 1 else f"({found.row_sum}) "
        statement = f"sigma sums to {found.row_sum}: (w_z, y) enters only through y - {times}w_z"
        saved.append(Reduction("constant row sum", statement))
    if found.elementwise:
        saved.append(Reduction("element-wise", "population averages factorise over tokens: one dimension each"))
    return tuple(saved)
