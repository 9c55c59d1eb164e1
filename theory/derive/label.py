"""How the label is told from the value field: which average of its law over z*, given w, is at hand.

The replica average runs over w and y with the weight Z(y, mu) = E[P(y | z*) | w], z* being N(mu, s^2) given w. This is
for the values what the weight of the location is for the scores (location.py). A label linear in z* and in the noise
is a Gaussian field and needs no weight. A label that takes few values has the weight of each: closed where a value is
taken on one side of a threshold (`threshold`), else a function of one variable (`chances`). Several lines with a chance
each (`lines`) are Gaussian fields one by one. For any other, z* and the noise are kept beside w (`sampled`).
Where every token has a radius the label sees this times z*: a Gaussian label is a line whose slope is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.language.functions import FOLDED
from replicode.theory.language.nodes import step
from replicode.theory.model import LABEL_NOISE, F, Model, Y

Kind = Literal["field", "threshold", "chances", "lines", "sampled"]


@dataclass(frozen=True)
class Branch:
    """A value of the label, in z* and the noise, and the chance that the label is this one."""

    value: sp.Expr
    chance: sp.Expr


@dataclass(frozen=True)
class LabelLaw:
    """The kind of the label's law and its branches.

    `even`: every branch keeps its law when (z*, noise, y) change sign together. `mirrored`: the second of two branches
    is what the first becomes, so that for an even loss one of them, taken twice, stands for both.
    """

    kind: Kind
    branches: tuple[Branch, ...]
    even: bool
    mirrored: bool

    @property
    def weighted(self) -> bool:
        """Whether the label stays outside the law of the fields."""
        return self.kind != "field"

    @property
    def values(self) -> tuple[sp.Expr, ...] | None:
        """The values of the label, where it has few."""
        return tuple(b.value for b in self.branches) if self.kind in ("threshold", "chances") else None


def even_loss(model: Model) -> bool:
    """Whether the loss keeps its value when y and f change sign together."""
    loss = model.loss
    return bool(sp.simplify(loss - loss.xreplace({Y: -Y, F: -F})) == 0)


@cache
def label_law(model: Model) -> LabelLaw:
    """The kind of a model's label."""
    star = model.values.teacher
    if model.radial:
        return _radial(model)
    if model.label_in_law:
        return LabelLaw("field", (Branch(model.label, sp.S.One),), True, False)
    branches = _branches(model.label, star)
    flip = {star: -star, LABEL_NOISE: -LABEL_NOISE}
    flipped = [Branch(-b.value.xreplace(flip), b.chance.xreplace(flip)) for b in branches]
    even = all(_same(a, b) for a, b in zip(branches, flipped, strict=True))
    mirrored = len(branches) == 2 and not even and _same(branches[1], flipped[0])
    return LabelLaw(_kind(branches, star), branches, even, mirrored and even_loss(model))


def _same(one: Branch, two: Branch) -> bool:
    return all(sp.simplify(a - b) == 0 for a, b in ((one.value, two.value), (one.chance, two.chance)))


def _branches(label: sp.Basic, star: sp.Symbol) -> tuple[Branch, ...]:
    """The pairs that are given, or the two sides of a sign of z* and the noise."""
    if not isinstance(label, sp.Expr):
        return tuple(Branch(*pair) for pair in label.args)
    signs = sorted(label.atoms(sp.sign), key=sp.default_sort_key)
    if len(signs) != 1 or line(signs[0].args[0], star) is None:
        return (Branch(label, sp.S.One),)
    side = signs[0].args[0]
    return tuple(Branch(label.xreplace({signs[0]: sp.Integer(s)}), step(s * side)) for s in (1, -1))


def _radial(model: Model) -> LabelLaw:
    """With a radius to every token: one Gaussian label is what is taken."""
    model.label_sources()
    return LabelLaw("lines", (Branch(model.label, sp.S.One),), True, False)


def _kind(branches: tuple[Branch, ...], star: sp.Symbol) -> Kind:
    free = {star, LABEL_NOISE}
    if all(not b.value.free_symbols & free for b in branches):
        if all(isinstance(b.chance, step) and line(b.chance.args[0], star) for b in branches):
            return "threshold"
        if all(not b.chance.has(LABEL_NOISE, step, sp.sign) for b in branches):
            return "chances"
        raise Refusal("label: the chances of its values are those of a threshold, or smooth functions of z")
    if all(line(b.value, star) and not b.chance.free_symbols & free for b in branches):
        return "lines"
    if any(b.value.has(sp.sign, step) for b in branches):
        raise Refusal("label: one sign, of an expression linear in z and xi, is what can be averaged over")
    return "sampled"


def line(expr: sp.Expr, star: sp.Symbol) -> tuple[sp.Expr, sp.Expr, sp.Expr] | None:
    """The a, b, c of a z* + b + c noise, or None."""
    a, c = sp.diff(expr, star), sp.diff(expr, LABEL_NOISE)
    b = sp.expand(expr - a * star - c * LABEL_NOISE)
    return None if any(e.has(star, LABEL_NOISE) for e in (a, b, c)) else (a, b, c)


def label_kinks(label: LabelLaw, model: Model) -> tuple[sp.Expr, ...]:
    """The z* at which a sampled label has a kink, where these are numbers."""
    star = model.values.teacher
    folded = {node.args[0] for b in label.branches for node in b.value.atoms(*FOLDED) if label.kind == "sampled"}
    found = [at for e in folded if (at := line(e, star)) and at[2] == 0 and at[0].is_number and at[1].is_number]
    return tuple(sorted({-b / a for a, b, _ in found if a != 0}))


def own_noise(label: LabelLaw, model: Model) -> tuple[sp.Expr, sp.Expr]:
    """Of a sampled label the coefficient of a noise that f may take, and the c of one that sees z* + c xi alone.

    The first where the label adds it and the loss sees y - f.
    """
    star = model.values.teacher
    if label.kind != "sampled" or not any(e.has(LABEL_NOISE) for b in label.branches for e in (b.value, b.chance)):
        return sp.S.Zero, sp.S.Zero
    slopes = [(sp.diff(b.value, LABEL_NOISE), sp.diff(b.value, star)) for b in label.branches]
    added, joined = {sp.simplify(n) for n, _ in slopes}, {sp.simplify(n / z) if z != 0 else sp.nan for n, z in slopes}
    known = not any(b.chance.has(LABEL_NOISE) for b in label.branches)
    for found, fits in ((added, model.translated), (joined, not any(b.chance.has(star) for b in label.branches))):
        (rate, *others) = found
        if known and fits and not others and rate.is_finite is not False and not rate.has(star, LABEL_NOISE):
            return (rate, sp.S.Zero) if found is added else (sp.S.Zero, rate)
    raise Refusal(f"label {model.label}: descent takes one whose noise is added to it, or to z* inside of it")
