"""Kinks at known points of the token's own score: where they are, and the activation in nodes that differentiate.

`kink_points` hands on the points, expressions in the parameters; whatever is not smooth in any other way is refused.
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.language import unparse
from replicode.theory.language.activation import Activation, TokenForm
from replicode.theory.language.functions import FOLDED, branch
from replicode.theory.language.nodes import TokenSum, X, relu
from replicode.theory.properties.symbolic import kinked_arguments

_SOLVED = "kinks are solved for where they are those of abs and relu of something linear in the token's own score"


def kink_points(act: Activation) -> tuple[sp.Expr, ...]:
    """The scores at which sigma has a kink, none where it is smooth; refused where that is not all there is to it."""
    arguments = kinked_arguments(act.expr)
    folded = {node.args[0] for node in act.expr.atoms(*FOLDED)}
    points: list[sp.Expr] = []
    for argument in arguments:
        slope = sp.diff(argument, X)
        if argument not in folded or argument.has(TokenSum) or slope == 0 or X in slope.free_symbols:
            raise Refusal(f"{act.text} has kinks where {unparse(argument)} = 0: {_SOLVED}")
        points.append(sp.expand(-(argument - slope * X) / slope))
    found = tuple(dict.fromkeys(points))
    form = act.token_form()
    for point in found:
        if not _continuous(form, point):
            raise Refusal(f"{act.text} jumps, or has no finite slope or curvature, at x = {unparse(point)}: {_SOLVED}")
    return found


def piecewise(act: Activation) -> Activation:
    """The same with |u| = 2 relu(u) - u, whose second derivative leaves nothing on the kink."""
    kink_points(act)
    arguments = set(kinked_arguments(act.expr))
    return replace(act, expr=act.expr.replace(sp.Abs, lambda u: 2 * relu(u) - u if u in arguments else sp.Abs(u)))


def _continuous(form: TokenForm, point: sp.Expr) -> bool:
    """Whether f and the bodies of its sums have, at the point, one value, and finite derivatives on both sides."""
    for expr in (form.f, *(body for _, body in form.sums)):
        sides = [_side(expr, point, sign) for sign in (1, -1)]
        values = [side.xreplace({X: point}) for side in sides]
        rates = [sp.diff(side, X, order).xreplace({X: point}) for side in sides for order in (1, 2)]
        if any(v.has(sp.nan, sp.zoo, sp.oo, -sp.oo) for v in (*values, *rates)):
            return False
        if sp.simplify(values[0] - values[1]) != 0:
            return False
    return True


def _side(expr: sp.Expr, point: sp.Expr, sign: int) -> sp.Expr:
    """The expression as it is on one side of the point: sign is that of x less the point."""

    def sided(kink: sp.Expr) -> sp.Expr:
        u = kink.args[0]
        if sp.simplify(u.xreplace({X: point})) != 0 or X not in u.free_symbols:
            return kink
        up = sign * sp.diff(u, X)  # a slope of unknown sign: both of its branches are tried, as sign is
        positive = not up.is_negative if up.is_number else sign > 0
        return branch(kink, 1 if positive else -1)

    return expr.replace(lambda e: isinstance(e, FOLDED), sided)
