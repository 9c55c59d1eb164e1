"""`report`: one HTML file with the curves, properties, equations and code of one or several activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicode.results import Result
from replicode.theory.lengths import Tokens

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task

TOKENS, ALPHA, NU, NOISE = 2, "1:10", 2.0, 0.3
OTHER_MODELS = ("loss", "labels", "model", "spectrum", "teacher")
SUFFIXES = (".html", ".htm")
PACKAGES = ("latex2mathml.converter", "vl_convert")


@dataclass(frozen=True, repr=False)
class ReportPage(Result):
    """Where the page is, how large it is, and the signature of the generated module of every activation."""

    headline = ("path", "bytes")

    path: str
    bytes: int
    signatures: Mapping[str, str]


def report(
    *acts: ActivationLike,
    output: str | Path,
    task: str | Task = "spiked",
    tokens: Tokens = TOKENS,
    alpha: Any = ALPHA,
    nu: Any = NU,
    noise: Any = NOISE,
    lambda_k: Any = 1.0,
    lambda_v: Any = 1.0,
    optimal: bool = False,
    trained: bool = False,
    bayes: bool = True,
    digits: int | None = None,
    say: Callable[[str], None] | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> ReportPage:
    """Write a report of the activations; arguments are those of `curve`, one of them a range.

    An activation's parameter with neither a value nor a default gets the value that is best with infinite data.
    """
    from replicode.codegen.writing import checked_file, write
    from replicode.extras import needed
    from replicode.theory.errors import Refusal

    if other := sorted(set(more) & set(OTHER_MODELS)):
        raise Refusal(f"{other[0]}: a report is of the default model; `curve` takes other losses, labels and spectra")
    target = checked_file(output, suffixes=SUFFIXES)
    for package in PACKAGES:
        needed(package, "report")
    from replicode.reports.contents import contents
    from replicode.reports.page import page

    asked = {"task": task, "tokens": tokens, "alpha": alpha, "nu": nu, "noise": noise}
    asked |= {"lambda_k": lambda_k, "lambda_v": lambda_v, "optimal": optimal, "trained": trained, "bayes": bayes}
    asked |= {"digits": digits, "parameters": {**(parameters or {}), **more}}
    found = contents(acts, say or (lambda _: None), asked)
    content = page(found).encode()
    write(target, content)
    return ReportPage(
        path=str(target),
        bytes=len(content),
        signatures={part.name: part.signature for part in found.parts},
        warnings=found.warnings,
        asked={**found.curve.asked, "output": str(output)},
    )
