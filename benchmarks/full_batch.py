"""Where plain gradient descent on all samples ends, from three starts, beside the energies of the replica theory.

`python -m benchmarks.full_batch FILE.sqlite [FIGURE.png]` trains softmax at two tokens over alpha and lambda (nu 1,
noise 0.3) from informed, random and small starts on the same data, and prints the table of docs/dynamics.md. What is
done is kept in the file. About four minutes of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import replicode as rc
from replicode.inputs.problem import problem
from replicode.validation.ledger import Ledger, training_source
from replicode.validation.training.full_batch import LARGE, SMALL, descend_fully

DIM, SEEDS, STEPS, RATE = 100, 12, 10000, 0.2
ALPHAS, PENALTIES = (2.0, 4.0), (1.0, 0.3, 0.1, 0.02)
STARTS = ("informed", "random", "small")


def point(alpha: float, penalty: float, kept: Ledger) -> dict[str, Any]:
    """Both theories' energies, and the endings of all starts, which are taken from the file when they are there."""
    at = {"alpha": alpha, "nu": 1.0, "noise": 0.3, "lambda_k": penalty, "lambda_v": penalty}
    theory = rc.solve("softmax", tokens=2, bayes=False, **at)
    one = theory.rsb["energy"] if theory.rsb and theory.rsb["broken"] else None
    key = {"at": at, "how": [DIM, SEEDS, STEPS, RATE], "training": training_source()}
    found = kept.get(key) or kept.put(key, trained(at, theory.energy))
    return {**found, "alpha": alpha, "lambda": penalty, "rs": theory.energy, "one": one}


def trained(at: dict[str, float], energy: float) -> dict[str, Any]:
    """The endings of all starts."""
    attention = problem("softmax", "spiked", 2, at).attention()
    starts = {"informed": attention.start("informed"), "random": LARGE, "small": SMALL}
    penalties = (at["lambda_k"], at["lambda_v"])
    ensemble, more = attention.setting(at["alpha"]), {"rate": RATE, "steps": STEPS}
    found = descend_fully(ensemble, attention, penalties, starts, energy, DIM, SEEDS, **more)
    return {"ends": {n: {k: getattr(e, k) for k in ("energy", "sem", "above", "converged")} for n, e in found.items()}}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: energies, and how far each start ends above the best of the three on the same data."""
    lines = [
        "| alpha, lambda | RS | one step | informed | random, above | small, above | converged |",
        "|" + "---|" * 7,
    ]
    for row in rows:
        ends = row["ends"]
        one = "" if row["one"] is None else f"{row['one']:.4f}"
        first = f"{ends['informed']['energy']:.4f}({round(1e4 * ends['informed']['sem'])})"
        above = " | ".join(f"{ends[n]['above']:.1e}" for n in STARTS[1:])
        done = ", ".join(f"{ends[n]['converged']:.0%}" for n in STARTS)
        lines.append(f"| {row['alpha']:g}, {row['lambda']:g} | {row['rs']:.4f} | {one} | {first} | {above} | {done} |")
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]], path: str) -> None:
    """The energy that every start ends at, as a share of the replica-symmetric one, against lambda."""
    import matplotlib.pyplot as plt

    shown, axes = plt.subplots(1, len(ALPHAS), figsize=(9, 3.6), sharey=True, constrained_layout=True)
    for ax, alpha in zip(axes, ALPHAS, strict=True):
        mine = [r for r in rows if r["alpha"] == alpha]
        for i, name in enumerate(STARTS):
            at = [r["lambda"] * 1.06 ** (i - 1) for r in mine]
            shares = [r["ends"][name]["energy"] / r["rs"] for r in mine]
            errors = [r["ends"][name]["sem"] / r["rs"] for r in mine]
            ax.errorbar(at, shares, yerr=errors, fmt="os^"[i], ms=5, label=name)
        broken = [r for r in mine if r["one"] is not None]
        ax.plot([r["lambda"] for r in broken], [r["one"] / r["rs"] for r in broken], "k_", ms=14, label="one step")
        ax.axhline(1.0, color="black", lw=0.8)
        ax.set(xscale="log", xlabel="lambda", title=f"alpha = {alpha:g}")
    axes[0].set_ylabel("energy / replica-symmetric energy")
    axes[0].legend(fontsize=8)
    shown.savefig(path, dpi=90)


def main() -> None:
    """The table, and the figure where a name for it is given."""
    kept = Ledger(Path(sys.argv[1]))
    rows = [point(alpha, penalty, kept) for alpha in ALPHAS for penalty in PENALTIES]
    print(table(rows))
    if len(sys.argv) > 2:
        figure(rows, sys.argv[2])


if __name__ == "__main__":
    main()
