"""`replicode report`: the options of `curve`, none of which is needed."""

from __future__ import annotations

from copy import copy
from typing import Any

import click

from replicode.commands import options
from replicode.commands.curve import command as curve
from replicode.commands.verb import Verb, progress, show

NOT_YET = ("loss", "labels", "spectrum", "teacher")  # the page states the default model, its equations and its code
DEFAULTS = {"tokens": "2", "alpha": "1:10", "nu": "2", "noise": "0.3"}


def _as_curve() -> list[click.Parameter]:
    """The parameters of `curve`, those that it needs with a default; the file is one of ours."""
    found = [copy(p) for p in curve.params if p.name not in ("output", *NOT_YET)]
    for parameter in found:
        if isinstance(parameter, click.Option) and parameter.name in DEFAULTS:
            parameter.required, parameter.default, parameter.show_default = False, DEFAULTS[parameter.name], True
    return [p for p in found if p.expose_value]


@click.command("report", cls=Verb, params=_as_curve())
@click.option("-o", "--output", default="report.html", show_default=True, help="The page to write.")
def command(activations: tuple[str, ...], **arguments: Any) -> None:
    """One HTML file to show to others: curves to hover and zoom, properties, equations, code. No network needed."""
    from replicode.verbs.report import report

    show(report(*activations, say=progress, **options.given(arguments)))
