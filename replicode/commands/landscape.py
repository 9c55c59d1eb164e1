"""`replicode landscape`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.validate import _progress
from replicode.commands.verb import Verb, show


@click.command("landscape", cls=Verb)
@options.question
@options.points
@options.whole("--dim", "dim", default="200", show_default=True, help="Dimension.")
@options.whole("--starts", "starts", default="25", show_default=True, help="Starts on each data set, of five kinds.")
@options.whole("--seeds", "seeds", default="2", show_default=True, help="Data sets.")
@click.option("-o", "--output", default=None, help="A figure to draw.")
@options.param
def command(activation: str, **arguments: Any) -> None:
    """What training finds from many starts on the same data, against RS and one step of breaking."""
    from replicode.verbs.landscape import landscape

    show(landscape(activation, progress=_progress, **options.given(arguments)))
