"""How the hidden location is told from the scores: which average of the weight g over chi*, given w, is at hand.

The replica average runs over w with the weight gbar(w) = E[g(eps, chi*) | w]. A log-weight quadratic in the hidden
token's score goes into the law of the fields. One of that score alone leaves a function of one variable. One that is
normalised over the locations is a softmax of the tokens' own log-weights: where these are linear it is the law of the
largest of chi* plus Gumbel noise, so that gbar is one integral over the winner's noise; else chi* is kept beside w, and
so it is where every token has a radius, which multiplies the score that the weight sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import sympy as sp

from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.nodes import TokenSum, X
from replicode.theory.language.task import Task
from replicode.theory.properties.symbolic import kinked_arguments

Kind = Literal["gaussian", "own", "ranked", "normalised", "radial", "coupled"]


@dataclass(frozen=True)
class Location:
    """The kind of weight, the hidden token's own log-weight with its slope in x, and the sign of the limit nu -> inf.

    `hard` is +1 (-1) where the hidden token becomes the one of the largest (smallest) score, and 0 without a limit.
    """

    kind: Kind
    own: sp.Expr
    slope: sp.Expr
    hard: int

    @property
    def weighted(self) -> bool:
        """Whether the weight stays outside the law of the fields."""
        return self.kind != "gaussian"


def location(setting: Task) -> Location:
    """The kind of a task's weight; a refusal where none of the reductions applies."""
    own, slope = setting.own, sp.diff(setting.own, X)
    return Location(_kind(setting, own, slope), own, slope, _hard(setting))


def radial_location(setting: Task) -> Location:
    """The same where every token has a radius: a weight that changes the scores' law changes that of the radii."""
    found = location(setting)
    if found.kind not in ("ranked", "normalised"):
        raise Refusal(
            f"radii: the weight of task {setting.text} tilts the law of the radii; take one whose weights add up to "
            "the same for all scores, such as max"
        )
    return replace(found, kind="radial")


def any_location(setting: Task) -> Location:
    """For averages that take the weight at the teacher's scores as it stands: of any shape, with kinks or without."""
    own, slope = setting.own, sp.diff(setting.own, X)
    alone = not setting.log_weight.has(TokenSum)
    normalised = setting.scores_unweighted and not own.has(TokenSum)
    kind: Kind = "gaussian" if setting.gaussian else "own" if alone else "normalised" if normalised else "coupled"
    return Location(kind, own, slope, _hard(setting))


def nowhere() -> Location:
    """Where no score is seen the location does not matter: no weight at all."""
    return Location("gaussian", sp.S.Zero, sp.S.Zero, 0)


def _kind(setting: Task, own: sp.Expr, slope: sp.Expr) -> Kind:
    if setting.gaussian:
        return "gaussian"
    if kinked_arguments(own):
        raise Refusal(f"task {setting.text}: its log-weight has kinks, which the averages over chi* do not resolve")
    if not setting.log_weight.has(TokenSum):
        return "own"
    if own.has(TokenSum) or not setting.scores_unweighted:
        raise Refusal(f"task {setting.text}: its weight couples the scores and is not normalised over the locations")
    return "normalised" if X in slope.free_symbols else "ranked"


def _hard(setting: Task) -> int:
    try:
        return setting.hard_limit()
    except InputError:
        return 0
