"""The spectrum of structured tokens as users name it: `power:A:D`, a file, or an array, with the teachers' weights.

Hands on a `TokenSpectrum`: eigenvalues s_i, weights t_i of k* and of v*, and a digest of their content, by which
results and caches tell one spectrum from another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from replicode.theory.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from replicode.codegen.runtime.prior import Spectrum
    from replicode.theory.model import Model

Found = TypeVar("Found")


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

    from replicode.codegen.runtime.spectrum_text import named_columns

    table, text, told = ours(named_columns, spectrum, teacher)
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


def teacher_weights(s: np.ndarray[Any, Any], teacher: str) -> np.ndarray[Any, Any]:
    """t_i = s_i k*_i^2/D up to a factor, in one column or in two."""
    from replicode.codegen.runtime.spectrum_text import teacher_weights as weights

    return ours(weights, s, teacher)


def _checked(argument: Any) -> Spectrum:
    """The spectrum by the checks of the run-time."""
    from replicode.codegen.runtime.spectrum import spectral_spectrum_of

    return ours(spectral_spectrum_of, argument)


def ours(function: Callable[..., Found], *arguments: Any) -> Found:
    """What a function of the run-time finds; its complaints become ours."""
    from replicode.codegen.runtime.inputs import ArgumentError

    try:
        return function(*arguments)
    except ArgumentError as problem:
        raise InputError(problem.argument, problem.value, problem.allowed) from None
