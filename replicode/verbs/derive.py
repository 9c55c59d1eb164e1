"""`derive`: the saddle-point system of an activation, and the derivation of every level as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from replicode import __version__
from replicode.arguments import one_of
from replicode.asked import asked
from replicode.cache import cached
from replicode.content import activation_content, task_content
from replicode.theory.budget import budget
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.limits import given_parameters

if TYPE_CHECKING:
    from replicode.present import Derivation
    from replicode.theory.activation import Activation, ActivationLike
    from replicode.theory.model import Model
    from replicode.theory.saddle import SaddleSystem
    from replicode.theory.task import Task

LEVELS = ("rs", "population", "bayes", "stability")


def derive(
    act: ActivationLike,
    task: str | Task = "spiked",
    tokens: Tokens | None = None,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> SaddleSystem:
    """The saddle-point system of an activation; `tokens=None` keeps L symbolic, '1:0.2,2:0.8' is a distribution."""
    from replicode.theory.activation import activation
    from replicode.theory.saddle import derive as derive_system

    law = None if tokens is None else lengths(tokens)
    return derive_system(activation(act, given_parameters(parameters, more)), task, law, model)


def derivation_of(
    act: ActivationLike,
    task: str | Task,
    tokens: Tokens | None,
    level: str = "rs",
    parameters: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The derivation of an activation in every format, from the cache when it is there."""
    one_of("level", level, LEVELS)
    law = None if tokens is None else lengths(tokens)
    given = given_parameters(parameters, {})

    def build() -> dict[str, Any]:
        from replicode.present import as_json, as_latex, as_markdown, as_text
        from replicode.theory.activation import activation

        found = _derivation(activation(act, given), task, law, level)
        return {
            "made_for": f"derivation of {found.activation}, task {found.task}, level {level}",
            "json": as_json(found),
            "text": as_text(found),
            "markdown": as_markdown(found),
            "latex": as_latex(found),
        }

    with budget(f"deriving level {level}"):
        key = activation_content(act), task_content(task), repr(law), level, sorted(given.items())
        found = cached("derive", key, build)
        stamp = {"asked": asked(act, task, law, given, level=level), "version": __version__}
    return found | {"json": found["json"] | stamp}


def _derivation(act: Activation, task: str | Task, law: Lengths | None, level: str) -> Derivation:
    """The derivation of one level."""
    from replicode import present
    from replicode.theory.bayes import derive_bayes
    from replicode.theory.population import derive_population
    from replicode.theory.saddle import derive as derive_system
    from replicode.theory.stability import derive_stability

    if level == "bayes":
        shown = (law.fixed or str(law)) if law else None
        return present.bayes_derivation(act, derive_bayes(task, law), shown)
    if level == "population":
        return present.population_derivation(derive_population(act, task, law))
    system = derive_system(act, task, law)
    return (
        present.stability_derivation(derive_stability(system)) if level == "stability" else present.derivation(system)
    )
