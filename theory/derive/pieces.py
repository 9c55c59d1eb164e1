"""The envelope of a convex loss that is a polynomial of degree two or less between its kinks.

A loss of y - f, or of the product y f with y = 1 or -1, is one function phi(t) of a variable that moves with f. Between
the kinks k_1 < k_2 < .. of phi its pieces have slopes b_i + a_i t. The slope s of the envelope grows with the field T:
(b_i + a_i T)/(1 + a_i tau) where the prox lies inside piece i, and (T - k_j)/tau where it rests on the kink k_j, while
s goes from the slope left of the kink to that right of it. So s is a sum of parts, each held between its two ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.language.functions import FOLDED, branch
from replicode.theory.language.nodes import step
from replicode.theory.model import F, Model, Y

_T = sp.Symbol("t", real=True)


@dataclass(frozen=True)
class Piece:
    """phi on one piece: from where to where, and the b, a of its slope b + a t."""

    low: sp.Expr
    high: sp.Expr
    b: sp.Expr
    a: sp.Expr

    def slope(self, at: sp.Expr) -> sp.Expr:
        """phi' at a point; at an infinite end, its limit."""
        return self.b if self.a == 0 else self.b + self.a * at


@cache
def pieces(model: Model) -> tuple[Piece, ...]:
    """The pieces of phi, those joined that go on without a change."""
    phi = _one_variable(model)
    points = [-sp.oo, *_kinks(phi), sp.oo]
    found: list[Piece] = []
    for low, high in pairwise(points):
        b, a = _line(_between(phi, low, high), model)
        if found and (found[-1].b, found[-1].a) == (b, a):
            low = found.pop().low
        found.append(Piece(low, high, b, a))
    for left, right in pairwise(found):
        if left.slope(left.high) > right.slope(right.low) or min(left.a, right.a) < 0:
            raise Refusal(f"loss {model.loss}: one with kinks must be convex")
    return tuple(found)


def loss_kinks(model: Model) -> tuple[sp.Expr, ...]:
    """The kinks of the loss in f - y, or in the product y f: none of a loss that is smooth in f."""
    return tuple(_kinks(_one_variable(model))) if model.loss.has(*FOLDED) else ()


def jumps(model: Model) -> bool:
    """Whether the slope of the loss jumps at a kink."""
    found = pieces(model)
    return any(left.slope(left.high) != right.slope(right.low) for left, right in pairwise(found))


def envelope_slopes(model: Model, u: sp.Symbol, tau: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """s = de/dU and its own slope in U."""
    sign, field = (sp.S.One, u - Y) if model.translated else (Y, Y * u)
    slope, stiffness = sp.S.Zero, sp.S.Zero
    for value, rate, low, high in _parts(model, field, tau):
        start = sp.S.Zero if low == -sp.oo else low
        slope += _held(value, low, high) - start
        stiffness += rate * _inside(value, low, high)
    first = _parts(model, field, tau)[0][2]
    return sign * (slope + (sp.S.Zero if first == -sp.oo else first)), stiffness


def _parts(model: Model, field: sp.Expr, tau: sp.Expr) -> list[tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr]]:
    """Each part of s, its slope in the field, and the ends between which it is held."""
    found = pieces(model)
    parts = []
    for i, piece in enumerate(found):
        low, high = piece.slope(piece.low), piece.slope(piece.high)
        rate = piece.a / (1 + piece.a * tau)
        if low != high:
            parts.append(((piece.b + piece.a * field) / (1 + piece.a * tau), rate, low, high))
        if i + 1 < len(found) and high != (after := found[i + 1].slope(piece.high)):
            parts.append(((field - piece.high) / tau, 1 / tau, high, after))
    if not parts:
        raise Refusal(f"loss {model.loss}: it does not depend on f, or not enough for a minimum")
    return parts


def _held(value: sp.Expr, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    value = value if low == -sp.oo else sp.Max(value, low, evaluate=False)
    return value if high == sp.oo else sp.Min(value, high, evaluate=False)


def _inside(value: sp.Expr, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    below = sp.S.One if low == -sp.oo else step(value - low)
    return below - (sp.S.Zero if high == sp.oo else step(value - high))


def _one_variable(model: Model) -> sp.Expr:
    if model.translated:
        return model.loss.subs({Y: 0, F: _T})
    if model.margin:
        return model.loss.subs({Y: 1, F: _T})
    raise Refusal(f"loss {model.loss}: one with kinks must be a function of y - f, or of the product y f")


def _line(phi: sp.Expr, model: Model) -> tuple[sp.Expr, sp.Expr]:
    phi = sp.expand(phi)
    if not phi.is_polynomial(_T) or sp.degree(phi, _T) > 2:
        raise Refusal(f"loss {model.loss}: one with kinks must be a polynomial of degree two between them")
    slope = sp.diff(phi, _T)
    return slope.subs(_T, 0), sp.diff(slope, _T)


def _kinks(phi: sp.Expr) -> list[sp.Expr]:
    """All points at which the argument of a kinked function is zero."""
    points: set[sp.Expr] = set()
    for node in phi.atoms(*FOLDED):
        inner = node.args[0]
        edges = [-sp.oo, *_kinks(inner), sp.oo]
        for low, high in pairwise(edges):
            part = sp.expand(_between(inner, low, high))
            if part.is_polynomial(_T) and part.has(_T):
                points |= {r for r in sp.real_roots(sp.Poly(part, _T)) if low <= r <= high}
    return sorted(points)


def _between(expr: sp.Expr, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    """The expression with every kinked function on the side on which it is between two kinks."""
    if not expr.has(*FOLDED):
        return expr
    inside = _middle(low, high)
    rebuilt = [_between(a, low, high) for a in expr.args]
    if not isinstance(expr, FOLDED):
        return expr.func(*rebuilt)
    return branch(expr.func(rebuilt[0], evaluate=False), 1 if rebuilt[0].subs(_T, inside) > 0 else -1)


def _middle(low: sp.Expr, high: sp.Expr) -> sp.Expr:
    if low == -sp.oo and high == sp.oo:
        return sp.Rational(1, 7)
    if low == -sp.oo:
        return high - 1
    return low + 1 if high == sp.oo else (low + high) / 2
