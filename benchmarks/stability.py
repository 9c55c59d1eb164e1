"""What `rs_stable` is worth: its diagnostics against trained attention, as the tables of docs/stability.md.

`python -m benchmarks.stability FILE.sqlite` trains (about forty minutes of one core; the file makes it resumable) and
prints; run again it only prints. A second argument is a folder for the maps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.timing import table
from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive
from replicode.validation.experiment import streams
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.measure import measure
from replicode.validation.studies.discrepancy import Row, figure, scan
from replicode.validation.training.response import loss_curvatures, response
from replicode.validation.training.train import Informed, Random, train

NOISE, TOLERATED = 0.3, 0.02
NUS, LAMBDAS = (0.5, 1.0, 2.0, 4.0), (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
SOFTMAX = [("softmax", 2, alpha, NUS, LAMBDAS, 400, 32, 4) for alpha in (3.0, 4.0)]
LINEAR = [
    ("linear", 2, 4.0, (1.0,), (1.0, 0.5, 0.3, 0.2), 300, 24, 3),
    ("linear", 2, 4.0, (4.0,), (0.5, 0.2, 0.1, 0.05), 300, 24, 3),
    ("linear", 3, 4.0, (1.0,), (2.0, 1.0, 0.7, 0.5), 300, 24, 3),
    ("linear", 3, 4.0, (4.0,), (1.0, 0.5, 0.2), 300, 24, 3),
]
STARTED = ((4.0, 2.0, 0.5), (4.0, 2.0, 0.1), (4.0, 2.0, 0.05), (3.0, 0.5, 0.1), (4.0, 0.5, 0.05), (3.0, 0.5, 0.02))
SHOWN = ("test_risk", "energy", "q_k", "V_k")


def measured(path: Path) -> list[list[Row]]:
    """The rows of every scan."""
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    return [
        scan(act, "spiked", tokens, nus, lambdas, alpha, NOISE, dim, seeds, digits=digits, path=path, say=say)
        for act, tokens, alpha, nus, lambdas, dim, seeds, digits in (*SOFTMAX, *LINEAR)
    ]


def parted(row: Row) -> bool:
    """Whether training contradicts the theory: the risk by more than it may, or the corrected tests of seven."""
    deviation, error = row.deviation()
    return row.verdict == "disagrees" or abs(deviation) > TOLERATED + 2.0 * error


def amplified(row: Row) -> float:
    """The jump shift as the smooth response passes it on."""
    return row.jump_shift / (1.0 - row.replicon) if row.replicon < 1.0 else np.inf


SCORES = {
    "replicon": lambda row: row.replicon,
    "jump weight": lambda row: row.jump_weight,
    "jump shift": lambda row: row.jump_shift,
    "jump shift/(1 - replicon)": amplified,
    "folded mass": lambda row: row.folded_mass if np.isfinite(row.folded_mass) else np.inf,
}


def points(rows: list[Row]) -> None:
    """Every point, by its jump shift."""
    lines = []
    for row in sorted(rows, key=lambda r: r.jump_shift):
        case = row.case
        found = [f"{100 * d:+.1f} ± {100 * e:.1f}" for d, e in map(row.deviation, SHOWN)]
        where = f"{case.activation} {case.tokens}, {case.alpha:g}, {case.nu:g}, {case.penalty:g}"
        apart = ", ".join(f.__name__ for f in (parted, stiffer) if f(row))
        diagnostics = (f"{row.replicon:.2f}", f"{row.trained_replicon:.2f}", f"{row.jump_shift:.1e}")
        lines.append((where, *diagnostics, *found, apart, "yes" if row.rs_stable else "no"))
    table(("L, alpha, nu, lambda", "replicon", "trained", "shift", *SHOWN, "", "rs_stable"), lines)


def stiffer(row: Row) -> bool:
    """Whether V_k or V_v contradict the response at the trained minima."""
    return row.response_comparison is not None and row.response_comparison.verdict == "disagrees"


def separation(rows: list[Row], apart) -> None:
    """How well each score ranks the points that are apart above the others, and the threshold that it leaves."""
    bad = np.array([apart(row) for row in rows])
    lines = []
    for name, score in SCORES.items():
        values = np.array([score(row) for row in rows])
        high, low = values[bad][:, None], values[~bad][None, :]
        area = np.mean((high > low) + 0.5 * (high == low)) if high.size and low.size else np.nan
        least = values[bad].min(initial=np.inf)
        lines.append((name, f"{area:.3f}", f"{least:.2g}", int((values[~bad] >= least).sum())))
    print(f"{int(bad.sum())} of {len(rows)} points are {apart.__name__}.\n")
    table(("score", "area under ROC", f"least where {apart.__name__}", "others at or above it"), lines)


def thresholds(rows: list[Row], limits: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)) -> None:
    """What each limit on the jump shift, with replicon < 1, calls stable."""
    lines = []
    for limit in limits:
        stable = [r for r in rows if r.replicon < 1.0 and r.jump_shift < limit]
        rest = [r for r in rows if r not in stable]
        worst = max((abs(r.deviation()[0]) for r in stable), default=0.0)
        counts = (len(stable), sum(map(parted, stable)), f"{worst:.1%}", sum(not parted(r) for r in rest))
        lines.append((f"{limit:g}", *counts))
    table(("shift below", "called stable", "of them parted", "worst test risk", "others not parted"), lines)


def responses(places=((4.0, 2.0, 0.5), (4.0, 2.0, 0.1), (3.0, 0.5, 0.1)), dim=600, seeds=12) -> None:
    """Tr R_bb/D and |R_kk|_F^2/D of single large trainings against the theory, softmax at two tokens."""
    module, lines = generate(derive("softmax", "spiked", 2)).load(), []
    for alpha, nu, penalty in places:
        attention, lambdas = GeneratedAttention(module, nu, NOISE, np.array([])), (penalty, penalty)
        found = []
        for seed in range(seeds):
            data_rng, start_rng = streams(0, dim, seed)
            dataset = attention.setting(alpha).sampler(dim, data_rng).draw(data_rng)
            trained = train(dataset, attention, lambdas, attention.start("informed"), start_rng)
            at = response(dataset, trained, loss_curvatures(attention), lambdas)
            found.append((at.V_k, at.V_v, at.replicon))
        solved = module.solve(alpha, nu, NOISE, *lambdas, tol=1e-4)
        theory = (solved.order_parameters["V_k"], solved.order_parameters["V_v"], solved.replicon)
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(seeds)
        cells = [f"{t:.4f}, {m:.4f} ± {e:.4f}" for t, m, e in zip(theory, mean, error)]
        lines.append((f"{alpha:g}, {nu:g}, {penalty:g}", *cells))
    table(("alpha, nu, lambda", "V_k", "V_v", "replicon"), lines)


def minima(places=STARTED, dim=200, seeds=6, starts=5) -> None:
    """How many minima training finds on the same data from informed, shaken and random starts, and which is lowest."""
    module, lines = generate(derive("softmax", "spiked", 2)).load(), []
    for alpha, nu, penalty in places:
        attention, lambdas = GeneratedAttention(module, nu, NOISE, np.array([])), (penalty, penalty)
        told = attention.start("informed")
        shaken = Informed(told.m_k, told.q_k + 1.0, told.m_v, told.q_v + 1.0)
        every = [told, *[shaken] * starts, *[Random(1.0)] * starts]
        energy, risk = np.empty((2, seeds, len(every)))
        for seed in range(seeds):
            data_rng, _ = streams(0, dim, seed)
            dataset = attention.setting(alpha).sampler(dim, data_rng).draw(data_rng)
            for i, start in enumerate(every):
                end = train(dataset, attention, lambdas, start, np.random.default_rng((seed, i)))
                found = measure(dataset, end, attention, lambdas, attention.risk)
                energy[seed, i], risk[seed, i] = found["energy"], found["test_risk"]
        distinct = np.mean([len(np.unique(np.round(np.log(e) / 1e-5))) for e in energy])
        above = 100.0 * (energy / energy.min(axis=1, keepdims=True) - 1.0)
        parts = (above[:, 0], above[:, 1 : starts + 1], above[:, starts + 1 :])
        lowest = np.take_along_axis(risk, energy.argmin(axis=1)[:, None], axis=1).mean()
        risks = (f"{risk[:, 0].mean():.4f}", f"{lowest:.4f}")
        where = f"{alpha:g}, {nu:g}, {penalty:g}"
        lines.append((where, f"{distinct:.1f}", *(f"{part.mean():.2f}" for part in parts), *risks))
    above = tuple(f"{name}: % above lowest" for name in ("informed", "shaken", "random"))
    risks = ("risk, informed", "risk, lowest")
    table(("alpha, nu, lambda", f"minima of {len(every)}", *above, *risks), lines)


if __name__ == "__main__":
    grids = measured(Path(sys.argv[1]))
    everything = [row for rows in grids for row in rows]
    points(everything)
    for apart in (parted, stiffer):
        separation(everything, apart)
    thresholds(everything)
    responses()
    minima()
    for place, rows in enumerate(grids if len(sys.argv) > 2 else []):
        figure(rows, Path(sys.argv[2]) / f"stability-{place + 1}.png")
