"""Losses and labels by name or as text: what is learned, as a `Model`.

A name stands for a text of theory/registry.py, with a number after a colon for each of its parameters (`huber:1.5`);
any other text is an expression of the language, in y and f for a loss, in z and xi for a label. Nothing that the user
types is ever evaluated as code. What does not go together is refused here, before any work is done.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from difflib import get_close_matches
from functools import lru_cache
from itertools import product

import sympy as sp

from replicode.theory.derive.label import line
from replicode.theory.errors import InputError
from replicode.theory.language import Vocabulary, parse
from replicode.theory.model import DEFAULT_MODEL, LABEL_NOISE, NOISE, F, Model, Y
from replicode.theory.properties.loss import check_labels, is_convex
from replicode.theory.registry import LABELS, LOSSES, Named

_DRAWN = tuple(map(sp.Rational, (-3, -1, "-1/3", 0, "2/5", 1, 3)))
_FAR = (sp.Integer(20), sp.Integer(40))
_Z, _XI = sp.Symbol("z", real=True), sp.Symbol("xi", real=True)
_PARAMETERS = {name: sp.Symbol(name, real=True) for n in (*LOSSES.values(), *LABELS.values()) for name in n.parameters}
_LOSS = {"y": Y, "f": F}
_LABEL = {"z": _Z, "xi": _XI, "noise": NOISE}
LOSS_WORDS = Vocabulary.of(_LOSS, "y (the label), f (the output)")
LABEL_WORDS = Vocabulary.of(
    _LABEL, "z (the hidden token's value), xi (a standard normal), noise (what --noise says)", sign=sp.sign
)
_REGISTERED_LOSS = Vocabulary.of({**_LOSS, **_PARAMETERS}, "")
_REGISTERED_LABEL = Vocabulary.of({**_LABEL, **_PARAMETERS}, "", sign=sp.sign)


@lru_cache(maxsize=256)
def model_of(loss: str = "quadratic", labels: str = "gaussian") -> Model:
    """The model of a loss and of labels given as text; the default one where both are the defaults."""
    label, cost = label_of(labels), loss_of(loss)
    _check_label(label, labels)
    if (label, cost) == (DEFAULT_MODEL.label, DEFAULT_MODEL.loss):
        return DEFAULT_MODEL
    model = Model(label=label, loss=cost)
    check_labels(model, labels)
    _check_loss(model, loss)
    return model


def loss_of(text: str) -> sp.Expr:
    """The expression of a loss, in y and f."""
    found = _named("loss", text, LOSSES, _LOSS)
    expr = parse(text, "loss", LOSS_WORDS) if found is None else _filled(found, "loss", _REGISTERED_LOSS)[0]
    if not expr.has(F) or not expr.has(Y):
        raise InputError("loss", text, "an expression that depends on the label y and the output f")
    return expr


def label_of(text: str) -> sp.Basic:
    """The label, in z and xi; or pairs of values and chances."""
    found = _named("labels", text, LABELS, _LABEL)
    parts = [parse(text, "labels", LABEL_WORDS)] if found is None else _filled(found, "labels", _REGISTERED_LABEL)
    named = {_Z: DEFAULT_MODEL.values.teacher, _XI: LABEL_NOISE}
    placed = [p.xreplace(named) for p in parts]
    if len(placed) == 1 and not placed[0].has(*named.values()):
        raise InputError("labels", text, "an expression that depends on z or xi")
    return placed[0] if len(placed) == 1 else sp.Tuple(*[sp.Tuple(*pair) for pair in zip(placed[::2], placed[1::2])])


Filled = tuple[Named, dict[sp.Symbol, sp.Expr]]


def _named(argument: str, text: str, table: dict[str, Named], words: Collection[str]) -> Filled | None:
    """The registered name with its numbers, or None for an expression."""
    if not isinstance(text, str):
        raise InputError(argument, text, "a name, or an expression as text")
    name, *given = (part.strip() for part in text.split(":"))
    if name not in table:
        known = ", ".join(":".join([n, *(p.upper() for p in found.parameters)]) for n, found in table.items())
        if given or (name.isidentifier() and name not in words):
            near = get_close_matches(name, table, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise InputError(argument, text, f"{known}, or an expression in {', '.join(words)}{meant}")
        return None
    found = table[name]
    if len(given) != len(found.parameters):
        raise InputError(argument, text, ":".join([name, *(p.upper() for p in found.parameters)]))
    return found, {_PARAMETERS[p]: _number(argument, text, p, t, found) for p, t in zip(found.parameters, given)}


def _number(argument: str, text: str, parameter: str, given: str, found: Named) -> sp.Rational:
    low, high = found.ranges[found.parameters.index(parameter)]
    allowed = f"a number {parameter.upper()} from {low:g} to {high:g}"
    try:
        value = float(given)
    except ValueError:
        raise InputError(argument, text, allowed) from None
    if not low <= value <= high:
        raise InputError(argument, text, allowed)
    return sp.Rational(repr(value))


def _filled(found: Filled, argument: str, words: Vocabulary) -> list[sp.Expr]:
    named, numbers = found
    return [parse(text, argument, words).xreplace(numbers) for text in named.texts]


def _check_label(label: sp.Basic, text: str) -> None:
    """A label is real and has a second moment; one that is Gaussian has noise of its own, and depends on z."""
    star = DEFAULT_MODEL.values.teacher
    if not isinstance(label, sp.Expr):
        return
    value, constant, own = line(label, star) or (star, sp.S.One, LABEL_NOISE)
    if value == 0:
        raise InputError("labels", text, "an expression that depends on z: nothing is learned from noise alone")
    if own == constant == 0:
        raise InputError("labels", text, f"one with noise, as in {text} + noise*xi, which --noise 0 takes away")
    if value.has(NOISE):
        raise InputError("labels", text, "one in which noise is a factor of xi alone")
    drawn = label.xreplace({NOISE: sp.S.Half})
    _check_real("labels", text, drawn, {"z": star, "xi": LABEL_NOISE})
    _check_moment("labels", text, drawn**2, (star, LABEL_NOISE))


def _check_real(argument: str, text: str, expr: sp.Expr, named: dict[str, sp.Symbol]) -> None:
    """Real and finite on a grid of its two variables."""
    for at in product(_DRAWN, repeat=len(named)):
        found = expr.xreplace(dict(zip(named.values(), at))).evalf(15)
        if not (found.is_real and found.is_finite):
            where = ", ".join(f"{name} = {value}" for name, value in zip(named, at))
            raise InputError(argument, text, f"a real and finite expression, which it is not at {where}")


def _check_moment(argument: str, text: str, expr: sp.Expr, variables: tuple[sp.Symbol, ...]) -> None:
    """Its average over Gaussian variables is finite: along none of them it grows like the inverse density."""
    for variable, sign in product(variables, (1, -1)):
        others = dict.fromkeys(variables, sp.S.One)
        near, far = (_log_size(expr.xreplace(others | {variable: sign * size})) for size in _FAR)
        if not far - near < (_FAR[1] ** 2 - _FAR[0] ** 2) / 2:
            name = {DEFAULT_MODEL.values.teacher: _Z, LABEL_NOISE: _XI}.get(variable, variable)
            raise InputError(argument, text, f"one with a finite average: it grows too fast in {name}")


def _log_size(expr: sp.Expr) -> float:
    """log(1 + |expr|) of a number, infinite where it is too large to be computed."""
    try:
        return float(sp.log(1 + abs(expr)).evalf(15))
    except (ArithmeticError, TypeError):
        return math.inf


def _check_loss(model: Model, text: str) -> None:
    """A loss has an average. Where it is not convex, its value, not negative, bounds the distance that is searched."""
    _check_real("loss", text, model.loss, _LOSS)
    _check_moment("loss", text, model.loss, (Y, F))
    if is_convex(model):
        return
    for y in (-3, -1, sp.Rational(1, 3), 1, 3):
        for f in (-30, -3, -1, sp.Rational(-1, 3), 0, sp.Rational(1, 2), 1, 3, 30):
            if model.loss.subs({Y: y, F: f}).evalf() < 0:
                where = f"as it is at y = {y}, f = {f}"
                raise InputError("loss", text, f"an expression that is convex in f, or never negative, {where}")
