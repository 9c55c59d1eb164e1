"""`replicode sweep`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, show


@click.command("sweep", cls=Verb)
@click.argument("config")
@options.whole("--workers", "workers", default="1", show_default=True, help="Processes on this machine.")
@click.option("--scheduler", default=None, help="A Dask scheduler instead, as in tcp://host:8786 (extra dask).")
@click.option("--ledger", default=None, help="The file of finished points; by default CONFIG with the suffix .sqlite.")
@click.option("--export", default=None, help="Write the rows to FILE.csv, .parquet or .nc (extra export).")
@click.option("--retry", is_flag=True, help="Compute the points that failed again.")
@click.option("--dry-run", "dry_run", is_flag=True, help="Compute nothing: check, count, and export what is there.")
def command(config: str, **arguments: Any) -> None:
    """Every point of CONFIG.toml, on all cores or a cluster. What is done is kept; a rerun computes the rest."""
    from replicode.verbs.sweep import sweep

    show(sweep(config, **options.given(arguments)))
