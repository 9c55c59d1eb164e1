"""`replicode check`."""

from __future__ import annotations

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish


@click.command("check", cls=Verb)
@options.activation
@options.task
@options.any_tokens
@options.spectrum
@options.learned
@options.param
def command(
    activation: str,
    task: str,
    tokens: str | None,
    parameters: dict[str, float],
    spectrum: str | None,
    teacher: str | None,
    loss: str,
    labels: str,
) -> None:
    """Symbolic properties of an activation, then the property suite."""
    from replicode.verbs.check import as_text, check

    found = check(activation, task, tokens, parameters, loss=loss, labels=labels, spectrum=spectrum, teacher=teacher)
    finish(found.to_dict(), found.warnings, text=as_text(found), ok=found.ok)
