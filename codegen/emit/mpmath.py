"""The mpmath emitter: derived functions of order parameters, conjugates and rates on numbers of any precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from replicode.codegen.ir import Function, Matrix, Returned, Unpacked, Vector
from replicode.theory.language.functions import own_values


def mpmath_function(function: Function) -> Callable[..., Any]:
    """The function, its vectors as sequences and its matrices as lists of rows; not of functions of the fields."""
    known: dict[sp.Symbol, sp.Expr] = {}
    for a in function.assignments:
        if not isinstance(a.value, sp.Expr):
            raise TypeError(f"{function.name}: {type(a.value).__name__} is a sum over samples, not an expression")
        known[a.target] = a.value.xreplace(known)
    if function.returned is None:  # SymPy prints no None
        return lambda *_: None
    value = _nested(function.returned, known)
    vectors = {n.source: n.symbols for n in function.names if isinstance(n, Unpacked)}
    scalars = {s.name: s for e in _leaves(value) for s in e.free_symbols}
    arguments = [vectors.get(a.name) or scalars.get(a.name, sp.Dummy(a.name)) for a in function.signature.arguments]
    made: Callable[..., Any] = sp.lambdify(arguments, value, modules=[own_values(), "mpmath"])
    return made


def _nested(returned: Returned, known: dict[sp.Symbol, sp.Expr]) -> Any:
    """What a function returns as lists of expressions."""
    match returned:
        case Vector(entries=parts) | Matrix(rows=parts):
            return [_nested(part, known) for part in parts]
        case tuple():
            return [_nested(part, known) for part in returned]
        case None:
            return None
    return returned.xreplace(known)


def _leaves(value: Any) -> list[sp.Expr]:
    if isinstance(value, list):
        return [leaf for part in value for leaf in _leaves(part)]
    return [] if value is None else [value]
