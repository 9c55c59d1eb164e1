"""The figure of `bayes` over a range of alpha: each branch for itself, spinodals and transition labelled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicode.figures.drawing import picture

if TYPE_CHECKING:
    from replicode.branches.bayes_phase import BayesBranches, Thresholds

GOOD, POOR, ONE = "informed", "uninformed", "one"
LOOKS = {
    GOOD: ("#0072B2", "informed branch"),
    POOR: ("#D55E00", "uninformed branch"),
    ONE: ("#0072B2", "Bayes-optimal"),
}
FIELDS = (("test_risk", r"test risk $\mathbb{E}\,(y - \hat y)^2$"), ("free_entropy", r"free entropy $\Phi$"))

Line = tuple[list[float], list[float]]


def lines(found: BayesBranches, marks: Thresholds | None, field: str) -> dict[str, Line]:
    """The values along every branch where it exists: nothing goes from one to the other.

    Where there are two, they are told apart by their starts. A single one is the uninformed branch below the spinodal
    at which the informed one appears, and the informed one above that at which the other ends.
    """
    two = [alpha for alpha, points in zip(found.alphas, found.points) if len(points) > 1]
    drawn: dict[str, Line] = {}
    for alpha, points in zip(found.alphas, found.points):
        for branch in points:
            name = branch.start if len(points) > 1 else _single(alpha, two, marks)
            at, values = drawn.setdefault(name, ([], []))
            at.append(alpha)
            values.append(float(getattr(branch, field)))
    return drawn


def _single(alpha: float, two: Sequence[float], marks: Thresholds | None) -> str:
    """Which branch the only one at alpha is."""
    first = two[0] if two else marks and (marks.informed_branch or marks.algorithmic)
    if not first:
        return ONE
    return POOR if alpha < first else GOOD


def figure(found: BayesBranches, marks: Thresholds | None, path: Path) -> str:
    """Test risk and free entropy of the branches against alpha, in a picture file."""
    with picture(path, 2, 1, figsize=(4.8, 5.4), sharex=True, layout="constrained") as (_, panels):
        for axes, (field, label) in zip(panels, FIELDS):
            for name, (alphas, values) in lines(found, marks, field).items():
                colour, words = LOOKS[name]
                axes.plot(alphas, values, color=colour, label=words)
            axes.set_ylabel(label)
        if marks is not None:
            _mark(marks, panels)
        panels[0].legend()
        panels[0].set_xlim(found.alphas[0], found.alphas[-1])
        panels[1].set_xlabel(r"$\alpha = N/D$")
        nu = r"\infty" if found.nu == float("inf") else f"{found.nu:g}"
        panels[0].set_title(rf"{found.task}, $L={found.tokens}$, $\nu={nu}$, $\Delta={found.noise:g}$")
    return str(path)


def _mark(marks: Thresholds, panels: Sequence[Any]) -> None:
    """Spinodals and transition as lines named in the legend, the hard phase between the last two shaded."""
    folds = [value for value in (marks.informed_branch, marks.algorithmic) if value is not None]
    equal = [value for value in (marks.information_theoretic,) if value is not None]
    for values, words, line in ((folds, "spinodal", ":"), (equal, "transition", "-")):
        told = f"{words}{'s' * (len(values) > 1)} at {', '.join(f'{v:.3f}' for v in values)}"
        for axes in panels:
            for number, value in enumerate(values):
                label = None if number else told
                axes.axvline(value, color="0.45", linestyle=line, linewidth=0.9, zorder=0, label=label)
    if equal and marks.algorithmic is not None:
        for axes in panels:
            axes.axvspan(*equal, marks.algorithmic, color="0.92", zorder=-1, linewidth=0.0, label="hard phase")
