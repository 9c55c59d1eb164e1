"""A point of a sweep: a verb with all its arguments, the key of its row, and the number its random streams start from.

`VERBS` is the one table of the verbs that can be swept. What a verb takes is read off its signature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from replicode.cache import FRONT_DOOR, cache_key, program_digest
from replicode.inputs.arguments import DOUBLE_DIGITS, MOST_DIGITS
from replicode.inputs.content import activation_content, task_content
from replicode.results import Result
from replicode.theory.errors import InputError
from replicode.theory.lengths import lengths
from replicode.validation.ledger import source_hash, training_source

NOT_SWEPT = ("act", "model", "progress", "parameters", "more")
NAMES = ("activation", "task", "tokens", "init", "backend")  # text that names no file
EFFORT = ("dim", "seeds", "digits", "backend", "root_seed")  # no part of what is asked, only of how well it is answered


@dataclass(frozen=True)
class Swept:
    """A verb of a sweep: the most digits it takes, whether parameters may be left free, and what else it rests on."""

    most_digits: int = DOUBLE_DIGITS
    free_parameters: bool = False
    source: Callable[[], str] = str


VERBS = {
    "solve": Swept(most_digits=MOST_DIGITS),
    "bayes": Swept(),
    "population": Swept(free_parameters=True),
    "optimal": Swept(),
    "validate": Swept(source=training_source),
}


def available() -> tuple[str, ...]:
    """The verbs of the table that this version has."""
    return tuple(name for name in VERBS if find_spec(f"replicode.verbs.{name}"))


def verb_of(name: str) -> Callable[..., Result]:
    """The verb of this name."""
    if name not in available():
        raise InputError("verb", name, " or ".join(available()))
    verb: Callable[..., Result] = getattr(import_module(f"replicode.verbs.{name}"), name)
    return verb


@lru_cache
def taken(verb: str) -> Mapping[str, Any]:
    """What a verb takes, with the defaults; `Parameter.empty` where a value is needed. `activation` is its first."""
    found = signature(verb_of(verb)).parameters
    first = {"activation": Parameter.empty} if "act" in found else {}
    return first | {name: p.default for name, p in found.items() if name not in NOT_SWEPT}


@dataclass(frozen=True)
class Point:
    """A verb with the arguments that were given; all of them are text and numbers."""

    verb: str
    arguments: tuple[tuple[str, Any], ...]
    parameters: tuple[tuple[str, float], ...] = ()

    @property
    def asked(self) -> dict[str, Any]:
        """Everything that the answer depends on, defaults too, but for the program."""
        given = dict(self.arguments)
        defaults = {name: value for name, value in taken(self.verb).items() if value is not Parameter.empty}
        found = {"verb": self.verb, **given, **{n: v for n, v in defaults.items() if n not in given}}
        if "activation" in found:
            found["parameters"] = dict(self.parameters)
        if "root_seed" in defaults and "root_seed" not in given:
            found["root_seed"] = self._own_number()
        return found

    @property
    def text(self) -> str:
        """What was asked as JSON, always in the same order."""
        return json.dumps(self.asked, sort_keys=True)

    @property
    def key(self) -> str:
        """The key of the row: what was asked, what the names in it stand for, and by which program it is answered."""
        return cache_key("sweep", self.text, *self._contents(), program(self.verb))

    @property
    def name(self) -> str:
        """The point in words."""
        given = dict(self.arguments) | dict(self.parameters)
        shown = [f"{name} = {_short(value)}" for name, value in given.items() if name not in ("activation", "task")]
        return ", ".join([f"{self.verb} {given.get('activation', '')}".strip(), str(given["task"]), *shown])

    @property
    def module(self) -> tuple[object, ...]:
        """What the generated module depends on: points that share it are solved by the same one."""
        given = dict(self.arguments)
        return self.verb == "bayes", given.get("activation"), given.get("task"), given.get("tokens")

    def call(self) -> dict[str, Any]:
        """The arguments of the verb's call; the activation is called `act` there."""
        given = {name: value for name, value in self.asked.items() if name != "verb"}
        if "activation" in given:
            given["act"] = given.pop("activation")
        return given

    def _contents(self) -> tuple[object, ...]:
        given = dict(self.arguments)
        named = (activation_content(given["activation"]),) if "activation" in given else ()
        files = (_file_content(value) for name, value in self.arguments if name not in NAMES)
        return *named, task_content(given["task"]), *(found for found in files if found)

    def _own_number(self) -> int:
        """The root of the point's random streams: the same on every worker, and with more seeds or dimensions."""
        physics = {name: value for name, value in self.arguments if name not in EFFORT}
        text = json.dumps([physics, self.parameters, repr(self._contents())], sort_keys=True)
        return int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)


def _file_content(value: Any) -> str:
    """A hash of the file that an argument names, such as a spectrum; nothing where it names none."""
    if not isinstance(value, str) or not Path(value).is_file():
        return ""
    return hashlib.sha256(Path(value).read_bytes()).hexdigest()


@lru_cache
def program(verb: str) -> str:
    """Hash of the source that answers a verb and of what it runs on: its rows are not those of another program."""
    parts = (program_digest(), VERBS[verb].source(), source_hash(*FRONT_DOOR))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain_tokens(value: Any) -> int | str:
    """A number of tokens or a distribution of it, as text that is always the same for the same one."""
    law = lengths({int(n): p for n, p in value.items()} if isinstance(value, Mapping) else value)
    return law.fixed or str(law)
