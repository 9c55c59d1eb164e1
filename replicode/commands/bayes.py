"""`replicode bayes`, at one alpha or over a range of it."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, finish, progress, show
from replicode.theory.errors import InputError

FOLLOWED = ("task", "tokens", "nu", "noise", "spectrum", "teacher")


@click.command("bayes", cls=Verb)
@options.task
@options.tokens
@options.nu
@click.option("--alpha", required=True, help="Samples per dimension, or a range LO:HI to look for thresholds in.")
@options.noise
@options.digits
@options.spectrum
@click.option("-o", "--output", default=None, help="With a range: the file to draw both branches to.")
def command(alpha: str, output: str | None, **arguments: Any) -> None:
    """The Bayes-optimal test risk at finite samples, with its branches; over a range of alpha, its thresholds."""
    if ":" in alpha:
        _over_range(options.ends("alpha", alpha), output, options.given(arguments))
        return
    if output is not None:
        raise InputError("output", output, "nothing, unless --alpha is a range LO:HI")
    from replicode.verbs.bayes import bayes

    found = bayes(alpha=options.number("alpha", alpha, "a number or a range LO:HI"), **options.given(arguments))
    show(found)


def _followed(ends: tuple[float, float], arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The spinodals and transitions of the branch followed through its folds; without noise it has no end."""
    from replicode.branches.bayes_follow import bayes_branch

    if not arguments.get("noise"):
        return None
    known = {name: arguments[name] for name in FOLLOWED if name in arguments}
    found = bayes_branch(**known, low=ends[0], high=ends[1], told=progress).to_dict()
    return {name: found[name] for name in ("spinodals", "transitions", "errors", "complete")}


def _over_range(ends: tuple[float, float], output: str | None, arguments: dict[str, Any]) -> None:
    """Branches on a grid of the range, the thresholds in it, and a figure of both when asked for."""
    from replicode.branches.bayes_phase import bayes_branches, shown_alphas, thresholds
    from replicode.figures.branches import figure
    from replicode.figures.drawing import checked_picture

    target = None if output is None else checked_picture(output)
    marks = thresholds(**arguments, low=ends[0], high=ends[1])
    found = bayes_branches(**arguments, alphas=shown_alphas(*ends, marks))
    followed = _followed(ends, arguments)
    drawn = None if target is None else figure(found, marks, target)
    summary = {"thresholds": marks.as_dict(), "followed": followed, "figure": drawn}
    finish(found.as_dict() | summary, shown=summary)
