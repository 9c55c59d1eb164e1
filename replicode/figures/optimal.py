"""The regularisation of the least test risk in theory: a coarse simplex search over log lambda_k, log lambda_v."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize

LEAST, MOST = 1e-2, 1e2
_STEP, _RESOLUTION = 0.8, 0.15


class Ridge(NamedTuple):
    """A pair of regularisations."""

    lambda_k: float
    lambda_v: float

    @property
    def at_edge(self) -> bool:
        """Whether one of them is at the end of the range searched."""
        return any(value < 1.01 * LEAST or value > MOST / 1.01 for value in self)


def best_ridge(risk: Callable[[Ridge], float], start: Ridge, tolerance: float, most: int) -> Ridge:
    """The best pair found in at most `most` evaluations; `risk` is infinite where there is no number.

    The minimum is flat, so that lambdas good to some ten per cent give a risk good to about the tolerance. Local:
    it goes downhill from the start.
    """
    ends = math.log(LEAST), math.log(MOST)
    first = np.clip(np.log(start), *ends)
    inward = np.where(first > 0.0, -_STEP, _STEP)
    simplex = np.vstack([first, first + np.diag(inward)])
    options = {"initial_simplex": simplex, "maxfev": most, "xatol": _RESOLUTION, "fatol": tolerance}
    found = optimize.minimize(
        lambda z: risk(_pair(z)), first, method="Nelder-Mead", bounds=[ends, ends], options=options
    )
    return _pair(found.x)


def _pair(logs: np.ndarray) -> Ridge:
    """Lambdas rounded to three digits, so that a repeated search meets the same cached points."""
    return Ridge(*(float(f"{math.exp(z):.3g}") for z in logs))
