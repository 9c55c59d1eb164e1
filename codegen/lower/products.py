"""Averages that factorise over the tokens, as functions of one token in the IR and tables of their products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from replicode.codegen.contract import declared
from replicode.codegen.ir import Function, Unpacked
from replicode.theory.gaussian.sequence import InversePower, Product, SignedFunction, WeightedAverages
from replicode.theory.language.nodes import L


class ProductTables:
    """The tables of a module, and the functions that they name, each of them once."""

    def __init__(self, named: Mapping[sp.Symbol, sp.Symbol], params: Unpacked) -> None:
        self.named, self.params = named, params
        self.functions: dict[tuple[str, sp.Expr], Function] = {}
        self.tables: list[Function] = []

    def add(self, name: str, averages: WeightedAverages) -> None:
        """A table of products under its declared name."""
        rows = (averages.A, averages.B, averages.normalisation)
        table = tuple(tuple(self._row(p) for p in products) for products in rows)
        self.tables.append(Function(declared(name), (), (), table))

    def all(self) -> Sequence[Function]:
        """Everything that is emitted."""
        return [*self.functions.values(), *self.tables]

    def _row(self, product: Product) -> tuple[Any, ...]:
        every = product.every
        functions = tuple(self._function(f * every) for f in product.functions)
        powers = tuple(self._power(p) for p in product.powers)
        used = (*product.functions, every, *(e for p in product.powers for e in (p.body, p.offset)))
        any_length = sp.Integer(all(L not in e.free_symbols for e in used))
        return self._number(product.coefficient), functions, self._function(every), powers, any_length

    def _power(self, power: InversePower) -> tuple[Any, ...]:
        return self._number(power.offset), self._function(power.body), power.power

    def _function(self, expr: sp.Expr) -> sp.Symbol:
        found = SignedFunction.of(expr)
        parts = (found.sign, found.log, found.kinks)
        return self._once("token_function", expr, tuple(_renamed(e, self.named) for e in parts))

    def _number(self, expr: sp.Expr) -> sp.Symbol:
        return self._once("token_number", expr, _renamed(expr, self.named))

    def _once(self, kind: str, expr: sp.Expr, returned: Any) -> sp.Symbol:
        """The name of the function of an expression."""
        count = sum(k == kind for k, _ in self.functions) + 1
        if (kind, expr) not in self.functions:
            signature = replace(declared(kind), name=f"{kind}_{count}")
            self.functions[kind, expr] = Function(signature, (self.params,), (), returned)
        return sp.Symbol(self.functions[kind, expr].name)


def _renamed(value: Any, named: Mapping[sp.Symbol, sp.Symbol]) -> Any:
    return tuple(_renamed(v, named) for v in value) if isinstance(value, tuple) else value.xreplace(named)
