"""Tasks: the law of the hidden location, given as a log-weight log g of the teacher scores.

log g(eps, chi*) is an expression in x = chi*_eps, token sums over all scores, L and nu. The engine normalises the
weight itself, so a constant in it is immaterial. What the rest asks of a task is here: the part that belongs to the
hidden token, the posterior of the location, and whether the scores stay Gaussian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import sympy as sp

from replicode.theory.calculus.expansion import expanded
from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.laws import gaussian_from_log_weight, is_quadratic
from replicode.theory.language import check_names, parse, unparse
from replicode.theory.language.nodes import L, TokenSum, X
from replicode.theory.lengths import Lengths
from replicode.theory.model import NU
from replicode.theory.properties.symbolic import at_tokens, row_sum
from replicode.theory.registry import TASKS, Registered

_FAR = 1000
_FEW = 3


@dataclass(frozen=True)
class Task:
    """log g as an expression in x, the hidden token's score chi*_eps, token sums, L and nu."""

    name: str
    log_weight: sp.Expr

    def __post_init__(self) -> None:
        check_names(self.log_weight, "task")

    @property
    def text(self) -> str:
        """The log-weight in the language."""
        return unparse(self.log_weight)

    @property
    def own(self) -> sp.Expr:
        """The part of log g that depends on the hidden token's own score; the rest is common to all locations."""
        own: sp.Expr = expanded(self.log_weight).as_independent(X, as_Add=True)[1]
        return own

    @property
    def weight(self) -> sp.Expr:
        """g itself, up to a constant factor."""
        return sp.exp(self.log_weight)

    def at(self, lengths: Lengths | None) -> Task:
        """The task at a given number of tokens; its own log-weight may depend on that only where it does not vary."""
        if lengths is None or L not in self.own.free_symbols:
            return self
        if lengths.fixed is None:
            raise Refusal(f"task {self.text}: its weight depends on L, which varies")
        return Task(self.name, self.log_weight.xreplace({L: sp.Integer(lengths.fixed)}))

    @property
    def posterior(self) -> sp.Expr:
        """p = g / sum g given the scores: the activation of the Bayes estimator at k = k*."""
        weight = sp.exp(self.own)
        return weight / TokenSum(weight)

    @property
    def scores_unweighted(self) -> bool:
        """Whether sum_e g does not depend on the scores, so that they keep their base law."""
        return row_sum(self.weight) is not None

    @property
    def gaussian(self) -> bool:
        """Whether all scores stay Gaussian under the weight."""
        return not self.log_weight.has(TokenSum) and is_quadratic(self.log_weight)

    def hidden_score(self) -> tuple[sp.Expr, sp.Expr]:
        """Mean and variance of chi*_eps under the reweighted law, where all scores stay Gaussian."""
        if self.log_weight.has(TokenSum):
            raise Refusal(f"task {self.text}: its weight couples the scores of all tokens, which are then not Gaussian")
        return gaussian_from_log_weight(self.log_weight)

    def hard_limit(self) -> int:
        """+1 or -1 when eps becomes the argmax or the argmin of the scores as nu -> infinity; else a refusal."""
        rate = sp.diff(self.own, NU)
        slope = sp.diff(rate, X)
        if not self.scores_unweighted or NU in rate.free_symbols or not (slope.is_positive or slope.is_negative):
            raise InputError("nu", float("inf"), f"a finite number: task {self.text} has no limit as nu grows")
        return 1 if slope.is_positive else -1


_REGISTRY: dict[str, Task] = {}


def register_task(name: str, log_weight: str) -> Task:
    """Register a task by its log-weight text."""
    if not name.isidentifier() or not name.isascii():
        raise InputError("name", name, "an ASCII identifier")
    _REGISTRY[name] = _checked(name, log_weight)
    TASKS[name] = Registered(log_weight)
    return _REGISTRY[name]


def task(spec: str | Task) -> Task:
    """A registered task or a log-weight of the language."""
    if isinstance(spec, Task):
        return spec
    if not isinstance(spec, str):
        raise InputError("task", spec, "a registered task or a log-weight such as 'sqrt(nu)*x - nu/2'")
    if spec in _REGISTRY:
        return _REGISTRY[spec]
    if spec.isidentifier() and spec != "x":
        names, near = ", ".join(sorted(_REGISTRY)), get_close_matches(spec.lower(), _REGISTRY, 1)
        allowed = f"a registered task ({names}) or a log-weight such as 'sqrt(nu)*x - nu/2'"
        raise InputError("task", spec, allowed + (f"; did you mean {near[0]}?" if near else ""))
    return _checked("expression", spec)


def _checked(name: str, text: str) -> Task:
    log_weight = parse(text, "task")
    if unknown := sorted(s.name for s in log_weight.free_symbols - {X, L, NU}):
        raise InputError("task", text, f"a log-weight in x (the hidden token's score), L and nu only, not {unknown}")
    made = Task(name, log_weight)
    for score in (sp.S.Zero, sp.Rational(-7, 5), sp.Rational(9, 5)):
        value = sp.N(made.own.xreplace({X: score, NU: sp.S.One, L: sp.Integer(3)}))
        if not made.own.has(TokenSum) and not (value.is_real and value.is_finite):
            raise InputError("task", text, f"a log-weight that is real and finite; at score {score} it is {value}")
    if not _has_mean(made):
        raise InputError("task", text, "a log-weight whose average E[g] is finite (it grows more slowly than x**2/2)")
    return made


def _has_mean(made: Task) -> bool:
    """Whether g grows more slowly than the Gaussian density falls, looked at far out along every kind of token."""
    if made.log_weight.has(TokenSum) and made.scores_unweighted:
        return True
    values = {NU: sp.S.One, L: sp.Integer(_FEW)}
    for token in range(2 if made.log_weight.has(TokenSum) else 1):
        for score in (_FAR, -_FAR):
            near, far = (_log_weight_at(made, token, sp.Integer(s), values) for s in (score, 2 * score))
            try:
                rate = float(far - near) / (3 * score**2)
            except TypeError:
                return False
            if not rate <= 0.5 - 1e-5:
                return False
    return True


def _log_weight_at(made: Task, token: int, score: sp.Expr, values: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """log g with one token, hidden if it is the first, at this score and the others at zero."""
    scores = [score if i == token else sp.S.Zero for i in range(_FEW)]
    return sp.N(at_tokens(made.log_weight, 0, scores, values))


for _name, _known in tuple(TASKS.items()):
    register_task(_name, _known.content)
