"""The prior of structured tokens: a spectrum as it is given, and means over its coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replicode.codegen.runtime.inputs import ArgumentError
from replicode.codegen.runtime.kernel import (
    CONJUGATE_NAMES,
    V_K,
    Array,
    coordinate_terms,
    penalised_norms,
    prior_update,
    stability_matrix,
)
from replicode.codegen.runtime.places import BLOCKS
from replicode.codegen.runtime.prior import Problem, Spectrum

WIDTHS = tuple(name for name in ("Vh_k", "Vh_v") if name in CONJUGATE_NAMES)
COLUMNS = "one, two or three columns: eigenvalues s_i, and weights t_i of both teachers, or of k* and of v*"
NORM_STEP = 1e-6


def spectral_spectrum_of(given: Any) -> Spectrum:
    """Eigenvalues, and the teachers' weights where they are given; without a spectrum the tokens are isotropic.

    Rows are coordinates: s_i; s_i, t_i; or s_i, t_i of k*, t_i of v*, with t_i = s_i k*_i^2/D, divided by their sum. A
    mapping may have `penalty` weights beside the `columns`.
    """
    if isinstance(given, Spectrum):
        return given
    if isinstance(given, Mapping):
        return _weighed(_spectrum(given["columns"]), given.get("penalty"))
    return _spectrum([1.0] if given is None else given)


def _spectrum(columns: Any) -> Spectrum:
    try:
        table = np.array(columns, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError("spectrum", type(columns).__name__, COLUMNS) from None
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] not in (1, 2, 3) or not table.size:
        raise ArgumentError("spectrum", f"an array of shape {table.shape}", COLUMNS)
    if not np.isfinite(table).all():
        raise ArgumentError("spectrum", "a number that is not finite", "finite numbers")
    if table.min() < 0.0:
        raise ArgumentError("spectrum", float(table.min()), "eigenvalues and weights of at least 0")
    s = table[:, 0]
    if not s.max() > 0.0:
        raise ArgumentError("spectrum", "no positive eigenvalue", "at least one eigenvalue above 0")
    squares = [_squares(s, t) for t in (table[:, 1], table[:, -1])] if table.shape[1] > 1 else [_squares(s, s)] * 2
    kept = s > 0.0
    return Spectrum(s[kept], np.ones(int(kept.sum())), squares[0][kept], squares[1][kept], s.size)


def _squares(s: Array, weights: Array) -> Array:
    """D t_i of a teacher."""
    if not weights.sum() > 0.0:
        raise ArgumentError("spectrum", "weights of a teacher that add up to 0", "at least one weight above 0")
    if (weights[s == 0.0] > 0.0).any():
        raise ArgumentError("spectrum", "a weight above 0 at eigenvalue 0", "t_i = s_i k*_i^2/D, 0 where s_i is 0")
    return np.asarray(s.size * weights / weights.sum())


def _weighed(spectrum: Spectrum, penalty: Any) -> Spectrum:
    """With weights of the penalty, one for each coordinate of positive eigenvalue."""
    if penalty is None:
        return spectrum
    weights = np.array(penalty, dtype=float)
    if weights.shape != spectrum.s.shape or not (np.isfinite(weights).all() and weights.min() >= 0.0):
        allowed = f"{spectrum.s.size} finite numbers of at least 0, one for each positive eigenvalue"
        raise ArgumentError("penalty", f"an array of shape {weights.shape}", allowed)
    return spectrum._replace(p=weights)


def effective_rank(spectrum: Spectrum) -> float:
    """(Tr Sigma)^2 / Tr Sigma^2: how many coordinates of one size would have this trace and this norm."""
    s = spectrum.s / spectrum.s.max()
    return float(s.sum() ** 2 / (s * s).sum())


def _terms(conjugates: Array, problem: Problem) -> list[tuple[Array, ...]]:
    """What the coordinates add, block by block."""
    at = problem.spectrum
    assert at is not None
    known = {"Vh_k": (problem.lambda_k, at.c_k), "Vh_v": (problem.lambda_v, at.c_v)}
    blocks = [(conjugates[CONJUGATE_NAMES.index(name)], *known[name]) for name in WIDTHS]
    return [coordinate_terms(strength, width, at.s, at.p, c) for width, strength, c in blocks]


def spectral_traces_at(conjugates: Array, problem: Problem) -> tuple[Array, ...]:
    """tau, kappa and their derivatives of both blocks: means over all coordinates."""
    assert problem.spectrum is not None
    sums = [term.sum() for terms in _terms(conjugates, problem) for term in terms]
    return (np.array(sums) / problem.spectrum.dim,)


def spectral_image_at(conjugates: Array, problem: Problem) -> Array:
    """The order parameters at which f is stationary; V is negative where some coordinate is not at a minimum."""
    image = prior_update(conjugates, problem.lambda_k, problem.lambda_v, *spectral_traces_at(conjugates, problem))
    for (_, _, place), terms in zip(BLOCKS, _terms(conjugates, problem), strict=True):
        if not (np.isfinite(terms[0]).all() and terms[0].min() > 0.0):
            image[place] = -1.0
    return image


def spectral_softness_at(order: Array, conjugates: Array, problem: Problem) -> float:
    """The relative fall of V_k with Vh_k: -tau'/tau."""
    unit = stability_matrix(order, 1.0, np.array([1.0, 0.0, 0.0]), *spectral_traces_at(conjugates, problem))
    return float(unit[0, 0] / order[V_K])


def _norms(conjugates: Array, problem: Problem) -> Array:
    return np.asarray(penalised_norms(conjugates, *spectral_traces_at(conjugates, problem)))


def spectral_norms_at(conjugates: Array, errors: Array, problem: Problem) -> dict[str, tuple[float, float]]:
    """The squared norms of both weights, each with the error that those of the conjugates leave, and the rank."""
    values = _norms(conjugates, problem)
    bounds = np.zeros_like(values)
    for i, error in enumerate(errors):
        step = NORM_STEP * (1.0 + abs(conjugates[i]))
        moved = np.array([conjugates, conjugates])
        moved[:, i] += (step, -step)
        rates = (_norms(moved[0], problem) - _norms(moved[1], problem)) / (2.0 * step)
        bounds += np.where(rates == 0.0, 0.0, np.abs(rates) * error)
    bounds = np.where(np.isfinite(values + bounds), bounds, np.inf)
    assert problem.spectrum is not None
    norms = {
        name.replace("Vh", "norm2"): (float(v), float(e)) for name, v, e in zip(WIDTHS, values, bounds, strict=True)
    }
    return norms | {"effective_rank": (effective_rank(problem.spectrum), 0.0)}
