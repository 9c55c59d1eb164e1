"""Two tokens of which only the difference of scores matters: the `expansion` kernel as a program in that difference.

Where sigma is shift invariant and sums to a constant, sigma_1' = -sigma_0' =: r in the score of token 1. With
D = w_1 - w_0 and F = sigma_1 - sigma_0 the token sums have U' = r D and N' = 2 r F, so that the loss Lambda(U, N) has

    slope = r m,   curvature = r^2 (Lambda_UU D^2 + 4 Lambda_UN D F + 4 Lambda_NN F^2 + 4 Lambda_N) + r' m

with m = Lambda_U D + 2 Lambda_N F. Where r = a + b sigma_0 sigma_1, as of all that is logistic, r' = -b F r. What is
not of this kind is written out token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sympy as sp

from replicode.codegen.ir import Kernel, Output, StraightLine
from replicode.codegen.lower.kernels import (
    field_outputs,
    kernel_of,
    parameter_symbol,
    shorter,
    stable_form,
    value_definitions,
)
from replicode.codegen.rewrite.unrolled import Lines, row_symbol, unrolled
from replicode.theory.calculus.tokens import Definition
from replicode.theory.derive.channel import GAIN, N, U
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import W
from replicode.theory.properties.symbolic import at_tokens, in_exponentials, vanishes

PAIR = 2
VALUE_GAP, SIGMA_GAP, RATE, MOVE, SLOPE = sp.symbols("value_gap sigma_gap rate move slope", real=True)


class LogisticRate(NamedTuple):
    """d sigma_1/dx_1 = constant + coefficient sigma_0 sigma_1, one of them zero lest the two cancel."""

    constant: sp.Expr
    coefficient: sp.Expr


def expansion_program(system: SaddleSystem, kernel: Kernel, tokens: int, first: int) -> StraightLine:
    """The straight-line program of `expansion`: in the difference of two scores where nothing else matters."""
    found = system.properties
    if tokens == PAIR and found.smooth and found.shift_invariant and found.row_sum is not None:
        rate = logistic_rate(system.activation)
        if rate is not None:
            return _in_the_difference(system, kernel, rate)
    return unrolled(kernel, tokens, first)


def logistic_rate(act: Activation) -> LogisticRate | None:
    """The rate of two shift-invariant sigmas that sum to a constant, if it is found to be of this kind."""
    score = sp.Symbol("x_1", real=True)
    renamed = {sp.Symbol(p, real=True): parameter_symbol(p) for p in act.parameters}
    sigmas = [in_exponentials(at_tokens(act.expr, token, (sp.S.Zero, score), renamed)) for token in range(PAIR)]
    rate, product = sp.diff(sigmas[1], score), sp.Mul(*sigmas)
    constant, at_zero = rate.subs(score, 0), product.subs(score, 0)
    if vanishes(rate - constant):
        return LogisticRate(constant, sp.S.Zero)
    if at_zero != 0 and vanishes(rate - constant / at_zero * product):
        return LogisticRate(sp.S.Zero, constant / at_zero)
    return None


def _in_the_difference(system: SaddleSystem, kernel: Kernel, rate: LogisticRate) -> StraightLine:
    """Sums and gain as unrolled, then the formulae of this file."""
    derivative = system.values.derivative
    stiffness = derivative(U, U)
    ratios = [shorter(system, sp.cancel(derivative(s, N) / stiffness)) for s in (U, N)]
    pull, pressure = (shorter(system, derivative(s)) for s in (U, N))
    own = Output("stiffness", stiffness), Output("pressure", pressure)
    program = unrolled(_sums(system, kernel, own), PAIR)
    at = program.outputs
    lower, upper = at["sigmas"]
    known = {GAIN: at["gain"]}
    pull, pressure, *ratios = (e.xreplace(known) for e in (pull, pressure, *ratios))
    square = sp.factor(VALUE_GAP**2 + 4 * ratios[0] * VALUE_GAP * SIGMA_GAP + 4 * ratios[1] * SIGMA_GAP**2)
    lines = Lines(program.assignments)
    lines.assign(VALUE_GAP, row_symbol(W, 1) - row_symbol(W, 0))
    lines.assign(SIGMA_GAP, upper - lower)
    lines.assign(RATE, rate.constant + rate.coefficient * lower * upper)
    lines.assign(MOVE, sp.factor(pull * VALUE_GAP + 2 * pressure * SIGMA_GAP))
    lines.assign(SLOPE, RATE * MOVE)
    force = RATE**2 * (at["stiffness"] * square + 4 * at["pressure"])
    outputs = {o.name: at[o.name] for o in kernel.outputs if o.name in at}
    outputs |= {"slope": (SLOPE,), "curvature": ((force - rate.coefficient * SIGMA_GAP * SLOPE,),)}
    return lines.program(outputs)


def _sums(system: SaddleSystem, kernel: Kernel, scalars: Sequence[Output]) -> Kernel:
    """What does not need the derivatives of sigma."""
    stable = stable_form(system.activation, PAIR)
    sums = (*stable.form.sums, (U, stable.form.f * W), (N, stable.form.f**2))
    definitions = stable.with_shifts(tuple(Definition(s, "sum", body) for s, body in sums))
    return kernel_of(
        stable,
        kernel.name,
        kernel.doc,
        kernel.token_inputs,
        kernel.scalar_inputs,
        (*definitions, *value_definitions(system)),
        [*field_outputs(system, stable), *scalars],
    )
