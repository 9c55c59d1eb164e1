"""What part of the gap between replica symmetry and trained attention one step of breaking closes.

`python -m benchmarks.rsb FILE.sqlite [FIGURE.png]` solves both theories at the points of docs/stability.md at which
replica symmetry is not stable (softmax, two tokens, noise 0.3), takes what training gave from the deviations listed
there, and prints the table of docs/rsb.md. What is done is kept in the file. About seven minutes of one core, with a C
compiler.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import replicode as rc
from replicode.modules import module_for
from replicode.validation.ledger import Ledger

TABLE = Path(__file__).parents[1] / "docs" / "stability.md"
QUANTITIES = ("test_risk", "energy", "q_k", "V_k")
ROW = re.compile(r"\| (\d+), ([\d.]+), ([\d.]+) \|(.*)\| no \|")
DEVIATION = re.compile(r"([+-][\d.]+) ± ([\d.]+)")


def unstable_points() -> dict[tuple[float, float, float], dict[str, tuple[float, float]]]:
    """(alpha, nu, lambda) with the deviations of training from replica symmetry, as shares with standard errors."""
    found = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            alpha, nu, penalty, rest = match.groups()
            pairs = [(float(d) / 100.0, float(e) / 100.0) for d, e in DEVIATION.findall(rest)]
            if len(pairs) == len(QUANTITIES):
                found[float(alpha), float(nu), float(penalty)] = dict(zip(QUANTITIES, pairs, strict=True))
    return found


def theories(point: tuple[float, float, float], kept: Ledger) -> dict[str, Any]:
    """Replica symmetry and one step at a point of the table, from the file when they are there."""
    module, _ = module_for("softmax", "spiked", 2, "fast", level="1rsb")
    key = {"point": list(point), "signature": module.METADATA["signature"]}
    if (known := kept.get(key)) is not None:
        return dict(known)
    alpha, nu, penalty = point
    at = {"alpha": alpha, "nu": nu, "noise": 0.3, "lambda_k": penalty, "lambda_v": penalty}
    rs = rc.solve("softmax", tokens=2, rsb=0, bayes=False, digits=3, backend="fast", **at)
    one = module.solve(**at, start=rs.order_parameters)
    found = {
        "rs": {"test_risk": rs.test_risk, "energy": rs.energy, **{n: rs.order_parameters[n] for n in ("q_k", "V_k")}},
        "one": {
            "test_risk": one.test_risk,
            "energy": one.energy,
            "q_k": one.order_parameters["q1_k"],
            "V_k": one.order_parameters["V_k"],
        },
        "more": {"y": one.y, "broken": one.broken, "converged": one.converged, "errors": one.errors, **one.stability},
    }
    return dict(kept.put(key, found))


def closed(symmetric: float, one: float, trained: float) -> float:
    """The part of trained - RS that one step closes."""
    return (one - symmetric) / (trained - symmetric)


def table(rows: dict[tuple[float, float, float], dict[str, Any]]) -> str:
    """Markdown: for every quantity trained - RS and trained - one step, in per cent of the trained value."""
    lines = ["| alpha, nu, lambda | y | test risk | energy | q_k | V_k |", "|---|---|---|---|---|---|"]
    for point, row in rows.items():
        cells = [
            f"{row['trained'][q][2]:+.1f} → {row['trained'][q][3]:+.1f} ± {row['trained'][q][1]:.1f}"
            for q in QUANTITIES
        ]
        more = row["more"]
        y = (
            f"{more['y']:.1f} ± {more['errors']['y']:.1f}"
            if more["broken"] and np.isfinite(more["errors"]["y"])
            else "-"
        )
        lines.append(f"| {point[0]:g}, {point[1]:g}, {point[2]:g} | {y} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compared(kept: Ledger) -> dict[tuple[float, float, float], dict[str, Any]]:
    """Every unstable point with trained values, their errors, and the two deviations, in per cent of training."""
    rows = {}
    for point, deviations in unstable_points().items():
        found = theories(point, kept)
        trained = {}
        for name, (share, error) in deviations.items():
            value = found["rs"][name] * (1.0 + share)
            scale = 100.0 / value
            gaps = [(value - found[t][name]) * scale for t in ("rs", "one")]
            trained[name] = (value, error * found["rs"][name] * scale, *gaps)
        rows[point] = {**found, "trained": trained}
        print(point, {n: [round(v, 2) for v in t] for n, t in trained.items()}, file=sys.stderr)
    return rows


def figure(rows: dict[tuple[float, float, float], dict[str, Any]], path: str) -> None:
    """Trained minus theory in per cent, for both theories, over (nu, lambda), alpha = 3."""
    import matplotlib.pyplot as plt

    names = {"test_risk": "test risk", "energy": "energy", "q_k": "$q_k$", "V_k": "$V_k$"}
    shown, axes = plt.subplots(1, 4, figsize=(13, 4.2), constrained_layout=True)
    order = sorted(rows, key=lambda p: rows[p]["trained"]["test_risk"][2])
    for ax, name in zip(axes, QUANTITIES, strict=True):
        for i, point in enumerate(order):
            _, error, rs, one = rows[point]["trained"][name]
            ax.plot([rs, one], [i, i], color="0.8", zorder=1)
            ax.errorbar(rs, i, xerr=error, fmt="o", color="tab:red", ms=5, label="replica symmetry" if i == 0 else None)
            ax.errorbar(one, i, xerr=error, fmt="s", color="tab:blue", ms=5, label="one step" if i == 0 else None)
        ax.axvline(0.0, color="black", lw=0.8)
        ax.set_title(names[name])
        ax.set_xlabel("trained − theory, % of trained")
        ax.set_yticks(range(len(order)), [f"{a:g}, {n:g}, {p:g}" for a, n, p in order] if ax is axes[0] else [])
    axes[0].set_ylabel("alpha, nu, lambda")
    axes[0].legend(loc="upper left", fontsize=8)
    shown.savefig(path, dpi=90)


def main() -> None:
    """The table, and the figure where a name for it is given."""
    rows = compared(Ledger(Path(sys.argv[1])))
    print(table(rows))
    if len(sys.argv) > 2:
        figure(rows, sys.argv[2])


if __name__ == "__main__":
    main()
