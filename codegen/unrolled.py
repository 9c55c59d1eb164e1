"""Kernels with the tokens written out: straight-line programs over scalars, for the few tokens where that is fastest.

`unrolled` turns a `Kernel` into a `StraightLine` program in which every token vector has become one symbol per token;
copies are propagated and what no output needs is dropped. The emitters print it one assignment per line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy as sp

from codegen.ir import Kernel, Output
from theory.tokens import Definition, OuterProducts

UNROLLED_TOKENS = 4

Value: TypeAlias = Any  # an expression, one per token, or rows of expressions; SymPy's are untyped


@dataclass(frozen=True)
class StraightLine:
    """Assignments in order, and by name each output: an expression, one per token, or rows of a matrix."""

    assignments: tuple[tuple[sp.Symbol, sp.Expr], ...]
    outputs: Mapping[str, Value]


def row_symbol(symbol: sp.Symbol, token: int) -> sp.Symbol:
    """The symbol of one token's entry of a token vector."""
    return sp.Symbol(f"{symbol.name}_{token}", **symbol.assumptions0)


def flattened(value: Value) -> list[sp.Expr]:
    """All expressions in an output."""
    return [e for part in value for e in flattened(part)] if isinstance(value, tuple) else [value]


def unrolled(kernel: Kernel, tokens: int, first: int = 0) -> StraightLine:
    """The kernel at so many tokens; slopes and curvatures from token `first` on, other outputs at all tokens."""
    vectors = sorted(kernel.vectors(), key=lambda s: s.name)
    rows = [{s: row_symbol(s, token) for s in vectors} for token in range(tokens)]
    copies: dict[sp.Symbol, sp.Expr] = {}
    assignments: list[tuple[sp.Symbol, sp.Expr]] = []

    def at(expr: sp.Expr, token: int) -> sp.Expr:
        return expr.xreplace(rows[token]).xreplace(copies)

    def assign(symbol: sp.Symbol, expr: sp.Expr) -> None:
        if expr.is_Symbol or expr.is_Number:
            copies[symbol] = expr
        else:
            assignments.append((symbol, expr))

    for statement in kernel.statements:
        if statement.kind == "token":
            for token in range(tokens):
                assign(rows[token][statement.symbol], at(statement.expr, token))
        else:
            assign(statement.symbol, _reduced(statement, [at(statement.expr, t) for t in range(tokens)]))
    outputs = {o.name: _entries(o, at, tokens, first) for o in kernel.outputs}
    outputs = {name: value if name in _TOKENWISE else _plain(kernel, value, name) for name, value in outputs.items()}
    return StraightLine(_needed(assignments, outputs), outputs)


_TOKENWISE = ("slope", "sigmas")


def _plain(kernel: Kernel, value: Value, name: str) -> Value:
    """An output that does not differ from token to token is one expression."""
    output = next(o for o in kernel.outputs if o.name == name)
    if isinstance(output.value, OuterProducts) or kernel.is_token(output.value):
        return value
    return value[0] if isinstance(value, tuple) else value


def _reduced(statement: Definition, entries: list[sp.Expr]) -> sp.Expr:
    if statement.kind == "sum":
        return sp.Add(*entries)
    return sp.Max(*entries) if statement.kind == "max" else entries[0]


def _entries(output: Output, at: Callable[[sp.Expr, int], sp.Expr], tokens: int, first: int) -> Value:
    if not isinstance(output.value, OuterProducts):
        begin = first if output.name == "slope" else 0
        return tuple(at(output.value, token) for token in range(begin, tokens))
    matrix = output.value
    return tuple(
        tuple(
            sp.Add(
                *(at(a, i) * at(b, j) for a, b in matrix.outers),
                at(matrix.diagonal, i) if i == j else sp.S.Zero,
            )
            for j in range(first, tokens)
            if j >= i or not output.symmetric
        )
        for i in range(first, tokens)
    )


def _needed(
    assignments: list[tuple[sp.Symbol, sp.Expr]], outputs: Mapping[str, Value]
) -> tuple[tuple[sp.Symbol, sp.Expr], ...]:
    """The assignments that some output depends on."""
    wanted = set().union(*[e.free_symbols for value in outputs.values() for e in flattened(value)])
    kept = []
    for symbol, expr in reversed(assignments):
        if symbol in wanted:
            kept.append((symbol, expr))
            wanted |= expr.free_symbols
    return tuple(reversed(kept))
