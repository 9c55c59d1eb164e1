"""The interpreter of the KernelIR in mpmath, at whatever precision the caller works in: the oracle of every emitter.

`evaluate` runs the statements of a `Kernel` for one sample, expression tree by expression tree, without any printer or
array library in between; what an emitter's code returns for the same inputs must agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mpmath
import sympy as sp
from mpmath import mpf

from replicode.codegen.ir import Kernel
from replicode.theory.nodes import (
    erfc,
    erfc_mantissa,
    erfcx,
    ierfcx,
    log_ndtr,
    relu,
    sigmoid,
    softplus,
    softplus_mantissa,
    step,
    tanh,
)
from replicode.theory.tokens import OuterProducts

Scalars = Mapping[sp.Symbol, mpf]
Tokens = Mapping[sp.Symbol, Sequence[mpf]]


def _ierfcx(u: mpf, order: mpf) -> mpf:
    """exp(u^2) i^n erfc(u) by its recurrence, with digits to spare for the cancellation in it."""
    with mpmath.workdps(mpmath.mp.dps + 40):
        before, last = 2 / mpmath.sqrt(mpmath.pi), mpmath.exp(u * u) * mpmath.erfc(u)
        for n in range(1, int(order) + 1):
            before, last = last, (before - 2 * u * last) / (2 * n)
    return +last


def _log_ndtr(u: mpf) -> mpf:
    tail = mpmath.erfc(abs(u) / mpmath.sqrt(2)) / 2
    return mpmath.log(tail) if u < 0 else mpmath.log1p(-tail)


_FUNCTIONS: dict[type[sp.Basic], Callable[..., mpf]] = {
    sp.Add: lambda *terms: mpmath.fsum(terms),
    sp.Mul: lambda *factors: mpmath.fprod(factors),
    sp.Pow: mpmath.power,
    sp.exp: mpmath.exp,
    sp.log: mpmath.log,
    sp.tanh: mpmath.tanh,
    sp.cos: mpmath.cos,
    sp.sin: mpmath.sin,
    sp.erf: mpmath.erf,
    sp.erfc: mpmath.erfc,
    sp.Abs: abs,
    sp.sign: mpmath.sign,
    sp.Max: max,
    sp.Min: min,
    sigmoid: lambda u: 1 / (1 + mpmath.exp(-u)),
    softplus: lambda u: mpmath.log1p(mpmath.exp(u)),
    relu: lambda u: max(u, mpf(0)),
    step: lambda u: mpf(1) if u > 0 else mpf(0),
    erfc: mpmath.erfc,
    tanh: mpmath.tanh,
    erfcx: lambda u: _ierfcx(u, mpf(0)),
    ierfcx: _ierfcx,
    log_ndtr: _log_ndtr,
    softplus_mantissa: lambda u: mpmath.log1p(mpmath.exp(u)) * mpmath.exp(-min(u, mpf(0))),
    erfc_mantissa: lambda u, n: _ierfcx(u, n) * mpmath.exp(-(min(u, mpf(0)) ** 2)),
}


def evaluate(
    kernel: Kernel,
    tokens: Mapping[str, Sequence[mpf]],
    scalars: Mapping[str, mpf],
    parameters: Mapping[str, mpf],
) -> dict[str, mpf | list[mpf] | mpmath.matrix]:
    """The outputs of a kernel by name: a number, a list over the tokens, or a matrix."""
    vectors = {s: [mpf(v) for v in tokens[s.name]] for s in kernel.token_inputs}
    numbers = {s: mpf(scalars[s.name]) for s in kernel.scalar_inputs}
    numbers |= {sp.Symbol(f"param_{name}", real=True): mpf(value) for name, value in parameters.items()}
    (count,) = {len(v) for v in vectors.values()}
    for statement in kernel.statements:
        if statement.kind == "scalar":
            numbers[statement.symbol] = _value(statement.expr, numbers)
            continue
        values = _token_values(statement.expr, numbers, vectors, count)
        if statement.kind == "token":
            vectors[statement.symbol] = values
        else:
            numbers[statement.symbol] = mpmath.fsum(values) if statement.kind == "sum" else max(values)
    return {o.name: _output(kernel, o.value, numbers, vectors, count) for o in kernel.outputs}


def _output(
    kernel: Kernel, value: sp.Expr | OuterProducts, numbers: Scalars, vectors: Tokens, count: int
) -> mpf | list[mpf] | mpmath.matrix:
    """An output; what does not depend on the token is a number even where the emitter broadcasts it."""
    if not isinstance(value, OuterProducts):
        return _token_values(value, numbers, vectors, count) if kernel.is_token(value) else _value(value, numbers)
    matrix = mpmath.diag(_token_values(value.diagonal, numbers, vectors, count))
    for pair in value.outers:
        left, right = (_token_values(side, numbers, vectors, count) for side in pair)
        matrix += mpmath.matrix([[a * b for b in right] for a in left])
    return matrix


def _token_values(expr: sp.Expr, numbers: Scalars, vectors: Tokens, count: int) -> list[mpf]:
    """The expression at every token."""
    return [_value(expr, {**numbers, **{s: v[i] for s, v in vectors.items()}}) for i in range(count)]


def _value(expr: sp.Expr, known: Scalars) -> mpf:
    """The expression at one token, by recursion over its tree."""
    if expr.is_Symbol:
        return known[expr]
    if expr.is_Rational:
        return mpf(int(expr.p)) / int(expr.q)
    if not expr.args:
        return expr._to_mpmath(mpmath.mp.prec)
    if expr.func not in _FUNCTIONS:
        raise TypeError(f"the oracle does not know {expr.func.__name__}")
    return _FUNCTIONS[expr.func](*(_value(a, known) for a in expr.args))
