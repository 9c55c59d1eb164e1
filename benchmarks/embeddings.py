"""Does it hold on real embeddings? The table and the figure of docs/embeddings.md.

    python benchmarks/embeddings.py STATIC.npy CONTEXTUAL.npy [SEEDS]

The files are those of examples/embeddings.py. Each row is one `replicode validate --embeddings`, kept in
docs/embeddings.json; a row that is there with as many seeds is not run again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
KEPT, FIGURE = DOCS / "embeddings.json", DOCS / "embeddings.png"
POINT: dict[str, Any] = {"task": "max", "tokens": 2, "alpha": 4.0, "nu": 2.0, "noise": 0.3}
ROWS: dict[str, dict[str, Any]] = {
    "static": {"file": 0},
    "static, rows normalised": {"file": 0, "normalise": "rows"},
    "contextual": {"file": 1},
    "contextual, radial empirical": {"file": 1, "radial": "empirical"},
    "contextual, rows normalised": {"file": 1, "normalise": "rows"},
}
SHOWN = ("test_risk", "train_loss", "m_k", "m_v")


def row(files: list[str], options: dict[str, Any], seeds: int) -> dict[str, Any]:
    """One comparison."""
    from replicode.verbs.embeddings import validate_embeddings

    more = {name: value for name, value in options.items() if name != "file"}
    found = validate_embeddings("softmax", files[options["file"]], seeds=seeds, **POINT, **more).to_dict()
    kept = ("theory", "theory_error", "surrogate", "real", "difference", "diagnostics", "verdict", "power", "warnings")
    return {name: found[name] for name in (*kept, "dim", "seeds", "failures", "effective_rank")}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| tokens | quantity | theory | Gaussian surrogate | real | real less surrogate |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        for q in SHOWN:
            cells = [f"{found[c][q]['mean']:.4f} ± {found[c][q]['sem']:.4f}" for c in ("surrogate", "real")]
            gap = found["difference"][q]
            told = f"{gap['relative']:+.1%} (z = {gap['z']:.1f})"
            lines.append(f"| {name} | `{q}` | {found['theory'][q]:.4f} | {cells[0]} | {cells[1]} | {told} |")
    return "\n".join(lines)


def figure(rows: dict[str, dict[str, Any]]) -> None:
    """Deviations of both columns from the theory, in per cent."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(1, len(SHOWN), figsize=(12, 3.2), sharey=True)
    for axis, q in zip(axes, SHOWN, strict=True):
        for i, found in enumerate(rows.values()):
            for colour, column, shift in (("tab:blue", "surrogate", 0.12), ("tab:red", "real", -0.12)):
                scale = 100.0 / abs(found["theory"][q])
                off = scale * (found[column][q]["mean"] - found["theory"][q])
                error = 2 * scale * found[column][q]["sem"]
                axis.errorbar(off, i + shift, xerr=error, fmt="o", color=colour, ms=4, label=column if i == 0 else None)
        axis.axvline(0.0, color="black", lw=0.8)
        axis.set_title(q)
        axis.set_xlabel("trained less theory, %")
    axes[0].set_yticks(range(len(rows)), list(rows))
    axes[0].invert_yaxis()
    axes[-1].legend(loc="best", fontsize=8)
    drawn.tight_layout()
    drawn.savefig(FIGURE, dpi=110)


def main(static: str, contextual: str, seeds: str = "20") -> None:
    """Run what is missing, and write all of it."""
    rows = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for name, options in ROWS.items():
        if rows.get(name, {}).get("seeds") != int(seeds):
            rows[name] = row([static, contextual], options, int(seeds))
            KEPT.write_text(json.dumps({n: rows[n] for n in ROWS if n in rows}, indent=1) + "\n", encoding="utf-8")
            print(name, rows[name]["verdict"], rows[name]["diagnostics"], flush=True)
    print(table(rows))
    figure(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
