"""What is special to an activation: the values eliminated, its prox, its reductions, at explicit tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from replicode.theory.calculus.tokens import Definition, OuterProducts
from replicode.theory.derive.channel import AMPLITUDE, GAIN, OUTPUT, N, U
from replicode.theory.derive.replica import Step
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.language.nodes import L, W, X
from replicode.theory.model import F, Y
from replicode.theory.typeset.notation import builtin, parameter_symbols

SIGMA_W = sp.Symbol("sigma_w", real=True)
SIGMA_SIGMA = sp.Symbol("sigma_sigma", nonnegative=True)
_MOST_TOKENS = 3
_LARGEST = 1000
LARGEST_TWICE = 250
_ZERO = 1e-11


@dataclass(frozen=True)
class ExplicitTokens:
    """The staged derivatives of the loss with all token sums written out for a few tokens."""

    system: SaddleSystem
    count: int
    x: tuple[sp.Symbol, ...]
    w: tuple[sp.Symbol, ...]
    scalars: Mapping[sp.Symbol, sp.Expr]
    vectors: Mapping[sp.Symbol, tuple[sp.Expr, ...]]

    def at(self, expr: sp.Expr, token: int) -> sp.Expr:
        """A token expression at one token."""
        vectors = {s: v[token] for s, v in self.vectors.items()}
        return expr.xreplace({X: self.x[token], W: self.w[token], **self.scalars, **vectors})

    @cached_property
    def sigma(self) -> tuple[sp.Expr, ...]:
        """The activation."""
        form = self.system.activation.token_form()
        return tuple(self.at(form.f, i) for i in range(self.count))

    @cached_property
    def loss(self) -> sp.Expr:
        """The loss with the values eliminated."""
        return self.at(self.system.loss.value, 0)

    @cached_property
    def gradient(self) -> tuple[sp.Expr, ...]:
        """d loss / d x_i, from the staged derivatives."""
        return tuple(self.at(self.system.loss.gradient_x, i) for i in range(self.count))

    @cached_property
    def value_gradient(self) -> tuple[sp.Expr, ...]:
        """d loss / d w_i, from the staged derivatives."""
        return tuple(self.at(self.system.loss.gradient_w, i) for i in range(self.count))

    def hessian(self, i: int, j: int) -> sp.Expr:
        """d^2 loss / d x_i d x_j, from the staged derivatives."""
        return self._entry(self.system.loss.hessian_xx, i, j)

    def _entry(self, block: OuterProducts, i: int, j: int) -> sp.Expr:
        outers = [self.at(left, i) * self.at(right, j) for left, right in block.outers]
        return sp.Add(*outers, self.at(block.diagonal, i) if i == j else sp.S.Zero)

    @property
    def shown(self) -> str:
        """At how many tokens a step is shown, when the system has another number."""
        if self.system.tokens == self.count:
            return ""
        return f", shown at {self.count} token{'s' if self.count > 1 else ''}"


def explicit_tokens(system: SaddleSystem, operations: int = _LARGEST) -> ExplicitTokens:
    """At the system's own number of tokens, at most three, and fewer where the gradient takes too many operations."""
    largest = min(system.tokens or 2, _MOST_TOKENS)
    tokens = _written_out(system, 1)
    for count in range(2, largest + 1):
        more = _written_out(system, count)
        if more.gradient[0].count_ops() > operations:
            break
        tokens = more
    return tokens


def _written_out(system: SaddleSystem, count: int) -> ExplicitTokens:
    loss = system.loss
    x, w = _numbered("x", count), _numbered("w", count)
    fixed: dict[sp.Symbol, sp.Expr] = {L: sp.Integer(count), **parameter_symbols(system.activation.parameters)}
    scalars, vectors = dict(fixed), dict[sp.Symbol, tuple[sp.Expr, ...]]()
    tokens = ExplicitTokens(system, count, x, w, scalars, vectors)
    for definition in (*loss.value_definitions, *loss.gradient_definitions, *loss.hessian_definitions):
        _define(tokens, definition, scalars, vectors)
    return tokens


def _define(
    tokens: ExplicitTokens,
    definition: Definition,
    scalars: dict[sp.Symbol, sp.Expr],
    vectors: dict[sp.Symbol, tuple[sp.Expr, ...]],
) -> None:
    entries = tuple(tokens.at(definition.expr, i) for i in range(tokens.count))
    if definition.kind == "token":
        vectors[definition.symbol] = entries
    else:
        scalars[definition.symbol] = sp.Add(*entries) if definition.kind == "sum" else entries[0]


def _numbered(name: str, count: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"{name}_{i + 1}", real=True) for i in range(count))


def values(system: SaddleSystem, tokens: ExplicitTokens) -> list[Step]:
    """z = w_z + a sigma: the minimiser, the envelope, the residual and G_v."""
    values, model, v = system.values, system.model, system.model.values.V
    sigma, w, z = (_numbered(name, tokens.count) for name in ("sigma", "w", "z"))
    sums = {U: sp.Add(*[s * t for s, t in zip(sigma, w)]), N: sp.Add(*[s**2 for s in sigma])}
    amplitude = values.amplitude.xreplace(sums)
    output = sp.Add(*[s * t for s, t in zip(sigma, z)])
    objective = sp.Add(*[(t - u) ** 2 for t, u in zip(z, w)]) / (2 * v) + model.loss.subs(F, output)
    at_minimum = {t: u + AMPLITUDE * s for s, t, u in zip(sigma, z, w)}
    shortened = {U: SIGMA_W, N: SIGMA_SIGMA}
    envelope = values.envelope.xreplace(shortened)
    return [
        Step(
            "the loss sees z through sigma.z only: with z = w_z + a_z sigma the objective depends on two token sums"
            + tokens.shown,
            objective.xreplace(at_minimum),
            values.objective.xreplace(sums),
        ),
        Step(
            "stationarity in the value of token 1, at the a_z that solves it: the spring's pull is the loss's push"
            + tokens.shown,
            (sigma[0] * amplitude) / v,
            -sigma[0] * sp.diff(model.loss, F).subs(F, output.xreplace(at_minimum)).subs(AMPLITUDE, amplitude),
        ),
        Step(
            "the envelope: the objective at this a_z is the loss that is left for the scores",
            values.objective.subs(AMPLITUDE, values.amplitude).xreplace(shortened),
            envelope,
        ),
        Step(
            "the output sigma.z at the prox, whose loss is the training loss",
            (U + N * values.amplitude).xreplace(shortened),
            values.output.xreplace(shortened),
        ),
        Step(
            "envelope theorem in sigma.w_z: minus the derivative of the loss that is left is G_v per unit of sigma",
            -sp.Derivative(envelope, SIGMA_W),
            values.field_gain.xreplace(shortened),
        ),
    ]


def one_output(system: SaddleSystem) -> list[Step]:
    """The envelope of one variable, e(y, U; tau): its slope is minus the gain, and in tau it obeys Hamilton-Jacobi."""
    found, v = system.values, system.model.values.V
    pushed = -sp.diff(system.model.loss, F).subs(F, OUTPUT)
    pulled = sp.diff(found.objective, AMPLITUDE) / N
    at = {AMPLITUDE: v * GAIN, U: OUTPUT - v * N * GAIN}
    steps = [
        Step(
            "in N the envelope obeys Hamilton-Jacobi: with s = -gain, de/dN = -V_v s^2/2, and its own derivative in U "
            "is carried along",
            found.derivative(U, N) * found.derivative(U, N),
            found.derivative(U, U) * found.derivative(N, N),
        )
    ]
    if not found.smooth:
        return steps
    stationary = sp.expand(pulled.subs(at, simultaneous=True))
    pull = stationary.coeff(GAIN) * GAIN
    balanced = pull.subs(GAIN, pushed), sp.simplify(pull - stationary)
    return [
        Step("stationarity in a_z at the output f_prox: the spring's pull is minus the slope of the loss", *balanced),
        *steps,
    ]


def vanishes(expr: sp.Expr) -> bool:
    """Whether an expression is zero at two points: a step between such sides says nothing."""
    symbols = sorted(expr.free_symbols, key=str)
    points = [{s: sp.Rational(7 * i + 11 + 5 * p, 9 * i + 13 + p) for i, s in enumerate(symbols)} for p in range(2)]
    return all(abs(sp.N(builtin(expr).xreplace(point))) < _ZERO for point in points)


def prox(tokens: ExplicitTokens) -> Iterator[Step]:
    """The minimisation over the scores: stationarity, inverse map and its Jacobian."""
    v, x, loss, gradient = tokens.system.model.scores.V, tokens.x, tokens.loss, tokens.gradient
    fields = _numbered("w_chi", tokens.count)
    springs = sp.Add(*[(s - f) ** 2 for s, f in zip(x, fields)]) / (2 * v)
    yield Step(
        "prox stationarity: the derivative in the score of token 1 of |x - w_chi|^2/(2 V_k) + loss, zero at the prox; "
        "on the right by the staged chain rule over the token sums" + tokens.shown,
        sp.Derivative(springs + loss, x[0]),
        (x[0] - fields[0]) / v + gradient[0],
    )
    yield Step(
        "the inverse map, w_chi = x + V_k grad loss(x), token 1: where the score field lies when the prox is x; "
        "G = (x - w_chi)/V_k = -grad loss" + tokens.shown,
        x[0] + v * sp.Derivative(loss, x[0]),
        x[0] + v * gradient[0],
    )
    yield Step(
        "the Jacobian of the inverse map, I + V_k Hessian, by the staged chain rule: first entry" + tokens.shown,
        1 + v * sp.Derivative(loss, x[0], x[0]),
        1 + sp.Add(*[v * term for term in sp.Add.make_args(tokens.hessian(0, 0))]),
    )
    if tokens.count > 1 and not vanishes(tokens.hessian(0, 1)):
        yield Step(
            "and its entry at tokens 1, 2" + tokens.shown,
            v * sp.Derivative(loss, x[0], x[1]),
            sp.Add(*[v * term for term in sp.Add.make_args(tokens.hessian(0, 1))]),
        )


def envelope(tokens: ExplicitTokens) -> list[Step]:
    """G = -grad_w M in both fields."""
    v, x, gradient = tokens.system.model.scores.V, tokens.x, tokens.gradient
    inverse = tuple(s + v * g for s, g in zip(x, gradient))
    envelope = sp.Add(*[v * g**2 / 2 for g in gradient]) + tokens.loss
    steps = [
        Step(
            "envelope theorem for the scores: M = V_k |G|^2/2 + loss at w_chi(x) has dM = -G.dw_chi, so G = -grad_w M"
            + tokens.shown,
            sp.Derivative(envelope, x[0]),
            sp.Add(*[g * sp.Derivative(w, x[0]) for g, w in zip(gradient, inverse)]),
        ),
        Step(
            "envelope theorem for the values: G_z = -dM/dw_z is the gain times sigma" + tokens.shown,
            -sp.Derivative(tokens.loss, tokens.w[0]),
            -tokens.value_gradient[0],
        ),
    ]
    return steps[1:] if all(map(vanishes, gradient)) else steps


def reductions(system: SaddleSystem, tokens: ExplicitTokens) -> Iterator[Step]:
    """What the algebra found about this activation, at explicit tokens."""
    sigma, x, w, found = tokens.sigma, tokens.x, tokens.w, system.properties
    total = None if found.row_sum is None else tokens.at(found.row_sum, 0)
    if total is not None and tokens.count > 1:
        rest = total - sp.Add(*sigma[1:])
        yield Step("constant row sum: sigma_1 is fixed by the other tokens" + tokens.shown, sigma[0], rest)
        names = _numbered("sigma", tokens.count)
        yield Step(
            "so that (w_z, y) enters the residual only through differences" + tokens.shown,
            (Y - sp.Add(*[s * t for s, t in zip(names, w)])).subs(names[0], total - sp.Add(*names[1:])),
            Y - total * w[0] - sp.Add(*[s * (t - w[0]) for s, t in zip(names[1:], w[1:])]),
        )
    if found.shift_invariant:
        t = sp.Symbol("t_shift", real=True)
        shifted = sigma[0].xreplace({s: s + t for s in x})
        yield Step("shift invariance: a common shift of the scores drops out" + tokens.shown, shifted, sigma[0])
        if tokens.count > 1 and not vanishes(tokens.gradient[0]):
            yield Step(
                "so that the gradient of the loss sums to zero over the tokens" + tokens.shown,
                tokens.gradient[0],
                -sp.Add(*tokens.gradient[1:]),
            )
