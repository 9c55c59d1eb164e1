"""`replicode validate`."""

from __future__ import annotations

import sys
from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, show


@click.command("validate", cls=Verb)
@options.activation
@options.task
@options.tokens
@options.physics
@options.spectrum
@options.learned
@options.digits
@options.dim
@options.seeds(40)
@options.whole("--root-seed", "root_seed", default="0", show_default=True, help="Another one draws other numbers.")
@options.param
def command(activation: str, **arguments: Any) -> None:
    """Train attention on sampled data and compare it with the theory."""
    from replicode.verbs.validate import validate

    show(validate(activation, progress=_progress, **options.given(arguments)))


def _progress(done: int, total: int, text: str) -> None:
    """A line that is written over on a terminal, four lines in a log."""
    if sys.stderr.isatty():
        click.echo(f"\r{done}/{total} {text}   ", err=True, nl=done == total)
    elif done % max(1, total // 4) == 0:
        click.echo(f"{done}/{total} trainings", err=True)
