"""Finite samples: test risk against alpha of softmax and linear attention, theory and trained, with the Bayes line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any, NamedTuple

from replicode.figures.drawing import BAYES_COLOUR, LINEAR, SOFTMAX, CurveStyle, signal
from replicode.figures.points import Place, Ridge, bayes_point, optimal_point, theory_point, trained_point
from replicode.figures.table import Rows, Say
from replicode.validation.experiment import MOST_FAILURES
from replicode.validation.statistics.comparison import FALSE_ALARM, Comparison, compare_grid

CURVES = (SOFTMAX, LINEAR)
TOKENS, NOISE = 3, 0.3
ROOT_SEED = 2509
STATED = Ridge(1.0, 1.0)


class Panel(NamedTuple):
    """A task at a signal."""

    task: str
    nu: float


PANELS = (Panel("spiked", 1.0), Panel("spiked", 2.0), Panel("max", inf))


@dataclass(frozen=True)
class Effort:
    """How much is computed: values of alpha, those trained at, sizes, and the error asked of the theory."""

    alphas: tuple[float, ...]
    trained: tuple[float, ...]
    dims: tuple[int, ...]
    seeds: int
    tolerance: float


FULL = Effort((1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0), (1.0, 2.0, 4.0, 8.0), (100, 200, 400), 12, 2e-3)
QUICK = Effort((2.0, 4.0, 8.0), (2.0, 8.0), (60, 120, 240), 6, 1e-2)


def compute(
    quick: bool, optimal: bool, say: Say, panels: Sequence[Panel] = PANELS, effort: Effort | None = None
) -> tuple[Rows, list[str], list[str]]:
    """Rows of kind theory, Bayes and trained, notes, and warnings of what is not to be trusted."""
    work = effort or (QUICK if quick else FULL)
    rows: Rows = []
    values: dict[str, Any] = {}
    for panel in panels:
        for alpha in work.alphas:
            rows.append(bayes_point(_place("", panel, alpha), work.tolerance))
            _told(rows[-1], say)
        for curve in CURVES:
            theory = _theory(curve, panel, work, optimal, say)
            rows += theory
            for row in theory:
                if row["alpha"] in work.trained:
                    found, sample = _trained(curve, panel, row, work, say)
                    rows.append(found)
                    values |= sample
    _beside_bayes(rows)
    comparison = _compared(rows, values)
    return rows, _notes(rows, comparison), _warnings(rows, comparison, work.tolerance)


def _beside_bayes(rows: Rows) -> None:
    """How far every point of the theory is from the Bayes-optimal risk."""
    best = {(r["task"], r["nu"], r["alpha"]): r["test_risk"] for r in rows if r["kind"] == "bayes"}
    for row in (r for r in rows if r["kind"] == "theory"):
        row["bayes_gap"] = row["test_risk"] - best[row["task"], row["nu"], row["alpha"]]


def _place(activation: str, panel: Panel, alpha: float) -> Place:
    return Place(activation, panel.task, TOKENS, panel.nu, NOISE, alpha)


def _theory(curve: CurveStyle, panel: Panel, work: Effort, optimal: bool, say: Say) -> Rows:
    """The curve from the smallest alpha on, each search for the best lambdas from those before.

    The best lambda_k mostly falls with alpha, and what is penalised more is solved sooner than what is penalised less.
    """
    rows: Rows = []
    ridge = STATED
    for alpha in sorted(work.alphas):
        place = _place(curve.activation, panel, alpha)
        row = optimal_point(place, ridge, work.tolerance) if optimal else theory_point(place, ridge, work.tolerance)
        if optimal and row["converged"]:
            ridge = Ridge(*(float(f"{row[name]:.3g}") for name in Ridge._fields))
        rows.append(row)
        _told(row, say)
    return rows


def _trained(
    curve: CurveStyle, panel: Panel, theory: Mapping[str, Any], work: Effort, say: Say
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trained row beside a row of the theory, and its values by name for the comparison."""
    place = _place(curve.activation, panel, theory["alpha"])
    ridge = Ridge(theory["lambda_k"], theory["lambda_v"])
    row, values = trained_point(place, ridge, work.dims, work.seeds, ROOT_SEED)
    _told(row, say)
    return row, ({_named(row): {"test_risk": values}} if row["test_risk"] is not None else {})


def _named(row: Mapping[str, Any]) -> str:
    who = row["activation"] or "Bayes-optimal"
    return f"{who}, {row['task']}, nu = {row['nu']:g}, alpha = {row['alpha']:g}"


def _told(row: Mapping[str, Any], say: Say) -> None:
    error = row["standard_error"] if row["kind"] == "trained" else row["error"]
    number = "none" if row["test_risk"] is None else f"{row['test_risk']:.5f} +- {error:.0e}"
    say(f"{row['kind']}, {_named(row)}: test risk {number}")


def _compared(rows: Rows, values: Mapping[str, Any]) -> Comparison | None:
    """All trained points against the theory as one family; writes z and the adjusted p into the trained rows."""
    theory = {_named(r): r for r in rows if r["kind"] == "theory"}
    here = {name: sample for name, sample in values.items() if isfinite(theory[name]["error"])}
    if not here:
        return None
    comparison = compare_grid(
        here,
        {name: {"test_risk": theory[name]["test_risk"]} for name in here},
        {name: {"test_risk": theory[name]["error"]} for name in here},
    )
    for row in rows:
        test = comparison.tests.get(f"{_named(row)}:test_risk") if row["kind"] == "trained" else None
        if test is not None:
            row |= {"z": test.z, "adjusted_p": test.adjusted_p}
    return comparison


def _notes(rows: Rows, comparison: Comparison | None) -> list[str]:
    notes = [f"{_named(r)}: hard phase" for r in rows if r["hard_phase"]]
    for row in rows:
        if row["at_bound"]:
            notes.append(f"{_named(row)}: {', '.join(row['at_bound'])} at the edge of the range searched")
    if comparison is not None:
        rate = f"{len(comparison.tests)} trained points, family-wise false-alarm rate {comparison.false_alarm:g}"
        seen = f"a shift of {comparison.shift:.0%} is seen with probability {comparison.power:.2f} or more"
        notes.append(f"theory and training: {comparison.verdict} ({rate}; {seen})")
    return notes


def _warnings(rows: Rows, comparison: Comparison | None, tolerance: float) -> list[str]:
    bayes = {(r["task"], r["nu"], r["alpha"]): r for r in rows if r["kind"] == "bayes"}
    told = []
    for row in rows:
        reasons = list(row["warnings"])
        if row["kind"] == "trained":
            share = row["failures"] / (row["seeds"] * len(row["dims"]))
            reasons += ["more than a tenth of the trainings failed"] if share > MOST_FAILURES else []
            reasons += ["training and theory disagree"] if (row["adjusted_p"] or 1.0) < FALSE_ALARM else []
        elif not row["error"] <= tolerance and not reasons:
            reasons.append(f"the error {row['error']:.1e} is above {tolerance:g}")
        if row["kind"] == "theory":
            best = bayes[row["task"], row["nu"], row["alpha"]]
            if row["test_risk"] + row["error"] < best["test_risk"] - best["error"]:
                reasons.append("below the Bayes-optimal risk: spurious")
        told += [f"{row['kind']}, {_named(row)}: {text}" for text in reasons]
    if comparison is None:
        told.append("no trained point could be compared with the theory")
    return told


def draw(plt: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """One panel for each task and signal."""
    panels = list(dict.fromkeys((r["task"], r["nu"]) for r in rows))
    size = 2.5 * max(len(panels), 2), 3.35
    figure, grid = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axes, panel in zip(grid.flat, panels):
        _panel(axes, panel, [r for r in rows if (r["task"], r["nu"]) == panel])
    grid[0, 0].set_ylabel(r"test risk $\mathbb{E}\,(y - f)^2$")
    handles, labels = _legend(grid[0, 0])
    if any(r["rs_stable"] is False for r in rows):
        handles.append(plt.Line2D([], [], color="0.3", linestyle=(0, (3, 2)), marker="o", markerfacecolor="white"))
        labels.append("replica symmetry broken")
    columns = (len(labels) + 1) // 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.6, handlelength=2.2)
    figure.suptitle(_setting(rows), fontsize=9.5)
    return figure


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels with the theory and the training of an activation side by side."""
    found = dict(zip(*reversed(axes.get_legend_handles_labels())))
    order = [label for label in found if not any(label.startswith(curve.label) for curve in CURVES)]
    order += [label for curve in CURVES for label in found if label.startswith(curve.label)]
    return [found[label] for label in order], order


def _setting(rows: Sequence[Mapping[str, Any]]) -> str:
    """What all panels have in common."""
    ridges = {(r["lambda_k"], r["lambda_v"]) for r in rows if r["kind"] == "theory"}
    one = next(iter(ridges))
    ridge = rf"$\lambda_k = {one[0]:g},\ \lambda_v = {one[1]:g}$"
    if len(ridges) > 1:
        ridge = r"$\lambda_k,\ \lambda_v$ of least test risk"
    text = rf"$L = {TOKENS},\ \Delta = {NOISE:g}$, {ridge}"
    trained = next((r for r in rows if r["kind"] == "trained"), None)
    if trained is None:
        return text
    dims = ", ".join(map(str, trained["dims"]))
    return rf"{text}; trained at $D = {dims}$, {trained['seeds']} seeds each, extrapolated to $D \to \infty$"


def _panel(axes: Any, panel: tuple[str, float], rows: Sequence[Mapping[str, Any]]) -> None:
    bayes = [r for r in rows if r["kind"] == "bayes"]
    trivial = axes.axhline(1.0 + NOISE**2, color="0.7", linewidth=0.8, linestyle=(0, (1, 2)), label=r"$f = 0$")
    trivial.set_zorder(0)
    alphas = [r["alpha"] for r in bayes]
    axes.plot(
        alphas, [r["test_risk"] for r in bayes], color=BAYES_COLOUR, linestyle=(0, (5, 1.5)), label="Bayes-optimal"
    )
    for curve in CURVES:
        here = [r for r in rows if r["activation"] == curve.activation]
        _theory_line(axes, curve, [r for r in here if r["kind"] == "theory"])
        trained = [r for r in here if r["kind"] == "trained" and r["test_risk"] is not None]
        if trained:
            axes.errorbar(
                [r["alpha"] for r in trained],
                [r["test_risk"] for r in trained],
                yerr=[2.0 * r["standard_error"] for r in trained],
                fmt=curve.marker,
                color=curve.colour,
                capsize=2.5,
                label=f"{curve.label}, trained (2 s.e.)",
            )
    axes.set_xscale("log", base=2)
    ticks = [t for t in (1.0, 2.0, 4.0, 8.0) if alphas[0] <= t <= alphas[-1]]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xlabel(r"$\alpha = N/D$")
    axes.set_title(rf"{panel[0]}, ${signal(panel[1])}$")


def _theory_line(axes: Any, curve: CurveStyle, rows: Sequence[Mapping[str, Any]]) -> None:
    """Solid where replica symmetry holds at both ends, dashed with an open mark where it does not."""
    axes.plot([], [], color=curve.colour, label=f"{curve.label}, theory")
    for left, right in pairwise(rows):
        solid = left["rs_stable"] and right["rs_stable"]
        ends = [left["alpha"], right["alpha"]], [left["test_risk"], right["test_risk"]]
        axes.plot(*ends, color=curve.colour, linestyle="-" if solid else (0, (3, 2)), solid_capstyle="round")
    broken = [r for r in rows if not r["rs_stable"]]
    places = [r["alpha"] for r in broken], [r["test_risk"] for r in broken]
    axes.plot(*places, "o", color=curve.colour, markerfacecolor="white", zorder=3)
