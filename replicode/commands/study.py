"""`replicode study`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish, say


@click.command("study", cls=Verb)
@options.question
@click.option("--nu", "nus", default="0.5,1,2,4", show_default=True, help="Signal strengths, separated by commas.")
@click.option(
    "--lambda", "lambdas", default="0.02,0.05,0.1,0.2,0.5,1,2", show_default=True, help="Values of both lambdas."
)
@options.real("--alpha", "alpha", default="3", show_default=True, help="Samples per dimension.")
@options.real("--noise", "noise", default="0.3", show_default=True, help="Label noise, a standard deviation.")
@options.whole("--digits", "digits", default="4", show_default=True, help="Absolute error asked for: 10^-digits.")
@options.dim
@options.seeds(24)
@click.option("--quick", is_flag=True, help="A corner of the map at small D, in a minute or so.")
@options.folder("study", "trainings, rows and map")
@options.param
def command(activation: str, nus: str, lambdas: str, quick: bool, output: str, **arguments: Any) -> None:
    """Where theory and training part: a map over (nu, lambda) with the edge of stability on top. Resumable."""
    from replicode.verbs.study import run

    grid = options.numbers("nu", nus), options.numbers("lambda", lambdas)
    result = run(activation, *grid, Path(output), quick, say, **arguments)
    finish(result, result["warnings"], shown={"map": result["map"], "table": result["table"]})
