"""The figure of `curve`: test risk with its error band, dashed where replica symmetry is broken, and the Bayes line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicode.figures.drawing import BAYES_COLOUR, picture

if TYPE_CHECKING:
    from replicode.verbs.curve import Curve

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "os^Dv<"
LABELS = {
    "alpha": r"$\alpha = N/D$",
    "nu": r"$\nu$",
    "noise": r"$\Delta$",
    "lambda_k": r"$\lambda_k$",
    "lambda_v": r"$\lambda_v$",
}
BROKEN = (0, (3, 2))


def draw(found: Curve, path: Path, logarithmic: bool) -> str:
    """Write the picture in the format of its suffix."""
    with picture(path, figsize=(4.8, 3.4), layout="constrained") as (_, axes):
        _bayes(axes, found)
        looks = zip(found.activations.items(), cycle(COLOURS), cycle(MARKERS))
        for (name, columns), colour, marker in looks:
            _line(axes, found.values, columns, name, colour, found.jumps[name])
            _marks(axes, found.trained.get(name, ()), found.parameter, colour, marker)
        if logarithmic:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
        axes.set_xlim(found.values[0], found.values[-1])
        axes.set_xlabel(LABELS.get(found.parameter, found.parameter))
        axes.set_ylabel(r"test risk $\mathbb{E}\,(y - f)^2$")
        axes.set_title(_setting(found), fontsize=9)
        axes.legend()
    return str(path)


def plain_ticks(axis: Any) -> None:
    """Numbers as they are said, and not powers of ten."""
    import matplotlib.ticker as ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _bayes(axes: Any, found: Curve) -> None:
    line = next(iter(found.activations.values()))["bayes_risk"]
    if any(r is not None for r in line):
        risks = [float("nan") if r is None else r for r in line]
        axes.plot(found.values, risks, color=BAYES_COLOUR, linestyle=(0, (5, 1.5)), label="Bayes-optimal", zorder=1)


def _line(
    axes: Any,
    values: Sequence[float],
    columns: Mapping[str, Sequence[Any]],
    name: str,
    colour: str,
    jumps: Sequence[tuple[float, float]],
) -> None:
    """Solid where replica symmetry holds at both ends, and nothing across a jump."""
    risk, error, stable = columns["test_risk"], columns["error"], columns["rs_stable"]
    axes.plot([], [], color=colour, label=name)
    parts: dict[bool, tuple[list[float], list[float]]] = {True: ([], []), False: ([], [])}
    for i, j in pairwise(range(len(values))):
        broken = any(values[i] <= 0.5 * (a + b) <= values[j] for a, b in jumps)
        if not broken:
            xs, ys = parts[bool(stable[i] and stable[j])]
            xs += [values[i], values[j], float("nan")]
            ys += [risk[i], risk[j], float("nan")]
    for solid, (xs, ys) in parts.items():
        axes.plot(xs, ys, color=colour, linestyle="-" if solid else BROKEN, solid_capstyle="round")
    low, high = ([r + s * e for r, e in zip(risk, error)] for s in (-1.0, 1.0))
    axes.fill_between(values, low, high, color=colour, alpha=0.2, linewidth=0)


def _marks(axes: Any, marks: Sequence[Mapping[str, float]], parameter: str, colour: str, marker: str) -> None:
    if marks:
        places, means, errors = ([m[k] for m in marks] for k in (parameter, "mean", "sem"))
        bars = [2.0 * e for e in errors]
        whole = {"capsize": 2.5, "clip_on": False, "zorder": 3}
        axes.errorbar(places, means, yerr=bars, fmt=marker, color=colour, label="trained (2 s.e.)", **whole)


def _setting(found: Curve) -> str:
    """What is the same along the curve."""
    asked = found.asked
    shown = {"tokens": "L", "alpha": r"\alpha", "nu": r"\nu", "noise": r"\Delta"}
    lambdas = {} if asked["optimal"] else {"lambda_k": r"\lambda_k", "lambda_v": r"\lambda_v"}
    parts = [rf"${tex} = {number(asked[n])}$" for n, tex in {**shown, **lambdas}.items() if n != found.parameter]
    return f"{asked['task']}, " + ", ".join(parts) + (r", best $\lambda_k, \lambda_v$" if asked["optimal"] else "")


def number(value: Any) -> str:
    """A number in mathematics."""
    if isinstance(value, float):
        return r"\infty" if value == float("inf") else f"{value:g}"
    return rf"\mathrm{{{value}}}"
