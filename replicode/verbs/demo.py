"""`replicode demo`: softmax and linear attention from one line of text to a validated curve, in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replicode.codegen.writing import checked_folder, write, write_picture
from replicode.modules import module_source
from replicode.verbs.derive import derivation_of
from replicode.verbs.solve import solve
from replicode.verbs.validate import validate

ACTIVATIONS = {"softmax": "exp(x)/sum(exp(x))", "linear": "1 + x"}
SETTING: dict[str, Any] = {"tokens": 2, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
CURVE = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
TRAINED = (2.0, 4.0, 8.0)
DIM, SEEDS, DIGITS = 400, 8, 4


def run(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Derive, generate, solve, validate; leave equations, modules, data, figure and summary in the folder."""
    checked_folder(folder)
    rows: dict[str, Any] = {}
    for name, text in ACTIVATIONS.items():
        say(f"{name}: deriving {text}")
        found = derivation_of(text, "spiked", 2, "rs", {})
        write(folder / f"{name}-equations.md", found["markdown"] + "\n")
        say(f"{name}: generating the solver")
        write(folder / f"{name}_solver.py", module_source(text, "spiked", 2))
        rows[name] = _curve(name, text, say)
    write(folder / "data.json", json.dumps(rows, indent=1) + "\n")
    figure = _figure(rows, folder)
    summary = _summary(rows)
    write(folder / "summary.md", summary)
    say(summary)
    say(f"results in {folder}/")
    return {"folder": str(folder), "figure": figure, "results": rows, "warnings": _warnings(rows)}


def _curve(name: str, text: str, say: Callable[[str], None]) -> dict[str, Any]:
    theory = []
    for alpha in CURVE:
        solution = solve(text, alpha=alpha, digits=DIGITS, **SETTING)
        theory.append({"alpha": alpha, "test_risk": solution.test_risk, "error": solution.error})
        say(f"{name}: alpha {alpha:g}, test risk {solution.test_risk:.5f} +- {solution.error:.0e}")
    trained = []
    for alpha in TRAINED:
        say(f"{name}: training at alpha {alpha:g}")
        report = validate(text, alpha=alpha, dim=DIM, seeds=SEEDS, digits=DIGITS, **SETTING)
        trained.append({"alpha": alpha, **report.to_dict()})
    return {"theory": theory, "trained": trained}


def _warnings(rows: dict[str, Any]) -> list[str]:
    return [
        f"{name}, alpha {point['alpha']:g}: theory and training disagree"
        for name, row in rows.items()
        for point in row["trained"]
        if point["verdict"] == "disagrees"
    ]


def _figure(rows: dict[str, Any], folder: Path) -> str | None:
    """Theory as lines, trained attention as error bars; skipped where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
    for colour, (name, row) in zip(("C0", "C1"), rows.items()):
        alphas = [p["alpha"] for p in row["theory"]]
        axes.plot(alphas, [p["test_risk"] for p in row["theory"]], color=colour, label=f"{name}, theory")
        found = [p["trained"]["test_risk"] for p in row["trained"]]
        axes.errorbar(
            [p["alpha"] for p in row["trained"]],
            [f["mean"] for f in found],
            yerr=[2.0 * f["sem"] for f in found],
            fmt="o",
            capsize=3,
            color=colour,
            label=f"{name}, trained (2 s.e.)",
        )
    axes.set_xscale("log", base=2)
    ticks = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
    axes.set_xticks(ticks, [f"{a:g}" for a in ticks])
    axes.set_xlabel(r"$\alpha = N/D$")
    axes.set_ylabel(r"test risk $\mathbb{E}(y - f)^2$")
    axes.set_title(r"spiked, $L=2$, $\nu=2$, $\Delta=0.3$, $\lambda_k=\lambda_v=1$")
    axes.legend(frameon=False)
    for suffix in ("png", "svg"):
        write_picture(folder / f"figure.{suffix}", figure, dpi=150)
    plt.close(figure)
    return str(folder / "figure.png")


def _summary(rows: dict[str, Any]) -> str:
    lines = ["# Theory against trained attention", ""]
    sizes = f"{DIM // 4}, {DIM // 2} and {DIM}"
    lines += [f"Spiked task, L = 2, nu = 2, noise = 0.3, lambda = 1; {SEEDS} trainings at each of D = {sizes}.", ""]
    lines += ["| activation | alpha | theory | trained | z | verdict |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        for point in row["trained"]:
            found = point["trained"]["test_risk"]
            trained = f"{found['mean']:.4f} +- {found['sem']:.4f}"
            theory = point["theory"]["test_risk"]
            lines.append(
                f"| {name} | {point['alpha']:g} | {theory:.5f} | {trained} | {found['z']:.2f} | {point['verdict']} |"
            )
    note = "`undecided` means that no quantity disagrees, but that a shift of 3 % could still hide in the error bars."
    return "\n".join([*lines, "", note, ""])
