"""The configuration of a sweep, as TOML or as a mapping: every point that it asks for, checked before any work.

Keys are the arguments of the verbs. In a `[[grid]]` every value goes with every other; in a `[[list]]` the first go
together, then the second, and so on. Keys above the tables hold for all of them; without tables they are one grid.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import Parameter
from itertools import product
from pathlib import Path
from typing import Any

from replicode.codegen.writing import as_path
from replicode.inputs.arguments import BACKENDS, INITS, check_digits, check_parameters, not_negative, one_of, positive
from replicode.inputs.spectrum import token_spectrum
from replicode.sweeps.point import VERBS, Point, plain_tokens, taken, verb_of
from replicode.theory.errors import InputError, LanguageError
from replicode.theory.limits import real_number, whole_number
from replicode.verbs.validate import LEAST_DIM, LEAST_SEEDS

MOST_POINTS = 1_000_000
FIRST = ("verb", "activation", "task", "tokens")
TABLES = ("grid", "list")
NUMBERS: dict[str, Callable[[str, Any], float]] = {
    "alpha": positive,
    "nu": lambda name, value: not_negative(name, value, infinite=True),
    **dict.fromkeys(("noise", "lambda_k", "lambda_v"), not_negative),
}
WHOLE = {"dim": LEAST_DIM, "seeds": LEAST_SEEDS, "root_seed": 0}
WORDS = {"init": INITS, "backend": BACKENDS}
RANGE = "a range LO:HI:N, or LO:HI:N:log"


def read(path: str | Path) -> dict[str, Any]:
    """The keys and tables of a TOML file."""
    try:
        return tomllib.loads(as_path(path, "config").read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError("config", str(path), f"a file that can be read ({problem.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError("config", str(path), f"a file of TOML ({problem})") from None


def points_of(config: Mapping[str, Any]) -> list[Point]:
    """Every point once, in the order in which they are asked for."""
    common = {name: value for name, value in config.items() if name not in TABLES}
    tables = [(kind, number, t) for kind in TABLES for number, t in enumerate(_tables(kind, config.get(kind, [])), 1)]
    read_in = [_Table(kind, number, _merged(common, t), set(_flat(t))) for kind, number, t in tables]
    read_in = read_in or [_Table("grid", 0, common, set(_flat(common)))]
    found = list(dict.fromkeys(point for table in read_in for point in table.points()))
    used = {name for table in read_in for name in table.used}
    if unused := [name for name in _flat(common) if name not in used]:
        raise InputError(unused[0], read_in[0].typed(unused[0]), read_in[0].allowed())
    return found


def _flat(given: Mapping[str, Any]) -> list[str]:
    """The keys of a table, parameters as `parameters.NAME`."""
    own = given.get("parameters", {})
    named = [f"parameters.{name}" for name in own] if isinstance(own, Mapping) else []
    return [*(name for name in given if name != "parameters"), *named]


def _tables(kind: str, tables: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(tables, (list, tuple)) or not all(isinstance(table, Mapping) for table in tables):
        raise InputError(kind, tables, f"tables, each under a line [[{kind}]]")
    return tables


def _merged(common: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table over the keys that hold for all, parameters one by one."""
    both = {**common, **table}
    if isinstance(common.get("parameters"), Mapping) and isinstance(table.get("parameters"), Mapping):
        both["parameters"] = {**common["parameters"], **table["parameters"]}
    return both


@dataclass
class _Table:
    """One table with the keys that hold for all: which are its own, and which some point had a use for."""

    kind: str
    number: int
    given: Mapping[str, Any]
    own: set[str]
    used: set[str] = field(default_factory=set)
    activations: dict[str, tuple[tuple[str, ...], dict[str, float]]] = field(default_factory=dict)

    def points(self) -> list[Point]:
        """The points; an InputError, which names the table, for a bad value and for a key that none of them uses."""
        try:
            found = [self._point(row) for row in self._rows(self._axes())]
            if unused := [name for name in self._axes() if name in self.own and name not in self.used]:
                raise InputError(unused[0], self.typed(unused[0]), self.allowed())
        except LanguageError:
            raise
        except InputError as problem:
            where = f"[[{self.kind}]] {self.number}: " if self.number else ""
            raise InputError(f"{where}{problem.argument}", problem.value, problem.allowed) from None
        return found

    def _axes(self) -> dict[str, list[Any]]:
        """The values of every key; those of parameters under `parameters.NAME`."""
        given = {"verb": "solve", "task": "spiked", **self.given}
        own = given.pop("parameters", {})
        if not isinstance(own, Mapping):
            raise InputError("parameters", own, "a table of names and numbers, as in parameters = {c = 0.5}")
        ordered = {name: given[name] for name in (*FIRST, *given) if name in given}
        named = {f"parameters.{name}": value for name, value in own.items()}
        axes = {name: _values(name, value) for name, value in (ordered | named).items()}
        if empty := [name for name, values in axes.items() if not values]:
            raise InputError(empty[0], [], "a value, a range or a list that is not empty")
        for verb in axes["verb"]:
            verb_of(verb)
        return axes

    def _rows(self, axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """The combinations of a grid, or the lines of a list."""
        sizes = {name: len(values) for name, values in axes.items()}
        if self.kind == "grid":
            if math.prod(sizes.values()) > MOST_POINTS:
                raise InputError("grid", math.prod(sizes.values()), f"at most {MOST_POINTS} points")
            yield from (dict(zip(axes, row)) for row in product(*axes.values()))
            return
        longest = max(sizes, key=lambda name: sizes[name])
        if odd := [name for name, size in sizes.items() if size not in (1, sizes[longest])]:
            allowed = f"one value, or {sizes[longest]} as {longest} has"
            raise InputError(odd[0], self.typed(odd[0]), allowed)
        for i in range(sizes[longest]):
            yield {name: values[i if len(values) > 1 else 0] for name, values in axes.items()}

    def _point(self, row: Mapping[str, Any]) -> Point:
        """The point of one row, of what its verb takes."""
        verb = row["verb"]
        takes = taken(verb)
        arguments = {name: _checked(verb, name, row[name]) for name in row if name in takes}
        if missing := [name for name, default in takes.items() if default is Parameter.empty and name not in row]:
            raise InputError(missing[0], None, f"a value: {verb} needs one")
        token_spectrum(arguments.get("spectrum"), arguments.get("teacher"))
        self.used |= {"verb", "task", *arguments}
        parameters: dict[str, float] = {}
        if "activation" in arguments:
            parameters = self._parameters(arguments["activation"], row, VERBS[verb].free_parameters)
        return Point(verb, tuple(arguments.items()), tuple(sorted(parameters.items())))

    def _parameters(self, activation: str, row: Mapping[str, Any], free: bool) -> dict[str, float]:
        """The values of those parameters that the activation has; all of them are needed unless they may be free."""
        if activation not in self.activations:
            from replicode.theory.language.activation import activation as activation_of

            made = activation_of(activation)
            self.activations[activation] = made.parameters, dict(made.defaults)
        names, defaults = self.activations[activation]
        given = {n: real_number(f"parameters.{n}", row[f"parameters.{n}"]) for n in names if f"parameters.{n}" in row}
        self.used |= {f"parameters.{name}" for name in given}
        check_parameters(names if not free else tuple(given), given if free else defaults | given)
        return given

    def typed(self, name: str) -> Any:
        """The value of a key as it was given."""
        own = name.removeprefix("parameters.")
        return self.given["parameters"][own] if own != name else self.given[name]

    def allowed(self) -> str:
        """What the table may hold."""
        keys = dict.fromkeys(name for verb in self._axes()["verb"] for name in taken(verb))
        own = dict.fromkeys(name for names, _ in self.activations.values() for name in names)
        parameters = f"; parameters: {', '.join(own) or 'none'}"
        return f"one of the keys verb, {', '.join(keys)}{parameters}"


def _values(name: str, value: Any) -> list[Any]:
    """The values of a key: one, those of a list, or those of a range."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if name not in NUMBERS and not name.startswith("parameters."):
        return list(values)
    return [number for entry in values for number in _numbers(name, entry)]


def _numbers(name: str, entry: Any) -> list[Any]:
    """The numbers of a range, or the one that a text says."""
    if not isinstance(entry, str):
        return [entry]
    parts = entry.split(":")
    try:
        if len(parts) == 1:
            return [float(entry)]
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
        spaced = {3: "even", 4: "".join(parts[3:])}[len(parts)]
    except (ValueError, IndexError, KeyError):
        raise InputError(name, entry, f"a number, {RANGE}") from None
    if not 2 <= count <= MOST_POINTS or not (math.isfinite(low) and low < high < math.inf):
        raise InputError(name, entry, f"{RANGE}: LO below HI, both finite, N from 2 to {MOST_POINTS}")
    if spaced == "even":
        return [*(low + (high - low) * i / (count - 1) for i in range(count - 1)), high]
    if spaced != "log" or low <= 0:
        raise InputError(name, entry, f"{RANGE}: log is for LO above 0")
    return [low, *(low * (high / low) ** (i / (count - 1)) for i in range(1, count - 1)), high]


def _checked(verb: str, name: str, value: Any) -> Any:
    """A value that the argument of this name may have, always the same for the same one."""
    if name == "tokens":
        return plain_tokens(value)
    if name in NUMBERS:
        return NUMBERS[name](name, value)
    if name == "digits":
        check_digits(value, VERBS[verb].most_digits)
        return int(value)
    if name in WHOLE:
        return whole_number(name, value, WHOLE[name])
    if name in WORDS:
        return one_of(name, value, WORDS[name])
    if name in ("activation", "task"):
        return _text(name, value)
    if not isinstance(value, (str, int, float, bool)):
        raise InputError(name, value, "text, a number, true or false")
    return value


def _text(name: str, value: Any) -> str:
    """The name or the expression of an activation or a task, after it was read."""
    if not isinstance(value, str):
        raise InputError(name, value, "a registered name or an expression, as text")
    _read(name, value)
    return value


@lru_cache(maxsize=1024)
def _read(name: str, text: str) -> None:
    """An error where a text of the language can not be read."""
    from replicode.theory.language.activation import activation
    from replicode.theory.language.task import task

    activation(text) if name == "activation" else task(text)
