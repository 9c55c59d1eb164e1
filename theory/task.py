"""Tasks: the law of the hidden location, given as a log-weight log g of its teacher score.

The spine covers log-weights that leave the scores Gaussian (degree <= 2 in the hidden token's score, `spiked` among
them); the engine normalises the weight itself, so a constant in it is immaterial.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from theory.errors import InputError, Refusal
from theory.gaussian import gaussian_from_log_weight
from theory.language import parse, unparse
from theory.model import NU
from theory.nodes import TokenSum, X


@dataclass(frozen=True)
class Task:
    """log g as an expression in x, the hidden token's score chi*_eps, and nu."""

    name: str
    log_weight: sp.Expr

    @property
    def text(self) -> str:
        """The log-weight in the language."""
        return unparse(self.log_weight)

    def hidden_score(self) -> tuple[sp.Expr, sp.Expr]:
        """Mean and variance of chi*_eps under the reweighted law."""
        return gaussian_from_log_weight(self.log_weight)


_REGISTRY: dict[str, Task] = {}


def register_task(name: str, log_weight: str) -> Task:
    """Register a task by its log-weight text."""
    _REGISTRY[name] = Task(name, parse(log_weight, "task"))
    return _REGISTRY[name]


def task(spec: str | Task) -> Task:
    """A registered task or a log-weight of the language."""
    if isinstance(spec, Task):
        return spec
    if spec in _REGISTRY:
        return _REGISTRY[spec]
    names = ", ".join(sorted(_REGISTRY))
    if isinstance(spec, str) and spec.isidentifier() and spec != "x":
        raise InputError("task", spec, f"a registered task ({names}) or a log-weight such as 'sqrt(nu)*x - nu/2'")
    log_weight = parse(spec, "task")
    unknown = sorted(s.name for s in log_weight.free_symbols - {X, NU})
    if unknown or log_weight.has(TokenSum):
        raise InputError("task", spec, "a log-weight in x (the hidden token's score) and nu only")
    made = Task("expression", log_weight)
    try:
        _, variance = made.hidden_score()
    except Refusal as refusal:
        raise InputError("task", spec, f"a log-weight of degree <= 2 in x; {refusal}") from None
    if variance.is_positive is False:
        raise InputError("task", spec, "a log-weight whose average E[g] is finite (coefficient of x**2 below 1/2)")
    return made


register_task("spiked", "sqrt(nu)*x - nu/2")
