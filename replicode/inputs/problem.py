"""One activation on one task, with numbers for all its parameters: what is solved again and again along a way.

A `Problem` is solved at any values of its parameters, from a solution nearby where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.inputs.arguments import PHYSICS, point
from replicode.inputs.asked import asked
from replicode.inputs.content import Content, activation_content, task_content
from replicode.inputs.learned import Learning, ModelTexts
from replicode.inputs.radii import only_replica_symmetric
from replicode.modules import call, module_for
from replicode.theory.errors import InputError
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.limits import given_parameters

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.validation.module import GeneratedAttention

Start = str | Mapping[str, float]


@dataclass(frozen=True)
class Problem:
    """A module with the values of all parameters; `act`, `task`, `law` and `learning` say what it was made for.

    `backend` is what computes the channel.
    """

    act: ActivationLike
    task: str | Task
    law: Lengths
    learning: Learning
    module: ModuleType
    values: Mapping[str, float]
    backend: str = "numpy"

    @property
    def physics(self) -> dict[str, float]:
        """The numbers that every activation has."""
        return {name: self.values[name] for name in PHYSICS}

    @property
    def own(self) -> dict[str, float]:
        """The parameters of the activation."""
        return {name: self.values[name] for name in self.module.PARAMETERS}

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks: without scores there is no k."""
        return tuple(name.removeprefix("m_") for name in self.module.ORDER_NAMES if name.startswith("m_"))

    @property
    def strengths(self) -> tuple[str, ...]:
        """The names of the strengths of the penalties."""
        return tuple(f"lambda_{block}" for block in self.blocks)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters: the physics, then those of the activation."""
        return (*PHYSICS, *self.module.PARAMETERS)

    def content(self, *free: str) -> Content:
        """What the keys of kept work say of it, with the numbers of all parameters but those that are free."""
        fixed = sorted((name, value) for name, value in self.values.items() if name not in free)
        named = activation_content(self.act), task_content(self.task), repr(self.law)
        return *named, *self.learning.content, fixed

    def with_values(self, **changes: float) -> Problem:
        """The same with other numbers."""
        return replace(self, values={**self.values, **changes})

    def check(self) -> None:
        """The numbers are within what is allowed."""
        point(*(self.values[name] for name in PHYSICS))

    def check_name(self, argument: str, name: str) -> str:
        """A parameter that this problem has."""
        if name not in self.names:
            raise InputError(argument, name, f"one of {', '.join(self.names)}")
        return name

    def solve(
        self,
        tol: float | None,
        init: Start = "informed",
        derivatives: bool | Sequence[str] = False,
        branches: bool = True,
        stability: bool = True,
        quick: bool = False,
    ) -> Any:
        """The module's Solution; whether other branches and stability are looked into is asked for."""
        options = {"derivatives": derivatives, "branches": branches, "stability": stability, "quick": quick}
        return call(self.module, "solve", **self.values, **self.learning.data, tol=tol, init=init, **options)

    def arguments(self) -> dict[str, Any]:
        """What a verb takes, beside the activation, for the same problem."""
        told = self.learning
        posed: dict[str, Any] = {"task": self.task, "tokens": self.law, "model": told.model, "spectrum": told.spectrum}
        posed |= {} if told.radii is None else {"radii": told.radii}
        return {**posed, **self.physics, "parameters": self.own}

    def asked(self, **options: Any) -> dict[str, Any]:
        """What was asked for, in words and numbers that JSON holds."""
        question = {**self.physics, **self.learning.question(), **options}
        return asked(self.act, self.task, self.law, self.own, self.learning.model, **question)

    def attention(self) -> GeneratedAttention:
        """The same as the trainer and the measurements see it."""
        only_replica_symmetric(self.learning.model, "training; validate --embeddings trains on a pool of tokens")
        from replicode.theory.model import DEFAULT_MODEL
        from replicode.validation.data.spectrum import Coordinates
        from replicode.validation.module import GeneratedAttention

        spectrum, model = self.learning.spectrum, self.learning.model or DEFAULT_MODEL
        coordinates = None if spectrum is None else Coordinates.of(spectrum.coordinates)
        params = np.array(list(self.own.values()))
        return GeneratedAttention(self.module, self.values["nu"], self.values["noise"], params, model, coordinates)


def problem(
    act: ActivationLike,
    task: str | Task,
    tokens: Tokens,
    numbers: Mapping[str, float],
    parameters: Mapping[str, float] | None = None,
    more: Mapping[str, float] | None = None,
    texts: ModelTexts | None = None,
    backend: str = "numpy",
) -> Problem:
    """The problem of checked arguments, its module from the cache when it is there.

    `numbers` are those of PHYSICS; others among them, and `parameters` and `more`, are the activation's.
    """
    at = point(*(numbers[name] for name in PHYSICS))
    own = {name: value for name, value in numbers.items() if name not in PHYSICS}
    given = given_parameters(parameters, {**own, **(more or {})})
    law, learning = lengths(tokens), (texts or ModelTexts()).read()
    if learning.radii is not None and backend != "numpy":
        raise InputError("backend", backend, "numpy, with radii")
    module, values = module_for(act, task, law, backend, given, learning.model)
    return Problem(act, task, law, learning, module, {**at, **values}, backend)
