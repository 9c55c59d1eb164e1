"""The Nishimori condition: an activation that can become the posterior of the hidden location.

If a sigma(c chi) = g / sum g identically, attention with k = c k* and v along v* is the Bayes estimator. The factor c
is read off the first Taylor coefficient at equal scores in which the two log-ratios can differ; the identity itself
is then proved by algebra on token sums, for every L.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import X
from replicode.theory.language.task import Task
from replicode.theory.properties.symbolic import at_tokens, row_sum, vanishes

_LARGEST_ORDER = 4


@dataclass(frozen=True)
class NishimoriCondition:
    """a sigma(c chi) = g / sum g, identically in the scores."""

    a: sp.Expr
    c: sp.Expr


def nishimori(act: Activation, setting: Task) -> NishimoriCondition | None:
    """The factors a and c of the condition, None when it does not hold (L >= 2)."""
    total = row_sum(act.expr)
    if total is None or total == 0:
        return None
    for c in _candidate_factors(act.expr, setting.posterior):
        if vanishes(act.expr.xreplace({X: c * X}) / total - setting.posterior):
            return NishimoriCondition(1 / total, c)
    return None


def _candidate_factors(sigma: sp.Expr, posterior: sp.Expr) -> tuple[sp.Expr, ...]:
    """The c for which log sigma_1 - log sigma_2 at (c x, 0) can equal the posterior's log-ratio at (x, 0)."""
    for order in range(1, _LARGEST_ORDER + 1):
        wanted, given = (_taylor_coefficient(expr, order) for expr in (posterior, sigma))
        if wanted is None or given is None:
            return ()
        if wanted == 0 and given == 0:
            continue
        if wanted == 0 or given == 0:
            return ()
        root = sp.root(sp.simplify(wanted / given), order)
        return (root,) if order % 2 else (root, -root)
    return ()


def _taylor_coefficient(expr: sp.Expr, order: int) -> sp.Expr | None:
    """The derivative of log expr_1 - log expr_2 in the first of two scores, at scores zero."""
    score = sp.Symbol("score", real=True)
    ratio = at_tokens(expr, 0, (score, sp.S.Zero), {}) / at_tokens(expr, 1, (score, sp.S.Zero), {})
    rate = sp.diff(ratio, score) / ratio
    value = sp.simplify(sp.diff(rate, score, order - 1).subs(score, 0))
    return value if value.is_finite is not False else None
