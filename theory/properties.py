"""Symbolic properties of an activation; every reduction follows from these, none from a name.

Each property is proved by algebra on token sums with L symbolic. A numerical look at one random point comes first,
so that what is plainly false costs nothing; what can not be proved counts as absent.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from theory.activation import Activation
from theory.nodes import L, TokenSum, X, relu, step

_PROBE_TOKENS = 3
_PROVABLE_SIZE = 400


@dataclass(frozen=True)
class Properties:
    """What the algebra found: row sum (None when it depends on x), shift invariance, element-wise, smooth."""

    row_sum: sp.Expr | None
    shift_invariant: bool
    elementwise: bool
    smooth: bool


def at_tokens(expr: sp.Expr, token: int, scores: Sequence[sp.Expr], values: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """The expression at one token of an explicit sequence of scores."""

    def explicit(node: sp.Expr, score: sp.Expr) -> sp.Expr:
        if isinstance(node, TokenSum):
            return sp.Add(*[explicit(node.args[0], s) for s in scores])
        if node == X:
            return score
        if not node.args:
            return node
        return node.func(*[explicit(a, score) for a in node.args])

    fixed = {L: sp.Integer(len(scores)), **values}
    return explicit(expr.xreplace(fixed), scores[token])


def _probe(expr: sp.Expr) -> float | None:
    """The size of the expression at a random point; None where it can not be evaluated there."""
    rng = random.Random(20250921)
    scores = [sp.Float(rng.uniform(-1.5, 1.5), 30) for _ in range(_PROBE_TOKENS)]
    free = sorted(expr.free_symbols - {X, L}, key=lambda s: s.name)
    values = {s: sp.Float(rng.uniform(0.3, 1.2), 30) for s in free}
    value = sp.N(at_tokens(expr, 0, scores, values), 30)
    return float(abs(value)) if value.is_number and value.is_finite else None


def vanishes(expr: sp.Expr) -> bool:
    """Whether the algebra proves expr = 0 for every L."""
    if expr == 0:
        return True
    size = _probe(expr)
    if size is None or size > 1e-20:
        return False
    for attempt in (sp.expand, sp.cancel, sp.simplify):
        if sp.count_ops(expr) <= _PROVABLE_SIZE and attempt(expr) == 0:
            return True
    return False


def row_sum(expr: sp.Expr) -> sp.Expr | None:
    """sum_l sigma_l when it does not depend on the scores."""
    for form in (expr, sp.expand(expr), sp.together(expr)):
        total = sp.expand(TokenSum(form))
        if not total.has(TokenSum) and X not in total.free_symbols:
            return sp.simplify(total)
    return None


def common_shift_rate(act: Activation) -> sp.Expr:
    """d sigma_l(x + t) / dt at t = 0: zero exactly when sigma is invariant under a common shift of the scores."""
    form = act.token_form()
    bodies: dict[sp.Symbol, sp.Expr] = {}
    rates: dict[sp.Symbol, sp.Expr] = {}
    for symbol, body in form.sums:
        flow = sp.diff(body, X) + sum((sp.diff(body, s) * r for s, r in rates.items()), sp.S.Zero)
        bodies[symbol] = TokenSum(body.xreplace(bodies))
        rates[symbol] = TokenSum(sp.expand(flow.xreplace(bodies)))
    total = sp.diff(form.f, X) + sum((sp.diff(form.f, s) * r for s, r in rates.items()), sp.S.Zero)
    return total.xreplace(bodies)


def properties(act: Activation) -> Properties:
    """All of them, once per activation."""
    return Properties(
        row_sum=row_sum(act.expr),
        shift_invariant=vanishes(common_shift_rate(act)),
        elementwise=not act.expr.has(TokenSum),
        smooth=not act.expr.has(sp.Abs, relu, step),
    )
