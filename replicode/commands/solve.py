"""`replicode solve`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, show


@click.command("solve", cls=Verb)
@options.question
@options.physics
@options.spectrum
@options.radii
@options.learned
@options.digits
@click.option("--backend", default="numpy", show_default=True, help="numpy, or fast: compiled loops (C compiler).")
@click.option("--derivatives", is_flag=True, help="Also d(quantity)/d(parameter), with errors.")
@click.option("--branches", is_flag=True, help="Search for all solutions here: six starts, then deflation.")
@options.whole("--rsb", "rsb", default=None, help="1: one step of replica symmetry breaking too; 0: never.")
@options.param
def command(activation: str, **arguments: Any) -> None:
    """Solve the saddle-point equations: test risk, order parameters, error, stability."""
    from replicode.verbs.solve import solve

    show(solve(activation, **options.given(arguments)))
