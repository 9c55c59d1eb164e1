"""Whether an activation is real and finite on R^L and its Gaussian averages exist; if not, a witness point.

A spot check at fixed points, not a proof: it catches what is undefined on an open set (log(x), sqrt(x)), at the
origin (1/x), or grows like exp(x^2), before any quadrature meets it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import sympy as sp

from theory.activation import Activation
from theory.errors import InputError
from theory.nodes import L
from theory.properties import at_tokens

_GROWTH_PROBE = 10**4
_LARGEST_GROWTH = sp.Rational(1, 100)


def check_domain(act: Activation) -> None:
    """Raise InputError with a witness where the activation is not real and finite, or grows too fast."""
    for scores in _probes():
        value = _value(act, scores)
        if not (value.is_number and value.is_real and value.is_finite):
            shown = ", ".join(f"{float(s):g}" for s in scores)
            allowed = f"an activation that is real and finite on R^L; at scores ({shown}) it is {sp.N(value, 4)}"
            raise InputError("activation", act.text, allowed)
    for sign in (1, -1):
        scores = [sp.Integer(sign * _GROWTH_PROBE), sp.S.Zero, sp.S.One]
        size = abs(_value(act, scores))
        if size.is_finite and size > 1 and sp.log(size) > _LARGEST_GROWTH * _GROWTH_PROBE**2:
            allowed = "an activation whose Gaussian averages exist: it grows at most like exp(x), not like exp(x**2)"
            raise InputError("activation", act.text, f"{allowed} (seen at score {scores[0]})")


def _value(act: Activation, scores: Sequence[sp.Expr]) -> sp.Expr:
    known = {**act.defaults, **act.values}
    values = {sp.Symbol(p, real=True): sp.Float(known.get(p, 0.7), 30) for p in act.parameters}
    return sp.N(at_tokens(act.expr, 0, scores, {L: sp.Integer(len(scores)), **values}), 20)


def _probes() -> list[list[sp.Expr]]:
    rng = random.Random(41537)
    origin: list[list[sp.Expr]] = [[sp.S.Zero] * 3]
    scales = (0.3, 1.0, 3.0, 10.0)
    return origin + [[sp.Float(rng.gauss(0.0, s), 20) for _ in range(3)] for s in scales for _ in range(4)]
