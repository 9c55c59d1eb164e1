"""The one error hierarchy: every message names the argument, the value and what is allowed."""

from __future__ import annotations


class ReplicodeError(Exception):
    """Base of everything this project raises on purpose."""


class InputError(ReplicodeError):
    """An argument is outside what is allowed (exit status 2)."""

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"{argument}: got {value!r}, allowed is {allowed}")


class LanguageError(InputError):
    """Text is not an expression of the language; the message shows it with a caret under the fault."""

    def __init__(self, argument: str, text: str, column: int, problem: str, allowed: str) -> None:
        super().__init__(argument, text, allowed)
        self.column, self.problem = column, problem
        start = max(0, column - 60)
        shown = text[start : column + 60].replace("\n", " ").replace("\0", "\N{REPLACEMENT CHARACTER}")
        caret = " " * (column - start) + "^"
        self.args = (f"{argument}: {problem}\n    {shown}\n    {caret}\n  allowed: {allowed}",)


class Refusal(ReplicodeError):
    """The input is well formed but lies in a regime the engine does not stand by (exit status 1)."""
