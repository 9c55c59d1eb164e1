"""`replicode generate`."""

from __future__ import annotations

from typing import Any

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, finish
from replicode.theory.errors import InputError


@click.command("generate", cls=Verb)
@options.any_activation
@options.task
@options.tokens
@options.learned
@click.option(
    "--level",
    default="rs",
    show_default=True,
    help="rs, stability (within rs), 1rsb, population, dynamics, or bayes: no activation.",
)
@click.option("-o", "--output", required=True, help="The file to write.")
@options.spectrum
@options.radii
@options.param
def command(
    activation: str | None, task: str, tokens: str, level: str, output: str, parameters: dict[str, float], **texts: Any
) -> None:
    """Write a standalone NumPy solver for an activation at some level, or for the Bayes-optimal level of a task."""
    from replicode.codegen.writing import checked_file, is_standard_output, write

    target = checked_file(output)
    printed = is_standard_output(target)
    if printed and as_json():
        raise InputError("output", output, "a file: with --json standard output is for the JSON object")
    from replicode.codegen.compiler import generate
    from replicode.inputs.asked import asked
    from replicode.inputs.learned import ModelTexts
    from replicode.theory.derive.bayes import BayesSystem
    from replicode.theory.lengths import lengths
    from replicode.verbs.derive import derive

    law, learning = lengths(tokens), ModelTexts(**texts).read()
    system = derive(activation, task, law, learning.model, parameters=parameters, level=level)
    trained = None if isinstance(system, BayesSystem) else system.activation
    of = activation if trained else None
    question = {"level": level, "output": output, **learning.question()}
    module = generate(system)
    write(target, module.source)
    if printed:
        return
    finish(
        {
            "path": str(target),
            "signature": module.signature,
            "activation": trained.text if trained else None,
            "task": system.task.text,
            "tokens": law.fixed or str(law),
            "operations": dict(module.operations),
            "asked": asked(of, task, law, parameters, learning.model, **question),
        }
    )
