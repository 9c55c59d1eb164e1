"""Rows of a figure as CSV: one line for each number drawn, with its error and every parameter it was computed at."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from replicode.codegen import writing

Rows = list[dict[str, Any]]
Say = Callable[[str], None]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as text, all with the same columns; numbers are exact, what a row does not have is empty."""
    stream = StringIO()
    out = csv.writer(stream, lineterminator="\n")
    out.writerow(rows[0])
    out.writerows([_cell(row[column]) for column in rows[0]] for row in rows)
    return stream.getvalue()


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> str:
    """Write the rows."""
    return str(writing.write(path, as_csv(rows)))


def _cell(value: object) -> object:
    if isinstance(value, Mapping):
        return "; ".join(f"{name} = {number!r}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(str(v) for v in value)
    return value
