"""The figure of `phase`: regions filled, lines as they were followed, and the points that were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.figures.curves import LABELS, number, plain_ticks
from replicode.figures.drawing import picture, pyplot
from replicode.phases.lines import EDGE, SPINODAL, TRANSITION, Line, crosses
from replicode.phases.plane import INFORMED, NONE, ONE, UNINFORMED, Array, Look, Plane

if TYPE_CHECKING:
    from replicode.verbs.phase import Phase

PIXELS = 121
NEAREST = 8
COLOURS = {ONE: "#FFFFFF", INFORMED: "#BFD9EC", UNINFORMED: "#F6D9C4", NONE: "#DDDDDD"}
NAMES = {
    "rs": {ONE: "one solution", INFORMED: "several, informed lowest", UNINFORMED: "several, uninformed lowest"},
    "bayes": {ONE: "one branch", INFORMED: "hard phase", UNINFORMED: "informed branch, not the equilibrium"},
}
STYLES: dict[str, dict[str, Any]] = {
    SPINODAL: {"color": "#0072B2", "linestyle": (0, (4, 1.5)), "linewidth": 1.2},
    TRANSITION: {"color": "#D55E00", "linestyle": "-", "linewidth": 1.8},
    EDGE: {"color": "0.2", "linestyle": (0, (1, 1.2)), "linewidth": 1.5},
}


def draw(found: Phase, plane: Plane, looks: Sequence[Look], lines: Sequence[Line], path: Path) -> str:
    """Write the picture in the format of its suffix."""
    plt = pyplot()
    with picture(path, figsize=(5.2, 4.2), layout="constrained") as (figure, axes):
        handles = _regions(plt, axes, found.level, plane, looks, lines)
        for kind in dict.fromkeys(line.kind for line in lines):
            for line in (line for line in lines if line.kind == kind):
                _line(axes, plane, line)
            handles.append(plt.Line2D([], [], label=kind, **STYLES[kind]))
        seen = [plane.values(look.place) for look in looks]
        axes.plot(*([v[n] for v in seen] for n in plane.names), ".", color="0.55", markersize=1.6, zorder=2)
        for axis, each in (("x", plane.x), ("y", plane.y)):
            if each.logarithmic:
                getattr(axes, f"set_{axis}scale")("log")
                plain_ticks(getattr(axes, f"{axis}axis"))
            getattr(axes, f"set_{axis}lim")(each.low, each.high)
            getattr(axes, f"set_{axis}label")(LABELS.get(each.name, f"${each.name}$"))
        axes.set_title(_title(found), fontsize=8.5)
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8)
    return str(path)


def _line(axes: Any, plane: Plane, line: Line) -> None:
    points = [plane.values(p) for p in line.places]
    axes.plot(*([v[n] for v in points] for n in plane.names), **STYLES[line.kind], zorder=3)
    for cusp in line.cusps:
        at = plane.values(cusp)
        axes.plot(*(at[n] for n in plane.names), "o", color=STYLES[line.kind]["color"], markersize=4, zorder=4)


def _regions(plt: Any, axes: Any, level: str, plane: Plane, looks: Sequence[Look], lines: Sequence[Line]) -> list[Any]:
    """Every pixel as the nearest look that no line parts it from; hatched where replica symmetry is broken."""
    side = np.linspace(0.0, 1.0, PIXELS)
    where = _owners(side, looks, lines)
    kinds = [kind for kind in COLOURS if any(look.phase == kind for look in looks)]
    number = np.array([kinds.index(look.phase) for look in looks])[where]
    xs, ys = ([plane.values((s, s))[n] for s in side] for n in plane.names)
    colours = plt.matplotlib.colors.ListedColormap([COLOURS[k] for k in kinds])
    axes.pcolormesh(xs, ys, number, cmap=colours, vmin=-0.5, vmax=len(kinds) - 0.5, shading="nearest", rasterized=True)
    patch = plt.matplotlib.patches.Patch
    names = {NONE: "no solution", **NAMES[level]}
    handles = [patch(facecolor=COLOURS[k], edgecolor="0.6", linewidth=0.5, label=names[k]) for k in kinds]
    broken = ~np.array([look.stable for look in looks])[where]
    if broken.any():
        with plt.rc_context({"hatch.linewidth": 0.4, "hatch.color": "0.45"}):
            axes.contourf(xs, ys, broken.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"])
        handles.append(
            patch(facecolor="white", edgecolor="0.45", hatch="////", linewidth=0.5, label="replica symmetry broken")
        )
    return handles


def _owners(side: Array, looks: Sequence[Look], lines: Sequence[Line]) -> Array:
    """Of every pixel the number of the look that stands for it."""
    from scipy.spatial import cKDTree

    places = np.array([look.place for look in looks])
    pixels = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    nearest = cKDTree(places).query(pixels, k=min(NEAREST, len(places)))[1]
    owner, open_pixels = nearest[:, 0].copy(), np.ones(len(pixels), bool)
    pieces = [np.array(line.places) for line in lines if len(line.places) > 1]
    for k in range(nearest.shape[1]):
        here = np.flatnonzero(open_pixels)
        parted = _parted(pixels[here], places[nearest[here, k]], pieces)
        owner[here[~parted]] = nearest[here[~parted], k]
        open_pixels[here[~parted]] = False
    return np.asarray(owner.reshape(len(side), len(side)))


def _parted(ones: Array, twos: Array, pieces: Sequence[Array]) -> Array:
    """Of every pair of places whether a line lies between them."""
    found = np.zeros(len(ones), bool)
    for piece in pieces:
        found |= crosses(ones[:, None], twos[:, None], piece).any(axis=1)
    return found


def _title(found: Phase) -> str:
    """What is the same everywhere."""
    asked = found.asked
    who = f"{asked['activation']}, " if asked.get("activation") else "Bayes-optimal, "
    shown = {"tokens": "L", "alpha": r"\alpha", "nu": r"\nu", "noise": r"\Delta"}
    shown |= {} if found.level == "bayes" else {"lambda_k": r"\lambda_k", "lambda_v": r"\lambda_v"}
    parts = [rf"${tex} = {number(asked[n])}$" for n, tex in shown.items() if n not in found.parameters]
    return f"{who}{asked['task']}, " + ", ".join(parts)
