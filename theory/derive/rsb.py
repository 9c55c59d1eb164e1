"""One step of replica symmetry breaking at zero temperature, derived from hierarchical overlap matrices.

Replicas fall into blocks of size x, with overlap q1 inside and q0 across them. The limits are n -> 0, then beta ->
infinity with y = beta x kept finite: y is conjugate to the energy of a state, as x is at finite temperature. On the
channel the two limits are named rules, which `gaussian_step` carries out where everything is Gaussian. The channel is
that of the replica-symmetric theory with M replaced by F = -(1/y) log E exp(-y M), the average running over the noise
that tells states apart; what Price and Stein gave there holds here with q0 for q and <G> for G.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import sympy as sp

from replicode.theory.budget import budget
from replicode.theory.derive.hierarchy import HierarchicalMatrix
from replicode.theory.derive.replica import (
    BETA,
    CHANNEL_V,
    CHANNEL_VARIANCE,
    MT,
    N_REPLICAS,
    VT,
    Step,
    gaussian_channel,
    per_replica,
)
from replicode.theory.derive.saddle import ChannelAverage, Reduction, SaddleSystem
from replicode.theory.derive.stability import replicon_direction, responses_of
from replicode.theory.errors import Refusal
from replicode.theory.language.activation import Activation
from replicode.theory.language.task import Task
from replicode.theory.model import ALPHA, Block, Model

Y_PARISI = sp.Symbol("y_P", positive=True)
BLOCK_SIZE = sp.Symbol("x_rep", positive=True)
QT0, QT1 = sp.symbols("qt0 qt1", positive=True)
SIZES = (sp.S.One, BLOCK_SIZE, N_REPLICAS)
CHANNEL_NOISE = sp.Symbol("d_1", positive=True)
CHANNEL_OUTER = sp.Symbol("u_0", real=True)
ENVELOPE_SLOPE, ENVELOPE_BEND = sp.symbols("F_w F_ww", real=True)
TILTED_ENVELOPE = sp.Symbol("EM_tilted", real=True)
TRAIN_LOSS = sp.Symbol("train_loss", real=True)
STATES = ("within", "between")


@dataclass(frozen=True)
class StepBlock:
    """The symbols of a block at one step of breaking: m, q0, q1, V and their conjugates."""

    block: Block

    @property
    def q0(self) -> sp.Symbol:
        """The overlap of two states."""
        return sp.Symbol(f"q0_{self.block.name}", positive=True)

    @property
    def q1(self) -> sp.Symbol:
        """The squared norm, which is the overlap of a state with itself."""
        return sp.Symbol(f"q1_{self.block.name}", positive=True)

    @property
    def qh0(self) -> sp.Symbol:
        """The conjugate of q0."""
        return sp.Symbol(f"qh0_{self.block.name}", nonnegative=True)

    @property
    def qh1(self) -> sp.Symbol:
        """The conjugate of V."""
        return sp.Symbol(f"qh1_{self.block.name}", nonnegative=True)

    @property
    def noise(self) -> sp.Expr:
        """The variance q1 - q0 of what tells a state's fields from the average over states."""
        return self.q1 - self.q0

    @property
    def order(self) -> tuple[sp.Symbol, ...]:
        """The order parameters."""
        return self.block.m, self.q0, self.q1, self.block.V

    @property
    def conjugates(self) -> tuple[sp.Symbol, ...]:
        """The conjugates."""
        return self.block.mh, self.qh0, self.qh1, self.block.Vh

    @property
    def conjugate_of(self) -> dict[sp.Symbol, sp.Symbol]:
        """The conjugate that stationarity in each order parameter determines."""
        return {self.block.m: self.block.mh, self.q0: self.qh0, self.q1: self.block.Vh, self.block.V: self.qh1}

    @property
    def square(self) -> sp.Symbol:
        """E<|G|^2>, the tilted average of the squared gains."""
        return sp.Symbol(f"G2_{self.block.name}", nonnegative=True)

    def outer_rate(self, letter: str) -> sp.Symbol:
        """dE[F]/d(m, q0) at a given noise, and the explicit rate -E|<G>|^2/2 that the same rules call V's."""
        return sp.Symbol(f"dEM_{letter}_{self.block.name}", real=True)

    def renaming(self, other: StepBlock) -> dict[sp.Symbol, sp.Symbol]:
        """The symbols of this block by those of another."""
        mine, others = (
            (*b.order, *b.conjugates, b.block.strength, b.square, *[b.outer_rate(letter) for letter in "mqV"])
            for b in (self, other)
        )
        return dict(zip(mine, others, strict=True))


def step_blocks(model: Model) -> tuple[StepBlock, ...]:
    """All blocks."""
    return tuple(StepBlock(b) for b in model.blocks)


def overlaps_of(block: StepBlock) -> HierarchicalMatrix:
    """V/beta + q1 on the diagonal, q1 inside the blocks and q0 across them."""
    return HierarchicalMatrix((block.block.V / BETA, block.noise, block.q0), SIZES)


def zero_temperature(entropy: sp.Expr, powers: Mapping[sp.Symbol, sp.Expr] | None = None) -> sp.Expr:
    """Rule beta -> infinity at y = beta x: minus the free entropy per unit of beta, the limit taken term by term."""
    scaled = entropy.subs({BLOCK_SIZE: Y_PARISI / BETA, **(powers or {})}, simultaneous=True)
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(-scaled / BETA)):
        found = sp.limit(sp.simplify(term), BETA, sp.oo)
        total += sp.factor(found)
    return total.replace(sp.log, lambda argument: sp.log(sp.factor(argument)))


@dataclass(frozen=True)
class StepPrior:
    """The regulariser's part of the free energy for one block, conjugate terms included, with the way to it.

    `replicated` has the Legendre terms, the integral over the replicas' weights and what the teacher adds to it;
    `limits` are those of each, and `value` is their sum.
    """

    precision: HierarchicalMatrix
    replicated: tuple[sp.Expr, ...]
    limits: tuple[sp.Expr, ...]

    @property
    def value(self) -> sp.Expr:
        """The part of the free energy."""
        return sp.Add(*self.limits)


@cache
def step_prior(model: Model, block: Block) -> StepPrior:
    """The replicated prior integral with hierarchical matrices, n -> 0, beta -> infinity.

    The conjugates scale with beta as mt = beta mh, Vt = beta Vh, qt = beta^2 qh.
    """
    named = StepBlock(block)
    parts = (VT, -(QT1 - QT0), -QT0)
    precision = HierarchicalMatrix((BETA * model.penalty_curvature(block) + parts[0], *parts[1:]), SIZES)
    coupling = MT**2 * precision.inverse().sum()
    log_integral = N_REPLICAS * sp.log(2 * sp.pi) / 2 - precision.log_det() / 2
    teacher = -sp.log(1 - coupling) / 2
    trace = overlaps_of(named).trace_with(HierarchicalMatrix(parts, SIZES))
    legendre = -N_REPLICAS * MT * block.m + trace / 2
    replicated = legendre, log_integral, teacher
    limits = [zero_temperature(per_replica(part), powers_of(named)) for part in replicated]
    return StepPrior(precision, replicated, (*limits[:2], sp.factor(limits[2])))


def powers_of(block: StepBlock) -> dict[sp.Symbol, sp.Expr]:
    """The conjugates at temperature 1/beta."""
    return {
        MT: BETA * block.block.mh,
        VT: BETA * block.block.Vh,
        QT0: BETA**2 * block.qh0,
        QT1: BETA**2 * block.qh1,
    }


def tilted_average(values: tuple[sp.Expr, ...], chances: tuple[sp.Expr, ...], of: tuple[sp.Expr, ...]) -> sp.Expr:
    """<of>, the average over noise that takes few values, tilted by exp(-y values)."""
    weights = [p * sp.exp(-Y_PARISI * m) for p, m in zip(chances, values, strict=True)]
    return sp.Add(*[w * o for w, o in zip(weights, of, strict=True)]) / sp.Add(*weights)


def smoothed_envelope(values: tuple[sp.Expr, ...], chances: tuple[sp.Expr, ...]) -> sp.Expr:
    """F = -(1/y) log E exp(-y M) over noise that takes few values."""
    weights = [p * sp.exp(-Y_PARISI * m) for p, m in zip(chances, values, strict=True)]
    return -sp.log(sp.Add(*weights)) / Y_PARISI


@cache
def smoothing_rate() -> sp.Expr:
    """dF/d(variance of the noise), from the heat equation of exp(-y F), in the first and second slopes of F."""
    w, d = sp.Symbol("w", real=True), sp.Symbol("d", positive=True)
    envelope = sp.Function("F")(w, d)
    heated = sp.exp(-Y_PARISI * envelope)
    balance = sp.diff(heated, d) - sp.diff(heated, w, 2) / 2
    (found,) = sp.solve(balance, sp.diff(envelope, d))
    named = {sp.diff(envelope, w, 2): ENVELOPE_BEND, sp.diff(envelope, w): ENVELOPE_SLOPE}
    return sp.expand(found.subs(named))


@cache
def tilting_rate() -> sp.Expr:
    """dF/dy in F and <M>: noise of two values stands for any, as the rate is linear in the tilted average."""
    values, chances = sp.symbols("M_1 M_2", real=True), sp.symbols("p_1 p_2", positive=True)
    envelope, tilted = sp.symbols("F_y M_y", real=True)
    rate = sp.diff(smoothed_envelope(values, chances), Y_PARISI)
    expected = (tilted - envelope) / Y_PARISI
    found = {envelope: smoothed_envelope(values, chances), tilted: tilted_average(values, chances, values)}
    assert sp.simplify(rate - expected.subs(found)) == 0
    return expected


@dataclass(frozen=True)
class GaussianStep:
    """One token with sigma = 1: the replicated channel is a determinant, to compare with the rules on its envelope."""

    precision: HierarchicalMatrix
    entropy: sp.Expr
    exact: sp.Expr
    minimum: sp.Expr
    smoothed: sp.Expr
    ruled: sp.Expr


@cache
def gaussian_step(model: Model) -> GaussianStep:
    """The exact replicated average, and E[F] with F the Gaussian average of exp(-y M), both at one step."""
    c, channel = model.loss_curvature(), gaussian_channel(model)
    precision = HierarchicalMatrix((1 + c * CHANNEL_V, BETA * c * CHANNEL_NOISE, BETA * c * CHANNEL_VARIANCE), SIZES)
    entropy = per_replica(-precision.log_det() / 2)
    (field,) = channel.minimum.free_symbols - {CHANNEL_V, *c.free_symbols}
    square = sp.Poly(channel.minimum, field).coeff_monomial(field**2)
    bent = 1 + 2 * Y_PARISI * square * CHANNEL_NOISE
    smoothed = sp.log(bent) / (2 * Y_PARISI) + square * CHANNEL_OUTER**2 / bent
    ruled = sp.simplify(smoothed.subs(CHANNEL_OUTER, sp.sqrt(CHANNEL_VARIANCE)))
    return GaussianStep(precision, entropy, zero_temperature(entropy), channel.minimum, smoothed, ruled)


def step_envelope_of(model: Model) -> sp.Expr:
    """E[F], of which only the derivatives are known."""
    return sp.Function("EF")(*[s for b in step_blocks(model) for s in b.order], Y_PARISI)


def step_rate(theta: sp.Symbol) -> sp.Symbol:
    """The placeholder of dE[F]/dtheta."""
    return sp.Symbol(f"dEF_{theta.name}", real=True)


@dataclass(frozen=True, repr=False)
class StepSystem:
    """All that is derived at one step of breaking for one (activation, task, tokens).

    `rates` are the derivatives of E[F] in the order parameters and y, by outer rates, tilted squares and averages;
    `stability` has the de Almeida-Thouless matrices against a further step, within states and between them.
    """

    system: SaddleSystem
    priors: Mapping[str, StepPrior]
    gaussian: GaussianStep
    free_energy: sp.Expr
    gradient: Mapping[sp.Symbol, sp.Expr]
    rates: Mapping[sp.Symbol, sp.Expr]
    conjugate_update: Mapping[sp.Symbol, sp.Expr]
    prior_update: Mapping[sp.Symbol, sp.Expr]
    stability: Mapping[str, sp.ImmutableMatrix]

    def __repr__(self) -> str:
        return f"StepSystem({self.system!r})"

    @property
    def model(self) -> Model:
        """The learning problem."""
        return self.system.model

    @property
    def activation(self) -> Activation:
        """The activation."""
        return self.system.activation

    @property
    def task(self) -> Task:
        """The task."""
        return self.system.task

    @property
    def blocks(self) -> tuple[StepBlock, ...]:
        """The blocks with their symbols at one step."""
        return step_blocks(self.model)

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Those of the saddle-point system."""
        return self.system.reductions

    @property
    def order_parameters(self) -> tuple[sp.Symbol, ...]:
        """m, q0, q1, V of every block."""
        return tuple(s for b in self.blocks for s in b.order)

    @property
    def conjugates(self) -> tuple[sp.Symbol, ...]:
        """mh, qh0, qh1, Vh of every block."""
        return tuple(s for b in self.blocks for s in b.conjugates)

    @cached_property
    def slope(self) -> sp.Expr:
        """df/dy, which vanishes at equilibrium."""
        return self.gradient[Y_PARISI].subs(step_rate(Y_PARISI), self.rates[Y_PARISI])

    @cached_property
    def complexity(self) -> sp.Expr:
        """The logarithm of the number of states per dimension: the Legendre transform of y f."""
        return Y_PARISI**2 * self.slope

    @cached_property
    def energy(self) -> sp.Expr:
        """The energy of the states that y selects, d(y f)/dy."""
        return self.free_energy + Y_PARISI * self.slope

    @cached_property
    def reduced_priors(self) -> dict[str, sp.Expr]:
        """What every block adds to the free energy with the conjugates eliminated."""
        first, *_ = self.blocks
        eliminated = conjugates_from_order(first, self.prior_update)
        value = _sorted_terms(self.priors[first.block.name].value.subs(eliminated, simultaneous=True), first)
        return {b.block.name: value.xreplace(first.renaming(b)) for b in self.blocks}

    def equations(self) -> dict[str, sp.Expr]:
        """The saddle-point equations, unknown by unknown, the equation of y, and what is reported."""
        found = {s.name: e for s, e in self.prior_update.items()}
        found |= {s.name: self._in_averages(e) for s, e in self.conjugate_update.items()}
        found |= {
            f"T_{kind}_{a.block.name}{b.block.name}": m[i, j]
            for kind, m in self.stability.items()
            for i, a in enumerate(self.blocks)
            for j, b in enumerate(self.blocks)
        }
        return found | {"df_dy": self.slope, "complexity": self.complexity, "energy": self.energy}

    def _in_averages(self, expr: sp.Expr) -> sp.Expr:
        named = {
            b.outer_rate(s.name.split("_")[0]): self.outer_average(s).expression(self.system.length)
            for b in self.blocks
            for s in (b.block.m, b.block.q, b.block.V)
        }
        return expr.subs(named)

    def outer_average(self, theta: sp.Symbol) -> ChannelAverage:
        """An outer rate as an average: the replica-symmetric one with q0 for q and <G> for G."""
        form, model = self.system.channel[theta], self.model
        names: dict[sp.Symbol, sp.Symbol] = {b.block.q: b.q0 for b in self.blocks}
        for fields in (model.hidden, model.idle):
            names |= {g: tilted_gain(g) for g in fields.g.values()}
        return ChannelAverage(form.hidden.xreplace(names), form.idle.xreplace(names))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The numbered chain."""
        from replicode.theory.chain.rsb import step_chain

        return step_chain(self)


def tilted_gain(gain: sp.Symbol) -> sp.Symbol:
    """The name of <G>."""
    return sp.Symbol(f"{gain.name}_tilted", real=True)


@budget("deriving one step of replica symmetry breaking")
def derive_step(system: SaddleSystem) -> StepSystem:
    """One step of breaking for a derived saddle-point system."""
    if system.model.structured:
        raise Refusal("spectrum: the prior of one step of breaking is derived for isotropic tokens alone")
    return StepSystem(system=system, **_of_model(system.model))


@cache
def _of_model(model: Model) -> dict[str, Any]:
    """What does not depend on the activation, nor on the task: all but the averages themselves."""
    blocks = step_blocks(model)
    priors = _priors(model)
    free_energy = sp.Add(*[p.value for p in priors.values()]) + ALPHA * step_envelope_of(model)
    unknowns = [s for b in blocks for s in (*b.order, *b.conjugates)]
    gradient = {s: _gradient(free_energy, s, model) for s in (*unknowns, Y_PARISI)}
    rates = _rates(model)
    first, renamed = blocks[0], {b: blocks[0].renaming(b) for b in blocks}
    conjugates, update = _conjugate_update(first, gradient, rates), _prior_update(first, gradient)
    return {
        "priors": priors,
        "gaussian": gaussian_step(model),
        "free_energy": free_energy,
        "gradient": gradient,
        "rates": rates,
        "conjugate_update": {n[s]: e.xreplace(n) for n in renamed.values() for s, e in conjugates.items()},
        "prior_update": {n[s]: e.xreplace(n) for n in renamed.values() for s, e in update.items()},
        "stability": step_stability(model),
    }


def _priors(model: Model) -> dict[str, StepPrior]:
    """One block is derived, the others renamed."""
    first, *_ = model.blocks
    derived = step_prior(model, first)
    found = {}
    for block in model.blocks:
        names = StepBlock(first).renaming(StepBlock(block))
        precision = HierarchicalMatrix(tuple(p.xreplace(names) for p in derived.precision.parts), SIZES)
        rest = (tuple(e.xreplace(names) for e in part) for part in (derived.replicated, derived.limits))
        found[block.name] = StepPrior(precision, *rest)
    return found


def _gradient(free_energy: sp.Expr, unknown: sp.Symbol, model: Model) -> sp.Expr:
    envelope = step_envelope_of(model)
    placeholders = {sp.Derivative(envelope, s): step_rate(s) for s in envelope.args}
    return sp.diff(free_energy, unknown).xreplace(placeholders)


def _rates(model: Model) -> dict[sp.Symbol, sp.Expr]:
    """The derivatives of E[F]: the noise has variance q1 - q0, and half of E[F_ww] is Price's rate in q0."""
    found: dict[sp.Symbol, sp.Expr] = {}
    for b in step_blocks(model):
        m, q, v = (b.outer_rate(letter) for letter in ("m", "q", "V"))
        in_noise = smoothing_rate().subs({ENVELOPE_BEND: 2 * q, ENVELOPE_SLOPE: sp.sqrt(-2 * v)})
        found |= {
            b.block.m: m,
            b.q0: sp.expand(q + in_noise * sp.diff(b.noise, b.q0)),
            b.q1: sp.expand(in_noise * sp.diff(b.noise, b.q1)),
            b.block.V: -b.square / 2,
        }
    y_rate = tilting_rate()
    envelope, tilted = sorted(y_rate.free_symbols - {Y_PARISI}, key=lambda s: s.name)
    return found | {Y_PARISI: y_rate.subs({envelope: step_envelope_of(model), tilted: TILTED_ENVELOPE})}


def _conjugate_update(
    block: StepBlock, gradient: Mapping[sp.Symbol, sp.Expr], rates: Mapping[sp.Symbol, sp.Expr]
) -> dict[sp.Symbol, sp.Expr]:
    """The conjugates at which f is stationary in the order parameters."""
    balances = [gradient[s].subs(step_rate(s), rates[s]) for s in block.order]
    (solved,) = sp.solve(balances, block.conjugates, dict=True)
    return {s: sp.expand(solved[s]) for s in block.conjugates}


def _prior_update(block: StepBlock, gradient: Mapping[sp.Symbol, sp.Expr]) -> dict[sp.Symbol, sp.Expr]:
    """The order parameters at which f is stationary in the conjugates."""
    (solved,) = sp.solve([gradient[s] for s in block.conjugates], block.order, dict=True)
    return {s: sp.factor(sp.simplify(solved[s])) for s in block.order}


def _sorted_terms(value: sp.Expr, block: StepBlock) -> sp.Expr:
    """The same as a sum of a logarithm, the penalty and a fraction, each in simplest form."""
    value = sp.expand(value.replace(sp.log, lambda argument: sp.log(sp.factor(sp.simplify(argument)))), log=False)
    logs, rest = value.as_independent(sp.log, as_Add=True)[::-1]
    rest = sp.simplify(rest)
    penalty = sp.simplify(sp.diff(rest, block.block.strength)) * block.block.strength
    return sp.simplify(logs) + penalty + sp.factor(sp.simplify(rest - penalty))


def conjugates_from_order(block: StepBlock, update: Mapping[sp.Symbol, sp.Expr]) -> dict[sp.Symbol, sp.Expr]:
    """The conjugates that belong to order parameters, one solved for after the other."""
    found: dict[sp.Symbol, sp.Expr] = {}
    balances = {
        block.block.Vh: update[block.block.V] - block.block.V,
        block.qh1: update[block.q1] - update[block.q0] - block.noise,
        block.block.mh: update[block.block.m] - block.block.m,
        block.qh0: update[block.q0] - block.q0,
    }
    tension = sp.Symbol("tension", positive=True)  # qh1 = qh0 + tension: the prior sees the difference
    for unknown, balance in balances.items():
        known = sp.simplify(balance.subs(block.qh1, block.qh0 + tension).subs(found))
        (solved,) = sp.solve(known, tension if unknown == block.qh1 else unknown)
        found[tension if unknown == block.qh1 else unknown] = sp.simplify(solved)
    apart = found.pop(tension)
    return {**{s: e.subs(tension, apart) for s, e in found.items()}, block.qh1: sp.simplify(found[block.qh0] + apart)}


@cache
def step_stability(model: Model) -> dict[str, sp.ImmutableMatrix]:
    """The matrices T of fluctuations that split a state, and of those that group the states.

    Per block the prior gives the square of the susceptibility seen by such a fluctuation, and the channel the average
    of the squared response, of G within a state and of <G> between states.
    """
    found = {}
    for kind in STATES:
        scales = [replicon_of_step(kind, overlaps_of(b)) * BETA**2 for b in step_blocks(model)]
        squares = responses_of(model).applyfunc(lambda r: sp.Symbol(f"{r.name}_{kind}", nonnegative=True))  # noqa: B023
        found[kind] = sp.ImmutableMatrix((sp.diag(*scales) * ALPHA * squares).applyfunc(sp.factor))
    return found


def replicon_of_step(kind: str, overlaps: HierarchicalMatrix) -> sp.Expr:
    """The second variation of -log det/2 over that of tr/2 in a direction of this kind, at y = beta x.

    The precision is the inverse of the overlaps; the direction lies within one block of four replicas, or between four
    blocks of two, and its lines add up to zero.
    """
    sizes, direction = fluctuation(kind)
    moved = overlaps.explicit(sizes) * direction
    ratio = (moved * moved).trace() / (direction**2).trace()
    at_size = sp.expand(sp.simplify(ratio))
    eigenvalues = overlaps.eigenvalues()
    place = STATES.index(kind)
    expected = eigenvalues[place] ** 2
    assert sp.simplify(at_size - expected.subs(BLOCK_SIZE, sizes[1])) == 0
    return sp.expand(expected.subs(BLOCK_SIZE, Y_PARISI / BETA))


def fluctuation(kind: str) -> tuple[tuple[int, int, int], sp.Matrix]:
    """Sizes, and a symmetric fluctuation of the overlaps whose lines add up to zero in every block it touches."""
    delta = replicon_direction()
    if kind == "within":
        return (1, 4, 8), sp.Matrix(sp.diag(delta, sp.zeros(4)))
    return (1, 2, 8), sp.Matrix(sp.kronecker_product(delta, sp.ones(2)))
