"""Ranges of the plain arguments, checked without SymPy."""

from __future__ import annotations

from replicode.theory.errors import InputError

MAX_TOKENS = 64


def check_tokens(tokens: int | None) -> None:
    """A fixed number of tokens, or None for a symbolic one."""
    if tokens is not None and (
        not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_TOKENS
    ):
        raise InputError("tokens", tokens, f"a whole number from 1 to {MAX_TOKENS}")
