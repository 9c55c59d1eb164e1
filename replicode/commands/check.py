"""`replicode check`."""

from __future__ import annotations

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, print_json, say


@click.command("check", cls=Verb)
@options.activation
@options.task
@options.any_tokens
@options.param
def command(activation: str, task: str, tokens: str | None, parameters: dict[str, float]) -> None:
    """Symbolic properties of an activation, then the property suite."""
    from replicode.verbs.check import as_text, check

    result = check(activation, task, tokens, parameters=parameters)
    if as_json():
        print_json("check", result.to_dict())
    else:
        click.echo(as_text(result))
    for warning in result.warnings:
        say(f"warning: {warning}")
    if not result.ok:
        click.get_current_context().exit(1)
