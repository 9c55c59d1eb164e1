"""The population risk E (y - f)^2 of a fixed estimator, from its seven overlaps.

Given all scores chi the remaining fields are Gaussian, so the risk is an average over the scores alone of an explicit
integrand in sigma; on the manifold where the three cross overlaps vanish it is linear in A = E sigma_eps and
B = E sum sigma^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from replicode.theory.budget import budget
from replicode.theory.derive.saddle import Reduction, reductions
from replicode.theory.gaussian.closed import ClosedAverages, ScoreOverlaps, closed_averages
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.gaussian.sequence import WeightedAverages, at_teacher, weighted_averages
from replicode.theory.language.activation import Activation, activation
from replicode.theory.language.nodes import RADIUS, L
from replicode.theory.language.task import Task, task
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.model import DEFAULT_MODEL, LABEL_NOISE, SIGMA, Block, Model
from replicode.theory.properties.domain import check_domain
from replicode.theory.properties.symbolic import Properties, properties

CHI_EPS, CHI_IDLE = sp.Symbol("chi_eps", real=True), sp.Symbol("chi_l", real=True)
SIGMA_EPS, SIGMA_IDLE = sp.Symbol("sigma_eps", real=True), sp.Symbol("sigma_l", real=True)
_Z = sp.Symbol("z", real=True)
BIAS_IDLE = sp.Symbol("bias_idle", real=True)
A, B = sp.symbols("A B", real=True)
MOST_POWERS = 2


@dataclass(frozen=True)
class PopulationRisk:
    """risk = E[hidden + sum over idle tokens of idle], bias_idle being itself the sum of `bias` over idle tokens.

    Where the task does not leave the scores Gaussian, chi_star is given: the token's own in each of the parts.
    """

    score_mean: sp.Expr
    score_variance: sp.Expr
    idle_score_variance: sp.Expr
    hidden: sp.Expr
    idle: sp.Expr
    bias: sp.Expr
    on_manifold: sp.Expr
    model: Model

    @property
    def best_value_overlap(self) -> sp.Expr:
        """The m_v of the best v = m_v v*, on the manifold."""
        m, q = self.model.values.m, self.model.values.q
        return sp.solve(sp.diff(self.on_manifold.subs(q, m**2), m), m)[0]

    @property
    def gaussian(self) -> bool:
        """Whether chi_star is integrated out, the scores being Gaussian."""
        return self.model.scores.teacher not in self.score_mean.free_symbols


def token_covariance(chi: sp.Symbol, model: Model = DEFAULT_MODEL) -> FieldLaw:
    """The base law of the teachers' and the students' fields of one token, off the manifold."""
    blocks = model.blocks

    def cross(student: Block, teacher: Block) -> sp.Symbol:
        return student.m if student == teacher else model.crossed(student, teacher)

    def own(one: Block, two: Block) -> sp.Symbol:
        return one.q if one == two else model.mixed(one, two)

    overlaps = sp.Matrix([[cross(student, teacher) for student in blocks] for teacher in blocks])
    norms = sp.Matrix([[own(a, b) for b in blocks] for a in blocks])
    covariance = sp.Matrix(sp.BlockMatrix([[sp.eye(len(blocks)), overlaps], [overlaps.T, norms]]))
    fields = [b.teacher for b in blocks] + [chi if b == model.scores else _Z for b in blocks]
    return FieldLaw(tuple(fields), sp.ImmutableMatrix.zeros(len(fields), 1), sp.ImmutableMatrix(covariance))


def population_risk(setting: Task, model: Model = DEFAULT_MODEL) -> PopulationRisk:
    """Derive the integrand by conditioning every token's (z*, z) on its scores."""
    hidden, idle, score = _given_scores(setting, model)
    factor, rate, label = model.risk_factor(), model.output_rate(), model.label_sources()
    weights = sp.Matrix([label[model.values.teacher], -rate.subs(SIGMA, SIGMA_EPS)])
    variance = (weights.T * hidden.covariance * weights)[0]
    bias = (weights.T * hidden.mean)[0]
    spread = sp.collect(sp.expand(variance), SIGMA_EPS, sp.factor)
    hidden_part = model.noise_risk() + factor * spread + factor * (bias - BIAS_IDLE) ** 2
    idle_rate = rate.subs(SIGMA, SIGMA_IDLE)
    idle_part = factor * idle_rate**2 * idle.covariance[0, 0]
    flat = dict.fromkeys(model.cross_overlaps, sp.S.Zero)
    manifold = _on_manifold(hidden_part.subs({**flat, BIAS_IDLE: 0}), idle_part.subs(flat))
    return PopulationRisk(
        score_mean=score.mean[0],
        score_variance=score.covariance[0, 0],
        idle_score_variance=token_covariance(CHI_IDLE, model).marginal(CHI_IDLE).covariance[0, 0],
        hidden=hidden_part,
        idle=idle_part,
        bias=idle_rate * idle.mean[0],
        on_manifold=manifold,
        model=model,
    )


EYY, EYZ, EMM = sp.symbols("E_yy E_yz E_mm", real=True)


@dataclass(frozen=True)
class ManifoldRisk:
    """The risk on the manifold in A, B and the moments of the label: E y^2, E[y z*] and E[E[y | z*]^2].

    Where the label is a Gaussian field they are known, else they are arguments, `moments`. Of tokens with radii A and B
    are averages of what a token's value is multiplied by, and all is given the radius of the hidden one, the argument.
    """

    on_manifold: sp.Expr
    noise_risk: sp.Expr
    best_value_overlap: sp.Expr
    moments: tuple[sp.Symbol, ...]


def manifold_risk(model: Model) -> ManifoldRisk:
    """E (y - f)^2 with f = sum sigma w, where w = m z* + noise at the hidden token and is noise elsewhere."""
    factor, rate, block = model.risk_factor(), model.output_rate() / model.radius, model.values
    w = sp.Symbol("w", real=True)
    law = FieldLaw.of({block.teacher: {block.teacher.name: sp.S.One}, w: block.student_field()}).covariance
    known: dict[sp.Symbol, sp.Expr] = {}
    if model.label_in_law or model.radial:
        a, c = (model.label_sources()[s] for s in (block.teacher, LABEL_NOISE))
        a *= model.radius
        known = {EYY: a**2 + c**2, EYZ: a, EMM: a**2}
    scale = rate / SIGMA
    risk = factor * (EYY - 2 * scale * law[0, 1] * EYZ * A + scale**2 * law[1, 1] * B)
    best = sp.solve(sp.diff(risk.subs(block.q, block.m**2), block.m), block.m)[0]
    noise = factor * (EYY - EMM)
    risk, noise, best = (sp.expand(e.xreplace(known)) for e in (risk, noise, best))
    if model.radial:
        return ManifoldRisk(risk, noise, best.subs(RADIUS, 1), (RADIUS,))
    return ManifoldRisk(risk, noise, best, () if known else (EYY, EYZ, EMM))


def score_law(setting: Task, model: Model, weighted: bool) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Mean and variance of the hidden token's score, and the variance of an idle one's; without a weight beside it."""
    idle = token_covariance(CHI_IDLE, model).marginal(CHI_IDLE).covariance[0, 0]
    if weighted:
        return sp.S.Zero, idle, idle
    star = model.scores.teacher
    law = token_covariance(CHI_EPS, model).reweighted(star, *setting.hidden_score()).marginal(CHI_EPS)
    return law.mean[0], law.covariance[0, 0], idle


def _given_scores(setting: Task, model: Model) -> tuple[FieldLaw, FieldLaw, FieldLaw]:
    """The laws of (z*, z) at the hidden token and of z at an idle one given the scores, and that of chi_eps.

    Where the task leaves the scores Gaussian chi* is integrated out; else everything is given chi* too.
    """
    star, told = model.scores.teacher, model.values.teacher
    hidden, idle = token_covariance(CHI_EPS, model), token_covariance(CHI_IDLE, model)
    if setting.gaussian:
        hidden = hidden.reweighted(star, *setting.hidden_score()).marginal(told, CHI_EPS, _Z)
        idle = idle.marginal(CHI_IDLE, _Z)
        return hidden.given(CHI_EPS), idle.given(CHI_IDLE), hidden.marginal(CHI_EPS)
    hidden = hidden.marginal(star, told, CHI_EPS, _Z).given(star)
    idle = idle.marginal(star, CHI_IDLE, _Z).given(star)
    return hidden.given(CHI_EPS), idle.given(CHI_IDLE), hidden.marginal(CHI_EPS)


def _on_manifold(hidden: sp.Expr, idle: sp.Expr) -> sp.Expr:
    """The risk in A = E sigma_eps and B = E sum_l sigma_l^2; both parts are polynomials in sigma."""
    linear = sp.Poly(hidden, SIGMA_EPS)
    square = linear.coeff_monomial(SIGMA_EPS**2)
    if sp.simplify(square - idle.coeff(SIGMA_IDLE, 2)) != 0:
        raise AssertionError("hidden and idle tokens must weigh sigma^2 alike")
    return linear.coeff_monomial(1) + linear.coeff_monomial(SIGMA_EPS) * A + square * B


@dataclass(frozen=True)
class PopulationSystem:
    """All that is derived at population level: the risk of any estimator, and A and B where they have closed forms.

    Where the number of tokens varies, `averages` are over it too, with names A_L_n and B_L_n for what is not closed
    at n tokens.
    """

    activation: Activation
    task: Task
    lengths: Lengths | None
    model: Model
    properties: Properties
    reductions: tuple[Reduction, ...]
    risk: PopulationRisk

    @cached_property
    @budget("the closed form of the population averages")
    def averages(self) -> ClosedAverages:
        """A and B in closed form; looked for where they are asked for, as it may take long."""
        overlaps = ScoreOverlaps(self.model.scores.m, self.model.scores.q)
        found = closed_averages(self.activation, self.task, overlaps)
        if self.lengths is None:
            return found
        return ClosedAverages(over_lengths(found.A, A, self.lengths), over_lengths(found.B, B, self.lengths))


@budget("deriving the population risk")
def derive_population(
    act: str | Activation,
    setting: str | Task = "spiked",
    tokens: Tokens | None = None,
    model: Model | None = None,
) -> PopulationSystem:
    """The population level of an activation on any task, at any, a given or a varying number of tokens."""
    law, model = None if tokens is None else lengths(tokens), model or DEFAULT_MODEL
    act, setting = activation(act), task(setting).at(law)
    for length in law.tokens if law else (None,):
        check_domain(act, length)
    risk = population_risk(setting, model)
    known = properties(act)
    return PopulationSystem(act, setting, law, model, known, reductions(known), risk)


def averages_of_tokens(act: Activation, setting: Task, winner: bool) -> dict[str, WeightedAverages | None]:
    """A and B as products over the tokens, None where they do not factorise so that it is of use.

    Of the activation under the task's weight, of the same in the limit of a `winner`, whose score is one more integral,
    and of the posterior of the location at the teacher's own scores.
    """
    own = weighted_averages(act, setting)
    plain = weighted_averages(act, Task("uniform", sp.S.Zero)) if winner else None
    posterior = weighted_averages(Activation("posterior", setting.posterior), setting)
    merged = None if posterior is None else at_teacher(posterior)
    most = {"activation": (own, MOST_POWERS), "winner": (plain, MOST_POWERS - 1), "posterior": (merged, MOST_POWERS)}
    return {n: None if p is None or powers_of(p) > limit else p for n, (p, limit) in most.items()}


def powers_of(products: WeightedAverages) -> int:
    """The largest number of inverse powers of sums in a product, each of which is an integral."""
    return max(len(p.powers) for p in (*products.A, *products.B))


def over_lengths(closed: sp.Expr | None, average: sp.Symbol, law: Lengths) -> sp.Expr | None:
    """A closed average in L, averaged over the lengths; each by its name where it is not closed and they vary."""
    if law.fixed is not None:
        return None if closed is None else closed.xreplace({L: sp.Integer(law.fixed)})
    parts = [at_length(average, n) if closed is None else closed.xreplace({L: sp.Integer(n)}) for n in law.tokens]
    return sp.Add(*[p * e for p, e in zip(probabilities(law), parts, strict=True)])


def at_length(average: sp.Symbol, tokens: int) -> sp.Symbol:
    """The name of A or B at one of several numbers of tokens."""
    return sp.Symbol(f"{average.name}_L_{tokens}", real=True)


def probabilities(law: Lengths) -> tuple[sp.Rational, ...]:
    """P(L) as typed."""
    return tuple(sp.Rational(repr(p)) for p in law.weights)
