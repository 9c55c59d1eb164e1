"""`replicode solve`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, finish


@click.command("solve", cls=Verb)
@options.activation
@options.task
@options.tokens
@options.physics
@options.digits
@click.option("--backend", default="numpy", show_default=True, help="numpy, or fast: compiled loops (C compiler).")
@options.param
def command(activation: str, **arguments: Any) -> None:
    """Solve the saddle-point equations: test risk, order parameters, error, stability."""
    from replicode.api import DOUBLE_DIGITS, FLOAT_DIGITS, solve

    solution = solve(activation, **options.given(arguments))
    fields, digits = solution._asdict(), arguments["digits"]
    if digits is not None and digits > (FLOAT_DIGITS if as_json() else DOUBLE_DIGITS):
        from replicode.precise import as_texts

        fields = as_texts(fields, digits)
    finish(fields, solution.warnings)
