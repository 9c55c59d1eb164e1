"""`replicode check`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish


@click.command("check", cls=Verb)
@options.activation
@options.task
@options.any_tokens
@options.spectrum
@options.learned
@options.param
def command(activation: str, **arguments: Any) -> None:
    """Symbolic properties of an activation, then the property suite."""
    from replicode.verbs.check import as_text, check

    found = check(activation, **arguments)
    finish(found.to_dict(), found.warnings, text=as_text(found), ok=found.ok)
