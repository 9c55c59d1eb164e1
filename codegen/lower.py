"""Lowering: from a derived SaddleSystem to the kernels (KernelIR) that the emitters print.

Stable rewrites come first, then the staged derivatives of the rewritten form, then common subexpressions, which are
scheduled just before their first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from codegen.ir import Kernel, Output, rebuilt
from codegen.stable import StableForm, fused, stabilised
from theory.activation import Activation, TokenForm
from theory.channel import U
from theory.errors import InputError, Refusal
from theory.model import RESIDUAL, V, Y
from theory.nodes import L, W, X
from theory.saddle import SaddleSystem, loss_derivatives
from theory.tokens import Definition, StagedDerivatives, staged_derivatives


@dataclass(frozen=True)
class KernelIR:
    """All kernels of one system, and the parameters in the order in which they are passed."""

    parameters: tuple[str, ...]
    kernels: tuple[Kernel, ...]

    def operations(self) -> dict[str, int]:
        """Operation counts by kernel."""
        return {k.name: k.operations() for k in self.kernels}


def parameter_symbol(name: str) -> sp.Symbol:
    """A user's parameter under a name that no internal symbol has."""
    return sp.Symbol(f"param_{name}", real=True)


def lower(system: SaddleSystem) -> KernelIR:
    """Kernels for sigma, loss, gradient, Hessian, the curvatures of stability, and the pullback of training."""
    if system.tokens is None:
        raise InputError("tokens", None, "a number of tokens: a solver is generated for one length")
    if not system.properties.smooth:
        raise Refusal(f"{system.activation.text} has kinks: the prox by Newton and the lattice rules need a smooth one")
    stable = stable_form(system.activation, system.tokens)
    loss = loss_derivatives(stable.form, system.values)
    sums = stable.with_shifts(loss.value_definitions)
    slopes = (*sums, *loss.gradient_definitions)
    curved = (*slopes, *loss.hessian_definitions)
    value = Output("value", loss.value)
    slope = Output("slope", loss.gradient_x)
    fields = (X, W), (Y, V["v"])
    prox_loss = system.model.loss.subs(RESIDUAL, system.values.residual)
    kernels = [
        sigma_kernel(stable),
        pullback_kernel(stable),
        _kernel(stable, "loss", "the loss with z eliminated", *fields, sums, [value]),
        _kernel(
            stable,
            "gradient",
            "loss, its slope in chi, sigma, the gain G_z = gain sigma, and the residual's own loss",
            *fields,
            slopes,
            [
                value,
                slope,
                Output("sigmas", stable.form.f),
                Output("gain", system.values.field_gain),
                Output("residual_loss", prox_loss),
            ],
        ),
        _kernel(
            stable,
            "hessian",
            "loss, slope and Hessian in chi",
            *fields,
            curved,
            [value, slope, Output("curvature", loss.hessian_xx)],
        ),
        _kernel(
            stable,
            "curvatures",
            "second derivatives of the loss in (chi, chi), (chi, w_z), (w_z, w_z)",
            *fields,
            curved,
            [Output("h", loss.hessian_xx), Output("c", loss.hessian_xw), Output("e", loss.hessian_ww)],
        ),
    ]
    return KernelIR(system.activation.parameters, tuple(kernels))


def stable_form(act: Activation, tokens: int) -> StableForm:
    """The stabilised token form at a fixed number of tokens, parameters renamed apart."""
    form = fused(act.token_form())
    fixed = {L: sp.Integer(tokens)} | {sp.Symbol(p, real=True): parameter_symbol(p) for p in act.parameters}
    sums = tuple((s, b.xreplace(fixed)) for s, b in form.sums)
    return stabilised(TokenForm(form.f.xreplace(fixed), sums))


def sigma_kernel(stable: StableForm) -> Kernel:
    """The activation itself."""
    sums = tuple(Definition(s, "sum", b) for s, b in stable.form.sums)
    return _kernel(
        stable,
        "sigma",
        "the activation",
        (X,),
        (),
        stable.with_shifts(sums),
        [Output("sigmas", stable.form.f)],
    )


def pullback_kernel(stable: StableForm) -> Kernel:
    """sum_l w_l d sigma_l / d x_j, for training."""
    derivatives = pullback_derivatives(stable.form)
    statements = (*stable.with_shifts(derivatives.value_definitions), *derivatives.gradient_definitions)
    return _kernel(
        stable,
        "pullback",
        "sum_l w_l d sigma_l / d x_j",
        (X, W),
        (),
        statements,
        [Output("slope", derivatives.gradient_x)],
    )


def pullback_derivatives(form: TokenForm) -> StagedDerivatives:
    """Derivatives of U = sum_l f(x_l) w_l alone."""
    return staged_derivatives([*form.sums, (U, form.f * W)], U)


def _kernel(
    stable: StableForm,
    name: str,
    doc: str,
    token_inputs: Sequence[sp.Symbol],
    scalar_inputs: Sequence[sp.Symbol],
    definitions: Sequence[Definition],
    outputs: Sequence[Output],
) -> Kernel:
    """Keep what the outputs need, share common subexpressions, and schedule."""
    needed = _needed(definitions, outputs)
    raw = [*(d.expr for d in needed), *(e for o in outputs for e in o.expressions())]
    expressions = [stable.evaluated(e) for e in raw]
    powers, expressions = _merged_exponentials(expressions)
    exponentials = [e for _, e in powers]
    symbols = sp.numbered_symbols("t_", real=True)
    shared, reduced = sp.cse([*expressions, *exponentials], symbols=symbols, order="canonical")
    body, taken = reduced[: len(expressions)], reduced[len(expressions) :]
    powers = [(s, e) for (s, _), e in zip(powers, taken, strict=True)]
    statements, outputs_reduced = _scheduled(needed, outputs, [*powers, *shared], body, set(token_inputs))
    return Kernel(name, doc, tuple(token_inputs), tuple(scalar_inputs), statements, outputs_reduced)


def _needed(definitions: Sequence[Definition], outputs: Sequence[Output]) -> list[Definition]:
    """Definitions on which the outputs depend, in order."""
    wanted = set().union(*[e.free_symbols for o in outputs for e in o.expressions()])
    kept: list[Definition] = []
    for d in reversed(definitions):
        if d.symbol in wanted:
            kept.append(d)
            wanted |= d.expr.free_symbols
    return kept[::-1]


def _merged_exponentials(expressions: list[sp.Expr]) -> tuple[list[tuple[sp.Symbol, sp.Expr]], list[sp.Expr]]:
    """Write exp(k u) as a power of one symbol for exp(u), so that each exponential is taken once."""
    arguments = sorted(
        {e.args[0] for x in expressions for e in x.atoms(sp.exp)}, key=lambda a: (sp.count_ops(a), str(a))
    )
    powers: list[tuple[sp.Symbol, sp.Expr]] = []
    known: list[tuple[sp.Symbol, dict[sp.Expr, sp.Expr]]] = []
    replaced: dict[sp.Expr, sp.Expr] = {}
    for argument in arguments:
        terms = dict(sp.expand(argument).as_coefficients_dict())
        for symbol, others in known:
            ratio = _ratio(terms, others)
            if ratio.is_Integer and ratio > 0:
                replaced[sp.exp(argument)] = symbol**ratio
                break
        else:
            symbol = sp.Symbol(f"exp_{len(powers) + 1}", positive=True)
            powers.append((symbol, sp.exp(argument)))
            known.append((symbol, terms))
            replaced[sp.exp(argument)] = symbol
    return powers, [e.xreplace(replaced) for e in expressions]


def _ratio(terms: dict[sp.Expr, sp.Expr], others: dict[sp.Expr, sp.Expr]) -> sp.Expr:
    """The k of terms = k others, given as coefficients; 0 when there is none."""
    ratios = {c / others[t] for t, c in terms.items()} if terms.keys() == others.keys() else set()
    return ratios.pop() if len(ratios) == 1 else sp.S.Zero


def _scheduled(
    definitions: Sequence[Definition],
    outputs: Sequence[Output],
    shared: Sequence[tuple[sp.Symbol, sp.Expr]],
    expressions: Sequence[sp.Expr],
    tokens: set[sp.Symbol],
) -> tuple[tuple[Definition, ...], tuple[Output, ...]]:
    """Each shared subexpression just before its first use."""
    waiting = dict(shared)
    vectors = set(tokens)
    statements: list[Definition] = []

    def release(expr: sp.Expr) -> None:
        for symbol in sorted(expr.free_symbols & set(waiting), key=lambda s: s.name):
            if symbol in waiting:
                body = waiting.pop(symbol)
                release(body)
                is_vector = bool(body.free_symbols & vectors)
                vectors.update({symbol} if is_vector else set())
                statements.append(Definition(symbol, "token" if is_vector else "scalar", body))

    bodies = iter(expressions)
    for d in definitions:
        body = next(bodies)
        release(body)
        if d.kind == "token":
            vectors.add(d.symbol)
        statements.append(Definition(d.symbol, d.kind, body))
    results = []
    for o in outputs:
        parts = [next(bodies) for _ in o.expressions()]
        for part in parts:
            release(part)
        results.append(rebuilt(o, parts))
    return tuple(statements), tuple(results)
