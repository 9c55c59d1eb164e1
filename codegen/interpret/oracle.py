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
from replicode.theory.calculus.tokens import OuterProducts
from replicode.theory.language.functions import BY_NODE

Scalars = Mapping[sp.Symbol, mpf]
Tokens = Mapping[sp.Symbol, Sequence[mpf]]


_FUNCTIONS: dict[type[sp.Basic], Callable[..., mpf]] = {
    **{node: record.evaluator() for node, record in BY_NODE.items()},
    sp.Add: lambda *terms: mpmath.fsum(terms),
    sp.Mul: lambda *factors: mpmath.fprod(factors),
    sp.Pow: mpmath.power,
    sp.Max: max,
    sp.Min: min,
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
