"""What a browser asks for, checked without SymPy: known keys, short texts, numbers and ranges within bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replicode.inputs.arguments import PHYSICS
from replicode.inputs.ranges import Range, read_range
from replicode.theory.errors import InputError

KINDS = ("explore", "module", "latex", "csv", "report")
MOST_ACTIVATIONS = 6
LONGEST_TEXT = 300
LONGEST_NUMBER = 60
MOST_PARAMETERS = 12
MOST_VALUES = 257
SWITCHES = ("optimal", "bayes", "suite")
DEFAULTS: dict[str, Any] = {
    "task": "spiked",
    "tokens": "2",
    "alpha": "1:10",
    "nu": "2",
    "noise": "0.3",
    "lambda_k": "1",
    "lambda_v": "1",
    "optimal": False,
    "bayes": True,
    "suite": True,
    "parameters": {},
}


def checked(body: Any) -> tuple[str, dict[str, Any]]:
    """The kind of a job and its arguments, those left out by default."""
    if not isinstance(body, Mapping):
        raise InputError("request", type(body).__name__, "one JSON object")
    kind = body.get("kind")
    if kind not in KINDS:
        raise InputError("kind", _short(kind), " or ".join(KINDS))
    given = {name: value for name, value in body.items() if name != "kind"}
    if unknown := sorted(set(given) - {"activations", *DEFAULTS}):
        raise InputError(_short(unknown[0]), "given", f"one of activations, {', '.join(DEFAULTS)}")
    arguments = DEFAULTS | {name: _READ[name](name, value) for name, value in given.items() if name != "activations"}
    return kind, {"activations": _activations(given.get("activations")), **arguments}


def _activations(given: Any) -> list[str]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_ACTIVATIONS:
        raise InputError("activations", _short(given), f"a list of 1 to {MOST_ACTIVATIONS} texts")
    return [_text("activation", text) for text in given]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
        raise InputError(name, _short(value), f"text of at most {LONGEST_TEXT} characters")
    return value.strip()


def _number(name: str, value: Any) -> Any:
    """A number or a range; the count of a range is bounded."""
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        raise InputError(name, _short(value), f"at most {LONGEST_NUMBER} characters")
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise InputError(name, _short(value), "a number, or a range as text")
    found = read_range(name, value)
    if isinstance(found, Range) and found.count > MOST_VALUES:
        raise InputError(name, value, f"a range of at most {MOST_VALUES} values")
    return value


def _parameters(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or len(value) > MOST_PARAMETERS:
        raise InputError(name, _short(value), f"at most {MOST_PARAMETERS} names with numbers")
    return {_text("parameter", key): _number(_short(key), number) for key, number in value.items()}


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(name, _short(value), "true or false")
    return value


def _short(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= LONGEST_NUMBER else f"{shown[:LONGEST_NUMBER]}..."


_READ: dict[str, Callable[[str, Any], Any]] = {
    "task": _text,
    "tokens": lambda name, value: _text(name, str(value)),
    "parameters": _parameters,
    **dict.fromkeys(PHYSICS, _number),
    **dict.fromkeys(SWITCHES, _switch),
}
