"""Theory against attention trained at the paper's size, sqrt(N D) = 10^4: resumable trainings and their table.

`python -m replicode.validation.studies.paper FOLDER` keeps a row for every finished training and every solved point in
the ledger FOLDER/paper.sqlite, does what is missing, and prints the table. `--part 1/2` does every second of the
missing trainings and prints no table, so that two processes, of one thread each, share the work.
All activations are trained on the same data: one draw serves them all, and the corrected tests hold under any
dependence.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import inf, sqrt
from pathlib import Path
from sys import stderr
from types import ModuleType
from typing import Any

import numpy as np

from replicode.codegen.compiler import generate
from replicode.codegen.threads import one_thread
from replicode.theory.derive.saddle import derive
from replicode.validation.data.sampling import Dataset
from replicode.validation.experiment import streams
from replicode.validation.ledger import Ledger
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import FALSE_ALARM, SHIFT, Comparison, compare_grid
from replicode.validation.statistics.measure import QUANTITIES, measure
from replicode.validation.training.train import train

SIZE = 1e4
SEEDS = 8
ROOT_SEED = 2509
TOLERANCE = 1e-4  # asked of the theory


@dataclass(frozen=True)
class Data:
    """A law of the data with its alpha: what all activations are trained on."""

    task: str
    tokens: int
    nu: float
    alpha: float
    noise: float

    def dim(self, size: float) -> int:
        """D such that sqrt(N D) is the size."""
        return round(size / sqrt(self.alpha))


@dataclass(frozen=True)
class Point:
    """A comparison: an activation without free parameters, trained at this regularisation on this data."""

    activation: str
    data: Data
    lambda_k: float = 1.0
    lambda_v: float = 1.0

    @property
    def name(self) -> str:
        """The point in words."""
        d = self.data
        return f"{self.activation}, {d.task}, nu = {d.nu:g}, alpha = {d.alpha:g}"

    def key(self, **more: object) -> str:
        """What a row of the ledger is looked up by."""
        return json.dumps({**asdict(self), **more}, sort_keys=True)

    def attention(self) -> GeneratedAttention:
        """The generated activation at this signal and noise."""
        d = self.data
        return GeneratedAttention(_module(self.activation, d.task, d.tokens), d.nu, d.noise, np.array([]))


PAPER = tuple(
    Point(activation, Data(task, 3, nu, alpha, 0.3))
    for task, nu in (("spiked", 1.0), ("spiked", 2.0), ("max", inf))
    for alpha in (2.0, 4.0, 8.0)
    for activation in ("softmax", "linear")
)


@lru_cache(maxsize=16)
def _module(activation: str, task: str, tokens: int) -> ModuleType:
    return generate(derive(activation, task, tokens)).load()


def _ledger(folder: Path) -> Ledger:
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(folder / "paper.sqlite")
    for lines in ("theory.jsonl", "trained.jsonl"):
        ledger.take_over(folder / lines)
    return ledger


def solved(points: Iterable[Point], folder: Path) -> dict[str, dict[str, Any]]:
    """The theory at every point by name, solved where the ledger does not have it for the same generated module."""
    with _ledger(folder) as ledger:
        return {point.name: _solved(point, ledger) for point in points}


def _solved(point: Point, ledger: Ledger) -> dict[str, Any]:
    module, data = point.attention().module, point.data

    def build() -> dict[str, Any]:
        begin = time.perf_counter()
        ridge = {"lambda_k": point.lambda_k, "lambda_v": point.lambda_v}
        solution = module.solve(data.alpha, data.nu, data.noise, **ridge, tol=TOLERANCE)
        fields = solution._asdict() | solution.order_parameters
        kept = ("error", "converged", "rs_stable", "replicon", "jump_weight")
        entry = {name: fields[name] for name in (*QUANTITIES, *kept)} | {"warnings": list(solution.warnings)}
        seconds = time.perf_counter() - begin
        _say(f"solved {point.name}: {seconds:.0f} s")
        return entry | {"errors": {**solution.errors, "test_risk": solution.error}, "seconds": seconds}

    key = point.key(signature=module.METADATA["signature"], tolerance=TOLERANCE)
    return dict(ledger.once(key, build))


def trained(
    points: Sequence[Point], folder: Path, size: float, seeds: int, part: tuple[int, int] = (1, 1)
) -> dict[str, list[dict[str, Any]]]:
    """The rows of every training by the point's name, those missing done now (`part` i of n: every n-th of them)."""
    laws = dict.fromkeys(point.data for point in points)
    draws = [(data, data.dim(size), seed) for seed in range(seeds) for data in laws]
    with _ledger(folder) as ledger:
        for data, dim, seed in draws[part[0] - 1 :: part[1]]:
            here = {p.key(**_run(dim, seed)): p for p in points if p.data == data}
            known = ledger.rows(here)
            _train({key: point for key, point in here.items() if key not in known}, dim, seed, ledger)
        keys = {p.name: [p.key(**_run(p.data.dim(size), seed)) for seed in range(seeds)] for p in points}
        found = {name: [ledger.get(key) for key in here] for name, here in keys.items()}
    return {name: [entry for entry in entries if entry is not None] for name, entries in found.items()}


def _train(missing: Mapping[str, Point], dim: int, seed: int, ledger: Ledger) -> None:
    """Train the points, which share their data, and keep each as soon as it is done."""
    if not missing:
        return
    begin = time.perf_counter()
    dataset = _drawn(next(iter(missing.values())), dim, seed)
    _say(f"drew N = {dataset.samples}, D = {dim}, seed {seed}: {time.perf_counter() - begin:.0f} s")
    for key, point in missing.items():
        entry = ledger.put(key, _one(point, dataset, dim, seed))
        _say(f"trained {point.name}, seed {seed}: {entry['seconds']:.0f} s, {entry['iterations']} iterations")


def _run(dim: int, seed: int) -> dict[str, int]:
    return {"dim": dim, "seed": seed, "root_seed": ROOT_SEED}


def _drawn(point: Point, dim: int, seed: int) -> Dataset:
    """The data of one seed, in single precision."""
    rng, _ = streams(ROOT_SEED, dim, seed)
    return point.attention().setting(point.data.alpha, single=True).sampler(dim, rng).draw(rng)


def _one(point: Point, dataset: Dataset, dim: int, seed: int) -> dict[str, Any]:
    """One training from the informed start, with its quantities when it converged."""
    begin = time.perf_counter()
    attention, lambdas = point.attention(), (point.lambda_k, point.lambda_v)
    _, rng = streams(ROOT_SEED, dim, seed)
    end = train(dataset, attention, lambdas, attention.start("informed"), rng)
    values = dict(measure(dataset, end, attention, lambdas, attention.risk)) if end.converged else None
    found = {"values": values, "gradient_norm": end.gradient_norm, "iterations": end.iterations}
    return {**found, "samples": dataset.samples, "seconds": time.perf_counter() - begin}


def _say(text: str) -> None:
    print(text, file=stderr, flush=True)


def table(points: Sequence[Point], folder: Path, size: float = SIZE, seeds: int = SEEDS) -> str:
    """The comparison as Markdown, after whatever of it was missing has been computed."""
    theory = solved(points, folder)
    records = trained(points, folder, size, seeds)
    dims = {point.name: point.data.dim(size) for point in points}
    values = {
        name: {q: {dims[name]: np.array([e["values"][q] for e in lines if e["values"]])} for q in QUANTITIES}
        for name, lines in records.items()
    }
    failures = sum(entry["values"] is None for lines in records.values() for entry in lines)
    errors = {name: {q: entry["errors"][q] for q in QUANTITIES} for name, entry in theory.items()}
    comparison = compare_grid(values, theory, errors, false_alarm=FALSE_ALARM, shift=SHIFT)
    rows = [_row(point, dims[point.name], theory[point.name], comparison) for point in points]
    header = "| point | D | stable | theory | trained | z | largest abs z | smallest adjusted p |"
    return "\n".join(
        [_heading(points, size, seeds), "", header, "|---" * 8 + "|", *rows, "", _end(comparison, failures)]
    )


def _heading(points: Sequence[Point], size: float, seeds: int) -> str:
    ridges = sorted({(p.lambda_k, p.lambda_v) for p in points})
    noises = sorted({p.data.noise for p in points})
    tokens = sorted({p.data.tokens for p in points})
    text = f"sqrt(N D) = {size:g}, {seeds} seeds (root {ROOT_SEED}), L = {tokens}, noise {noises}"
    return (
        f"{text}, (lambda_k, lambda_v) = {ridges}. Theory and trained are test risks; z and p are over all quantities."
    )


def _row(point: Point, dim: int, theory: Mapping[str, Any], comparison: Comparison) -> str:
    tests = {q: comparison.tests[f"{point.name}:{q}"] for q in QUANTITIES}
    risk = tests["test_risk"]
    worst = max(tests, key=lambda q: abs(tests[q].z))
    cells = (
        point.name,
        dim,
        "yes" if theory["rs_stable"] else "no",
        f"{risk.theory:.5f} ({theory['error']:.0e})",
        f"{risk.mean:.5f} +- {risk.sem:.5f}",
        f"{risk.z:.2f}",
        f"{abs(tests[worst].z):.2f} ({worst})",
        f"{min(test.adjusted_p for test in tests.values()):.2g}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _end(comparison: Comparison, failures: int) -> str:
    rate = f"family-wise false-alarm rate {comparison.false_alarm:g}"
    seen = f"a shift by {comparison.shift:.0%} of any point is seen with probability {comparison.power:.3f} or more"
    left_out = f" {failures} trainings did not converge and are left out." if failures else ""
    return f"Verdict: {comparison.verdict} (Holm, {len(comparison.tests)} tests, {rate}; {seen}).{left_out}"


def _part(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is i/n with 1 <= i <= n, as in 1/2")
    return int(number), int(of)


@one_thread()
def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m replicode.validation.studies.paper", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=float, default=SIZE, help="sqrt(N D)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--part", type=_part, default=None, help="i/n: train every n-th of the data sets only")
    asked = parser.parse_args()
    if asked.part is not None:
        trained(PAPER, asked.folder, asked.size, asked.seeds, asked.part)
    else:
        print(table(PAPER, asked.folder, asked.size, asked.seeds))


if __name__ == "__main__":
    main()
