"""The Bayes-optimal estimator at finite samples: free entropy, saddle-point equations and test risk, for any task.

With m = q and V = 1 - q (Nishimori) the channel is Z(y, w) = (1/L) sum_e gbar_e(w_chi) N(y; w_z_e, V_y), gbar_e being
the task's weight averaged over chi* given w_chi. All laws are read off the law of one token's fields at m = q. Where
the weight belongs to the hidden token alone, Z is a sum over tokens of exp(t), a function of one token; where it
couples the scores, through exponentials and inverse powers of token sums, it is an integral over one common variable
of products of one-token functions. In the limit nu -> infinity that variable is the largest score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import sympy as sp

from replicode.theory.budget import budget
from replicode.theory.derive.bayes_prior import coordinate_prior, prior_entropy
from replicode.theory.derive.population import A
from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.expectation import closed_form
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.gaussian.sequence import InversePower, weighted_averages
from replicode.theory.gaussian.special import normal_density
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import X, step
from replicode.theory.language.task import Task, task
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.model import ALPHA, CHI_STAR, DEFAULT_MODEL, NOISE, Model, Y
from replicode.theory.properties.symbolic import properties

W_CHI, W_Z = sp.Symbol("w_chi", real=True), sp.Symbol("w_z", real=True)
SPREAD = sp.Symbol("V_y", positive=True)
GAP = sp.Symbol("d", real=True)
THRESHOLD = sp.Symbol("t", real=True)


def entropy_of(model: Model) -> sp.Expr:
    """E[log Z], of which only the derivatives in the overlaps are known."""
    return sp.Function("ElogZ")(*[b.q for b in model.blocks])


@dataclass(frozen=True)
class LocationWeight:
    """g(e, chi) = coefficient own(chi_e) prod_l every(chi_l) / (offset + sum_l body(chi_l))^power, functions of x.

    `power` is None without a sum; a weight that is shift invariant depends on differences of scores alone.
    """

    coefficient: sp.Expr
    own: sp.Expr
    every: sp.Expr
    power: InversePower | None
    shift_invariant: bool

    @property
    def coupled(self) -> bool:
        """Whether the weight depends on other tokens than the hidden one."""
        return self.every != 1 or self.power is not None


@dataclass(frozen=True)
class HardLocation:
    """nu -> infinity: gbar_e = L int dt density(t, w_e) prod_{l != e} below(t, w_l), t being the winner's score.

    `sign` is +1 where the largest score wins, -1 where the smallest does.
    """

    sign: int
    below: sp.Expr
    density: sp.Expr

    @property
    def slopes(self) -> tuple[sp.Expr, sp.Expr]:
        """Of below and of density in w_chi."""
        return sp.diff(self.below, W_CHI), sp.diff(self.density, W_CHI)


@dataclass(frozen=True)
class LabelChannel:
    """The log-density of the label given the hidden token's w_z, in the gap d = y - w_z, and its slope in w_z."""

    log_density: sp.Expr
    slope: sp.Expr
    variance: sp.Expr
    total: sp.Expr


@dataclass(frozen=True)
class Revealed:
    """The values with every location revealed, which bounds what labels alone can tell: qh_v at any V_v.

    `V_v` is the fixed point, None where the prior is a mean over coordinates. Without noise labels tell the location as
    V_v -> 0, and what a coordinate of positive variance adds to it falls by the factor `contraction` in an iteration.
    """

    V_v: sp.Expr | None
    strength: sp.Expr
    contraction: sp.Expr


@dataclass(frozen=True)
class BayesSystem:
    """Functions of one token and scalar equations of the Bayes-optimal theory of a task.

    chi* given w_chi is N(w_chi, score_variance). `exponent` is t(w_chi, w_z) given y, with V_y the label's variance,
    and `prior` is log gbar, the part of it that a fresh sequence shows; both are None without a closed form. `risk`
    is the test risk in A = E[P_eps] of a fresh sequence.
    """

    task: Task
    model: Model
    lengths: Lengths | None
    location: LocationWeight
    hard: HardLocation | None
    score_variance: sp.Expr
    label: LabelChannel
    exponent: sp.Expr | None
    prior: sp.Expr | None
    free_entropy: sp.Expr
    update: dict[sp.Symbol, sp.Expr]
    risk: sp.Expr
    revealed: Revealed

    @property
    def label_variance(self) -> sp.Expr:
        """V_y as a function of q_v and the noise."""
        return self.label.variance

    @property
    def prior_slope(self) -> sp.Expr | None:
        """The slope of log gbar in w_chi."""
        return None if self.prior is None else sp.diff(self.prior, W_CHI)

    @property
    def unknown(self) -> dict[sp.Symbol, sp.Expr]:
        """V = 1 - q of every block from its conjugate, without loss of digits where q is close to 1."""
        return {b.V: sp.simplify(1 - self.update[b.q]) for b in self.model.blocks}

    def in_unknowns(self, expr: sp.Expr) -> sp.Expr:
        """An expression in V = 1 - q of every block in place of q, for the same reason."""
        return sp.expand(expr.subs({b.q: 1 - b.V for b in self.model.blocks}))


@budget("deriving the Bayes-optimal theory")
def derive_bayes(setting: str | Task, tokens: Tokens | None = None, model: Model | None = None) -> BayesSystem:
    """The Bayes-optimal system of a task; of the model only the blocks, the label and the risk matter."""
    law = None if tokens is None else lengths(tokens)
    return replace(_derived(task(setting).at(law), model or DEFAULT_MODEL), lengths=law)


@lru_cache(maxsize=32)
def _derived(setting: Task, model: Model) -> BayesSystem:
    location = _location_weight(setting)
    law = _matched_law(model)
    score_variance = law.marginal(CHI_STAR, W_CHI).given(W_CHI).covariance[0, 0]
    model.label_sources()  # a refusal where the label is no Gaussian field
    label = _label_channel(law)
    prior = None if location.coupled else _log_average(setting, law)
    shown = label.log_density.xreplace({GAP: Y - W_Z})
    entropy = _free_entropy(model)
    update = {b.q: sp.simplify(sp.solve(sp.diff(entropy, b.qh), b.q)[0]) for b in model.blocks}
    return BayesSystem(
        task=setting,
        model=model,
        lengths=None,
        location=location,
        hard=_hard_location(setting, law),
        score_variance=score_variance,
        label=label,
        exponent=None if prior is None else prior + shown,
        prior=prior,
        free_entropy=entropy,
        update=update,
        risk=model.risk_factor() * _risk(law),
        revealed=_revealed(label, model),
    )


def _matched_law(model: Model) -> FieldLaw:
    """The law of one token's fields where the student's overlap with the teacher is its own: m = q."""
    law = model.token_law({model.scores.name: W_CHI, model.values.name: W_Z})
    matched = {b.m: b.q for b in model.blocks}
    return FieldLaw(law.fields, law.mean, sp.ImmutableMatrix(law.covariance.subs(matched).applyfunc(sp.expand)))


def _location_weight(setting: Task) -> LocationWeight:
    """The weight factorised over the tokens, by the Laplace integrals of `replicode.theory.gaussian.sequence`."""
    invariant = bool(properties(Activation("weight", setting.weight)).shift_invariant)
    if setting.gaussian:
        return LocationWeight(sp.S.One, sp.exp(setting.log_weight), sp.S.One, None, invariant)
    averages = weighted_averages(Activation("constant", sp.S.One), setting)
    if averages is None or len(averages.normalisation) != 1 or len(averages.normalisation[0].powers) > 1:
        raise Refusal(
            f"the Bayes-optimal theory of task {setting.text} is not available: its weight does not factorise"
        )
    (product,) = averages.normalisation
    own, every = (e.xreplace({CHI_STAR: X}) for e in (product.functions[0], product.every))
    powers = [InversePower(p.offset, p.body.xreplace({CHI_STAR: X}), p.power) for p in product.powers]
    return LocationWeight(product.coefficient, own, every, powers[0] if powers else None, invariant)


def _hard_location(setting: Task, law: FieldLaw) -> HardLocation | None:
    """The law of one token's chi* below a threshold, given w_chi; None without a limit as nu grows."""
    try:
        sign = setting.hard_limit()
    except InputError:
        return None
    teacher = law.marginal(CHI_STAR, W_CHI).given(W_CHI)
    below = closed_form(step(sign * (THRESHOLD - X)), ((X, teacher.mean[0], teacher.covariance[0, 0]),))
    if below is None:
        raise AssertionError("the Gaussian measure of a half line")
    return HardLocation(sign, below, sign * sp.diff(below, THRESHOLD))


def _label_channel(law: FieldLaw) -> LabelChannel:
    """The law of the label given the hidden token's w_z, whose mean is w_z itself."""
    label = law.marginal(Y, W_Z)
    given = label.given(W_Z)
    deviation = sp.sqrt(SPREAD)
    density = normal_density((Y - given.mean[0]) / deviation) / deviation
    log_density = sp.expand(sp.expand_log(sp.log(density), force=True))
    log_gap, slope = (sp.expand(e.subs(Y, W_Z + GAP)) for e in (log_density, sp.diff(log_density, W_Z)))
    if W_Z in (log_gap + slope).free_symbols:
        raise Refusal("the Bayes-optimal theory is not available: the label is other than the value plus noise")
    return LabelChannel(log_gap, slope, sp.expand(given.covariance[0, 0]), label.covariance[0, 0])


def _log_average(setting: Task, law: FieldLaw) -> sp.Expr | None:
    """log gbar(w) = log E[g(chi*)] over chi* given w, normalised so that E[g] = 1; None without a closed form."""
    teacher = law.marginal(CHI_STAR, W_CHI).given(W_CHI)
    weight = sp.exp(setting.own)
    averaged = closed_form(weight, ((X, teacher.mean[0], teacher.covariance[0, 0]),))
    total = closed_form(weight, ((X, sp.S.Zero, sp.S.One),))
    if averaged is None or total is None:
        return None
    return sp.expand(sp.expand_log(sp.log(averaged), force=True) - sp.expand_log(sp.log(total), force=True))


def _risk(law: FieldLaw) -> sp.Expr:
    """E (y - sum_l P_l w_z,l)^2 with tokens independent, and E[sum P^2] = E[P_eps] = A (Nishimori)."""
    moment = law.marginal(Y, W_Z).covariance
    return sp.expand(moment[0, 0] - 2 * moment[0, 1] * A + moment[1, 1] * A)


def _revealed(label: LabelChannel, model: Model) -> Revealed:
    """With the location revealed, qh_v = alpha E[slope^2] over the hidden token's gap alone."""
    square = closed_form(label.slope**2, ((GAP, sp.S.Zero, SPREAD),))
    if square is None:
        raise AssertionError("a Gaussian average of a square")
    block = model.values
    strength = ALPHA * square.subs(SPREAD, label.variance.subs(block.q, 1 - block.V))
    informed = sp.Symbol("c", positive=True)
    left = coordinate_prior(model, block).unknown.xreplace({block.teacher_square: informed})
    image = sp.simplify(left.subs(block.qh, strength))
    contraction = sp.limit(sp.simplify(image.subs(NOISE, 0) / block.V), block.V, 0)
    if model.structured:
        return Revealed(None, strength, contraction)
    roots = sp.solve(sp.numer(sp.together(block.V - image)), block.V)
    (root,) = [r for r in roots if r.subs({ALPHA: 1, NOISE: 1}).is_positive]
    return Revealed(root, strength, contraction)


def _free_entropy(model: Model) -> sp.Expr:
    """Phi = sum_b [-q qh/2 + prior] + alpha E log Z: the prior is the Gaussian channel of strength qh."""
    priors = [-b.q * b.qh / 2 + prior_entropy(model, b) for b in model.blocks]
    return sp.Add(*priors) + ALPHA * entropy_of(model)
