"""Infinite data: excess risk against nu of the paper's four activations, spiked and max, fixed and variable length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from replicode.cache import once
from replicode.figures.drawing import ERF, LINEAR, SOFTMAX, SOFTPLUS, tokens_label
from replicode.figures.table import Rows, Say
from replicode.inputs.content import activation_content, task_content
from replicode.verbs.population import population

CURVES = (SOFTMAX, SOFTPLUS, ERF, LINEAR)
VARIABLE = "1:0.2,2:0.3,3:0.5"
DIGITS = 2  # an error of 10^-2 is about the width of a line; where the optimum is at a finite k it is below 1e-10


class Panel(NamedTuple):
    """A task and a length with the signals drawn; those in `quick` are the ones of the quick figure."""

    task: str
    tokens: int | str
    nus: tuple[float, ...]
    quick: tuple[float, ...]
    log: bool


_SPIKED = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
_MAX = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, math.inf)
PANELS = (
    Panel("spiked", 3, _SPIKED, (0.5, 2.0, 6.0), True),
    Panel("spiked", VARIABLE, _SPIKED, (0.5, 2.0, 6.0), True),
    Panel("max", 3, _MAX, (0.5, 2.0), False),
    Panel("max", VARIABLE, _MAX, (0.5, 2.0), False),
)


def compute(quick: bool, say: Say, panels: Sequence[Panel] = PANELS) -> tuple[Rows, list[str], list[str]]:
    """The rows of every panel, notes, and warnings of what is not to be trusted."""
    rows: Rows = []
    for panel in panels:
        for nu in panel.quick if quick else panel.nus:
            for curve in CURVES:
                rows.append(_point(curve.activation, panel.task, panel.tokens, nu))
                say(f"{_named(rows[-1])}: excess risk {rows[-1]['excess_risk']:.6f} +- {rows[-1]['error']:.0e}")
    notes = [
        f"{_named(row)}: approached as |k| grows without bound" for row in rows if row["unbounded"] and row["error"] > 0
    ]
    return rows, notes, [warning for row in rows for warning in _distrust(row)]


def _point(activation: str, task: str, tokens: int | str, nu: float) -> dict[str, Any]:
    def build() -> dict[str, Any]:
        found = population(activation, task=task, tokens=tokens, nu=nu, digits=DIGITS)
        order = found.order_parameters
        return {
            "excess_risk": found.excess_risk,
            "error": found.error,
            "bayes_excess_risk": found.bayes_risk,
            "nishimori": found.nishimori,
            "unbounded": math.isinf(order["m_k"]),
            **{name: float(order[name]) for name in ("m_k", "q_k", "m_v", "q_v")},
            "parameters": dict(found.parameters),
            "closed_form": found.closed_form,
            "method": found.method,
            "warnings": list(found.warnings),
        }

    key = "population", activation_content(activation), task_content(task), str(tokens), nu, DIGITS
    payload = once("figure", key, build)
    where = {"task": task, "tokens": tokens, "nu": nu, "noise": 0.0, "activation": activation}
    return where | payload


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['activation']}, {row['task']}, tokens {row['tokens']}, nu = {row['nu']:g}"


def _distrust(row: Mapping[str, Any]) -> list[str]:
    """Why a point is not to be trusted; an optimum at infinite k is in the notes, and what it leaves in the error."""
    told = list(row["warnings"]) if not row["unbounded"] else []
    if not row["error"] <= 10.0**-DIGITS:
        told.append(f"the error {row['error']:.1e} is above {10.0**-DIGITS:g}")
    if row["unbounded"] and row["excess_risk"] < row["bayes_excess_risk"] - row["error"]:
        told.append("the excess risk is below the Bayes value")
    return [f"{_named(row)}: {text}" for text in dict.fromkeys(told)]


def draw(plt: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """One panel for each task (rows) and length (columns)."""
    figure, grid = plt.subplots(2, 2, figsize=(7.0, 5.8), sharex="row", sharey="row", layout="constrained")
    for axes, panel in zip(grid.flat, PANELS):
        here = [r for r in rows if (r["task"], r["tokens"]) == (panel.task, panel.tokens)]
        _panel(axes, panel, here)
    for axes in grid[:, 0]:
        axes.set_ylabel(r"excess risk $\mathbb{E}\,(y - f)^2 - \Delta^2$")
    for axes in grid.flat:
        axes.set_xlabel(r"signal $\nu$")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), columnspacing=1.4, handlelength=2.2)
    return figure


def _panel(axes: Any, panel: Panel, rows: Sequence[Mapping[str, Any]]) -> None:
    """Lines through the finite signals; the limit nu = inf stands apart at the right."""
    finite = sorted({r["nu"] for r in rows if math.isfinite(r["nu"])})
    limit = 1.14 * finite[-1]
    step = 1 + math.floor(finite[-1]) // 8
    ticks = {float(t): str(t) for t in range(0, math.floor(finite[-1]) + 1, step)}
    if any(math.isinf(r["nu"]) for r in rows):
        ticks[limit] = r"$\infty$"
        axes.axvline((finite[-1] + limit) / 2.0, color="0.75", linewidth=0.7, linestyle=(0, (1, 2)))
    axes.set_xticks(list(ticks), list(ticks.values()))
    bayes = {r["nu"]: r["bayes_excess_risk"] for r in rows}
    axes.plot(finite, [bayes[nu] for nu in finite], color="0.8", linewidth=5.0, solid_capstyle="round", label="Bayes")
    if math.inf in bayes:
        axes.plot([limit], [bayes[math.inf]], "o", color="0.8", markersize=8.0)
    for curve in CURVES:
        at = {r["nu"]: r for r in rows if r["activation"] == curve.activation}
        look = {"color": curve.colour, "marker": curve.marker, "markersize": 3.6}
        axes.plot(finite, [at[nu]["excess_risk"] for nu in finite], label=curve.label, **look)
        if math.inf in at:
            end = at[math.inf]
            axes.errorbar([limit], [end["excess_risk"]], yerr=[end["error"]], capsize=2.0, **look)
    if panel.log:
        axes.set_yscale("log")
        least = min(r["excess_risk"] for r in rows)
        levels = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if t > 0.7 * least]
        axes.set_yticks(levels, [f"{t:g}" for t in levels])
        axes.minorticks_off()
    axes.set_title(f"{panel.task}, {tokens_label(panel.tokens)}")
