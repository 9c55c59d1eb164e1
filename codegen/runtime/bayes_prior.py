"""The prior of the Bayes-optimal level: overlaps from their conjugates, closed where the tokens are isotropic.

Where they are structured, the linker puts the functions named `spectral` in the place of the seams at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replicode.codegen.runtime.bayes_kernel import (
    bayes_update,
    coordinate_prior_terms,
    free_entropy_value,
    revealed_contraction,
    revealed_strength,
    revealed_V_v,
)
from replicode.codegen.runtime.bayes_rates import BayesOverlaps
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.prior import Spectrum

SMALLEST_V = (1e-6, 1e-14)  # of V_v at an informed start, without noise and with it
HALVINGS = 60


def closed_overlaps(qh_k: float, qh_v: float, spectrum: Spectrum | None) -> BayesOverlaps:
    """q and V of both blocks."""
    return BayesOverlaps(*bayes_update(qh_k, qh_v))


def closed_entropy(
    alpha: float, at: BayesOverlaps, qh_k: float, qh_v: float, log_Z: float, spectrum: Spectrum | None
) -> float:
    """The free entropy, given E[log Z]."""
    return float(free_entropy_value(alpha, at.V_k, at.V_v, qh_k, qh_v, log_Z))


def closed_informed(alpha: float, noise: float, spectrum: Spectrum | None) -> float:
    """log(1 + qh_v) with every location revealed."""
    return float(-np.log(max(revealed_V_v(alpha, noise), SMALLEST_V[noise > 0.0])))


def closed_contraction(alpha: float, spectrum: Spectrum | None) -> float:
    """The factor by which V_v falls per iteration, where labels without noise tell every location."""
    return revealed_contraction(alpha)


def _means(qh: float, c: Array, dim: int) -> list[float]:
    """psi, q, V and the slope of V in qh of one block: means over all coordinates."""
    return [float(term.sum()) / dim for term in coordinate_prior_terms(qh, c)]


def spectral_overlaps(qh_k: float, qh_v: float, spectrum: Spectrum | None) -> BayesOverlaps:
    """Those of both blocks, each with the variances of its own teacher."""
    assert spectrum is not None
    (_, q_k, V_k, _), (_, q_v, V_v, _) = (
        _means(qh, c, spectrum.dim) for qh, c in ((qh_k, spectrum.c_k), (qh_v, spectrum.c_v))
    )
    return BayesOverlaps(q_k, V_k, q_v, V_v)


def spectral_entropy(
    alpha: float, at: BayesOverlaps, qh_k: float, qh_v: float, log_Z: float, spectrum: Spectrum | None
) -> float:
    """The free entropy, given E[log Z], with psi of both blocks."""
    assert spectrum is not None
    psi = np.array([_means(qh, c, spectrum.dim)[0] for qh, c in ((qh_k, spectrum.c_k), (qh_v, spectrum.c_v))])
    return float(free_entropy_value(alpha, at.V_k, at.V_v, qh_k, qh_v, log_Z, psi))


def spectral_informed(alpha: float, noise: float, spectrum: Spectrum | None) -> float:
    """log(1 + qh_v) at the fixed point V_v; the image of V_v is concave, so that there is one above 0."""
    assert spectrum is not None
    low, high = SMALLEST_V[noise > 0.0], 1.0
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        image = _means(revealed_strength(alpha, middle, noise), spectrum.c_v, spectrum.dim)[2]
        low, high = (middle, high) if image > middle else (low, middle)
    return float(np.log1p(revealed_strength(alpha, high, noise)))


def spectral_contraction(alpha: float, spectrum: Spectrum | None) -> float:
    """Only the coordinates that the teacher has are left to find."""
    assert spectrum is not None
    return revealed_contraction(alpha) * float((spectrum.c_v > 0.0).sum()) / spectrum.dim


overlaps_at: Callable[[float, float, Spectrum | None], BayesOverlaps] = closed_overlaps
entropy_at: Callable[[float, BayesOverlaps, float, float, float, Spectrum | None], float] = closed_entropy
informed_at: Callable[[float, float, Spectrum | None], float] = closed_informed
contraction_at: Callable[[float, Spectrum | None], float] = closed_contraction
