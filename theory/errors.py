"""The one error hierarchy: every message names the argument, the value and what is allowed."""

from __future__ import annotations


class ReplicodeError(Exception):
    """Base of everything this project raises on purpose."""


class InputError(ReplicodeError):
    """An argument is outside what is allowed (exit status 2)."""

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"{argument}: got {value!r}, allowed is {allowed}")

    def __reduce__(self) -> tuple[object, ...]:
        """Errors come back from other processes: pickle would call the class with the message alone."""
        return _rebuilt, (type(self), self.args, vars(self))


def _rebuilt(kind: type[InputError], args: tuple[object, ...], state: dict[str, object]) -> InputError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


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
