"""What the figures share: matplotlib (imported only here), colours, labels in mathematics, vector files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from replicode.codegen.writing import checked_file, write_picture
from replicode.theory.errors import ReplicodeError
from replicode.theory.lengths import lengths

FORMATS = ("svg", "pdf")
NO_DATES: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


class CurveStyle(NamedTuple):
    """An activation and how its curve looks: a colour of Okabe and Ito, and a marker of its own."""

    activation: str
    label: str
    colour: str
    marker: str


SOFTMAX = CurveStyle("softmax", "softmax", "#0072B2", "o")
LINEAR = CurveStyle("linear", r"linear, $1 + x$", "#D55E00", "s")
ERF = CurveStyle("1 + erf(c + x)", r"$1 + \mathrm{erf}(c + x)$, best $c$", "#009E73", "^")
SOFTPLUS = CurveStyle("softplus", "softplus kernel", "#CC79A7", "D")
BAYES_COLOUR = "0.25"


def pyplot() -> Any:
    """matplotlib's pyplot without a display, or an error that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise ReplicodeError("matplotlib is not installed: install the extra, pip install 'replicode[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def checked_picture(path: str | Path) -> Path:
    """The path of a picture, after a look at its suffix and an attempt to write beside it."""
    kinds = sorted(pyplot().Figure().canvas.get_supported_filetypes())
    return checked_file(path, suffixes=[f".{kind}" for kind in kinds])


def picture_asked_for(path: str | Path | None) -> Path | None:
    """The same where a picture is asked for."""
    return None if path is None else checked_picture(path)


def style(plt: Any) -> AbstractContextManager[None]:
    """Settings for print: one serif family for text and mathematics, the same bytes on every run."""
    settings = {
        "font.family": "STIXGeneral",
        "mathtext.fontset": "stix",
        "font.size": 9.5,
        "axes.titlesize": 10,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.3,
        "lines.markersize": 4.0,
        "legend.frameon": False,
        "svg.hashsalt": "replicode",
        "pdf.fonttype": 42,
    }
    context: AbstractContextManager[None] = plt.rc_context(settings)
    return context


@contextmanager
def picture(path: Path, *panels: int, dpi: int | None = 200, **layout: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes to draw on, written in the format of the path's suffix, without a time stamp."""
    plt = pyplot()
    with style(plt):
        figure, axes = plt.subplots(*panels, **layout)
        try:
            yield figure, axes
            write_picture(path, figure, metadata=NO_DATES.get(path.suffix[1:].lower()), dpi=dpi)
        finally:
            plt.close(figure)


def save(plt: Any, figure: Any, folder: Path, stem: str) -> tuple[str, ...]:
    """The figure in every vector format, without a time stamp."""
    try:
        return tuple(str(write_picture(folder / f"{stem}.{s}", figure, metadata=NO_DATES[s])) for s in FORMATS)
    finally:
        plt.close(figure)


def signal(nu: float) -> str:
    """nu in mathematics, without the dollar signs."""
    return r"\nu = \infty" if math.isinf(nu) else rf"\nu = {nu:g}"


def tokens_label(tokens: int | str) -> str:
    """The number of tokens, or the probabilities of each, in mathematics."""
    law = lengths(tokens)
    if law.fixed is not None:
        return rf"$L = {law.fixed}$"
    chances = ",\\,".join(f"{w:g}" for w in law.weights)
    return rf"$L \in \{{{', '.join(map(str, law.tokens))}\}}$ with $P(L) = {chances}$"
