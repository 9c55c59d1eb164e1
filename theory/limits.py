"""Ranges of the plain arguments, checked without SymPy."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

from replicode.theory.errors import InputError

MAX_TOKENS = 64


def given_parameters(parameters: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    """The activation's parameters, given as a mapping or as keywords, each once and as a number."""
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InputError("parameters", parameters, "a mapping of names to numbers, such as {'c': 0.5}")
    given = dict(parameters or {})
    if twice := sorted(set(given) & set(more)):
        raise InputError("param", twice, "each parameter given once, in `parameters` or as a keyword")
    values: dict[str, float] = {}
    for name, value in {**given, **more}.items():
        if not isinstance(value, Real) or isinstance(value, bool):
            raise InputError(f"param {name}", value, "a number")
        values[name] = float(value)
    return values


def check_tokens(tokens: int | None) -> None:
    """A fixed number of tokens, or None for a symbolic one."""
    if tokens is not None and (
        not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_TOKENS
    ):
        raise InputError("tokens", tokens, f"a whole number from 1 to {MAX_TOKENS}")
