"""`replicode generate`."""

from __future__ import annotations

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, finish
from replicode.theory.errors import InputError


@click.command("generate", cls=Verb)
@options.any_activation
@options.task
@options.tokens
@options.learned
@click.option("--level", default="rs", show_default=True, help="rs, or bayes, which needs no activation.")
@click.option("-o", "--output", required=True, help="The file to write.")
@options.param
def command(
    activation: str | None,
    task: str,
    tokens: str,
    level: str,
    output: str,
    parameters: dict[str, float],
    loss: str,
    labels: str,
) -> None:
    """Write a standalone NumPy solver for an activation, or for the Bayes-optimal level of a task."""
    from replicode.codegen.writing import checked_file, is_standard_output, write

    target = checked_file(output)
    printed = is_standard_output(target)
    if printed and as_json():
        raise InputError("output", output, "a file: with --json standard output is for the JSON object")
    from replicode.asked import asked
    from replicode.codegen.compiler import generate
    from replicode.learned import learned, named
    from replicode.theory.derive.saddle import SaddleSystem
    from replicode.theory.lengths import lengths
    from replicode.verbs.derive import derive

    law, model = lengths(tokens), learned(None, loss, labels)
    system = derive(activation, task, law, model, parameters=parameters, level=level)
    of = activation if isinstance(system, SaddleSystem) else None
    module = generate(system)
    write(target, module.source)
    if printed:
        return
    finish(
        {
            "path": str(target),
            "signature": module.signature,
            "activation": system.activation.text if isinstance(system, SaddleSystem) else None,
            "task": system.task.text,
            "tokens": law.fixed or str(law),
            "operations": dict(module.operations),
            "asked": asked(of, task, law, parameters, model, level=level, output=output, **named(loss, labels)),
        }
    )
