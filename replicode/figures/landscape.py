"""The landscape in one picture: energies and test risks of minima against both theories, and their overlaps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replicode.figures.drawing import picture
from replicode.validation.landscape import FAMILIES, Landscape, overlaps_of

COLOURS = dict(zip(FAMILIES, ("#0072B2", "#56B4E9", "#D55E00", "#CC79A7", "#009E73"), strict=True))
BINS = 40


def landscape_figure(found: Landscape, theory: Mapping[str, Any], path: Path) -> str:
    """Three panels: test risk over energy, then the overlaps of pairs in k and in v.

    Energies differ from one data set to the next by more than among the minima of one: every data set is moved so that
    its lowest minimum stands at the mean of all lowest.
    """
    with picture(path, 1, 3, dpi=130, figsize=(10.5, 3.3), layout="constrained") as (_, axes):
        _energies(axes[0], found, theory)
        for ax, block in zip(axes[1:], ("k", "v"), strict=True):
            _overlaps(ax, found, theory, block)
    return str(path)


def _energies(ax: Any, found: Landscape, theory: Mapping[str, Any]) -> None:
    lowest = {seed: m.energy for seed, m in found.lowest().items()}
    mean = sum(lowest.values()) / max(len(lowest), 1)
    for family in FAMILIES:
        rows = [m for m in found.minima if m.family == family and m.converged]
        points = [m.energy - lowest[m.seed] + mean for m in rows], [m.measured["test_risk"] for m in rows]
        ax.plot(*points, "o", ms=3.5, alpha=0.7, color=COLOURS[family], label=family)
    rs, one, threshold = theory["rs"], theory.get("equilibrium"), theory.get("threshold")
    ax.plot(rs["energy"], rs["test_risk"], "kX", ms=8, label="replica symmetry")
    if one:
        ax.plot(one["energy"], one["test_risk"], "k*", ms=10, label="one step")
    if threshold:
        ax.plot(threshold["energy"], threshold["test_risk"], "k^", ms=7, mfc="none", label="threshold")
    ax.set_xlabel("energy (lowest of every data set at their mean)")
    ax.set_ylabel("test risk")
    ax.legend(fontsize=7)


def _overlaps(ax: Any, found: Landscape, theory: Mapping[str, Any], block: str) -> None:
    pairs = overlaps_of(found, block)
    if pairs.size:
        ax.hist(pairs, bins=BINS, density=True, color="0.75")
    one, rs = theory.get("equilibrium"), theory["rs"]["order_parameters"]
    lines = [(rf"RS $q_{block}$", rs[f"q_{block}"], "#D55E00", ":")]
    if one:
        order = one["order_parameters"]
        lines += [(rf"$q_{{{i},{block}}}$", order[f"q{i}_{block}"], "#0072B2", s) for i, s in ((0, "--"), (1, "-"))]
    for label, value, colour, line in lines:
        ax.axvline(value, color=colour, ls=line, label=label)
    ax.set_xlabel(rf"overlap of two minima, ${block} \cdot {block}'/D$")
    ax.set_yticks([])
    ax.legend(fontsize=7)
