"""`replicode derive`."""

from __future__ import annotations

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, print_json


@click.command("derive", cls=Verb)
@options.any_activation
@options.task
@options.any_tokens
@options.learned
@click.option("--level", default="rs", show_default=True, help="rs, population, bayes, stability, 1rsb or dynamics.")
@click.option("--format", "style", default="text", show_default=True, help="text, latex, markdown or json.")
@options.spectrum
@options.param
def command(
    activation: str | None,
    task: str,
    tokens: str | None,
    level: str,
    style: str,
    parameters: dict[str, float],
    spectrum: str | None,
    teacher: str | None,
    loss: str,
    labels: str,
) -> None:
    """Free energy, saddle-point equations, reductions and the chain that leads to them."""
    options.one_of("level", level, ("rs", "population", "bayes", "stability", "1rsb", "dynamics"))
    options.one_of("format", style, ("text", "latex", "markdown", "json"))
    from replicode.verbs.derive import derivation_of

    found = derivation_of(activation, task, tokens, level, parameters, loss, labels, spectrum, teacher)
    if as_json() or style == "json":
        print_json("derive", found["json"])
    else:
        click.echo(found[style])
