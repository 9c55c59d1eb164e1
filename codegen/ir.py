"""The typed intermediate representation handed from lowering to the emitters.

A `Kernel` is a straight-line program over per-sample values of two shapes: scalars (one number per sample) and token
vectors (L numbers per sample). Statements are in order of evaluation; a statement of kind `sum` or `max` reduces a
token expression to a scalar.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import sympy as sp

from replicode.theory.tokens import Definition, OuterProducts

IR_VERSION = 1


@dataclass(frozen=True)
class Output:
    """A named result: a scalar, a token vector, or a matrix, `symmetric` or not, as diagonal plus outer products."""

    name: str
    value: sp.Expr | OuterProducts
    symmetric: bool = False

    def expressions(self) -> tuple[sp.Expr, ...]:
        """All expressions in it, in a fixed order."""
        if isinstance(self.value, OuterProducts):
            return (self.value.diagonal, *(e for pair in self.value.outers for e in pair))
        return (self.value,)


@dataclass(frozen=True)
class Kernel:
    """name(inputs) -> outputs; `token_inputs` are the token-vector ones."""

    name: str
    doc: str
    token_inputs: tuple[sp.Symbol, ...]
    scalar_inputs: tuple[sp.Symbol, ...]
    statements: tuple[Definition, ...]
    outputs: tuple[Output, ...]

    def operations(self) -> int:
        """Number of arithmetic operations, token operations counted once."""
        return int(sum(sp.count_ops(e) for e in self.expressions()))

    def expressions(self) -> list[sp.Expr]:
        """Right-hand sides of all statements, then of the outputs."""
        return [s.expr for s in self.statements] + [e for o in self.outputs for e in o.expressions()]

    def vectors(self) -> set[sp.Symbol]:
        """The symbols that stand for token vectors."""
        return set(self.token_inputs) | {s.symbol for s in self.statements if s.kind == "token"}

    def is_token(self, expr: sp.Expr) -> bool:
        """Whether the expression is a token vector."""
        return bool(expr.free_symbols & self.vectors())


def rebuilt(output: Output, expressions: Iterable[sp.Expr]) -> Output:
    """The same output with its expressions replaced, in the order of `expressions()`."""
    items = list(expressions)
    if isinstance(output.value, OuterProducts):
        pairs = tuple(zip(items[1::2], items[2::2], strict=True))
        return replace(output, value=OuterProducts(items[0], pairs))
    return replace(output, value=items[0])
