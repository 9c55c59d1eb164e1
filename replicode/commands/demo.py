"""`replicode demo`."""

from __future__ import annotations

from pathlib import Path

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish, say


@click.command("demo", cls=Verb)
@options.folder("demo", "the results")
def command(output: str) -> None:
    """Derive, generate, solve and validate softmax and linear attention, with a figure."""
    from replicode.verbs.demo import run

    result = run(Path(output), say)
    finish(result, result["warnings"], shown={"folder": result["folder"], "figure": result["figure"]})
