"""Activations as a report takes them: each with numbers for all its parameters.

A parameter that has neither a value nor a default gets the one that is best with infinite data, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replicode.inputs.content import activation_text
from replicode.inputs.ranges import Range, read_range
from replicode.reports.kept import kept_population
from replicode.theory.errors import InputError

if TYPE_CHECKING:
    from replicode.theory.language.activation import Activation, ActivationLike


@dataclass(frozen=True)
class Settled:
    """An activation under the name it was given by; `chosen` are the parameters that were not given, free in `open`."""

    name: str
    activation: Activation
    values: Mapping[str, float]
    chosen: Mapping[str, float]
    open: ActivationLike

    @property
    def as_argument(self) -> ActivationLike:
        """What a verb takes: the name where that says all, so that cached work is found without SymPy."""
        return self.activation if self.values else self.name


def settled(
    acts: Sequence[ActivationLike], task: Any, tokens: Any, nu: Any, parameters: Mapping[str, Any]
) -> list[Settled]:
    """The activations with their numbers; every parameter given must be one of some activation."""
    from replicode.theory.language.activation import activation

    made = [(act if isinstance(act, str) else activation_text(act), activation(act)) for act in acts]
    names = [name for name, _ in made]
    if not names or len(set(names)) < len(names):
        raise InputError("activation", ", ".join(names), "at least one activation, each once")
    known = dict.fromkeys(p for _, act in made for p in act.parameters)
    if unknown := sorted(set(parameters) - set(known)):
        allowed = f"the parameters {', '.join(known)}" if known else "no parameter: the activations have none"
        raise InputError("param", ", ".join(unknown), allowed)
    return [_settled(name, act, task, tokens, nu, parameters) for name, act in made]


def _settled(name: str, act: Activation, task: Any, tokens: Any, nu: Any, parameters: Mapping[str, Any]) -> Settled:
    from replicode.theory.language.activation import activation

    own = {p: read_range(p, parameters[p]) for p in act.parameters if p in parameters}
    given = {p: v for p, v in own.items() if not isinstance(v, Range)}
    free = [p for p in act.parameters if p not in own and p not in act.values and p not in act.defaults]
    chosen = {}
    if free:
        best = kept_population(activation(act, given), task, tokens, middle(nu), 0.0)
        chosen = {p: float(best["parameters"][p]) for p in free}
    values = {**given, **chosen}
    whole = activation(act, values)
    return Settled(name, whole, values, chosen, activation(act, given) if chosen else whole if values else name)


def middle(value: Any) -> float:
    """A number, or the middle of a range in the coordinate that divides it."""
    found = read_range("nu", value)
    if not isinstance(found, Range):
        return found
    low, high = found.ends
    return found.value(0.5 * (low + high))
