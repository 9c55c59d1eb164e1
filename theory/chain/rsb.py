"""The way to one step of replica symmetry breaking, written down as identities that can be evaluated on both sides."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from replicode.theory.chain.replicas import _with_replica_remainder, _with_thermal_remainder, leibniz
from replicode.theory.derive.hierarchy import HierarchicalMatrix
from replicode.theory.derive.replica import BETA, CHANNEL_V, CHANNEL_VARIANCE, N_REPLICAS, Step, in_parts, per_replica
from replicode.theory.derive.rsb import (
    BLOCK_SIZE,
    CHANNEL_NOISE,
    CHANNEL_OUTER,
    SIZES,
    STATES,
    TILTED_ENVELOPE,
    TRAIN_LOSS,
    Y_PARISI,
    StepSystem,
    conjugates_from_order,
    fluctuation,
    powers_of,
    smoothed_envelope,
    step_envelope_of,
    step_rate,
    tilted_average,
)
from replicode.theory.model import ALPHA

_FEW = (1, 2, 4)
_AT = {BLOCK_SIZE: sp.Integer(_FEW[1]), N_REPLICAS: sp.Integer(_FEW[2])}


def step_chain(system: StepSystem) -> tuple[Step, ...]:
    """Matrices, prior, channel, saddle, complexity, limits and stability."""
    parts = {
        "Replicas in blocks": _matrices(),
        "The prior: n -> 0 and beta -> infinity at y = beta x": _prior(system),
        "The channel where everything is Gaussian": _gaussian(system),
        "The noise that tells states apart": _noise(),
        "The saddle-point equations": _saddle(system),
        "Energy and complexity": _states(system),
        "Replica symmetry as a limit": _limits(system),
        "Stability against a further step": _stability(system),
    }
    return in_parts(parts)


def _matrix(letters: str) -> HierarchicalMatrix:
    return HierarchicalMatrix(tuple(sp.Symbol(f"rs_{letter}", positive=True) for letter in letters), SIZES)


def _matrices() -> list[Step]:
    """Determinant, inverse and trace, written out for two blocks of two replicas."""
    matrix, other = _matrix("abc"), _matrix("def")
    inverse = matrix.inverse()
    whole, inverted, second = (m.explicit(_FEW) for m in (matrix, inverse, other))
    product = (whole * inverted).subs(_AT)
    a, b, c = matrix.parts
    n, x = N_REPLICAS, BLOCK_SIZE
    return [
        Step(
            "overlaps a I + b (blocks of ones of size x) + c J: the determinant of two blocks of two, written out",
            leibniz(whole),
            sp.exp(matrix.log_det()).subs(_AT),
        ),
        Step(
            "log det for any n and x: the eigenvalue a occurs n - n/x times, a + x b n/x - 1 times, a + x b + n c once",
            (n - n / x) * sp.log(a) + (n / x - 1) * sp.log(a + x * b) + sp.log(a + x * b + n * c),
            matrix.log_det(),
        ),
        Step(
            "the inverse has the same blocks: on the diagonal its product with the matrix is 1", product[0, 0], sp.S.One
        ),
        Step("and the entries of a row of the product add up to 1", sp.Add(*product.row(0)), sp.S.One),
        Step("the sum of all entries of the inverse", inverse.sum(), n / (a + x * b + n * c)),
        Step(
            "the trace of a product of two such matrices, written out for two blocks of two",
            (whole * second).trace(),
            matrix.trace_with(other).subs(_AT),
        ),
    ]


def _prior(system: StepSystem) -> list[Step]:
    """The limits of the replicated prior of one block; the others differ by names."""
    block = system.blocks[0]
    prior, name = system.priors[block.block.name], block.block.name
    a = sp.Symbol("rs_a", positive=True)
    (ridge,) = sp.solve(prior.precision.parts[0] - a, block.block.strength)
    replicated = [part.subs(block.block.strength, ridge) for part in prior.replicated]
    powers = {BLOCK_SIZE: Y_PARISI / BETA, **powers_of(block)}
    free = [(-per_replica(part) / BETA).subs(powers, simultaneous=True) for part in prior.replicated]
    left = [sp.simplify(BETA * (f - v)) for f, v in zip(free, prior.limits, strict=True)]
    return [
        Step(
            f"n -> 0 ({name}): the derivative in n of log(replicated prior) and of the Legendre terms, with a = beta "
            "lambda + Vt; what carries a factor n vanishes",
            sp.Derivative(sp.Add(*replicated), N_REPLICAS),
            _with_replica_remainder(*replicated),
        ),
        Step(
            f"beta -> infinity ({name}): with mt = beta mh, Vt = beta Vh, qt = beta^2 qh and x = y/beta, minus that "
            "per unit of beta; the bracket over beta vanishes",
            sp.Add(*free),
            sp.Add(prior.value, sp.Mul(1 / BETA, sp.Add(*left), evaluate=False)),
        ),
    ]


def _gaussian(system: StepSystem) -> list[Step]:
    """Both rules of the channel where the replicated average is a determinant."""
    channel = system.gaussian
    u, minimum = sp.Symbol("u", real=True), channel.minimum
    (field,) = minimum.free_symbols - {CHANNEL_V, *system.model.loss_curvature().free_symbols}
    density = sp.exp(-(u**2) / 2) / sp.sqrt(2 * sp.pi)
    moved = minimum.subs(field, CHANNEL_OUTER + sp.sqrt(CHANNEL_NOISE) * u)
    free = (-channel.entropy / BETA).subs(BLOCK_SIZE, Y_PARISI / BETA)
    typical = channel.smoothed.subs(CHANNEL_OUTER, sp.sqrt(CHANNEL_VARIANCE))
    return [
        Step(
            "one token with sigma = 1: the replicated average is det^(-1/2), here for two blocks of two replicas",
            leibniz(channel.precision.explicit(_FEW)),
            sp.exp(channel.precision.log_det()).subs(_AT),
        ),
        Step(
            "rule n -> 0: blocks of x replicas share a field, E[Z^n] = 1 + (n/x) E[log E_1[Z^x]] + ...; here the "
            "derivative in n of the logarithm",
            sp.Derivative(-channel.precision.log_det() / 2, N_REPLICAS),
            _with_replica_remainder(-channel.precision.log_det() / 2),
        ),
        Step(
            "rule beta -> infinity: Z^x becomes exp(-y M), so that the channel is F = -(1/y) log E_1[exp(-y M)]; here "
            "the exact average, the bracket over beta vanishing",
            free,
            _with_thermal_remainder(free, channel.exact),
        ),
        Step(
            "the same by the rules: exp(-y M) averaged over the noise of variance d_1 on u",
            sp.Integral(sp.exp(-Y_PARISI * moved) * density, (u, -sp.oo, sp.oo)),
            sp.exp(-Y_PARISI * channel.smoothed),
        ),
        Step("averaged over u_0, of variance d_w, the rules give the exact result", typical, channel.exact),
    ]


def _noise() -> list[Step]:
    """How F moves with the noise and with y, on functions that are explicit."""
    w, d = sp.Symbol("field_w", real=True), sp.Symbol("d_1", positive=True)
    s, t = sp.symbols("t_1 t_2", real=True)
    heated = sp.exp(s * w + s**2 * d / 2) + sp.exp(t * w + t**2 * d / 2)
    envelope = -sp.log(heated) / Y_PARISI
    values, chances = sp.symbols("M_1 M_2", real=True), sp.symbols("p_1 p_2", positive=True)
    slopes = sp.symbols("G_1 G_2", real=True)
    moved = tuple(m - g * w for m, g in zip(values, slopes, strict=True))
    tilted = tilted_average(values, chances, values)
    return [
        Step(
            "exp(-y F) solves the heat equation in the variance d_1 of the noise, here on exp(t_1 w) + exp(t_2 w): so "
            "dF/dd_1 = F_ww/2 - y F_w^2/2",
            sp.Derivative(envelope, d),
            sp.Derivative(envelope, (w, 2)) / 2 - Y_PARISI * sp.diff(envelope, w) ** 2 / 2,
        ),
        Step(
            "the slope of F is the tilted average of that of M, -<G>; noise of two values stands for any",
            sp.Derivative(smoothed_envelope(moved, chances), w),
            -tilted_average(moved, chances, slopes),
        ),
        Step(
            "dF/dy = (<M> - F)/y",
            sp.Derivative(smoothed_envelope(values, chances), Y_PARISI),
            (tilted - smoothed_envelope(values, chances)) / Y_PARISI,
        ),
    ]


def _saddle(system: StepSystem) -> Iterator[Step]:
    """Stationarity in the conjugates, then in the order parameters."""
    for block in system.blocks:
        for conjugate in block.conjugates:
            unknown, known = _parted(system.gradient[conjugate], block.order)
            yield Step(
                f"stationarity in {conjugate.name}: what multiplies order parameters balances the rest",
                unknown.subs(system.prior_update, simultaneous=True),
                -known,
            )
        for theta in block.order:
            balance = system.gradient[theta].subs(step_rate(theta), system.rates[theta])
            unknown, known = _parted(balance, block.conjugates)
            yield Step(
                f"stationarity in {theta.name}, the rates of E[F] by Price's rates in m and q0 and by E<|G|^2>",
                unknown.subs(system.conjugate_update, simultaneous=True),
                -known,
            )


def _parted(balance: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> tuple[sp.Expr, sp.Expr]:
    """The terms with any of the symbols, and the others."""
    known, unknown = sp.expand(balance).as_independent(*symbols, as_Add=True)
    return unknown, known


def _states(system: StepSystem) -> list[Step]:
    """The energy of the states and their number, by the Legendre transform in y."""
    values, chances = sp.symbols("M_1 M_2", real=True), sp.symbols("p_1 p_2", positive=True)
    named = {step_envelope_of(system.model): smoothed_envelope(values, chances)}
    free = system.free_energy.subs(named)
    found = {**named, TILTED_ENVELOPE: tilted_average(values, chances, values)}
    springs = sp.Add(*[b.block.V * b.qh1 / (2 * ALPHA) for b in system.blocks])
    penalties = sp.Add(*[system.model.penalty_curvature(b.block) * b.q1 / 2 for b in system.blocks])
    at_saddle = system.energy.subs(TILTED_ENVELOPE, TRAIN_LOSS + springs)
    energy = sp.expand(at_saddle.subs(step_envelope_of(system.model), sp.Symbol("EF_value", real=True)))
    return [
        Step(
            "the energy of the states that y selects is d(y f)/dy, here with noise of two values",
            sp.Derivative(Y_PARISI * free, Y_PARISI),
            system.energy.subs(found),
        ),
        Step(
            "their number is exp(D times the complexity), y (energy - f)",
            Y_PARISI * (system.energy - system.free_energy).subs(found),
            system.complexity.subs(found),
        ),
        Step(
            "at the saddle the energy is alpha train_loss plus the penalties: E<M> is train_loss and the springs' "
            "V E<|G|^2>/2 = V qh1/(2 alpha)",
            energy.subs(system.prior_update, simultaneous=True),
            (ALPHA * TRAIN_LOSS + penalties).subs(system.prior_update, simultaneous=True),
        ),
    ]


def _limits(system: StepSystem) -> Iterator[Step]:
    """Replica symmetry at q1 = q0, and as y -> 0 with q = q1."""
    u, ratio = sp.Symbol("u", positive=True), sp.Symbol("u_w", positive=True)
    for block in system.blocks:
        b = block.block
        symmetric = system.reduced_priors[b.name]
        yield Step(
            f"the conjugates eliminated ({b.name})",
            system.priors[b.name].value.subs(conjugates_from_order(block, system.prior_update), simultaneous=True),
            symmetric,
        )
        rs = system.system.priors[b.name].value
        solved = {b.Vh: 1 / b.V - b.strength, b.mh: b.m / b.V, b.qh: (b.q - b.m**2) / b.V**2}
        yield Step(
            f"at q1 = q0 = q it is that of the replica-symmetric theory ({b.name})",
            symmetric.subs({block.q1: b.q, block.q0: b.q}, simultaneous=True),
            rs.subs(solved, simultaneous=True),
        )
    yield Step(
        "as y -> 0 the logarithm of 1 + u, u = y (q1 - q0)/V, is u, and what is left carries a factor u^2: q1 alone "
        "remains, and F is the average of M",
        sp.log(1 + ratio),
        ratio - ratio**2 * sp.Integral(u / (1 + ratio * u), (u, 0, 1)),
    )


def _stability(system: StepSystem) -> Iterator[Step]:
    """Second variations in directions that split a state, or group states, for prior and Gaussian channel."""
    t = sp.Symbol("t", positive=True)
    matrix, channel = _matrix("abc"), system.gaussian.precision
    told = dict(zip(STATES, ("one block of four replicas", "four blocks of two replicas"), strict=True))
    for place, kind in enumerate(STATES):
        sizes, direction = fluctuation(kind)
        at = {BLOCK_SIZE: sp.Integer(sizes[1]), N_REPLICAS: sp.Integer(sizes[2])}
        moved = matrix.inverse().explicit(sizes).subs(at) * direction
        eigenvalue = matrix.eigenvalues()[place].subs(at)
        yield Step(
            f"{kind} states, {told[kind]}: the second variation of -log det/2 of the prior's precision sees one "
            "eigenvalue of the overlaps, V/beta within and V/beta + x (q1 - q0) between",
            (moved * moved).trace() / (direction**2).trace(),
            eigenvalue**-2,
        )
        response = (channel.inverse().explicit(sizes).subs(at) * direction * t).applyfunc(sp.simplify)
        yield Step(
            f"{kind} states, the Gaussian channel: its second variation has the square of one eigenvalue of the "
            "response, that of G within and of <G> between",
            (response * response).trace() / (direction**2).trace(),
            t**2 * channel.eigenvalues()[place].subs(at) ** -2,
        )
