"""Work of a report that is kept in the cache: properties, best risks with infinite data, equations.

Curves, derivations and modules are kept by their own verbs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from replicode.cache import FRONT_DOOR, cached
from replicode.inputs.content import activation_content, activation_text, task_content
from replicode.reports.mathematics import Equation
from replicode.results import plain
from replicode.theory.lengths import Tokens, lengths
from replicode.validation.ledger import source_hash

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task


@lru_cache(maxsize=1)
def source() -> str:
    """Hash of the source that the kept work rests on beside theory and codegen."""
    return source_hash(*FRONT_DOOR, "replicode.derivations", "replicode.reports", "replicode.validation.properties")


def kept_population(act: ActivationLike, task: str | Task, tokens: Tokens, nu: float, noise: float) -> dict[str, Any]:
    """The best risk with infinite data, as plain data."""
    law = lengths(tokens)

    def build() -> dict[str, Any]:
        from replicode.verbs.population import population

        found = population(act, task=task, tokens=law, nu=nu, noise=noise)
        return {"made_for": f"infinite data, {activation_text(act)}, nu = {nu:g}", **plain(found.to_dict())}

    return cached("infinite", (*_key(act, task, repr(law)), nu, noise), build)


def kept_facts(act: ActivationLike, task: str | Task, tokens: Tokens) -> dict[str, Any]:
    """The symbolic properties of an activation."""

    def build() -> dict[str, Any]:
        from replicode.verbs.check import facts

        return {"made_for": f"facts, {activation_text(act)}", **facts(act, task, tokens)}

    return cached("facts", _key(act, task, repr(lengths(tokens))), build)


def kept_check(act: ActivationLike, task: str | Task, tokens: Tokens) -> dict[str, Any]:
    """Symbolic properties and the property suite."""

    def build() -> dict[str, Any]:
        from replicode.verbs.check import check

        return {"made_for": f"check, {activation_text(act)}", **check(act, task, tokens).to_dict()}

    return cached("check", _key(act, task, repr(lengths(tokens))), build)


def kept_equations(act: ActivationLike | None, task: str | Task, tokens: Tokens) -> dict[str, list[Equation]]:
    """The equations of an activation by kind, or those of the Bayes-optimal level."""
    law = lengths(tokens)

    def build() -> dict[str, Any]:
        from replicode.reports.equations import of_activation, of_bayes
        from replicode.theory.budget import budget

        with budget("deriving the equations"):
            found = of_bayes(task, law) if act is None else of_activation(act, task, law)
        rows = {kind: [e.to_dict() for e in equations] for kind, equations in found.items()}
        return {"made_for": "equations of a report", "equations": rows}

    kept = cached("equations", _key(act, task, repr(law)), build)["equations"]
    return {kind: [Equation.from_dict(row) for row in equations] for kind, equations in kept.items()}


def _key(act: ActivationLike | None, task: str | Task, law: str) -> tuple[object, ...]:
    return source(), None if act is None else activation_content(act), task_content(task), law
