"""Ranges of the plain arguments, checked without SymPy."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real

from replicode.theory.errors import InputError

MAX_TOKENS = 64
LEAST, MOST = 1e-12, 1e12
MOST_NU, MOST_NOISE = 1e6, 1e4


def real_number(name: str, value: object, allowed: str = "a number") -> float:
    """A number of Python, NumPy or SymPy as a float."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(name, value, allowed)
    try:
        return float(value)
    except OverflowError:
        raise InputError(name, value, allowed) from None


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number of Python, NumPy or SymPy within bounds."""
    allowed = f"a whole number from {least} to {most}" if most is not None else f"a whole number of at least {least}"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(name, value, allowed)
    if int(value) < least or (most is not None and int(value) > most):
        raise InputError(name, value, allowed)
    return int(value)


def given_parameters(parameters: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    """The activation's parameters, given as a mapping or as keywords, each once and as a number."""
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InputError("parameters", parameters, "a mapping of names to numbers, such as {'c': 0.5}")
    given = dict(parameters or {})
    if unnamed := [name for name in given if not isinstance(name, str)]:
        raise InputError("parameters", unnamed[0], "names as text, such as 'c'")
    if twice := sorted(set(given) & set(more)):
        raise InputError("param", ", ".join(twice), "each parameter given once, in `parameters` or as a keyword")
    return {name: parameter_value(name, value) for name, value in {**given, **more}.items()}


def parameter_value(name: str, value: object) -> float:
    """The value of one parameter of an activation, finite."""
    allowed = f"a number from {-MOST:g} to {MOST:g}"
    number = real_number(f"param {name}", value, allowed)
    if not abs(number) <= MOST:
        raise InputError(f"param {name}", value, allowed)
    return number
