"""Derivatives of functions of token sums, staged: gradient, and Hessians as diagonal plus few outer products.

The channel's loss is Lambda(T_1..T_p) with T_c = sum_l t_c(x_l, w_l; T_1..T_{c-1}). For any number of tokens, its
Hessian blocks in (x, w) are diag + sum of outer products of token vectors; no L x L expression is ever expanded.
The result is a list of `Definition`s, in order of evaluation, of three kinds: a scalar, a token vector, or a sum of a
token expression over the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import sympy as sp

from replicode.theory.language.nodes import W, X

Kind = Literal["scalar", "token", "sum", "max"]


@dataclass(frozen=True)
class Definition:
    """symbol := expr, with the tokens summed (or maximised) over for the kinds sum and max."""

    symbol: sp.Symbol
    kind: Kind
    expr: sp.Expr


@dataclass(frozen=True)
class OuterProducts:
    """The matrix diag(diagonal)_ij + sum_p left_p(i) right_p(j)."""

    diagonal: sp.Expr
    outers: tuple[tuple[sp.Expr, sp.Expr], ...]


@dataclass(frozen=True)
class StagedDerivatives:
    """Everything the solver needs of Lambda: definitions in order, gradient in x and w, Hessian blocks."""

    value_definitions: tuple[Definition, ...]
    gradient_definitions: tuple[Definition, ...]
    hessian_definitions: tuple[Definition, ...]
    value: sp.Expr
    gradient_x: sp.Expr
    gradient_w: sp.Expr
    hessian_xx: OuterProducts
    hessian_xw: OuterProducts
    hessian_ww: OuterProducts


class _Stage:
    """Collects definitions, passing numbers and bare symbols through, and proportional sums by their multiple."""

    def __init__(self, sums: Sequence[tuple[sp.Symbol, sp.Expr]]) -> None:
        self.definitions = [Definition(s, "sum", b) for s, b in sums]
        self.known_sums: dict[sp.Expr, tuple[sp.Symbol, sp.Expr]] = {}
        for symbol, body in sums:
            coefficient, tokens = body.as_independent(X, W, as_Add=False)
            self.known_sums.setdefault(tokens, (symbol, coefficient))

    def define(self, name: str, kind: Kind, expr: sp.Expr) -> sp.Expr:
        if expr == 0 or (kind != "sum" and (expr.is_Number or expr.is_Symbol)):
            return expr
        symbol = sp.Symbol(name, real=True)
        if kind == "sum":
            coefficient, tokens = expr.as_independent(X, W, as_Add=False)
            if tokens in self.known_sums:
                known, factor = self.known_sums[tokens]
                if _divides(factor, coefficient):
                    return coefficient * (known / factor)
            self.known_sums.setdefault(tokens, (symbol, coefficient))
        self.definitions.append(Definition(symbol, kind, expr))
        return symbol

    def take(self) -> tuple[Definition, ...]:
        taken, self.definitions = tuple(self.definitions), []
        return taken


def _divides(factor: sp.Expr, coefficient: sp.Expr) -> bool:
    """Whether coefficient / factor neither divides by what could vanish elsewhere nor brings in an exponential."""

    def divisors(expr: sp.Expr) -> set[sp.Expr]:
        pairs = [f.as_base_exp() for f in sp.Mul.make_args(expr) if not isinstance(f, sp.exp)]
        return {base for base, power in pairs if not base.is_number and not power.is_nonnegative}

    ratio = coefficient / factor
    exponentials = [f for f in sp.Mul.make_args(ratio) if isinstance(f, sp.exp)]
    return not exponentials and divisors(ratio) <= divisors(coefficient)


def staged_derivatives(
    sums: Sequence[tuple[sp.Symbol, sp.Expr]],
    value: sp.Expr,
    derivative: Callable[..., sp.Expr] | None = None,
) -> StagedDerivatives:
    """Gradient and Hessian blocks of value(T_1..T_p) in the token variables X and W, by the chain rule.

    `derivative` has the derivatives of the value in the sums where these are not those of its expression.
    """
    by_sums = derivative or (lambda *by: sp.diff(value, *by))
    symbols = [s for s, _ in sums]
    bodies = [b for _, b in sums]
    count = len(sums)
    stage = _Stage(sums)
    value_definitions = stage.take()

    inner = {
        (d, c): stage.define(f"K_{d + 1}{c + 1}", "sum", sp.diff(bodies[d], symbols[c]))
        for d in range(count)
        for c in range(d)
    }
    adjoint: list[sp.Expr] = [sp.S.Zero] * count
    for c in reversed(range(count)):
        flow = sum((adjoint[d] * inner[d, c] for d in range(c + 1, count)), sp.S.Zero)
        adjoint[c] = stage.define(f"A_{c + 1}", "scalar", by_sums(symbols[c]) + flow)

    def contracted(*by: sp.Symbol) -> sp.Expr:
        return sum((adjoint[c] * sp.diff(bodies[c], *by) for c in range(count)), sp.S.Zero)

    gradient_x, gradient_w = contracted(X), contracted(W)
    gradient_definitions = stage.take()

    second = {
        (d, c, e): stage.define(f"K_{d + 1}{c + 1}{e + 1}", "sum", sp.diff(bodies[d], symbols[c], symbols[e]))
        for d in range(count)
        for c in range(d)
        for e in range(d)
        if e <= c
    }
    curvature = {
        (c, d): stage.define(f"B_{c + 1}{d + 1}", "scalar", by_sums(symbols[c], symbols[d]))
        for c in range(count)
        for d in range(c + 1)
    }

    def sum_rates(v: sp.Symbol) -> list[sp.Expr]:
        """dT_c / dv_j as token vectors."""
        rates: list[sp.Expr] = []
        for c in range(count):
            flow = sum((inner[c, e] * rates[e] for e in range(c)), sp.S.Zero)
            rates.append(stage.define(f"b{v.name}_{c + 1}", "token", sp.diff(bodies[c], v) + flow))
        return rates

    def adjoint_rates(v: sp.Symbol, rates: list[sp.Expr]) -> list[sp.Expr]:
        """dA_c / dv_j as token vectors."""
        found: list[sp.Expr] = [sp.S.Zero] * count
        for c in reversed(range(count)):
            total = sum((curvature[max(c, d), min(c, d)] * rates[d] for d in range(count)), sp.S.Zero)
            for d in range(c + 1, count):
                total += found[d] * inner[d, c]
                mixed = sp.diff(bodies[d], v, symbols[c])
                mixed += sum((second[d, max(c, e), min(c, e)] * rates[e] for e in range(d)), sp.S.Zero)
                total += adjoint[d] * mixed
            found[c] = stage.define(f"a{v.name}_{c + 1}", "token", total)
        return found

    rates = {v: sum_rates(v) for v in (X, W)}
    moved = {v: adjoint_rates(v, rates[v]) for v in (X, W)}

    def block(u: sp.Symbol, v: sp.Symbol) -> OuterProducts:
        pairs = [(sp.diff(bodies[c], u), moved[v][c]) for c in range(count)]
        pairs += [(contracted(u, symbols[c]), rates[v][c]) for c in range(count)]
        return OuterProducts(contracted(u, v), tuple((a, b) for a, b in pairs if a != 0 and b != 0))

    hessians = [block(X, X), block(X, W), block(W, W)]
    return StagedDerivatives(
        value_definitions, gradient_definitions, stage.take(), value, gradient_x, gradient_w, *hessians
    )
