"""`replicode optimal`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, show


@click.command("optimal", cls=Verb)
@options.question
@options.physics
@options.spectrum
@options.learned
@options.digits
@click.option("--over", default="lambda_k,lambda_v", show_default=True, help="What to search over; also parameters.")
@options.param
def command(activation: str, **arguments: Any) -> None:
    """The least test risk over lambda_k, lambda_v, and parameters when asked; those given are the start."""
    from replicode.verbs.optimal import optimal

    show(optimal(activation, **options.given(arguments)))
