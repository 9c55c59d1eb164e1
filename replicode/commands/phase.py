"""`replicode phase`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, progress, show


@click.command("phase", cls=Verb)
@options.any_activation
@options.task
@options.tokens
@options.ranged
@options.spectrum
@options.learned
@click.option("--level", default=None, help="rs or bayes; without an activation it is bayes.")
@options.whole("--points", "points", default="120", show_default=True, help="How many points to look at.")
@options.beside
def command(activation: str | None, **arguments: Any) -> None:
    """Regions, transitions and stability over two parameters given as ranges. Resumable."""
    from replicode.verbs.phase import phase

    show(phase(activation, say=progress, **options.given(arguments)))
