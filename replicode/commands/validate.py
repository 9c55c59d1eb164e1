"""`replicode validate`."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from replicode.commands import options
from replicode.commands.verb import Verb, show
from replicode.theory.errors import InputError


@click.command("validate", cls=Verb)
@options.question
@options.physics
@options.spectrum
@options.learned
@options.digits
@options.dim
@options.seeds(40)
@click.option("--embeddings", default=None, help="Real tokens, one a row: a .npy file; --dim is that of the file.")
@click.option("--normalise", default=None, help="With --embeddings: rows, for tokens of one norm.")
@click.option("--radial", default=None, help="With --embeddings: gaussian, or empirical for a theory with their radii.")
@options.whole("--root-seed", "root_seed", default="0", show_default=True, help="Another one draws other numbers.")
@options.param
def command(activation: str, embeddings: str | None, **arguments: Any) -> None:
    """Train attention on sampled data, or on real tokens, and compare it with the theory."""
    if embeddings is not None:
        _on_embeddings(activation, embeddings, arguments)
        return
    from replicode.verbs.validate import validate

    for name in ("normalise", "radial"):
        if (value := arguments.pop(name)) is not None:
            raise InputError(name, value, "nothing, unless --embeddings is given")
    show(validate(activation, progress=_progress, **options.given(arguments)))


def _on_embeddings(activation: str, embeddings: str, arguments: dict[str, Any]) -> None:
    """Three columns: theory, Gaussian surrogate, real tokens."""
    from replicode.verbs.embeddings import validate_embeddings

    if click.get_current_context().get_parameter_source("dim") is not ParameterSource.DEFAULT:
        raise InputError("dim", arguments["dim"], "nothing: with --embeddings it is that of the file")
    if arguments["spectrum"] is not None:
        raise InputError("spectrum", arguments["spectrum"], "nothing: with --embeddings it is that of the tokens")
    for name, usual in (("loss", "quadratic"), ("labels", "gaussian")):
        if arguments[name] != usual:
            raise InputError(name, arguments[name], f"{usual}: with --embeddings there is no other")
    left_out = ("dim", "spectrum", "loss", "labels")
    given = options.given({n: v for n, v in arguments.items() if n not in left_out})
    show(validate_embeddings(activation, embeddings, progress=_progress, **given))


def _progress(done: int, total: int, text: str) -> None:
    """A line that is written over on a terminal, four lines in a log."""
    if sys.stderr.isatty():
        click.echo(f"\r{done}/{total} {text}   ", err=True, nl=done == total)
    elif done % max(1, total // 4) == 0:
        click.echo(f"{done}/{total} trainings", err=True)
