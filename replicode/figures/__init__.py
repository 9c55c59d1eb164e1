"""The paper's figures, recomputed: `figure(name, folder)` leaves SVG, PDF and the data as CSV.

A figure is a module with `compute`, which returns rows that carry their errors, and `draw`. Points are cached one by
one, so that an interrupted run takes up where it stopped. `population` and `finite_sample` (with its `points`) are the
paper's; `curves`, `branches`, `phase`, `dynamics` and `landscape` draw what the verbs find, with the data `beside` it.
`drawing` and `table` are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicode.codegen.writing import checked_folder
from replicode.figures.table import Say, write
from replicode.results import Result
from replicode.theory.errors import InputError

NAMES = ("population", "finite-sample")


@dataclass(frozen=True, repr=False)
class Figure(Result):
    """The files of a figure, its points as in the CSV, what to know of it, and what not to trust in it."""

    headline = ("name", "files")

    name: str
    files: tuple[str, ...]
    points: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def figure(
    name: str,
    folder: str | Path = "figures",
    *,
    quick: bool = False,
    optimal: bool | None = None,
    say: Say | None = None,
) -> Figure:
    """Compute and draw a figure into the folder; `quick` takes fewer and coarser points.

    finite-sample is at the lambda_k, lambda_v of the least test risk in theory, with `optimal=False` at 1.
    """
    from replicode.figures import drawing, finite_sample, population

    if name not in NAMES:
        raise InputError("figure", name, " or ".join(NAMES))
    if optimal and name != "finite-sample":
        raise InputError("optimal", optimal, "for finite-sample only: with infinite data nothing is regularised")
    plt, told = drawing.pyplot(), say or (lambda _: None)
    target, finite = checked_folder(folder), name == "finite-sample"
    best = finite and optimal is not False
    stem = f"{name}-stated" if finite and not best else name
    rows, notes, warnings = finite_sample.compute(quick, best, told) if finite else population.compute(quick, told)
    data = write(rows, target / f"{stem}.csv")
    with drawing.style(plt):
        drawn = finite_sample.draw(plt, rows) if finite else population.draw(plt, rows)
        files = drawing.save(plt, drawn, target, stem)
    asked = {"figure": name, "quick": quick, "optimal": best}
    return Figure(name, (*files, data), tuple(rows), tuple(notes), warnings=tuple(warnings), asked=asked)
