"""Lowering: from a derived SaddleSystem to the kernels (KernelIR) that the emitters print.

Stable rewrites come first, then the staged derivatives of the rewritten form, then common subexpressions, which are
scheduled just before their first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import sympy as sp

from replicode.codegen.ir import Kernel, Output, rebuilt
from replicode.codegen.rewrite.stable import StableForm, fused, stabilised
from replicode.theory.calculus.tokens import Definition, StagedDerivatives, staged_derivatives
from replicode.theory.derive.channel import GAIN, U
from replicode.theory.derive.saddle import SaddleSystem, loss_derivatives
from replicode.theory.errors import InputError
from replicode.theory.language.activation import Activation, TokenForm
from replicode.theory.language.nodes import RADIUS, L, W, X
from replicode.theory.model import SIGMA, Y
from replicode.theory.properties.kinks import piecewise

MANY_TOKENS = 16  # from which on outer products were measured to be cheaper than whole matrices
FACTORED = {"hessian": "hessian_factors", "curvatures": "curvature_factors"}
Named = list[tuple[sp.Symbol, sp.Expr]]


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


def lower(system: SaddleSystem, tokens: int | None = None) -> KernelIR:
    """Kernels for sigma, loss, gradient, Hessian, the curvatures of stability, and the pullback of training.

    `tokens` is the system's own number of them, or one of its lengths.
    """
    tokens = tokens or system.tokens
    if tokens is None:
        raise InputError("tokens", None, "a number of tokens, or a distribution of it: a kernel is for one length")
    plain = stable_form(system.activation if system.properties.smooth else piecewise(system.activation), tokens)
    stable = plain.multiplied(system.model.radius)
    loss = loss_derivatives(stable.form, system.values)
    sums = stable.with_shifts(loss.value_definitions)
    eliminated = value_definitions(system)
    slopes = (*sums, *eliminated, *_in_gain(system, loss.gradient_definitions))
    curved = (*slopes, *_in_gain(system, _of_rank_one(system, loss.hessian_definitions)))
    value, *gains = field_outputs(system, stable)
    slope = Output("slope", loss.gradient_x)
    curvature = Output("curvature", loss.hessian_xx, symmetric=True)
    fields = (X, W, *([RADIUS] if system.model.radial else [])), (Y, system.model.values.V)

    def made(name: str, doc: str, definitions: Sequence[Definition], *outputs: Output) -> Kernel:
        return kernel_of(stable, name, doc, *fields, definitions, outputs)

    told = "loss, its slope in chi, sigma, the gain G_z = gain sigma, and the residual's own loss"
    second = (
        Output("h", loss.hessian_xx, symmetric=True),
        Output("c", loss.hessian_xw),
        Output("e", loss.hessian_ww, symmetric=True),
    )
    needed = (*sums, *(eliminated if system.values.steps else ()))
    kernels = [
        sigma_kernel(plain),
        pullback_kernel(plain),
        made("loss", "the loss with z eliminated", needed, Output("value", loss.value)),
        made("gradient", told, slopes, value, slope, *gains),
        made("hessian", "loss, slope and Hessian in chi", curved, value, slope, curvature),
        made("expansion", "all of `gradient` and the Hessian in chi, at once", curved, value, slope, *gains, curvature),
        made("curvatures", "second derivatives of the loss in (chi, chi), (chi, w_z), (w_z, w_z)", curved, *second),
    ]
    return KernelIR(system.activation.parameters, (*kernels, *(_factored(k) for k in kernels if _many(k, tokens))))


def _many(kernel: Kernel, tokens: int) -> bool:
    """Whether the matrices of a kernel are also handed out as outer products: these are cheaper for many tokens."""
    return kernel.name in FACTORED and tokens >= MANY_TOKENS


def _factored(kernel: Kernel) -> Kernel:
    return replace(kernel, name=FACTORED[kernel.name], doc=f"{kernel.doc}, as diagonals plus outer products")


def value_definitions(system: SaddleSystem) -> tuple[Definition, ...]:
    """The gain of the value fields, G_z = gain sigma, and what else the eliminated loss is written in."""
    steps = system.values.steps or ((GAIN, system.values.field_gain),)
    return tuple(Definition(symbol, "scalar", expr) for symbol, expr in steps)


def field_outputs(system: SaddleSystem, stable: StableForm) -> list[Output]:
    """The loss, sigma, the gain, and the residual's own loss."""
    return [
        Output("value", shorter(system, system.values.envelope)),
        Output("sigmas", system.values.rate.xreplace({SIGMA: stable.form.f})),
        Output("gain", GAIN),
        Output("residual_loss", shorter(system, system.values.loss)),
    ]


def _in_gain(system: SaddleSystem, definitions: Sequence[Definition]) -> tuple[Definition, ...]:
    return tuple(
        Definition(d.symbol, d.kind, shorter(system, d.expr) if d.kind == "scalar" else d.expr) for d in definitions
    )


def _of_rank_one(system: SaddleSystem, definitions: Sequence[Definition]) -> tuple[Definition, ...]:
    """Second derivatives in the token sums as multiples of one of them, where the multiples are known by the gain.

    The loss is a square over a sum: these derivatives have rank one, and what they multiply has a common factor.
    """
    if system.values.steps:
        return tuple(definitions)
    scalars = {d.symbol: d.expr for d in definitions if d.kind == "scalar"}
    first = next((s for s, e in scalars.items() if e != 0 and Y not in e.free_symbols), None)
    if first is None:
        return tuple(definitions)
    ratios = {s: shorter(system, sp.cancel(e / scalars[first])) for s, e in scalars.items() if s != first}
    known = {s: first * r for s, r in ratios.items() if r.free_symbols <= {GAIN, system.model.values.V}}
    return tuple(
        Definition(d.symbol, d.kind, sp.factor_terms(d.expr.xreplace(known)) if d.kind == "token" else d.expr)
        for d in definitions
    )


def shorter(system: SaddleSystem, expr: sp.Expr) -> sp.Expr:
    """The expression, or what it is in the gain of the value fields where that is shorter and not so already."""
    if system.values.steps or Y not in expr.free_symbols:
        return expr
    return _shorter(expr, system.values.field_gain)


@lru_cache(maxsize=1024)
def _shorter(expr: sp.Expr, gain: sp.Expr) -> sp.Expr:
    eliminated = sp.factor(sp.cancel(expr.xreplace({U: _output(gain)})))
    divided = sp.factor(sp.cancel(expr / gain)) * GAIN
    return min(expr, eliminated, divided, key=sp.count_ops)


@cache
def _output(gain: sp.Expr) -> sp.Expr:
    """U at a given gain."""
    (u,) = sp.solve(GAIN - gain, U)
    return u


def stable_form(act: Activation, tokens: int) -> StableForm:
    """The stabilised token form at a fixed number of tokens, parameters renamed apart."""
    form = fused(act.token_form())
    fixed = {L: sp.Integer(tokens)} | {sp.Symbol(p, real=True): parameter_symbol(p) for p in act.parameters}
    sums = tuple((s, b.xreplace(fixed)) for s, b in form.sums)
    return stabilised(TokenForm(form.f.xreplace(fixed), sums))


def sigma_kernel(stable: StableForm) -> Kernel:
    """The activation itself."""
    sums = tuple(Definition(s, "sum", b) for s, b in stable.form.sums)
    return kernel_of(
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
    return kernel_of(
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


def kernel_of(
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
    powers, expressions = _normalised(needed, powers, expressions)
    powers, expressions = _with_reciprocals(powers, expressions)
    symbols = sp.numbered_symbols("t_", real=True)
    shared, reduced = sp.cse([*expressions, *(e for _, e in powers)], symbols=symbols, order="canonical")
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


def _merged_exponentials(expressions: list[sp.Expr]) -> tuple[Named, list[sp.Expr]]:
    """Write exp(k u) as a power of one symbol for exp(u), so that each exponential is taken once."""
    arguments = sorted(
        {e.args[0] for x in expressions for e in x.atoms(sp.exp)}, key=lambda a: (sp.count_ops(a), str(a))
    )
    powers: Named = []
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


def _normalised(
    definitions: Sequence[Definition], powers: Named, expressions: list[sp.Expr]
) -> tuple[Named, list[sp.Expr]]:
    """Exponentials divided by their own sum, which then is 1 in all that follows.

    Nothing depends on the shift of the exponents, so that log(sum) may be added to it once the sum is known.
    """
    found = _normalising_sum(definitions, dict(powers), expressions)
    if found is None:
        return powers, expressions
    shift, total = next(d.symbol for d in definitions if d.kind == "max"), definitions[found].symbol
    degrees = {s: -sp.diff(e.args[0], shift) for s, e in powers}
    scaled = {s: sp.Symbol(s.name.replace("exp", "part"), positive=True) for s, k in degrees.items() if k}
    parts = [(part, s / total ** degrees[s]) for s, part in scaled.items()]
    after = {total: sp.S.One, **scaled}
    return [*powers, *parts], [*expressions[: found + 1], *(e.xreplace(after) for e in expressions[found + 1 :])]


def _normalising_sum(
    definitions: Sequence[Definition], powers: dict[sp.Symbol, sp.Expr], expressions: list[sp.Expr]
) -> int | None:
    """Where the first sum is, if it is that of an exponential whose shift, a maximum, enters in exponents alone."""
    first = next((i for i, d in enumerate(definitions) if d.kind == "sum"), None)
    shifts = [d.symbol for d in definitions if d.kind == "max"]
    if first is None or len(shifts) != 1 or [d.symbol for d in definitions].count(shifts[0]) != 1:
        return None
    rates = {s: -sp.diff(e.args[0], shifts[0]) for s, e in powers.items()}
    outside = [e for i, e in enumerate(expressions) if i >= len(definitions) or definitions[i].kind != "max"]
    pure = not any(shifts[0] in e.free_symbols for e in outside) and all(k.is_Integer for k in rates.values())
    return first if pure and rates.get(expressions[first]) == 1 else None


def _with_reciprocals(powers: Named, expressions: list[sp.Expr]) -> tuple[Named, list[sp.Expr]]:
    """Sums that are divided by in several powers are inverted once."""
    divisors: dict[sp.Expr, set[sp.Expr]] = {}
    for power in sorted({p for e in expressions for p in e.atoms(sp.Pow)}, key=sp.default_sort_key):
        if power.exp.is_Integer and power.exp < 0:
            divisors.setdefault(power.base, set()).add(power.exp)
    several = [base for base, exponents in divisors.items() if len(exponents) > 1]
    inverses = {base: sp.Symbol(f"inverse_{i + 1}", real=True) for i, base in enumerate(several)}
    changed = {base**k: inverses[base] ** -k for base in several for k in divisors[base]}
    return [*powers, *((s, 1 / base) for base, s in inverses.items())], [e.xreplace(changed) for e in expressions]


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
