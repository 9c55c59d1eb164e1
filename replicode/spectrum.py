"""The spectrum of structured tokens as users name it: `power:A:D`, a file, or an array, with the teachers' weights.

Hands on a `TokenSpectrum`: eigenvalues s_i, weights t_i of k* and of v*, and a digest of their content, by which
results and caches tell one spectrum from another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from replicode.theory.errors import InputError
from replicode.theory.limits import whole_number

if TYPE_CHECKING:
    import numpy as np

    from replicode.codegen.runtime.prior import Spectrum
    from replicode.theory.model import Model

SPECTRA = "power:A:D, or a file (.npy, or text) of one, two or three columns"
TEACHERS = "isotropic, white, top:P, or a file (.npy, or text) of one or two columns"
NO_BAYES = "the Bayes-optimal level with a spectrum: its equations for a teacher of uneven weights are not derived yet"
MOST_EXPONENT = 50.0
MOST_DIM = 1_000_000


@dataclass(frozen=True, eq=False)
class TokenSpectrum:
    """Rows (s_i, t_i of k*, t_i of v*), weights of the penalty where they are not one, and how it was asked for."""

    columns: np.ndarray[Any, Any]
    text: str
    teacher: str
    penalty: np.ndarray[Any, Any] | None = field(default=None)

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return len(self.columns)

    @cached_property
    def digest(self) -> str:
        """A hash of the numbers alone."""
        import numpy as np

        parts = [self.columns] + ([] if self.penalty is None else [self.penalty])
        return hashlib.sha256(b"|".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest()

    @property
    def argument(self) -> Any:
        """What a generated module takes."""
        return self.columns if self.penalty is None else {"columns": self.columns, "penalty": self.penalty}

    def question(self) -> dict[str, Any]:
        """What results say they were asked for."""
        return {"spectrum": self.text, "teacher": self.teacher, "spectrum_dim": self.dim, "spectrum_hash": self.digest}

    @cached_property
    def coordinates(self) -> Spectrum:
        """As the run-time has it: the coordinates of positive eigenvalue."""
        return _checked(self.argument)


SpectrumLike: TypeAlias = str | Path | TokenSpectrum | Sequence[Any]


def token_spectrum(
    spectrum: SpectrumLike | None, teacher: str | Path | None = None, penalty: Any = None
) -> TokenSpectrum | None:
    """The spectrum that an argument names; None where there is none, and then there is no teacher either."""
    if spectrum is None:
        if teacher is not None:
            raise InputError("teacher", str(teacher), "nothing, unless a spectrum is given")
        return None
    if isinstance(spectrum, TokenSpectrum):
        return spectrum
    import numpy as np

    table, text = _table(spectrum)
    told = "isotropic" if teacher is None else str(teacher)
    if table.shape[1] > 1:
        if teacher is not None:
            raise InputError("teacher", told, "nothing: the spectrum has the teacher's weights in its columns")
        told = "given with the spectrum"
    else:
        table = np.column_stack([table[:, 0], teacher_weights(table[:, 0], told)])
    _checked(table)
    table = table[:, [0, 1, -1]]
    weights = None if penalty is None else np.asarray(penalty, dtype=float)
    found = TokenSpectrum(table, text, told, weights)
    _checked(found.argument)
    return found


def structured(model: Model | None, spectrum: TokenSpectrum | None) -> Model | None:
    """The model with structured tokens where there is a spectrum."""
    if spectrum is None:
        return model
    from dataclasses import replace

    from replicode.theory.model import EIGENVALUE, STRUCTURED_MODEL

    return STRUCTURED_MODEL if model is None else replace(model, covariance=EIGENVALUE)


def _checked(argument: Any) -> Spectrum:
    """The spectrum by the checks of the run-time, whose complaints become ours."""
    from replicode.codegen.runtime.inputs import ArgumentError
    from replicode.codegen.runtime.spectrum import spectral_spectrum_of

    try:
        return spectral_spectrum_of(argument)
    except ArgumentError as problem:
        raise InputError(problem.argument, problem.value, problem.allowed) from None


def _table(spectrum: Any) -> tuple[np.ndarray[Any, Any], str]:
    """Columns as they are given, and the text that names them."""
    import numpy as np

    if not isinstance(spectrum, str | Path):
        try:
            array = np.array(spectrum, dtype=float)
        except (TypeError, ValueError):
            raise InputError("spectrum", type(spectrum).__name__, SPECTRA + ", or an array of them") from None
        return _columns("spectrum", array, 3), f"an array of {len(array)} rows" if array.ndim else "an array"
    text = str(spectrum)
    if text.startswith("power:"):
        return _power(text), text
    return _columns("spectrum", _file("spectrum", text, SPECTRA), 3), text


def _power(text: str) -> np.ndarray[Any, Any]:
    """s_i = i^-A over its mean."""
    import numpy as np

    parts = text.split(":")
    allowed = f"power:A:D, A a number from 0 to {MOST_EXPONENT:g}, D a whole number, as in power:1:100"
    try:
        exponent, dim = float(parts[1]), int(parts[2])
    except (IndexError, ValueError):
        raise InputError("spectrum", text, allowed) from None
    if len(parts) != 3 or not 0.0 <= exponent <= MOST_EXPONENT:
        raise InputError("spectrum", text, allowed)
    whole_number("spectrum", dim, 1, MOST_DIM)
    s = np.arange(1.0, dim + 1.0) ** -exponent
    return np.asarray((s / s.mean())[:, None])


def _file(name: str, text: str, allowed: str) -> np.ndarray[Any, Any]:
    """The numbers of a file."""
    import numpy as np

    path = Path(text)
    if not path.is_file():
        raise InputError(name, text, f"{allowed}: there is no such file")
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=float)
        rows = [line.split("#")[0].replace(",", " ").split() for line in path.read_text(encoding="utf-8").splitlines()]
        return np.array([[float(cell) for cell in row] for row in rows if row])
    except (OSError, ValueError, EOFError, TypeError):
        raise InputError(name, text, f"{allowed}: this file can not be read as numbers in columns") from None


def _columns(name: str, array: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """A table of 1 to `most` columns."""
    table = array[:, None] if array.ndim == 1 else array
    if table.ndim != 2 or not 1 <= table.shape[1] <= most or not len(table):
        raise InputError(name, f"an array of shape {array.shape}", f"rows of 1 to {most} numbers")
    return table


def teacher_weights(s: np.ndarray[Any, Any], teacher: str) -> np.ndarray[Any, Any]:
    """t_i = s_i k*_i^2/D up to a factor, in one column or in two."""
    if teacher == "isotropic":
        return s[:, None]
    if teacher == "white":
        return (s > 0.0).astype(float)[:, None]
    if teacher.startswith("top:"):
        return _top(s, teacher)
    weights = _columns("teacher", _file("teacher", teacher, TEACHERS), 2)
    if len(weights) != len(s):
        raise InputError("teacher", f"{len(weights)} weights", f"{len(s)} of them, one for each eigenvalue")
    return weights


def _top(s: np.ndarray[Any, Any], teacher: str) -> np.ndarray[Any, Any]:
    """k*_i^2 the same among the P per cent largest eigenvalues, and 0 elsewhere."""
    import numpy as np

    allowed = "top:P, P a number above 0 and at most 100, as in top:10"
    try:
        share = float(teacher.removeprefix("top:"))
    except ValueError:
        raise InputError("teacher", teacher, allowed) from None
    if not 0.0 < share <= 100.0:
        raise InputError("teacher", teacher, allowed)
    count = max(1, math.ceil(share / 100.0 * len(s) - 1e-9))
    weights = np.zeros(len(s))
    chosen = np.argsort(-s, kind="stable")[:count]
    weights[chosen] = s[chosen]
    return weights[:, None]
