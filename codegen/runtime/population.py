"""Population averages of a fixed estimator: A = E sigma_eps, B = E sum sigma^2, and the risk off the manifold."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from codegen.runtime.inputs import parameter_values
from codegen.runtime.kernel import (
    ELEMENTWISE,
    SHIFT_INVARIANT,
    TOKENS,
    Array,
    best_value_overlap,
    overlap_risk_terms,
    risk_on_manifold,
    score_law,
    sigma,
)
from codegen.runtime.nodes import lattice, sobol

LATTICE_DIMENSIONS = 7
POPULATION_SCRAMBLES = 8
POPULATION_LOG2 = 13
POPULATION_COVERAGE = 0.9995
POPULATION_BLOCK = 16384


class PopulationAverages(NamedTuple):
    """A, B and a bound on the error of each."""

    A: float
    B: float
    error: float


@lru_cache(maxsize=POPULATION_SCRAMBLES)
def _score_nodes(dim: int, count: int, seed: int) -> tuple[Array, Array]:
    if dim > LATTICE_DIMENSIONS:
        return sobol(dim, int(np.ceil(np.log2(count))), seed)
    return lattice(dim, count, seed)


def _sigma_moments(law: tuple[float, float, float], params: Array, count: int, seed: int) -> Array:
    """A and B on one set of nodes; element-wise activations need one dimension, shift-invariant ones L - 1."""
    mean, hidden_variance, idle_variance = law
    scale = np.sqrt(np.r_[hidden_variance, np.full(TOKENS - 1, idle_variance)])
    if ELEMENTWISE:
        zeta, weights = _score_nodes(1, count, seed)
        chi = np.zeros((TOKENS, weights.size)) + scale[:, None] * zeta
        chi[0] += mean
        sigmas = sigma(chi, params)
        return np.array([sigmas[0] @ weights, (sigmas * sigmas).sum(axis=0) @ weights])
    frame = np.eye(TOKENS)
    if SHIFT_INVARIANT:
        differences = np.c_[-np.ones(TOKENS - 1), np.eye(TOKENS - 1)]
        spread = differences * scale
        frame = np.r_[np.zeros((1, TOKENS - 1)), np.linalg.cholesky(spread @ spread.T)]
        scale = np.ones(TOKENS)
    if frame.shape[1] == 0:
        constant = sigma(np.zeros((1, 1)), params)[0, 0]
        return np.array([constant, constant * constant])
    zeta, weights = _score_nodes(frame.shape[1], count, seed)
    total = np.zeros(2)
    for begin in range(0, weights.size, POPULATION_BLOCK):
        b = slice(begin, begin + POPULATION_BLOCK)
        chi = scale[:, None] * (frame @ zeta[:, b])
        chi[0] += mean
        sigmas = sigma(chi, params)
        total += [sigmas[0] @ weights[b], (sigmas * sigmas).sum(axis=0) @ weights[b]]
    return total


def population_averages(m_k: float, q_k: float, nu: float, params: Array, tol: float = 1e-13) -> PopulationAverages:
    """A and B, nodes doubled until two shifted rules agree; the error bounds both.

    In many dimensions, the mean over scrambled Sobol sets, with a t bound from their scatter.
    """
    law = score_law(m_k, max(q_k, 1e-300), nu)
    dim = 1 if ELEMENTWISE else TOKENS - SHIFT_INVARIANT
    if dim > LATTICE_DIMENSIONS:
        sets = np.array([_sigma_moments(law, params, 2**POPULATION_LOG2, s) for s in range(POPULATION_SCRAMBLES)])
        spread = float(sets.std(axis=0, ddof=1).max()) / np.sqrt(POPULATION_SCRAMBLES)
        bound = float(special.stdtrit(POPULATION_SCRAMBLES - 1, POPULATION_COVERAGE)) * spread
        return PopulationAverages(float(sets[:, 0].mean()), float(sets[:, 1].mean()), bound)
    count, limit = 64 * 4 ** min(dim, 4), 2**18
    previous = _sigma_moments(law, params, count, 1)
    while True:
        current = _sigma_moments(law, params, 2 * count, 2)
        gap = float(np.abs(current - previous).max())
        if gap <= tol or count >= limit or not np.isfinite(gap):
            return PopulationAverages(float(current[0]), float(current[1]), 2.0 * gap + 1e-15)
        previous, count = current, 2 * count


def _population_risk(order: Array, nu: float, noise: float, params: Array, tol: float = 1e-13) -> tuple[float, float]:
    """The risk on the manifold and a bound on its quadrature error."""
    m_k, q_k, m_v, q_v = order
    found = population_averages(m_k, q_k, nu, params, tol)
    error = found.error * (2.0 * abs(m_v) + abs(q_v))
    return float(risk_on_manifold(m_v, q_v, noise, found.A, found.B)), float(error)


def informed_overlaps(nu: float, params: Array) -> Array:
    """(m_k, q_k, m_v, q_v) near the population optimum: the best v is along v*, and k = m_k k* is scanned.

    The norm is capped, since at strong signals the optimum runs away, and q is kept slightly above m^2.
    """
    slack, cap = 1.05, 6.0
    grid = np.geomspace(0.05, cap, 25)
    grid = np.r_[-grid[::-1], grid]

    def gain(m_k: float) -> float:
        law = score_law(m_k, slack * m_k * m_k, nu)
        a, b = _sigma_moments(law, params, 64 * 4 ** min(1 if ELEMENTWISE else TOKENS - SHIFT_INVARIANT, 3), 1)
        return float(a * a / b) if np.isfinite(a) and np.isfinite(b) and b > 0.0 else -np.inf

    gains = np.array([gain(m) for m in grid])
    m_k = float(grid[int(np.argmax(gains))])
    found = population_averages(m_k, slack * m_k * m_k, nu, params, tol=1e-6)
    m_v = float(best_value_overlap(found.A, found.B))
    return np.array([m_k, slack * m_k * m_k, m_v, slack * m_v * m_v + 1e-6])


def risk_of_overlaps(overlaps: Array, nu: float, noise: float = 0.0, tol: float = 1e-9, **parameters: float) -> float:
    """E (y - f)^2 from (m_k, q_k, m_v, q_v, k.v*/D, v.k*/D, k.v/D), exact at finite D for normalised teachers."""
    params = parameter_values(parameters)
    overlaps = np.asarray(overlaps, dtype=float)
    mean, hidden_variance, idle_variance = score_law(overlaps[0], overlaps[1], nu)
    scale = np.sqrt(np.r_[hidden_variance, np.full(TOKENS - 1, idle_variance)])

    def average(count: int, seed: int) -> float:
        zeta, weights = _score_nodes(TOKENS, count, seed)
        total = 0.0
        for begin in range(0, weights.size, POPULATION_BLOCK):
            b = slice(begin, begin + POPULATION_BLOCK)
            chi = scale[:, None] * zeta[:, b]
            chi[0] += mean
            total += float(overlap_risk_terms(overlaps, nu, noise, chi, sigma(chi, params)) @ weights[b])
        return total

    count = 64 * 4 ** min(TOKENS, 4)
    previous = average(count, 1)
    while True:
        current = average(2 * count, 2)
        if abs(current - previous) <= tol or count >= 2**18:
            return current
        previous, count = current, 2 * count
