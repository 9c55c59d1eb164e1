"""The study of where theory and training part: trainings, a table and a map, left in a folder."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from replicode.codegen.writing import checked_folder, write
from replicode.modules import module_for
from replicode.theory.errors import InputError
from replicode.theory.limits import given_parameters

QUICK: dict[str, Any] = {"dim": 120, "seeds": 8, "digits": 3}
QUICK_NUS, QUICK_LAMBDAS = (0.5, 2.0), (0.02, 0.2, 2.0)


def run(
    activation: str,
    nus: Sequence[float],
    lambdas: Sequence[float],
    folder: Path,
    quick: bool,
    say: Callable[[str], None],
    **arguments: Any,
) -> dict[str, Any]:
    """Solve and train over the grid; the warnings name the points called stable that disagree."""
    from replicode.validation.discrepancy import check_scan, figure, scan

    if quick:
        arguments |= QUICK
        nus, lambdas = QUICK_NUS, QUICK_LAMBDAS
    physics = ("alpha", "noise", "dim", "seeds", "digits")
    check_scan(nus, lambdas, **{name: arguments[name] for name in physics if name in arguments})
    checked_folder(folder)
    given = given_parameters(arguments.pop("parameters", None), {})
    module, _ = module_for(activation, arguments["task"], arguments["tokens"], given=given)
    try:
        rows = scan(
            activation,
            nus=nus,
            lambdas=lambdas,
            path=folder / "trained.jsonl",
            say=say,
            module=module,
            parameters=given,
            **arguments,
        )
    except module.ArgumentError as problem:
        raise InputError(problem.argument, problem.value, problem.allowed) from None
    table = _table([row.as_dict() for row in rows], folder / "rows.csv")
    drawn = figure(rows, folder / "map.svg")
    parted = [r for r in rows if r.rs_stable and r.verdict == "disagrees"]
    return {
        "map": None if drawn is None else str(drawn),
        "table": str(table),
        "rows": [row.as_dict() for row in rows],
        "warnings": [
            f"called stable, and trained attention disagrees: nu = {r.case.nu:g}, lambda = {r.case.penalty:g}"
            for r in parted
        ],
    }


def _table(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """The rows with nested values spread over columns."""
    flat = [{f"{k}_{n}" if n else k: v for k, value in row.items() for n, v in _spread(value)} for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(flat)
    return write(path, text.getvalue())


def _spread(value: Any) -> list[tuple[str, Any]]:
    """A value, or the values of a mapping of mappings with the keys that lead to them."""
    if not isinstance(value, dict):
        return [("", value)]
    return [(f"{key}_{below}" if below else str(key), v) for key, inner in value.items() for below, v in _spread(inner)]
