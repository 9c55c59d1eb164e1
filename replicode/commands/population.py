"""`replicode population`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, show


@click.command("population", cls=Verb)
@options.question
@options.nu
@options.noise
@options.spectrum
@options.learned
@options.digits
@options.param
def command(activation: str, **arguments: Any) -> None:
    """The best risk with infinite data, over k, v and the parameters left free, beside the Bayes risk."""
    from replicode.verbs.population import population

    show(population(activation, **options.given(arguments)))
