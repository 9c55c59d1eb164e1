"""Population averages of a fixed estimator: A = E sigma_eps, B = E sum sigma^2, and the risk off the manifold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.inputs import check_number, check_signal, check_size, parameter_values
from replicode.codegen.runtime.kernel import (
    ELEMENTWISE,
    HARD_LIMIT,
    KERNELS,
    LOCATION,
    SHIFT_INVARIANT,
    Array,
    best_value_overlap,
    overlap_risk_terms,
    risk_on_manifold,
    score_law,
)
from replicode.codegen.runtime.label import label_moments
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.location import location_dimensions, location_of, teacher_weight
from replicode.codegen.runtime.nodes import lattice, sobol
from replicode.codegen.runtime.places import of_scores, ordered
from replicode.codegen.runtime.refinement import Safety, climbed, level_error, rested, t_bound

LATTICE_DIMENSIONS = 7
POPULATION_SCRAMBLES = 8
POPULATION_LOG2 = 13
POPULATION_BLOCK = 16384
LARGEST_POPULATION = 2**19
POPULATION_SAFETY = Safety(2.0, rounding=1e-15)
OVERLAP_LOG2 = (12, 17)
OVERLAP_ERROR = 1e-5
LEAST_OVERLAP = 0.05  # of an informed start


class PopulationAverages(NamedTuple):
    """A, B and a bound on the error of each."""

    A: float
    B: float
    error: float

    @staticmethod
    def of(found: Sequence[Array]) -> PopulationAverages:
        """From the last of both on finer and finer nodes."""
        A, B = map(float, found[-1])
        return PopulationAverages(A, B, float(level_error(found, POPULATION_SAFETY).max()))


class StudentOverlaps(NamedTuple):
    """All overlaps of a student with the teachers and of its blocks with each other, the cross ones last."""

    m_k: float
    q_k: float
    m_v: float
    q_v: float
    kv_star: float
    vk_star: float
    kv: float

    def flat(self) -> StudentOverlaps:
        """The same on the manifold, where the cross overlaps vanish."""
        return self._replace(kv_star=0.0, vk_star=0.0, kv=0.0)


def settings_of(nu: float, noise: float, params: Array) -> tuple[Setting, ...]:
    """One setting for every length."""
    return tuple(Setting(float(nu), float(noise), params, kernel) for kernel in KERNELS)


def _score_nodes(dim: int, count: int, seed: int) -> tuple[Array, Array]:
    return lattice(dim, count, seed) if dim <= LATTICE_DIMENSIONS else _scrambled_scores(dim, count, seed)


@lru_cache(maxsize=POPULATION_SCRAMBLES)
def _scrambled_scores(dim: int, count: int, seed: int) -> tuple[Array, Array]:
    return sobol(dim, int(np.ceil(np.log2(count))), seed)


def _parts(count: int) -> Iterator[slice]:
    for begin in range(0, count, POPULATION_BLOCK):
        yield slice(begin, begin + POPULATION_BLOCK)


def _one_token(setting: Setting) -> bool:
    """Whether the averages are sums of one-token ones: no activation and no weight couples the tokens."""
    return ELEMENTWISE and LOCATION in ("gaussian", "own")


def _population_dimensions(setting: Setting) -> int:
    """Dimension of the averages: one where they factorise, one less than the tokens where sigma is shift invariant."""
    if _one_token(setting):
        return 1
    return setting.tokens - SHIFT_INVARIANT + location_dimensions(setting)


def _sigma_moments(m_k: float, q_k: float, setting: Setting, count: int, seed: int) -> Array:
    """A and B on one set of nodes."""
    if _one_token(setting):
        return _one_token_moments(m_k, q_k, setting, *_score_nodes(1, count, seed))
    tokens, sigma = setting.tokens, setting.kernel.sigma
    mean, hidden_variance, idle_variance = score_law(m_k, q_k, setting.nu)
    location = location_of(of_scores(m_k, q_k), setting)
    scale = np.full(tokens, np.sqrt(idle_variance))
    scale[0] = np.sqrt(hidden_variance)
    frame = np.eye(tokens)
    if SHIFT_INVARIANT:
        # As for the fields, the scores less their mean: what a weight is conditioned on.
        differences = np.c_[-np.ones(tokens - 1), np.eye(tokens - 1)]
        spread = differences * scale
        frame = np.r_[np.zeros((1, tokens - 1)), np.linalg.cholesky(spread @ spread.T)]
        frame = frame if location is None else frame - frame.mean(axis=0)
        scale = np.ones(tokens)
    split = frame.shape[1]
    if split == 0:
        constant = sigma(np.zeros((1, 1)), setting.params)[0, 0]
        return np.array([constant, constant * constant])
    zeta, weights = _score_nodes(split + location_dimensions(setting), count, seed)
    total, mass = np.zeros(2), 0.0
    for b in _parts(weights.size):
        chi = scale[:, None] * (product(frame, zeta[:split, b]))
        chi[0] += mean
        sigmas = sigma(chi, setting.params)
        here = weights[b] if location is None else weights[b] * location.value(chi, zeta[split:, b])
        total += [weighted_sum(sigmas[0], here), weighted_sum((sigmas * sigmas).sum(axis=0), here)]
        mass += float(here.sum())
    return total / mass


def _one_token_moments(m_k: float, q_k: float, setting: Setting, zeta: Array, weights: Array) -> Array:
    """A and B as sums over the tokens of averages over the score of one."""
    tokens = setting.tokens
    mean, hidden_variance, idle_variance = score_law(m_k, q_k, setting.nu)
    location = location_of(of_scores(m_k, q_k), setting)
    scale = np.sqrt(np.r_[hidden_variance, np.full(tokens - 1, idle_variance)])
    chi = np.zeros((tokens, weights.size)) + scale[:, None] * zeta
    chi[0] += mean
    sigmas = setting.kernel.sigma(chi, setting.params)
    first = weights if location is None else weights * location.value(chi, np.empty((0, weights.size)))
    squares = sigmas * sigmas
    hidden = np.array([weighted_sum(sigmas[0], first), weighted_sum(squares[0], first)]) / first.sum()
    return np.asarray(hidden + np.array([0.0, weighted_sum(squares[1:].sum(axis=0), weights)]))


def population_averages(m_k: float, q_k: float, settings: Sequence[Setting], tol: float = 1e-13) -> PopulationAverages:
    """A and B over all lengths; the error bounds both."""
    found = [averages_of_length(m_k, max(q_k, 1e-300), s, tol) for s in settings]
    shares = np.array([s.kernel.share for s in settings])
    return PopulationAverages(
        *(float(shares @ [getattr(f, name) for f in found]) for name in PopulationAverages._fields)
    )


def _doubled_averages(m_k: float, q_k: float, setting: Setting, tol: float) -> PopulationAverages:
    """A and B of one length, nodes doubled until two shifted rules agree; in many dimensions on Sobol sets."""
    dim = _population_dimensions(setting)
    if dim > LATTICE_DIMENSIONS:
        return _scrambled_averages(m_k, q_k, setting)
    return PopulationAverages.of(doubled(lambda *nodes: _sigma_moments(m_k, q_k, setting, *nodes), dim, tol))


def doubled(average: Callable[[int, int], Array], dim: int, tol: float) -> list[Array]:
    """Averages on so many nodes with a shift, their number doubled until two shifted rules agree."""
    first = 6 + 2 * min(dim, 4)
    counts = (2**log2 for log2 in range(first, LARGEST_POPULATION.bit_length()))
    return climbed((average(n, 1 + (n > 2**first)) for n in counts), partial(rested, tol=tol))


def _scrambled_averages(m_k: float, q_k: float, setting: Setting) -> PopulationAverages:
    """The mean over independent sets of nodes (Sobol in many dimensions), with a t bound from their scatter."""
    sets = np.array([_sigma_moments(m_k, q_k, setting, 2**POPULATION_LOG2, s) for s in range(POPULATION_SCRAMBLES)])
    return PopulationAverages(float(sets[:, 0].mean()), float(sets[:, 1].mean()), float(t_bound(sets).max()))


averages_of_length: Callable[[float, float, Setting, float], PopulationAverages] = _doubled_averages


def few_moments(m_k: float, q_k: float, setting: Setting) -> Array:
    """A and B on few nodes."""
    return _sigma_moments(m_k, q_k, setting, 64 * 4 ** min(_population_dimensions(setting), 3), 1)


rough_moments: Callable[[float, float, Setting], Array] = few_moments


def _population_risk(overlaps: Array, settings: Sequence[Setting], tol: float = 1e-13) -> tuple[float, float]:
    """The risk on the manifold and a bound on its quadrature error."""
    m_k, q_k, m_v, q_v = overlaps
    found = population_averages(m_k, q_k, settings, tol)
    error = found.error * (2.0 * abs(m_v) + abs(q_v))
    noise = settings[0].noise
    return float(risk_on_manifold(m_v, q_v, noise, found.A, found.B, *label_moments(noise))), float(error)


def population_risk(
    m_k: float, q_k: float, m_v: float, q_v: float, nu: float, noise: float = 0.0, **parameters: float
) -> float:
    """E (y - f)^2 of an estimator with these overlaps, cross overlaps zero."""
    check_number("q_k", q_k, "a finite number above 0", q_k > 0)
    check_signal(nu)
    return _population_risk(np.array([m_k, q_k, m_v, q_v]), settings_of(nu, noise, parameter_values(parameters)))[0]


def informed_overlaps(nu: float, params: Array, noise: float = 0.0) -> Array:
    """(m_k, q_k, m_v, q_v) near the population optimum."""
    return np.array(_informed_overlaps(nu, noise, tuple(params)))


def overlap_start(init: str, strengths: tuple[float, float, float], settings: Sequence[Setting]) -> Array:
    """Order parameters to start from: the population optimum, or next to nothing known of the teacher."""
    m_k, q_k, m_v, q_v = 0.02, 0.3, 0.02, 0.3
    if init == "informed":
        m_k, q_k, m_v, q_v = informed_overlaps(settings[0].nu, settings[0].params, settings[0].noise)
    alpha, *penalties = strengths
    v_k, v_v = (1.0 / (penalty + 0.3 * (alpha / (1.0 + alpha)) + 1e-3) for penalty in penalties)
    return ordered(np.array([m_k, m_v]), np.array([q_k, q_v]), np.array([v_k, v_v]))


@lru_cache(maxsize=64)
def _informed_overlaps(nu: float, noise: float, params: tuple[float, ...]) -> tuple[float, ...]:
    """The best v is along v*, and k = m_k k* is scanned.

    The norm is capped, since at strong signals the optimum runs away, and q is kept slightly above m^2.
    """
    slack, cap = 1.05, 6.0
    grid = np.geomspace(LEAST_OVERLAP, cap, 25)
    grid = np.r_[-grid[::-1], grid]
    settings = settings_of(nu, 0.0, np.array(params))

    def gain(m_k: float) -> float:
        a, b = np.sum([s.kernel.share * rough_moments(m_k, slack * m_k * m_k, s) for s in settings], axis=0)
        return float(a * a / b) if np.isfinite(a) and np.isfinite(b) and b > 0.0 else -np.inf

    gains = np.array([gain(m) for m in grid])
    m_k = float(grid[int(np.argmax(gains))])
    found = population_averages(m_k, slack * m_k * m_k, settings, tol=1e-6)
    check_size(found.B)
    m_v = float(best_value_overlap(found.A, found.B, *label_moments(noise)))
    return m_k, slack * m_k * m_k, m_v, slack * m_v * m_v + 1e-6


def risk_of_overlaps(overlaps: Array, nu: float, noise: float = 0.0, tol: float = 1e-9, **parameters: float) -> float:
    """E (y - f)^2 from (m_k, q_k, m_v, q_v, k.v*/D, v.k*/D, k.v/D), exact at finite D for normalised teachers."""
    settings = settings_of(nu, noise, parameter_values(parameters))
    given = StudentOverlaps(*np.asarray(overlaps, dtype=float))
    found = [risk_of_length(given, s, tol) for s in settings]
    return float(np.array([s.kernel.share for s in settings]) @ found)


def _gaussian_risk(overlaps: StudentOverlaps, setting: Setting, tol: float) -> float:
    """The risk of one length where the scores are Gaussian: nodes doubled until two rules agree."""
    mean, hidden_variance, idle_variance = score_law(overlaps.m_k, overlaps.q_k, setting.nu)
    scale = np.sqrt(np.r_[hidden_variance, np.full(setting.tokens - 1, idle_variance)])

    def average(count: int, seed: int) -> Array:
        zeta, weights = _score_nodes(setting.tokens, count, seed)
        total = 0.0
        for b in _parts(weights.size):
            chi = scale[:, None] * zeta[:, b]
            chi[0] += mean
            total += float(weighted_sum(_risk_terms(overlaps, setting, chi), weights[b]))
        return np.array(total)

    return float(doubled(average, setting.tokens, tol)[-1])


def _weighted_risk(overlaps: StudentOverlaps, setting: Setting, tol: float) -> float:
    """The risk on the manifold, and what the cross overlaps add to it, on Sobol nodes doubled until that settles."""
    on = manifold_risk(overlaps, setting, tol)
    least, most = OVERLAP_LOG2
    added = (np.array(_added_by_cross_overlaps(overlaps, setting, log2)) for log2 in range(least, most + 1))
    return on + float(climbed(added, partial(rested, tol=OVERLAP_ERROR))[-1])


def manifold_risk(overlaps: StudentOverlaps, setting: Setting, tol: float) -> float:
    """The risk on the manifold, where what the cross overlaps add, of the order of their squares, is not derived."""
    m_k, q_k, m_v, q_v, *_ = overlaps
    alone = setting._replace(kernel=setting.kernel._replace(share=1.0))
    return _population_risk(np.array([m_k, q_k, m_v, q_v]), (alone,), tol)[0]


risk_of_length: Callable[[StudentOverlaps, Setting, float], float] = _gaussian_risk


def _added_by_cross_overlaps(overlaps: StudentOverlaps, setting: Setting, log2: int) -> float:
    """What the cross overlaps change in the risk, on common nodes: the smaller they are, the fewer do."""
    m_k, q_k = overlaps.m_k, overlaps.q_k
    zeta, _ = _score_nodes_twice(setting.tokens, log2)
    stars, xi = np.split(zeta, 2)
    if np.isinf(setting.nu):
        stars = _winner_first(stars)
    chi = m_k * stars + np.sqrt(max(q_k - m_k * m_k, 0.0)) * xi
    weights = teacher_weight(stars, setting)
    gap = _risk_terms(overlaps, setting, chi, stars) - _risk_terms(overlaps.flat(), setting, chi, stars)
    return float(weighted_sum(gap, weights) / weights.sum())


@lru_cache(maxsize=8)
def _score_nodes_twice(tokens: int, log2: int) -> tuple[Array, Array]:
    return sobol(2 * tokens, log2, 11)


def _winner_first(stars: Array) -> Array:
    """The scores with the largest (or smallest) exchanged with the first."""
    winner = np.argmax(HARD_LIMIT * stars, axis=0)
    every = np.arange(stars.shape[1])
    moved = stars.copy()
    moved[0], moved[winner, every] = stars[winner, every], stars[0]
    return moved


def _risk_terms(overlaps: StudentOverlaps, setting: Setting, chi: Array, *stars: Array) -> Array:
    sigmas = setting.kernel.sigma(chi, setting.params)
    return np.asarray(overlap_risk_terms(np.array(overlaps), setting.nu, setting.noise, chi, sigmas, *stars))
