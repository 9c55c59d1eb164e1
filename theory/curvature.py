"""The Jacobian of the twelve saddle-point equations, in first and second derivatives of M.

It is the Hessian of the free energy, of which only E[M] is not explicit. The law's parameters move the fields along
paths w(theta) at fixed noise, and in V the envelope obeys Hamilton-Jacobi, dM/dV_b = -|grad_b M|^2/2, by which its
gradient is carried along -grad_b M = G_b. Each order parameter a thus has a displacement t_a of the fields with
d/da grad M = (d^2 M/dw^2) t_a, and

    d^2 E[M] / da db = E[ t_a^T (d^2 M/dw^2) t_b ] + E[ grad M . d^2 w / da db ],

of which the second part, the bending of the paths, concerns pairs of law parameters only. Jumps of the prox are not in
it. Handed on is a frozen `Curvature`; codegen emits its parts, and integrates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.gaussian import FieldLaw
from replicode.theory.model import BLOCKS, CONJUGATES, ORDER_PARAMETERS, M, Q, V, Y
from replicode.theory.saddle import (
    ENVELOPE,
    HIDDEN,
    IDLE,
    ChannelAverage,
    SaddleSystem,
    TokenFields,
    explicit_rate,
    rate_symbol,
)

_NOISE = sp.Symbol("xi", real=True)
Pair = tuple[sp.Symbol, sp.Symbol]


@dataclass(frozen=True)
class Displacement:
    """How far one order parameter moves the fields of its block, at the hidden token and at an idle one."""

    block: str
    hidden: sp.Expr
    idle: sp.Expr


@dataclass(frozen=True)
class Curvature:
    """Displacements t_a of the fields, the integrands grad M . d^2 w/da db, and the Hessian of f given that of E[M].

    `train_loss` is the gradient of E[loss at the prox] in the order parameters, in first and second rates.
    """

    displacements: Mapping[sp.Symbol, Displacement]
    bending: Mapping[Pair, ChannelAverage]
    jacobian: sp.ImmutableMatrix
    train_loss: tuple[sp.Expr, ...]


def second_rate_symbol(a: sp.Symbol, b: sp.Symbol) -> sp.Symbol:
    """The placeholder of d^2 E[M] / da db."""
    first, second = sorted((a, b), key=ORDER_PARAMETERS.index)
    return sp.Symbol(f"d2EM_{first.name}_{second.name}", real=True)


def derivable(system: SaddleSystem) -> bool:
    """Whether the law of the fields holds the weight of the location, and M has two derivatives."""
    return not system.location.weighted and bool(system.properties.smooth)


def derive_curvature(system: SaddleSystem) -> Curvature:
    """The second derivatives of a derived system; paths of the fields only where these are all that moves."""
    moved = ORDER_PARAMETERS if derivable(system) else ()
    laws = system.hidden_law, system.idle_law
    return Curvature(
        displacements={theta: _displacement(theta, laws) for theta in moved},
        bending={pair: bent for pair in _law_pairs(moved) if (bent := _bending(pair, laws)) != ChannelAverage(0, 0)},
        jacobian=jacobian(system.free_energy),
        train_loss=training_slopes(),
    )


@cache
def jacobian(free_energy: sp.Expr) -> sp.ImmutableMatrix:
    """The Hessian of f in the order parameters, then the conjugates."""
    unknowns = (*ORDER_PARAMETERS, *CONJUGATES)
    return sp.ImmutableMatrix(sp.hessian(free_energy, unknowns).applyfunc(_placed))


def training_loss() -> sp.Expr:
    """E[loss at the prox]: E[M] less what the quadratic terms (prox - w)^2/(2 V) hold, which is -V dE[M]/dV."""
    held = {b: HIDDEN.g[b] ** 2 * V[b] / 2 / explicit_rate(b, HIDDEN) for b in BLOCKS}
    return ENVELOPE - sp.Add(*[sp.simplify(held[b]) * sp.Derivative(ENVELOPE, V[b]) for b in BLOCKS])


@cache
def training_slopes() -> tuple[sp.Expr, ...]:
    """The gradient of the training loss in the order parameters."""
    loss = training_loss()
    return tuple(_placed(sp.diff(loss, theta)) for theta in ORDER_PARAMETERS)


def _placed(expr: sp.Expr) -> sp.Expr:
    """Derivatives of E[M] by their placeholders."""
    return sp.expand(expr.doit()).xreplace(_placeholders()) if expr.has(ENVELOPE.func) else expr


@cache
def _placeholders() -> dict[sp.Expr, sp.Symbol]:
    pairs = combinations_with_replacement(ORDER_PARAMETERS, 2)
    second = {sp.diff(ENVELOPE, a, b): second_rate_symbol(a, b) for a, b in pairs}
    return second | {sp.diff(ENVELOPE, a): rate_symbol(a) for a in ORDER_PARAMETERS}


def _law_pairs(moved: tuple[sp.Symbol, ...]) -> list[Pair]:
    in_law = [theta for theta in moved if theta not in V.values()]
    return list(combinations_with_replacement(in_law, 2))


def _displacement(theta: sp.Symbol, laws: tuple[FieldLaw, FieldLaw]) -> Displacement:
    """The block whose fields move, and by how much; a law parameter belongs to one block."""
    (block,) = [b for b in BLOCKS if theta in (M[b], Q[b], V[b])]
    tokens = tuple(zip(laws, (HIDDEN, IDLE), strict=True))
    if theta == V[block]:
        return Displacement(block, *[transport(block, fields) for _, fields in tokens])
    for law, fields in tokens:
        if any(moved(law, fields.w[b], theta) != 0 for b in BLOCKS if b != block):
            raise Refusal(f"{theta} moves the fields of both blocks; its displacement is not that of one")
    return Displacement(block, *[moved(law, fields.w[block], theta) for law, fields in tokens])


def transport(block: str, fields: TokenFields) -> sp.Expr:
    """t with d/dV grad M = (d^2 M) t: what multiplies d^2 M in the gradient of Hamilton-Jacobi."""
    w, g = fields.w[block], fields.g[block]
    envelope = sp.Function("M")(w)
    slope, bend = sp.diff(envelope, w), sp.diff(envelope, w, 2)
    rate = explicit_rate(block, fields).subs(g, -slope)
    return sp.diff(rate, w).coeff(bend).subs(slope, -g)


@cache
def moved(law: FieldLaw, field: sp.Symbol, *parameters: sp.Symbol) -> sp.Expr:
    """The derivative of a field along its path, mean + deviation times fixed noise given the label, in the fields."""
    given = _without_label(law)
    i = given.fields.index(field)
    mean, deviation = given.mean[i], sp.sqrt(given.covariance[i, i])
    rate = sp.diff(mean + deviation * _NOISE, *parameters)
    if rate == 0:
        return sp.S.Zero
    return sp.factor(sp.expand(rate.subs(_NOISE, (field - mean) / deviation)))


@cache
def _without_label(law: FieldLaw) -> FieldLaw:
    """The law given the label, which does not move; there the fields of a token must be independent."""
    if Y in law.fields:
        label = law.marginal(Y)
        if set(ORDER_PARAMETERS) & (label.mean.free_symbols | label.covariance.free_symbols):
            raise Refusal("the law of the label depends on the order parameters: the paths of the fields do not hold")
        law = law.given(Y)
    if not law.covariance.is_diagonal():
        raise Refusal(f"{law.fields} depend on each other: their paths are not those of one field each")
    return law


def _bending(pair: Pair, laws: tuple[FieldLaw, FieldLaw]) -> ChannelAverage:
    """grad M . d^2 w of a token, grad M being -G."""
    parts = [
        sp.Add(*[-fields.g[b] * moved(law, fields.w[b], *pair) for b in BLOCKS])
        for law, fields in zip(laws, (HIDDEN, IDLE), strict=True)
    ]
    return ChannelAverage(*[sp.factor_terms(p) for p in parts])
