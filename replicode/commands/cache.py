"""`replicode cache`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands.verb import Verb, as_json, finish


@click.command("cache", cls=Verb)
@click.option("--clear", is_flag=True, help="Remove every entry.")
def command(clear: bool) -> None:
    """Show or clear the cache of derived systems and generated modules."""
    from replicode import cache as store

    result: dict[str, Any] = {"folder": str(store.cache_folder())}
    result |= {"removed": store.clear()} if clear else {"entries": store.entries()}
    if as_json() or clear:
        finish(result)
        return
    click.echo(result["folder"])
    for entry in result["entries"]:
        state = "" if entry["intact"] else "  damaged, will be rebuilt"
        click.echo(f"{entry['bytes']:>9}  {entry['made_for'] or entry['file']}{state}")
