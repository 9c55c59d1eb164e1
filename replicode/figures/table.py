"""Rows of a figure as CSV: one line for each number drawn, with its error and every parameter it was computed at."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from replicode.theory.errors import InputError

Rows = list[dict[str, Any]]
Say = Callable[[str], None]


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> str:
    """Write the rows, all with the same columns; numbers are exact, what a row does not have is empty."""
    try:
        with path.open("w", newline="", encoding="utf-8") as stream:
            out = csv.writer(stream, lineterminator="\n")
            out.writerow(rows[0])
            out.writerows([_cell(row[column]) for column in rows[0]] for row in rows)
    except OSError as problem:
        raise InputError("output", str(path), f"a file that can be written ({problem.strerror})") from None
    return str(path)


def _cell(value: object) -> object:
    if isinstance(value, Mapping):
        return "; ".join(f"{name} = {number!r}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(str(v) for v in value)
    return value
