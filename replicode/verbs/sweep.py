"""`sweep`: every point of a configuration, each a row of a ledger; a second run computes what is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicode.results import Result
from replicode.sweeps import export as exporting
from replicode.sweeps.config import points_of, read
from replicode.sweeps.job import FAILED, FOREIGN, REFUSED, Outcome, job_of
from replicode.sweeps.point import Point
from replicode.sweeps.pool import check_scheduler, outcomes, owner
from replicode.sweeps.progress import Progress
from replicode.theory.errors import InputError, ReplicodeError
from replicode.theory.limits import whole_number
from replicode.validation.ledger import DONE, Ledger, LedgerError, Row

MISSING = "missing"
MOST_WORKERS = 1024
USUAL_LEDGER = "sweep.sqlite"


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """The rows of a sweep in the order of its configuration; `computed` is how many of them were computed now.

    `older` is how many rows the ledger has of the same points by other versions of the program; they are not used.
    `arguments` are those columns of the table that say what was asked.
    """

    headline = ("points", "done", "refused", "failed", "missing")

    ledger: str
    export: str | None
    points: int
    computed: int
    done: int
    refused: int
    failed: int
    missing: int
    older: int
    arguments: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    def shown(self) -> dict[str, Any]:
        """What people read: where the rows are, and how many of each kind."""
        return {name: value for name, value in super().shown().items() if name not in ("arguments", "rows")}

    def table(self) -> dict[str, list[Any]]:
        """The rows column by column, which `pandas.DataFrame` takes as it is."""
        return exporting.columns(self.rows)

    def to_xarray(self) -> Any:
        """The rows as an xarray Dataset, with an axis for every argument that varies where these form a grid."""
        return exporting.dataset(self.table(), self.arguments)


def sweep(
    config: str | Path | Mapping[str, Any],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    ledger: str | Path | None = None,
    export: str | Path | None = None,
    retry: bool = False,
    dry_run: bool = False,
    progress: bool = True,
) -> Sweep:
    """Compute what the ledger does not have of a configuration: a TOML file, or the same as a mapping.

    The ledger is by default a file beside the configuration, with the suffix .sqlite. `workers` are processes of this
    machine; with `scheduler`, the address of a Dask scheduler, the cluster's are taken. `export` writes the rows as
    .csv, .parquet or .nc. Rows that failed are computed again with `retry`; `dry_run` computes nothing.
    """
    count = whole_number("workers", workers, 1, MOST_WORKERS)
    check_scheduler(scheduler)
    target = None if export is None else exporting.checked_export(export)
    found = {point.key: point for point in points_of(config if isinstance(config, Mapping) else read(config))}
    points = list(found.values())
    path = Path(ledger) if ledger is not None else _beside(config)
    with Ledger(path) as kept:
        work = _Work(found, kept, retry)
        if work.missing and not dry_run:
            with kept.alone():
                work = _Work(found, kept, retry)  # another sweep may have ended just now
                work.compute(count, scheduler, progress)
        rows, older = work.rows(), kept.elsewhere({key: point.text for key, point in found.items()})
    arguments = tuple(exporting.columns([point.asked for point in points]))
    if target is not None:
        exporting.export(rows, arguments, target)
    counts = Counter(row["status"] for row in rows)
    return Sweep(
        ledger=str(path),
        export=None if target is None else str(target),
        points=len(points),
        computed=work.computed,
        done=counts[DONE],
        refused=counts[REFUSED],
        failed=counts[FAILED],
        missing=counts[MISSING],
        older=older,
        arguments=arguments,
        rows=tuple(rows),
        warnings=_warnings(points, rows),
        asked={"config": None if isinstance(config, Mapping) else str(config)},
    )


def _beside(config: str | Path | Mapping[str, Any]) -> Path:
    return Path(USUAL_LEDGER) if isinstance(config, Mapping) else Path(config).with_suffix(".sqlite")


class _Work:
    """The points of a sweep and the rows that there are of them."""

    def __init__(self, points: Mapping[str, Point], ledger: Ledger, retry: bool) -> None:
        self.points, self.ledger, self.computed = points, ledger, 0
        self.known: dict[str, Row] = ledger.rows(self.points)
        again = {key for key, row in self.known.items() if retry and row.status == FAILED}
        self.missing = [point for key, point in self.points.items() if key not in self.known or key in again]

    def compute(self, workers: int, scheduler: str | None, progress: bool) -> None:
        """Have the missing points computed, each kept as soon as it is done."""
        shown = Progress(len(self.missing)) if progress else None
        jobs = [job_of(point, owner(workers, scheduler)) for point in _spread_out(self.missing)]
        try:
            for outcome in outcomes(jobs, workers, scheduler):
                self._keep(outcome)
                if shown is not None:
                    shown.step(f"{outcome.said}: {self.points[outcome.key].name}")
        except LedgerError as problem:
            raise InputError("ledger", problem.value, f"{problem.allowed}; {self._kept()}") from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._kept()) from None
        finally:
            if shown is not None:
                shown.close()

    def _keep(self, outcome: Outcome) -> None:
        """One transaction."""
        if outcome.status == FOREIGN:
            raise ReplicodeError(f"{outcome.said}: install the same on all of them; {self._kept()}")
        asked = self.points[outcome.key].text
        how: dict[str, Any] = {"status": outcome.status, "asked": asked, "seconds": outcome.seconds}
        self.ledger.put(outcome.key, outcome.payload, **how)
        self.known[outcome.key] = Row(asked, outcome.status, json.dumps(outcome.payload), outcome.seconds)
        self.computed += 1

    def _kept(self) -> str:
        there = f"{len(self.known)} of {len(self.points)} points are kept in {self.ledger.path}"
        return f"{there}, and the same command goes on from there"

    def rows(self) -> list[dict[str, Any]]:
        """What was asked and what came of it, for every point."""
        return [_row(point, self.known.get(key)) for key, point in self.points.items()]


def _spread_out(points: Sequence[Point]) -> list[Point]:
    """The first point of every module before all others: workers then derive different modules, not the same one."""
    first = {point.module: point for point in reversed(points)}
    return sorted(points, key=lambda point: first[point.module] is not point)


def _row(point: Point, found: Row | None) -> dict[str, Any]:
    if found is None:
        return {**point.asked, "status": MISSING, "ok": False, "warnings": ["not computed yet"]}
    payload = {name: value for name, value in json.loads(found.payload).items() if name != "asked"}
    return {**point.asked, "status": found.status, **payload}


def _warnings(points: Sequence[Point], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What is not to be trusted, each reason once, with the number of points and the first of them."""
    reasons: dict[str, list[Point]] = {}
    for point, row in zip(points, rows):
        told = list(row.get("warnings", ())) or ([] if row["ok"] else [str(row.get("verdict", row["status"]))])
        for text in dict.fromkeys(told):
            words = text if row["status"] == DONE else f"{row['status']}: {text}"
            reasons.setdefault(words, []).append(point)
    return tuple(f"{len(here)} of {len(rows)} points, the first {here[0].name}: {t}" for t, here in reasons.items())
