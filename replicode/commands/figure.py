"""`replicode figure`."""

from __future__ import annotations

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish, say


@click.command("figure", cls=Verb)
@click.argument("name")
@options.folder("figures", "the figure")
@click.option("--quick", is_flag=True, help="Fewer and coarser points, in under a minute.")
@click.option("--optimal/--stated", default=None, help="finite-sample: the lambdas of least test risk (usual), or 1.")
def command(name: str, output: str, quick: bool, optimal: bool | None) -> None:
    """The paper's figures, recomputed: population or finite-sample, as SVG and PDF with the data as CSV. Resumable."""
    from replicode.figures import figure

    found = figure(name, output, quick=quick, optimal=optimal, say=say)
    for note in found.notes:
        say(f"note: {note}")
    finish(found.to_dict(), found.warnings, shown={"files": ", ".join(found.files)})
