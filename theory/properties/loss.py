"""What is true of a loss in (y, f): whether it is smooth in f, whether it is convex, which labels it can take."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import sympy as sp

from replicode.theory.derive.label import label_law
from replicode.theory.errors import InputError
from replicode.theory.language.functions import KINKED
from replicode.theory.model import F, Model, Y

_OUTPUTS = tuple(sp.Rational(k, 4) * abs(k) for k in range(-14, 15))
_LABELS = tuple(map(sp.Rational, (-3, -1, "-1/3", 0, "2/5", 1, 4)))


def is_smooth(loss: sp.Expr) -> bool:
    """Whether the loss has no kinks in f."""
    kinked = [node for node in loss.atoms(*KINKED) if node.has(F)]
    roots = [p for p in loss.atoms(sp.Pow) if p.base.has(F) and not p.exp.is_integer and not p.base.is_positive]
    return not kinked and not roots


@cache
def is_convex(model: Model) -> bool:
    """Whether the loss is convex in f, by its second differences at many points for each label that occurs."""
    values = label_law(model).values
    return all(_convex_at(model.loss.subs(Y, y)) for y in (_LABELS if values is None else values))


def _convex_at(loss: sp.Expr) -> bool:
    found = [loss.subs(F, u).evalf(30) for u in _OUTPUTS]
    if not all(v.is_real for v in found):
        raise InputError("loss", loss, "a real and finite function of every f")
    rates = [(b - a) / (v - u) for a, b, u, v in zip(found, found[1:], _OUTPUTS, _OUTPUTS[1:])]
    return all(late - early > -1e-15 * (1 + abs(late)) for early, late in pairwise(rates))


def check_labels(model: Model, told: str) -> None:
    """A loss of the product y f asks for the labels 1 and -1; `told` is how the labels were named."""
    values = label_law(model).values
    if model.margin and (values is None or set(values) != {sp.S.One, sp.S.NegativeOne}):
        raise InputError("labels", told, "labels of the two values 1 and -1, as sign or logit:GAMMA: the loss sees y f")
