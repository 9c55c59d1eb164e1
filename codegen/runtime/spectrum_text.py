"""A spectrum as it is named by text: a power law or a file of eigenvalues, and the weights of a teacher."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from replicode.codegen.runtime.inputs import ArgumentError
from replicode.codegen.runtime.kernel import Array

SPECTRA = "power:A:D, or a file (.npy, or text) of one, two or three columns"
TEACHERS = "isotropic, white, top:P, or a file (.npy, or text) of one or two columns"
RADII_FILE = "a file (.npy, or text) of numbers above 0"
MOST_EXPONENT = 50.0
MOST_DIM = 1_000_000


def named_columns(spectrum: Any, teacher: str | None) -> tuple[Array, str, str]:
    """Eigenvalues with the weights t_i of the teachers, and the texts that name them."""
    table, text = _table(spectrum)
    told = "isotropic" if teacher is None else str(teacher)
    if table.shape[1] == 1:
        return np.column_stack([table[:, 0], teacher_weights(table[:, 0], told)]), text, told
    if teacher is not None:
        raise ArgumentError("teacher", told, "nothing: the spectrum has the teacher's weights in its columns")
    return table, text, "given with the spectrum"


def named_radii(radii: Any) -> Any:
    """The radii of a file; anything else as it is."""
    return _numbers_in("radii", str(radii), RADII_FILE) if isinstance(radii, str | Path) else radii


def _table(spectrum: Any) -> tuple[Array, str]:
    """Columns as they are given, and the text that names them."""
    if not isinstance(spectrum, str | Path):
        try:
            array = np.array(spectrum, dtype=float)
        except (TypeError, ValueError):
            raise ArgumentError("spectrum", type(spectrum).__name__, SPECTRA + ", or an array of them") from None
        return _table_of("spectrum", array, 3), f"an array of {len(array)} rows" if array.ndim else "an array"
    text = str(spectrum)
    if text.startswith("power:"):
        return _power(text), text
    return _table_of("spectrum", _numbers_in("spectrum", text, SPECTRA), 3), text


def _power(text: str) -> Array:
    """s_i = i^-A over its mean."""
    parts = text.split(":")
    allowed = f"power:A:D, A a number from 0 to {MOST_EXPONENT:g}, D a whole number, as in power:1:100"
    try:
        exponent, dim = float(parts[1]), int(parts[2])
    except (IndexError, ValueError):
        raise ArgumentError("spectrum", text, allowed) from None
    if len(parts) != 3 or not 0.0 <= exponent <= MOST_EXPONENT:
        raise ArgumentError("spectrum", text, allowed)
    if not 1 <= dim <= MOST_DIM:
        raise ArgumentError("spectrum", text, f"power:A:D, D a whole number from 1 to {MOST_DIM}")
    s = np.arange(1.0, dim + 1.0) ** -exponent
    return np.asarray((s / s.mean())[:, None])


def _numbers_in(name: str, text: str, allowed: str) -> Array:
    """The numbers of a file."""
    path = Path(text)
    if not path.is_file():
        raise ArgumentError(name, text, f"{allowed}: there is no such file")
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=float)
        rows = [line.split("#")[0].replace(",", " ").split() for line in path.read_text(encoding="utf-8").splitlines()]
        return np.array([[float(cell) for cell in row] for row in rows if row])
    except (OSError, ValueError, EOFError, TypeError):
        raise ArgumentError(name, text, f"{allowed}: this file can not be read as numbers in columns") from None


def _table_of(name: str, array: Array, most: int) -> Array:
    """A table of 1 to `most` columns."""
    table = array[:, None] if array.ndim == 1 else array
    if table.ndim != 2 or not 1 <= table.shape[1] <= most or not len(table):
        raise ArgumentError(name, f"an array of shape {array.shape}", f"rows of 1 to {most} numbers")
    return table


def teacher_weights(s: Array, teacher: str) -> Array:
    """t_i = s_i k*_i^2/D up to a factor, in one column or in two."""
    if teacher == "isotropic":
        return s[:, None]
    if teacher == "white":
        return np.asarray((s > 0.0).astype(float)[:, None])
    if teacher.startswith("top:"):
        return _top(s, teacher)
    weights = _table_of("teacher", _numbers_in("teacher", teacher, TEACHERS), 2)
    if len(weights) != len(s):
        raise ArgumentError("teacher", f"{len(weights)} weights", f"{len(s)} of them, one for each eigenvalue")
    return weights


def _top(s: Array, teacher: str) -> Array:
    """k*_i^2 the same among the P per cent largest eigenvalues, and 0 elsewhere."""
    allowed = "top:P, P a number above 0 and at most 100, as in top:10"
    try:
        share = float(teacher.removeprefix("top:"))
    except ValueError:
        raise ArgumentError("teacher", teacher, allowed) from None
    if not 0.0 < share <= 100.0:
        raise ArgumentError("teacher", teacher, allowed)
    count = max(1, math.ceil(share / 100.0 * len(s) - 1e-9))
    weights = np.zeros(len(s))
    chosen = np.argsort(-s, kind="stable")[:count]
    weights[chosen] = s[chosen]
    return weights[:, None]
