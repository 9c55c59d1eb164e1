"""`replicode curve`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, progress, show


@click.command("curve", cls=Verb)
@click.argument("activations", nargs=-1, required=True)
@options.task
@options.tokens
@options.ranged
@click.option("--optimal", is_flag=True, help="At the lambdas of least test risk.")
@click.option("--trained", is_flag=True, help="Train attention at four values, and mark it.")
@click.option("--no-bayes", "bayes", is_flag=True, flag_value=False, default=True, help="Without the Bayes line.")
@options.spectrum
@options.learned
@options.digits
@options.beside
def command(activations: tuple[str, ...], **arguments: Any) -> None:
    """Test risk along one parameter given as a range, for several activations, beside the Bayes line. Resumable."""
    from replicode.verbs.curve import curve

    show(curve(*activations, say=progress, **options.given(arguments)))
