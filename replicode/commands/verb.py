"""What every verb shares: `--json`, `--quiet`, `--verbose`, `--debug`, its examples, and how a result is printed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from replicode import __version__
from replicode.commands.examples import shown as examples_of
from replicode.commands.ticker import Ticker
from replicode.watching import watching

if TYPE_CHECKING:
    from replicode.results import Result

SCHEMA = 1
_HERE = "replicode.commands"
_UNSAID = ("warnings", "asked", "version")
AS_JSON, DEBUG, ASKED = f"{_HERE}.json", f"{_HERE}.debug", f"{_HERE}.asked"
QUIET, VERBOSE, TICKER = f"{_HERE}.quiet", f"{_HERE}.verbose", f"{_HERE}.ticker"


def flag(name: str, key: str, text: str) -> click.Option:
    """A switch that every verb takes; where it is set is noted in the context, for whoever prints."""

    def note(ctx: click.Context, _: click.Parameter, given: bool) -> None:
        ctx.meta[key] = ctx.meta.get(key, False) or given

    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=note, help=text)


class Verb(click.Command):
    """A command with the shared switches, which keeps what was asked for the results and the errors."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(flag("--json", AS_JSON, "One JSON object on standard output."))
        self.params.append(flag("--quiet", QUIET, "No progress on standard error; warnings are still told."))
        self.params.append(flag("--verbose", VERBOSE, "Tell the residual of every iteration, on standard error."))
        self.params.append(flag("--debug", DEBUG, "Show the traceback of an error of ours."))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, below the options."""
        with formatter.section("Examples"):
            for line in examples_of(str(self.name)):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the line; of an expression that looks like an option, say how it is written."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            if problem.option_name.startswith("--"):
                raise
            hint = "An expression that begins with - is written in brackets, as in '(-x)'."
            raise click.UsageError(f"{problem.message} {hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        ctx.meta[ASKED] = {"command": self.name, **ctx.params}
        with ExitStack() as stack:
            quiet = ctx.meta.get(QUIET) or ctx.meta.get(VERBOSE)
            ctx.meta[TICKER] = stack.enter_context(Ticker(str(self.name), not quiet))
            if ctx.meta.get(VERBOSE):
                stack.enter_context(watching(lambda text: click.echo(text, err=True)))
            return super().invoke(ctx)


def as_json() -> bool:
    """Whether JSON was asked for."""
    return bool(click.get_current_context().meta.get(AS_JSON))


def warn(kind: str, text: str, colour: str | None = None) -> None:
    """A warning or an error, on standard error: in colour on a terminal, unless NO_COLOR is set."""
    _heard()
    head = kind if os.environ.get("NO_COLOR") else click.style(kind, fg=colour, bold=True)
    click.echo(f"{head}: {text}", err=True)


def say(text: str) -> None:
    """Progress, on standard error, unless --quiet."""
    if not _heard():
        click.echo(text, err=True)


def _heard() -> bool:
    """Whether progress is not to be told; the ticker keeps still for a while where something is."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return False
    if ticker := ctx.meta.get(TICKER):
        ticker.heard()
    return bool(ctx.meta.get(QUIET))


def progress(text: str) -> None:
    """Progress of a long command, on standard error: one line that is written over where that is a terminal."""
    import sys

    if _heard():
        return
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
    else:
        click.echo(text, err=True)


def finish(
    result: Mapping[str, Any],
    warnings: Sequence[str] = (),
    *,
    shown: Mapping[str, Any] | None = None,
    text: str | None = None,
    ok: bool | None = None,
) -> None:
    """Print the warnings and the result, and leave with status 1 where it is not `ok`: by default, where it warns.

    People read `text`, or the part of the result that is `shown`; what was asked they know.
    """
    for warning in warnings:
        warn("warning", warning, "yellow")
    if as_json():
        print_json(str(click.get_current_context().info_name), result)
    elif text is not None:
        click.echo(text)
    else:
        _print_lines({k: v for k, v in (result if shown is None else shown).items() if k not in _UNSAID})
    if not (not warnings if ok is None else ok):
        click.get_current_context().exit(1)


def show(found: Result) -> None:
    """Print what a Python verb found."""
    finish(found.to_dict(), found.warnings, shown=found.shown(), ok=found.ok)


def print_json(kind: str, result: Mapping[str, Any]) -> None:
    """One object that names its schema, what was asked and by which version it was answered."""
    from replicode.results import finite

    asked = click.get_current_context().meta.get(ASKED, {}) | dict(result.get("asked", {}))
    head = {"schema": f"replicode/{kind}/{SCHEMA}", "version": __version__, "asked": _as_typed(asked)}
    click.echo(json.dumps(head | finite({name: value for name, value in result.items() if name not in head})))


def _as_typed(value: Any) -> Any:
    """JSON-ready, an infinite argument as the user types it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return {k: _as_typed(v) for k, v in value.items()} if isinstance(value, dict) else value


def _print_lines(result: Mapping[str, Any], indent: str = "") -> None:
    width = max((len(k) for k in result), default=0)
    for key, value in result.items():
        if isinstance(value, Mapping):
            click.echo(f"{indent}{key}")
            _print_lines(value, indent + "  ")
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            for row in value:
                click.echo(f"{indent}{key}")
                _print_lines(row, indent + "  ")
        else:
            text = f"{value:.12g}" if isinstance(value, float) else str(value)
            click.echo(f"{indent}{key:<{width}}  {text}")
