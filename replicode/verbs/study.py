"""The study of where theory and training part: trainings, a table and a map, left in a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from replicode.codegen.writing import checked_folder, write
from replicode.modules import module_for
from replicode.sweeps.export import as_csv, columns
from replicode.theory.errors import InputError
from replicode.theory.limits import given_parameters
from replicode.validation.ledger import Ledger

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
    from replicode.validation.studies.discrepancy import check_scan, figure, scan

    if quick:
        arguments |= QUICK
        nus, lambdas = QUICK_NUS, QUICK_LAMBDAS
    physics = ("alpha", "noise", "dim", "seeds", "digits")
    check_scan(nus, lambdas, **{name: arguments[name] for name in physics if name in arguments})
    checked_folder(folder)
    given = given_parameters(arguments.pop("parameters", None), {})
    module, _ = module_for(activation, arguments["task"], arguments["tokens"], given=given)
    with Ledger(folder / "study.sqlite") as ledger:
        ledger.take_over(folder / "trained.jsonl")
    try:
        rows = scan(
            activation,
            nus=nus,
            lambdas=lambdas,
            path=folder / "study.sqlite",
            say=say,
            module=module,
            parameters=given,
            **arguments,
        )
    except module.ArgumentError as problem:
        raise InputError(problem.argument, problem.value, problem.allowed) from None
    table = write(folder / "rows.csv", as_csv(columns([row.as_dict() for row in rows])))
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
