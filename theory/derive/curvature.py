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

from replicode.theory.derive.saddle import ChannelAverage, SaddleSystem, envelope_of, explicit_rate, rates_of
from replicode.theory.errors import Refusal
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.model import Block, Model, TokenFields, Y

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
    """The placeholder of d^2 E[M] / da db, a standing before b in the model's order."""
    return sp.Symbol(f"d2EM_{a.name}_{b.name}", real=True)


def derivable(system: SaddleSystem) -> bool:
    """Whether the law of the fields holds the weight of the location and the label, and M has two derivatives."""
    in_law = system.model.has_scores and not system.location.weighted and not system.label.weighted
    return in_law and bool(system.properties.smooth) and system.values.smooth


def derive_curvature(system: SaddleSystem) -> Curvature:
    """The second derivatives of a derived system; paths of the fields only where these are all that moves."""
    model, laws = system.model, (system.hidden_law, system.idle_law)
    moved, in_law = (model.order_parameters, model.overlaps) if derivable(system) else ((), ())
    bending = {pair: _bending(pair, laws, model) for pair in combinations_with_replacement(in_law, 2)}
    return Curvature(
        displacements={theta: _displacement(theta, laws, model) for theta in moved},
        bending={pair: bent for pair, bent in bending.items() if bent != ChannelAverage(0, 0)},
        jacobian=jacobian(system.free_energy, model),
        train_loss=training_slopes(model),
    )


@cache
def jacobian(free_energy: sp.Expr, model: Model) -> sp.ImmutableMatrix:
    """The Hessian of f in the order parameters, then the conjugates."""
    unknowns = (*model.order_parameters, *model.conjugates)
    return sp.ImmutableMatrix(sp.hessian(free_energy, unknowns).applyfunc(lambda e: _placed(e, model)))


def training_loss(model: Model) -> sp.Expr:
    """E[loss at the prox]: E[M] less what the quadratic terms (prox - w)^2/(2 V) hold, which is -V dE[M]/dV."""
    envelope, g = envelope_of(model), model.hidden.g
    held = [(b.V, g[b.name] ** 2 * b.V / 2 / explicit_rate(b, model.hidden)) for b in model.blocks]
    return envelope - sp.Add(*[sp.simplify(factor) * sp.Derivative(envelope, v) for v, factor in held])


@cache
def training_slopes(model: Model) -> tuple[sp.Expr, ...]:
    """The gradient of the training loss in the order parameters."""
    loss = training_loss(model)
    return tuple(_placed(sp.diff(loss, theta), model) for theta in model.order_parameters)


def _placed(expr: sp.Expr, model: Model) -> sp.Expr:
    """Derivatives of E[M] by their placeholders."""
    return sp.expand(expr.doit()).xreplace(_placeholders(model)) if expr.has(envelope_of(model).func) else expr


@cache
def _placeholders(model: Model) -> dict[sp.Expr, sp.Symbol]:
    envelope, order = envelope_of(model), model.order_parameters
    second = {sp.diff(envelope, *pair): second_rate_symbol(*pair) for pair in combinations_with_replacement(order, 2)}
    return second | rates_of(model)


def _displacement(theta: sp.Symbol, laws: tuple[FieldLaw, FieldLaw], model: Model) -> Displacement:
    """The block whose fields move, and by how much; a law parameter belongs to one block."""
    block = model.block_of(theta)
    tokens = tuple(zip(laws, (model.hidden, model.idle), strict=True))
    if theta == block.V:
        return Displacement(block.name, *[transport(block, fields) for _, fields in tokens])
    for law, fields in tokens:
        if any(moved(law, w, theta) != 0 for b, w in fields.w.items() if b != block.name):
            raise Refusal(f"{theta} moves the fields of several blocks; its displacement is not that of one")
    return Displacement(block.name, *[moved(law, fields.w[block.name], theta) for law, fields in tokens])


def transport(block: Block, fields: TokenFields) -> sp.Expr:
    """t with d/dV grad M = (d^2 M) t: what multiplies d^2 M in the gradient of Hamilton-Jacobi."""
    w, g = fields.w[block.name], fields.g[block.name]
    envelope = sp.Function("M")(w)
    slope, bend = sp.diff(envelope, w), sp.diff(envelope, w, 2)
    rate = explicit_rate(block, fields).subs(g, -slope)
    return sp.diff(rate, w).coeff(bend).subs(slope, -g)


@cache
def moved(law: FieldLaw, field: sp.Symbol, *parameters: sp.Symbol) -> sp.Expr:
    """The derivative of a field along its path in the fields themselves.

    Given the label the path is mean + deviation times fixed noise, so that the noise is
    (field - mean) over the deviation.
    """
    if Y in law.fields and _symbols(law.marginal(Y)) & set(parameters):
        raise Refusal("the law of the label depends on the order parameters: the paths of the fields do not hold")
    *before, theta = parameters
    if before:
        rate = moved(law, field, *before)
        change = sp.diff(rate, theta) + sp.diff(rate, field) * moved(law, field, theta)
    else:
        mean, variance = _path(law, field)
        change = sp.diff(mean, theta) + (field - mean) * sp.diff(variance, theta) / (2 * variance)
    return sp.factor(sp.expand(change))


def _path(law: FieldLaw, field: sp.Symbol) -> tuple[sp.Expr, sp.Expr]:
    """Mean and variance of a field given the label."""
    given = _without_label(law)
    i = given.fields.index(field)
    return given.mean[i], given.covariance[i, i]


@cache
def _without_label(law: FieldLaw) -> FieldLaw:
    """The law given the label, which does not move; there the fields of a token must be independent."""
    law = law.given(Y) if Y in law.fields else law
    if not law.covariance.is_diagonal():
        raise Refusal(f"{law.fields} depend on each other: their paths are not those of one field each")
    return law


def _symbols(law: FieldLaw) -> set[sp.Symbol]:
    symbols: set[sp.Symbol] = law.mean.free_symbols | law.covariance.free_symbols
    return symbols


def _bending(pair: Pair, laws: tuple[FieldLaw, FieldLaw], model: Model) -> ChannelAverage:
    """grad M . d^2 w of a token, grad M being -G."""
    parts = [
        sp.Add(*[-fields.g[b] * moved(law, w, *pair) for b, w in fields.w.items()])
        for law, fields in zip(laws, (model.hidden, model.idle), strict=True)
    ]
    return ChannelAverage(*[sp.factor_terms(p) for p in parts])
