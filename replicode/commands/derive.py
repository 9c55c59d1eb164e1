"""`replicode derive`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, print_json
from replicode.inputs.arguments import one_of
from replicode.theory.errors import InputError


@click.command("derive", cls=Verb)
@options.any_activation
@options.task
@options.any_tokens
@options.learned
@click.option("--level", default="rs", show_default=True, help="rs, population, bayes, stability, 1rsb or dynamics.")
@click.option("--format", "style", default="text", show_default=True, help="text, latex, markdown or json.")
@click.option("--steps", is_flag=True, help="Also the numbered chain of steps that leads to the result.")
@click.option("--fragment", is_flag=True, help="With latex: to paste into a paper, without the frame of a document.")
@options.spectrum
@options.param
def command(activation: str | None, style: str, fragment: bool, **arguments: Any) -> None:
    """The model, its free energy and saddle-point equations; with --steps the chain that leads to them."""
    one_of("format", style, ("text", "latex", "markdown", "json"))
    if fragment and style != "latex":
        raise InputError("fragment", style, "--format latex")
    from replicode.verbs.derive import derivation_of

    found = derivation_of(activation, **arguments)
    if as_json() or style == "json":
        print_json("derive", found["json"])
    else:
        click.echo(found["fragment" if fragment else style])
