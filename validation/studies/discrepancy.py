"""Where theory and trained attention part: a scan over (nu, lambda) and its map, the stability verdict on top.

Every (point, dimension) of trainings and every solved point is one row of a ledger, so a scan that was stopped goes on
where it was, and a changed solver is met by the trainings that are already there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import hypot, isfinite, nan
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from replicode.codegen.compiler import generate
from replicode.codegen.threads import one_thread
from replicode.codegen.writing import write_picture
from replicode.theory.derive.saddle import derive
from replicode.theory.errors import InputError
from replicode.theory.language.activation import activation as activation_of
from replicode.theory.lengths import lengths
from replicode.theory.limits import given_parameters
from replicode.validation.data.sampling import Array
from replicode.validation.experiment import MOST_FAILURES, streams
from replicode.validation.ledger import Ledger
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import Comparison, compare
from replicode.validation.statistics.measure import QUANTITIES, measure
from replicode.validation.studies.cost import check_cost
from replicode.validation.training.response import TrainedResponse, loss_curvatures, response
from replicode.validation.training.train import train

Say = Callable[[str], None]

RESPONSES = ("V_k", "V_v")
COMPARED = (*QUANTITIES, *RESPONSES)
KEPT = (*QUANTITIES, *TrainedResponse._fields)


@dataclass(frozen=True)
class Case:
    """A point of a scan; the two penalties are lambda each."""

    activation: str
    task: str
    tokens: str
    parameters: tuple[tuple[str, float], ...]
    alpha: float
    nu: float
    noise: float
    penalty: float
    init: str

    @property
    def lambdas(self) -> tuple[float, float]:
        """lambda_k and lambda_v."""
        return self.penalty, self.penalty


@dataclass(frozen=True, eq=False)
class Row:
    """Theory and training at one point: trained[quantity][D] over seeds, and what the stability verdict rests on.

    `jump_shift` is what the jumps of the prox add to 1/V_k, relative to it.
    """

    case: Case
    theory: Mapping[str, float]
    theory_error: Mapping[str, float]
    converged: bool
    rs_stable: bool
    replicon: float
    jump_weight: float
    jump_shift: float
    folded_mass: float
    trained: Mapping[str, Mapping[int, Array]]
    failures: int

    @cached_property
    def comparison(self) -> Comparison | None:
        """The corrected tests of the seven quantities, as in `validate`; None where there is nothing to compare."""
        return self._compared(QUANTITIES)

    @cached_property
    def response_comparison(self) -> Comparison | None:
        """The corrected tests of V_k and V_v against Tr R_bb/D at the trained minima."""
        return self._compared(RESPONSES)

    def _compared(self, names: Sequence[str]) -> Comparison | None:
        if not self.converged or not any(len(sample) > 1 for sample in self.trained[names[0]].values()):
            return None
        return compare({q: self.trained[q] for q in names}, self.theory, self.theory_error)

    @property
    def verdict(self) -> str:
        """agrees, disagrees or undecided; undecided too where many trainings failed."""
        total = self.failures + sum(len(sample) for sample in self.trained["energy"].values())
        if self.comparison is None or self.failures > MOST_FAILURES * total:
            return "undecided"
        return self.comparison.verdict

    def deviation(self, quantity: str = "test_risk") -> tuple[float, float]:
        """(trained - theory)/theory after extrapolation in 1/D, and its standard error."""
        found = self.response_comparison if quantity in RESPONSES else self.comparison
        if found is None:
            return nan, nan
        test = found.tests[quantity]
        size = abs(test.theory)
        return (test.mean - test.theory) / size, hypot(test.sem, test.theory_error) / size

    @property
    def trained_replicon(self) -> float:
        """The replicon of the minima that training found, averaged over seeds at the largest dimension."""
        largest = max(self.trained["energy"])
        columns = [self.trained[name][largest] for name in TrainedResponse._fields]
        found = [TrainedResponse(*values).replicon for values in zip(*columns, strict=True)]
        return float(np.mean(found)) if found else nan

    def as_dict(self) -> dict[str, Any]:
        """The row ready for JSON, trained values as mean and standard error."""
        families = [f.tests for f in (self.comparison, self.response_comparison) if f is not None]
        tests = {q: test for family in families for q, test in family.items()}
        deviation, error = self.deviation()
        return {
            **asdict(self.case),
            "theory": dict(self.theory),
            "trained": {q: {"mean": t.mean, "sem": t.sem, "z": t.z} for q, t in tests.items()},
            "deviation": deviation,
            "deviation_error": error,
            "verdict": self.verdict,
            "rs_stable": self.rs_stable,
            "replicon": self.replicon,
            "jump_weight": self.jump_weight,
            "jump_shift": self.jump_shift,
            "failures": self.failures,
        }


@one_thread()
def scan(
    activation: str,
    task: str,
    tokens: int | str,
    nus: Sequence[float],
    lambdas: Sequence[float],
    alpha: float,
    noise: float,
    dim: int = 400,
    seeds: int = 24,
    *,
    init: str = "informed",
    digits: int = 4,
    path: Path | None = None,
    say: Say = lambda text: None,
    parameters: Mapping[str, float] | None = None,
    module: ModuleType | None = None,
    **more: float,
) -> list[Row]:
    """Solve and train at every (nu, lambda), at D/4, D/2 and D, keeping what is done in the ledger `path`.

    `module` is the generated module of the activation, where it is at hand.
    """
    check_scan(nus, lambdas, alpha, noise, dim, seeds, init, digits)
    law = str(lengths(tokens))
    check_cost(lengths(tokens), alpha, (dim // 4, dim // 2, dim), seeds * len(nus) * len(lambdas))
    act = activation_of(activation, given_parameters(parameters, more))
    settled = act.settled()
    module = module or generate(derive(act, task, law)).load()
    keep = Ledger(path)
    rows = []
    for nu in nus:
        for penalty in lambdas:
            values = tuple(sorted(settled.items()))
            case = Case(activation, task, law, values, float(alpha), float(nu), float(noise), float(penalty), init)
            rows.append(_row(case, module, (dim // 4, dim // 2, dim), seeds, digits, keep))
            say(_line(rows[-1]))
    return rows


def check_scan(
    nus: Sequence[float],
    lambdas: Sequence[float],
    alpha: float,
    noise: float,
    dim: int,
    seeds: int,
    init: str = "informed",
    digits: int = 4,
) -> None:
    """An InputError for a scan that cannot be run; what a single point needs is checked by its solver."""
    for name, values in (("nu", nus), ("lambda", lambdas)):
        if not values or len(set(values)) < len(values) or not all(x >= 0 for x in values):
            raise InputError(name, tuple(values), "distinct numbers, 0 or above")
    if dim < 40:
        raise InputError("dim", dim, "a whole number of at least 40")
    if seeds < 2:
        raise InputError("seeds", seeds, "at least 2, to have a standard error")
    if init not in ("informed", "random"):
        raise InputError("init", init, "informed or random")
    if not 1 <= digits <= 12:
        raise InputError("digits", digits, "a whole number from 1 to 12")
    if not (isfinite(alpha) and alpha > 0):
        raise InputError("alpha", alpha, "a finite number above 0")
    if not (isfinite(noise) and noise >= 0):
        raise InputError("noise", noise, "a finite number of at least 0")


def _row(case: Case, module: ModuleType, dims: tuple[int, ...], seeds: int, digits: int, keep: Ledger) -> Row:
    """The row of a point, from the file as far as it is there."""
    solved = _solved(case, module, digits, keep)
    attention = GeneratedAttention(module, case.nu, case.noise, np.array([x for _, x in case.parameters]))
    outcomes = {dim: _trainings(case, attention, dim, seeds, keep, module.METADATA) for dim in dims}
    good = {dim: [o for o in found if o is not None] for dim, found in outcomes.items()}
    trained = {q: {dim: np.array([o[i] for o in good[dim]]) for dim in dims} for i, q in enumerate(KEPT)}
    failures = sum(len(outcomes[dim]) - len(good[dim]) for dim in dims)
    return Row(case, **solved, trained=trained, failures=failures)


def _solved(case: Case, module: ModuleType, digits: int, keep: Ledger) -> dict[str, Any]:
    """The theory's side of a row; kept for this very solver only."""
    key = {"solved": asdict(case), "digits": digits, "signature": module.METADATA["signature"]}
    return dict(keep.once(key, lambda: _theory(case, module, digits)))


def _theory(case: Case, module: ModuleType, digits: int) -> dict[str, Any]:
    """What the solver says of a point, ready to be kept."""
    physics = (case.alpha, case.nu, case.noise, *case.lambdas)
    found = module.solve(*physics, init=case.init, tol=10.0**-digits, **dict(case.parameters))
    fields = found._asdict() | found.order_parameters
    errors = {**found.errors, "test_risk": found.error}
    return {
        "theory": {q: float(fields[q]) for q in COMPARED},
        "theory_error": {q: float(errors[q]) for q in COMPARED},
        **{name: fields[name] for name in ("converged", "rs_stable", "replicon", "jump_weight", "folded_mass")},
        "jump_shift": found.jump_weight * abs(found.conjugates["Vh_k"]) * found.order_parameters["V_k"],
    }


def _trainings(
    case: Case, attention: GeneratedAttention, dim: int, seeds: int, keep: Ledger, metadata: Mapping[str, Any]
) -> list[list[float] | None]:
    """The KEPT numbers of each training at one dimension, None where it did not converge; more seeds only add.

    Kept for what the names stand for, not for the names.
    """
    content = {name: metadata[name] for name in ("activation", "task")}
    key = {"trained": asdict(case) | content, "dim": dim}
    found = list(keep.get(key) or [])
    if len(found) >= seeds:
        return found[:seeds]
    found += [_training(case, attention, dim, seed) for seed in range(len(found), seeds)]
    keep.put(key, found)
    return found


def _training(case: Case, attention: GeneratedAttention, dim: int, seed: int) -> list[float] | None:
    """One training: the seven quantities, and the response at its minimum."""
    data_rng, start_rng = streams(0, dim, seed)
    dataset = attention.setting(case.alpha).sampler(dim, data_rng).draw(data_rng)
    trained = train(dataset, attention, case.lambdas, attention.start(case.init), start_rng)
    if not trained.converged:
        return None
    measured = measure(dataset, trained, attention, case.lambdas, attention.risk)
    at_minimum = response(dataset, trained, loss_curvatures(attention), case.lambdas)
    return [*(float(measured[q]) for q in QUANTITIES), *at_minimum]


def _line(row: Row) -> str:
    """What is said of a finished row."""
    deviation, error = row.deviation()
    stable = "stable" if row.rs_stable else "not stable"
    diagnostics = f"replicon {row.replicon:.2f}, jumps shift 1/V_k by {row.jump_shift:.1%}"
    found = f"test risk {deviation:+.2%} +- {error:.2%}"
    return f"nu {row.case.nu:g}, lambda {row.case.penalty:g}: {found}, {row.verdict}; {stable} ({diagnostics})"


def figure(rows: Sequence[Row], path: Path, quantity: str = "test_risk") -> Path | None:
    """The (nu, lambda) map of the relative deviation, with the edge of stability; None without matplotlib.

    Cells carry the deviation and its standard error in per cent, in bold where the corrected tests of the point
    disagree; the line separates what the engine calls stable from what it does not.
    """
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    nus, penalties = (sorted({getattr(r.case, n) for r in rows}) for n in ("nu", "penalty"))
    place = {(r.case.nu, r.case.penalty): r for r in rows}
    cells = [[place.get((nu, penalty)) for nu in nus] for penalty in penalties]
    percent = np.array([[100.0 * r.deviation(quantity)[0] if r else nan for r in line] for line in cells])
    stable = np.array([[bool(r and r.rs_stable) for r in line] for line in cells])
    canvas, axes = plt.subplots(figsize=(1.6 + 1.15 * len(nus), 1.5 + 0.5 * len(penalties)), layout="constrained")
    norm = matplotlib.colors.SymLogNorm(linthresh=1.0, linscale=0.5, vmin=-50.0, vmax=50.0)
    image = axes.imshow(np.ma.masked_invalid(percent), cmap="RdBu_r", norm=norm, origin="lower", aspect="auto")
    for i, line in enumerate(cells):
        for j, row in enumerate(line):
            if row is not None:
                _write_cell(axes, j, i, row, quantity)
    for start, end in _edges(stable):
        axes.plot(*zip(start, end), color="black", linewidth=2.5, solid_capstyle="round")
    axes.set_xticks(range(len(nus)), [f"{nu:g}" for nu in nus])
    axes.set_yticks(range(len(penalties)), [f"{x:g}" for x in penalties])
    axes.set_xlabel(r"$\nu$")
    axes.set_ylabel(r"$\lambda_k = \lambda_v$")
    case = rows[0].case
    setting = rf"{case.activation}, $L={case.tokens}$, $\alpha={case.alpha:g}$, $\Delta={case.noise:g}$"
    axes.set_title(f"{setting}\nline: edge of stability; bold: corrected tests disagree", fontsize=9)
    bar = canvas.colorbar(image, ax=axes, ticks=[-50, -10, -1, 0, 1, 10, 50])
    bar.ax.set_yticklabels(["-50", "-10", "-1", "0", "1", "10", "50"])
    bar.set_label(f"{quantity.replace('_', ' ')}: (trained - theory)/theory, %")
    try:
        return write_picture(path, canvas, dpi=150)
    finally:
        plt.close(canvas)


def _write_cell(axes: Any, x: int, y: int, row: Row, quantity: str) -> None:
    """The deviation of a cell and its standard error in per cent."""
    deviation, error = (100.0 * value for value in row.deviation(quantity))
    if not np.isfinite(deviation):
        axes.text(x, y, "no theory", ha="center", va="center", fontsize=7)
        return
    weight = "bold" if row.verdict == "disagrees" else "normal"
    colour = "white" if abs(deviation) > 5.0 else "black"
    text = f"{deviation:+.1f} $\\pm$ {error:.1f}"
    axes.text(x, y, text, ha="center", va="center", fontsize=7, weight=weight, color=colour)


def _edges(stable: np.ndarray[Any, Any]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The sides between cells of different verdict, as pairs of points (x, y)."""
    across = [((j + 0.5, i - 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(stable[:, 1:] != stable[:, :-1])]
    along = [((j - 0.5, i + 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(stable[1:] != stable[:-1])]
    return [*across, *along]
