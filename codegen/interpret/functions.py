"""Expressions as NumPy functions, printed by the emitter's own printer: of symbols, or of the scores of all tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy import special

from replicode.codegen.emit.printer import numpy_source
from replicode.theory.language.activation import TokenForm
from replicode.theory.language.nodes import L, X
from replicode.theory.model import NU

Array = NDArray[np.float64]
Numeric = Callable[..., Array]


@lru_cache(maxsize=4096)
def numpy_function(expr: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Numeric:
    """The expression as a NumPy function of the symbols, printed by the emitter's own printer."""
    names = {s: sp.Symbol(f"v{i}", real=True) for i, s in enumerate(symbols)}
    source = numpy_source(expr.xreplace(names))
    arguments = ", ".join(n.name for n in names.values())
    space: dict[str, Numeric] = {"np": np, "special": special}  # type: ignore[dict-item]
    exec(f"def f({arguments}):\n    return {source}", space)
    return space["f"]


def evaluated(form: TokenForm, scores: Array, values: Mapping[sp.Symbol, float]) -> Array:
    """The expression at every token (rows) and node (columns), sums taken innermost first."""
    known: dict[sp.Symbol, Array | float] = {X: scores, L: float(scores.shape[0]), NU: 0.0, **values}
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for symbol, body in form.sums:
            known[symbol] = np.broadcast_to(_value(body, known), scores.shape).sum(axis=0)
        return np.broadcast_to(_value(form.f, known), scores.shape).astype(float)


def _value(expr: sp.Expr, known: Mapping[sp.Symbol, Array | float]) -> Array:
    symbols = tuple(sorted(expr.free_symbols, key=lambda s: s.name))
    return np.asarray(numpy_function(expr, symbols)(*[known[s] for s in symbols]))
