"""A figure with its data beside it: the picture, a CSV of the rows, and a JSON file of the whole result."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from replicode.codegen.writing import write
from replicode.figures.table import write as write_table
from replicode.results import finite

SCHEMA = 1
Found = TypeVar("Found", bound=Any)


def saved(kind: str, found: Found, target: Path, draw: Callable[[Path], str]) -> Found:
    """Draw a result that has `rows` and `files`, and leave both kinds of data beside the picture."""
    data, summary = write_table(found.rows(), target.with_suffix(".csv")), target.with_suffix(".json")
    whole: Found = replace(found, files=(draw(target), data, str(summary)))
    content = {"schema": f"replicode/{kind}/{SCHEMA}", **finite(whole.to_dict())}
    write(summary, json.dumps(content, indent=1))
    return whole
