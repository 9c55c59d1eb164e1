"""The command line: the group of verbs (replicode/commands, one file each) and the exit status of whatever happens.

0 done; 1 computed but not to be trusted as it stands; 2 bad input; 3 an error of ours; 130 interrupted.
"""

from __future__ import annotations

import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from replicode.commands.verb import AS_JSON, DEBUG, flag, print_json, warn
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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The verb that was typed; of a misspelt one, what was likely meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            near = get_close_matches(args[0], VERBS, 1)
            meant = f"Did you mean {near[0]}?" if near else f"There are {', '.join(VERBS)}."
            raise click.UsageError(f"{problem.message} {meant}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except Refusal as refusal:
            _print_failure(ctx, "refused", str(refusal))
            warn("refused", str(refusal), "yellow")
            ctx.exit(1)
        except ReplicodeError as problem:
            warn("error", str(problem), "red")
            ctx.exit(2)
        except KeyboardInterrupt as interrupt:
            kept = str(interrupt) or "what is finished is kept, and the same command goes on from there"
            warn("interrupted", kept)
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
        click.echo("".join(traceback.format_exception(problem)).rstrip(), err=True)
    warn("error of ours", f"{text[:300]} (--debug shows where; please report it)", "red")


def _print_failure(ctx: click.Context, kind: str, text: str) -> None:
    if ctx.meta.get(AS_JSON):
        print_json(kind, {"warnings": [text]})


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="replicode")
def main() -> None:
    """Replica theory of attention: derive, generate, solve, validate.

    Start with:  replicode solve softmax --tokens 2 --alpha 4 --nu 2 --noise 0.3

    Every verb has examples: replicode VERB --help. Completion of verbs and options in bash:
    eval "$(_REPLICODE_COMPLETE=bash_source replicode)"; zsh_source and fish_source are for the others.
    """


main.params.append(flag("--debug", DEBUG, "Show the traceback of an error of ours."))

if __name__ == "__main__":
    main()
