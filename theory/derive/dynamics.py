"""One-pass stochastic gradient descent in high dimension: the closed equations of all overlaps, for any model.

A step moves a student's weights by eta G sum_l (df/dh_l) X_l/sqrt(D), h being its field and G = -dloss/df, less
eta/D times the slope of the penalty. The change of an overlap, times D, concentrates: the rates are averages over one
fresh sequence of G f_l h_l and of G^2 f_l f_l', f_l short for df/dh_l. Given the scores everything else is Gaussian.
Of a square loss on Gaussian labels it enters as a polynomial, is averaged by Isserlis' theorem, and only averages over
the scores remain. Of any other loss or label G is averaged too, over the output and what the label is drawn from
(gains.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement

import sympy as sp

from replicode.theory.budget import budget
from replicode.theory.calculus.tokens import StagedDerivatives, staged_derivatives
from replicode.theory.derive.channel import U
from replicode.theory.derive.descent_closed import closed_terms
from replicode.theory.derive.factorised import Ratio, Term, factorised_terms, ratio
from replicode.theory.derive.gains import GAINS, SQUARED_GAINS, gained_product
from replicode.theory.derive.label import LabelLaw, label_law
from replicode.theory.derive.location import Location, location
from replicode.theory.derive.population import token_covariance
from replicode.theory.derive.saddle import Reduction, reductions
from replicode.theory.errors import Refusal
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.gaussian.moments import moment
from replicode.theory.language.activation import Activation, activation
from replicode.theory.language.nodes import L, W, X
from replicode.theory.language.task import Task, task
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.model import DEFAULT_MODEL, LABEL_NOISE, SIGMA, Block, F, Model
from replicode.theory.properties.domain import check_domain
from replicode.theory.properties.kinks import piecewise
from replicode.theory.properties.symbolic import Properties, properties

ELIMINATION = "value channel linear"  # of trained values; here they are averaged over
LONGEST_SHOWN = 2000  # operations of a closed form
MANY_TOKENS, MANY_WEIGHTED = 4, 3  # from here on averages are taken one token at a time
BATCH = sp.Symbol("batch", positive=True)
SCORE, VALUE = sp.Symbol("chi", real=True), sp.Symbol("z", real=True)
RESIDUAL = sp.Symbol("r", real=True)
SLOPE, OTHER_SLOPE, FIELD = sp.Symbol("f_l", real=True), sp.Symbol("f_j", real=True), sp.Symbol("h_l", real=True)


@dataclass(frozen=True)
class Direction:
    """A vector of weights that the fields are taken along: a student's, or its teacher's."""

    block: Block
    teacher: bool

    @property
    def name(self) -> str:
        """As it is called in the names of averages."""
        return f"{self.block.name}star" if self.teacher else self.block.name


def rate_of(block: Block) -> sp.Symbol:
    """The step size of a student."""
    return sp.Symbol(f"eta_{block.name}", nonnegative=True)


def pull_symbol(student: Block, along: Direction) -> sp.Symbol:
    """E[G sum_l f_l h_l]: f_l the slope of the output in the student's field, h the field along a direction."""
    return sp.Symbol(f"pull_{student.name}_{along.name}", real=True)


def spread_symbol(one: Block, two: Block) -> sp.Symbol:
    """E[G^2 sum_l f_l f'_l]: what the steps of two students have in common beyond their means."""
    return sp.Symbol(f"spread_{one.name}{two.name}", real=True)


def student(block: Block) -> Direction:
    """The direction of a student."""
    return Direction(block, False)


def overlap(one: Direction, two: Direction, model: Model) -> sp.Expr:
    """The overlap of two directions; teachers are orthonormal."""
    if one.teacher and two.teacher:
        return sp.S.One if one.block == two.block else sp.S.Zero
    if one.teacher:
        return overlap(two, one, model)
    if two.teacher:
        return one.block.m if one.block == two.block else model.crossed(one.block, two.block)
    return one.block.q if one.block == two.block else model.mixed(one.block, two.block)


def students(model: Model) -> tuple[Block, Block]:
    """The students in the order in which they stand: scores, then values."""
    return model.scores, model.values


def overlap_pairs(model: Model) -> dict[sp.Symbol, tuple[Direction, Direction]]:
    """Every overlap that moves, with the student and the direction whose product it is: own ones, then cross ones."""
    k, v = students(model)
    own = [(student(b), two) for b in (k, v) for two in (Direction(b, True), student(b))]
    cross = [(student(k), Direction(v, True)), (student(v), Direction(k, True)), (student(k), student(v))]
    return {overlap(*pair, model): pair for pair in own + cross}


@dataclass(frozen=True)
class GivenScores:
    """One token's fields given independent normals u_i that carry its scores: mean + sum_i loadings[i] u_i + the rest.

    Fields stand in the order of `law`, their joint law; the rest is Gaussian with `covariance`.
    """

    law: FieldLaw
    loadings: tuple[tuple[sp.Expr, ...], ...]
    covariance: sp.ImmutableMatrix

    @property
    def units(self) -> tuple[sp.Symbol, ...]:
        """The names of the normals."""
        return tuple(sp.Symbol(f"u_{i + 1}", real=True) for i in range(len(self.loadings)))

    @property
    def means(self) -> tuple[sp.Expr, ...]:
        """The conditional means of the fields in these normals."""
        rows = zip(self.law.mean, *self.loadings, strict=True)
        return tuple(mean + sp.Add(*[c * u for c, u in zip(row, self.units, strict=True)]) for mean, *row in rows)


@dataclass(frozen=True)
class DynamicsSystem:
    """The equations of one-pass SGD: rates of all overlaps in terms of averages, and the averages given the scores.

    `gain` is G in the label y and the output f. `pull`, `spread` and `risk` are averages given the scores of G f_l h_l,
    of G^2 f_l f_j and of the risk, in the conditional means and covariances named by `mean_of` and `covariance_of`;
    where they are not `polynomial`, of products with any gain (gains.py), and the risk is that of y and f. `label` has
    all of its branches. `activation` is what multiplies a token's value in the output.
    """

    activation: Activation
    task: Task
    lengths: Lengths | None
    model: Model
    location: Location
    properties: Properties
    reductions: tuple[Reduction, ...]
    gain: sp.Expr
    rates: Mapping[sp.Symbol, sp.Expr]
    mobility: sp.ImmutableMatrix
    hidden: GivenScores
    idle: GivenScores
    pull: sp.Expr
    spread: sp.Expr
    risk: sp.Expr
    label: LabelLaw

    @property
    def polynomial(self) -> bool:
        """Whether all fields but the scores enter as polynomials: a square loss on a label that is a Gaussian field."""
        return self.model.square and not self.label.weighted

    @cached_property
    def ratio(self) -> Ratio | None:
        """sigma as a ratio of functions of single tokens, where averages factorise over them."""
        if not self.polynomial:
            return None
        act = self.activation if self.properties.smooth else piecewise(self.activation)
        return ratio(act if self.tokens is None else replace(act, expr=act.expr.subs(L, self.tokens)))

    @property
    def factorised(self) -> bool:
        """Whether averages are taken one token at a time: where they can be, and nodes for all at once are many.

        Nodes of one token resolve kinks. Element-wise ones cost the same at any number of tokens; of polynomials all at
        once is exact at a few.
        """
        if self.lengths is None or self.ratio is None:
            return False
        few = MANY_TOKENS if self.task.gaussian else MANY_WEIGHTED
        if self.properties.elementwise and self.integrand_degree is None:
            few = 1 if self.task.gaussian else 2
        return max(self.lengths.tokens) >= few or not self.properties.smooth

    @property
    def terms(self) -> tuple[Term, ...]:
        """What factorised averages are made of."""
        return factorised_terms(self.model.loss_curvature(), self.model.risk_factor())

    @property
    def mean_loss(self) -> sp.Expr:
        """The average of a square loss given the scores."""
        return self.risk * self.model.loss_curvature() / (2 * self.model.risk_factor())

    @property
    def tokens(self) -> int | None:
        """The number of tokens where it is given and does not vary."""
        return None if self.lengths is None else self.lengths.fixed

    @property
    def integrand_degree(self) -> int | None:
        """The degree in the scores of what is averaged over them, where that is a polynomial.

        Of r and sigma it is that of sigma and one more, and that of sigma; of a slope of f that of sigma. The largest
        is of r^2 f_l f_j.
        """
        expr = self.activation.expr
        if not (self.polynomial and self.task.gaussian and self.properties.elementwise and expr.is_polynomial(X)):
            return None
        degree = int(sp.Poly(expr, X).degree())
        return 2 * (degree + 1) + 2 * degree

    @cached_property
    def loss(self) -> StagedDerivatives:
        """The derivatives of the output sum_l sigma_l w_l in scores and values, stage by stage."""
        form = self.activation.token_form()
        return staged_derivatives([*form.sums, (U, form.f * W)], U)

    @property
    def overlaps(self) -> tuple[sp.Symbol, ...]:
        """All seven, in the order in which they stand wherever they are a vector."""
        return tuple(self.rates)

    @cached_property
    def flow(self) -> dict[sp.Symbol, sp.Expr]:
        """The rates without the terms that come from the scatter of single steps: small steps, time eta t."""
        return {o: e.xreplace(dict.fromkeys(spreads_of(self.model), sp.S.Zero)) for o, e in self.rates.items()}

    @cached_property
    def spherical(self) -> dict[sp.Symbol, sp.Expr]:
        """The rates when both students are put back to their norms after every step."""
        return {o: _kept_norms(o, self.rates, self.model) for o in self.overlaps}

    @cached_property
    def closed(self) -> dict[sp.Symbol, sp.Expr]:
        """Pulls and spreads in closed form, those that are, for any number of tokens: of element-wise sigma."""
        if self.ratio is None or self.ratio.bottom != 0 or not (self.task.gaussian and self.properties.smooth):
            return {}
        symbols = (*pulls_of(self.model), *spreads_of(self.model))
        found = closed_terms(self.terms, self.ratio, self.hidden.law, self.idle.law, label_weights(self.model))
        short = {i: _shortest(e) for i, e in found.items() if i < len(symbols)}
        return {symbols[i]: e for i, e in short.items() if sp.count_ops(e) <= LONGEST_SHOWN}

    def equations(self) -> dict[str, sp.Expr]:
        """The equations by name: rates of the overlaps, then what their averages are given the scores."""
        found = {f"d_{o.name}": e for o, e in self.rates.items()}
        found |= {f"spherical_d_{o.name}": e for o, e in self.spherical.items() if e != 0}
        return found | {"G": self.gain, "pull": self.pull, "spread": self.spread, "test_risk": self.risk}

    def all_equations(self) -> dict[str, sp.Expr]:
        """The same with what is closed."""
        return self.equations() | {s.name: e for s, e in self.closed.items()}


def pulls_of(model: Model) -> dict[sp.Symbol, tuple[Block, Direction]]:
    """All averages E[G sum f_l h_l], with the student that moves and the direction of h."""
    along = [Direction(b, teacher) for teacher in (True, False) for b in students(model)]
    return {pull_symbol(b, d): (b, d) for b in students(model) for d in along}


def spreads_of(model: Model) -> dict[sp.Symbol, tuple[Block, Block]]:
    """All averages E[G^2 sum f_l f'_l]."""
    return {spread_symbol(*pair): pair for pair in combinations_with_replacement(students(model), 2)}


@budget("deriving the training dynamics")
def derive_dynamics(
    act: str | Activation,
    setting: str | Task = "spiked",
    tokens: Tokens | None = None,
    model: Model | None = None,
) -> DynamicsSystem:
    """The dynamics of an activation on any task, at any, a given or a varying number of tokens."""
    law, model = (None if tokens is None else lengths(tokens)), model or DEFAULT_MODEL
    if model.structured:
        raise Refusal(
            "spectrum: one-pass SGD on structured tokens does not close in m and q, the overlaps of every eigenvalue "
            "move at a rate of their own; solve has what training to the end leads to"
        )
    act, setting = activation(act), task(setting).at(law)
    act = replace(act, expr=model.output_rate().xreplace({SIGMA: act.expr}))
    for length in law.tokens if law else (None,):
        check_domain(act, length)
    place, found = location(setting), properties(act)
    if not act.expr.has(X):
        raise Refusal(f"{act.text} does not depend on the scores: k does not move")
    label = replace(label_law(model), mirrored=False)  # off the manifold both branches of a mirrored label differ
    if model.square and not label.weighted:
        pull, spread, risk = averages_given_scores(model.loss_curvature(), model)
    else:
        pull, spread, risk = gained_product(GAINS), gained_product(SQUARED_GAINS), model.risk
    return DynamicsSystem(
        activation=act,
        task=setting,
        lengths=law,
        model=model,
        location=place,
        properties=found,
        reductions=tuple(r for r in reductions(found) if r.name != ELIMINATION),
        gain=-sp.diff(model.loss, F),
        rates=_rates(model),
        mobility=_mobility(model),
        hidden=_hidden(setting, place, model),
        idle=_idle(place, model),
        pull=pull,
        spread=spread,
        risk=risk,
        label=label,
    )


def _shortest(expr: sp.Expr) -> sp.Expr:
    """A rational function as a polynomial, where it is one; else as it stands."""
    rational = expr.is_rational_function(*expr.free_symbols) or not expr.has(sp.Function)
    return sp.factor_terms(sp.expand(sp.cancel(expr))) if rational else expr


def _rates(model: Model) -> dict[sp.Symbol, sp.Expr]:
    """d(a.b/D)/dt, t = steps/D: the change of a along b, that of b along a, and the product of both changes."""
    found = {}
    for symbol, (one, two) in overlap_pairs(model).items():
        rate = _drift(one.block, two, model)
        if not two.teacher:
            rate += _drift(two.block, one, model)
            pair = sorted((one.block, two.block), key=students(model).index)
            rate += rate_of(one.block) * rate_of(two.block) * spread_symbol(*pair) / BATCH
        found[symbol] = rate
    return found


def _drift(moving: Block, along: Direction, model: Model) -> sp.Expr:
    """How the mean step of a student moves its overlap with a direction."""
    decay = model.penalty_curvature(moving) * overlap(student(moving), along, model)
    return rate_of(moving) * (pull_symbol(moving, along) - decay)


def _kept_norms(symbol: sp.Symbol, rates: Mapping[sp.Symbol, sp.Expr], model: Model) -> sp.Expr:
    """The rate of an overlap whose students are rescaled to their norms after every step."""
    t = sp.Symbol("t", real=True)
    students = [d.block for d in overlap_pairs(model)[symbol] if not d.teacher]
    scales = [sp.sqrt(b.q / (b.q + t * rates[b.q])) for b in students]
    moved = (symbol + t * rates[symbol]) * sp.Mul(*scales)
    return sp.simplify(sp.diff(moved, t).subs(t, 0))


def _mobility(model: Model) -> sp.ImmutableMatrix:
    """D sum_b eta_b grad_b(O).grad_b(O'): the rates of the flow are minus this times the slopes of E[loss]."""
    pairs = list(overlap_pairs(model).values())

    def gradient(pair: tuple[Direction, Direction], block: Block) -> list[Direction]:
        one, two = pair
        return [other for own, other in ((one, two), (two, one)) if own == student(block)]

    def entry(left: tuple[Direction, Direction], right: tuple[Direction, Direction]) -> sp.Expr:
        slopes = [(b, d, e) for b in model.blocks for d in gradient(left, b) for e in gradient(right, b)]
        products = [rate_of(b) * overlap(d, e, model) for b, d, e in slopes]
        return sp.Add(*products)

    return sp.ImmutableMatrix([[entry(left, right) for right in pairs] for left in pairs])


def token_law(model: Model) -> FieldLaw:
    """The base law of chi*, z*, chi, z of one token, in this order."""
    return token_covariance(SCORE, model).marginal(model.scores.teacher, model.values.teacher, SCORE, VALUE)


def _hidden(setting: Task, place: Location, model: Model) -> GivenScores:
    """The hidden token, given its score; given also the teacher's where the weight is not in the law."""
    law, star = token_law(model), model.scores.teacher
    if place.weighted:
        return given_scores(law, (star, SCORE))
    return given_scores(law.reweighted(star, *setting.hidden_score()), (SCORE,))


def _idle(place: Location, model: Model) -> GivenScores:
    """An idle token: the teacher's score is given too where the weight depends on all of them."""
    coupled = place.kind in ("ranked", "normalised")
    return given_scores(token_law(model), (model.scores.teacher, SCORE) if coupled else (SCORE,))


def given_scores(law: FieldLaw, given: tuple[sp.Symbol, ...]) -> GivenScores:
    """The law of all fields given some of them, these as combinations of normals, one after the other."""
    rest, loadings = sp.Matrix(law.covariance), []
    for field in given:
        i = law.fields.index(field)
        column = rest[:, i] / sp.sqrt(rest[i, i])
        loadings.append(tuple(sp.simplify(e) for e in column))
        rest = (rest - column * column.T).applyfunc(sp.simplify)
    return GivenScores(law, tuple(loadings), sp.ImmutableMatrix(rest))


def mean_of(variable: sp.Symbol) -> sp.Symbol:
    """The name of a conditional mean."""
    return sp.Symbol(f"mean_{variable.name}", real=True)


def covariance_of(one: sp.Symbol, two: sp.Symbol) -> sp.Symbol:
    """The name of a conditional covariance, or variance."""
    first, second = sorted((one.name, two.name))
    return sp.Symbol(f"cov_{first}__{second}", real=True)


def averages_given_scores(curvature: sp.Expr, model: Model) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """E[G f_l h_l], E[G^2 f_l f_j] and the risk given the scores, where the residual r = y - f has G = curvature r."""
    means = {s: mean_of(s) for s in (RESIDUAL, SLOPE, OTHER_SLOPE, FIELD)}
    pull = curvature * moment([RESIDUAL, SLOPE, FIELD], means, covariance_of)
    spread = curvature**2 * moment([RESIDUAL, RESIDUAL, SLOPE, OTHER_SLOPE], means, covariance_of)
    risk = model.risk_factor() * moment([RESIDUAL, RESIDUAL], means, covariance_of)
    return pull, spread, risk


def label_weights(model: Model) -> tuple[sp.Expr, sp.Expr]:
    """The label's coefficients in the teacher's value at the hidden token and in its own noise."""
    sources = model.label_sources()
    return sources[model.values.teacher], sources[LABEL_NOISE]
