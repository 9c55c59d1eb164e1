"""The command line: the group of verbs (replicode/commands, one file each) and the exit status of whatever happens.

0 done; 1 computed but not to be trusted as it stands; 2 bad input; 3 an error of ours; 130 interrupted.
"""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import Any

import click

from replicode.commands.verb import AS_JSON, DEBUG, flag, print_json, say
from replicode.theory.errors import Refusal, ReplicodeError

VERBS = (
    *("derive", "check", "population", "generate", "solve", "curve", "optimal", "phase", "bayes", "validate"),
    *("landscape", "dynamics", "sweep", "study", "figure", "report", "serve", "demo", "cache"),
)


class _Verbs(click.Group):
    """Loads a verb when it is called for, and turns errors into one message and the exit status that goes with it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of their use."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"replicode.commands.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except Refusal as refusal:
            _print_failure(ctx, "refused", str(refusal))
            say(f"refused: {refusal}")
            ctx.exit(1)
        except ReplicodeError as problem:
            say(f"error: {problem}")
            ctx.exit(2)
        except KeyboardInterrupt as interrupt:
            kept = str(interrupt) or "what is finished is kept, and the same command goes on from there"
            say(f"interrupted: {kept}")
            ctx.exit(130)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as problem:
            _explain(ctx, problem)
            ctx.exit(3)


def _explain(ctx: click.Context, problem: Exception) -> None:
    """One line on an error that was not foreseen, and its traceback where that was asked for."""
    text = " ".join(f"{type(problem).__name__}: {problem}".split())
    _print_failure(ctx, "error", text)
    if ctx.meta.get(DEBUG):
        say("".join(traceback.format_exception(problem)).rstrip())
    say(f"error of ours: {text[:300]} (--debug shows where; please report it)")


def _print_failure(ctx: click.Context, kind: str, text: str) -> None:
    if ctx.meta.get(AS_JSON):
        print_json(kind, {"warnings": [text]})


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="replicode")
def main() -> None:
    """Replica theory of attention: derive, generate, solve, validate."""


main.params.append(flag("--debug", DEBUG, "Show the traceback of an error of ours."))

if __name__ == "__main__":
    main()
