"""`replicode dynamics`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish
from replicode.theory.errors import InputError


@click.command("dynamics", cls=Verb)
@click.argument("activations", nargs=-1, required=True, metavar="ACTIVATION")
@options.task
@options.tokens
@options.nu
@options.noise
@options.real("--rate", "rate", required=True, help="Step size; of the flow, the speed of k.")
@options.real("--time", "time", required=True, help="Steps/D to go.")
@click.option("--start", default="", help="Overlaps to begin with, as in m_k=0.1,q_k=1; others are 0, norms 0.01.")
@options.real("--rate-v", "rate_v", default=None, help="Step size of v where it has its own; 0 keeps v fixed.")
@options.real("--lambda-k", "lambda_k", default="0", show_default=True, help="Weight decay of k.")
@options.real("--lambda-v", "lambda_v", default="0", show_default=True, help="Weight decay of v.")
@options.whole("--batch", "batch", default="1", show_default=True, help="Sequences per step.")
@click.option("--flow", is_flag=True, help="The limit of small steps.")
@click.option("--spherical", is_flag=True, help="Both directions keep their norms.")
@options.whole("--points", "points", default="101", show_default=True, help="Times on the regular grid.")
@options.learned
@options.spectrum
@options.digits
@click.option("--fixed-points", is_flag=True, help="Fixed points, their stability, the plateau, the largest step size.")
@click.option("--compare", is_flag=True, help="Further ACTIVATIONs are for comparison.")
@options.whole("--dim", "dim", default=None, help="Also SGD on tokens in this dimension.")
@options.whole("--seeds", "seeds", default="16", show_default=True, help="Runs of it.")
@click.option("-o", "--output", default=None, help="The picture to draw.")
@options.param
def command(activations: tuple[str, ...], compare: bool, start: str, output: str | None, **arguments: Any) -> None:
    """Overlaps and test risk along one-pass SGD in high dimension, with errors."""
    activation, *others = activations
    if others and not compare:
        raise InputError("activation", " ".join(activations), "one activation, and further ones after --compare")
    target = None
    if output is not None:
        from replicode.figures.drawing import checked_picture

        target = checked_picture(output)
    from replicode.inputs.learned import learned
    from replicode.inputs.spectrum import structured, token_spectrum
    from replicode.verbs.dynamics import dynamics

    data = token_spectrum(arguments.pop("spectrum"), arguments.pop("teacher"))
    if data is not None:
        arguments["model"] = structured(learned(None, arguments.pop("loss"), arguments.pop("labels")), data)
    begin = _overlaps(start)
    found = dynamics(
        activation, start=begin, compare=[a for a in others if a != activation], **options.given(arguments)
    )
    drawn = {}
    if target is not None:
        from replicode.figures.dynamics import draw

        drawn = {"figure": draw(found, activation, target)}
    finish(found.to_dict() | drawn, found.warnings, shown=found.shown() | drawn, ok=found.ok)


def _overlaps(text: str) -> dict[str, float]:
    """The overlaps that a text names."""
    found: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, sign, value = part.partition("=")
        if not sign or name.strip() in found:
            raise InputError("start", text, "NAME=NUMBER once for each overlap, as in m_k=0.1,q_k=1")
        found[name.strip()] = options.number("start", value, "NAME=NUMBER, as in m_k=0.1,q_k=1")
    return found
