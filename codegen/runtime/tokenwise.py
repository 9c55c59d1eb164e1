"""A = E sigma_eps and B = E sum sigma^2 one token at a time, for sigma = a(x)/(c + sum_l b(x_l)).

Inverse powers of the sum are Laplace integrals over t, in which tokens are independent. Where the hidden token is the
winner of a contest they are so given the winner's score, one more integral. Any number of tokens costs averages over
the score of one.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import ELEMENTWISE, Array, score_law, token_ratio
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.location import location_of
from replicode.codegen.runtime.places import of_scores
from replicode.codegen.runtime.population import (
    PopulationAverages,
    _doubled_averages,
    _population_dimensions,
    few_moments,
)
from replicode.codegen.runtime.refinement import climbed, rested

TOKEN_REACH = 9.0
TOKEN_STEP, BODY_STEP = 0.5, 0.4  # in deviations of the score, or of what the weight sees; in the score itself
LAPLACE_STEP, LAPLACE_DEPTH, LAPLACE_REACH = 0.4, 38.0, 6.0
MOST_TOKENWISE = 4000  # nodes along an axis
FINER_AXES, FINEST_AXES = 1.4, 4


class TokenScores(NamedTuple):
    """Scores of one token, their weights along the winner's score (winner, scores), and a and b there."""

    weights: Array
    top: Array
    bottom: Array

    def moment(self, power: int, tilted: Array) -> Array:
        """E a^power exp(-t b), (winner, t)."""
        return np.asarray(self.weights @ (self.top[:, None] ** power * tilted))


def tokenwise_averages(m_k: float, q_k: float, setting: Setting, tol: float) -> PopulationAverages:
    """A and B of one length, all axes refined until they rest; on nodes over all tokens where that is less."""
    if _population_dimensions(setting) < 2:
        return _doubled_averages(m_k, q_k, setting, tol)
    axes = (_tokenwise(m_k, q_k, setting, FINER_AXES**level) for level in range(FINEST_AXES + 1))
    found = PopulationAverages.of(climbed(axes, partial(rested, tol=tol)))
    return found if np.isfinite(found.error) else _doubled_averages(m_k, q_k, setting, tol)


def tokenwise_moments(m_k: float, q_k: float, setting: Setting) -> Array:
    """A and B on the coarsest axes; on nodes over all tokens where there are none."""
    found = _tokenwise(m_k, q_k, setting, 1.0)
    return found if np.isfinite(found).all() else few_moments(m_k, q_k, setting)


def _tokenwise(m_k: float, q_k: float, setting: Setting, fineness: float) -> Array:
    """A and B on axes of some fineness; not numbers where these would be too long, or sigma's parts overflow."""
    with np.errstate(all="ignore"):
        found = _one_token_scores(m_k, q_k, setting, fineness)
        if found is None:
            return np.full(2, np.nan)
        hidden, idle, offset = found
        scale = 1.0 if ELEMENTWISE else float(max(hidden.bottom.max(), idle.bottom.max()))
        hidden, idle = (e._replace(top=e.top / scale, bottom=e.bottom / scale) for e in (hidden, idle))
        t, weights = _laplace_axis(hidden, idle, offset / scale, setting.tokens, fineness)
        seen, unseen = (np.exp(-np.multiply.outer(e.bottom, t)) for e in (hidden, idle))
        others = setting.tokens - 1
        spared = idle.moment(0, unseen)
        all_spared = spared**others
        first = hidden.moment(1, seen) * all_spared
        second = hidden.moment(2, seen) * all_spared
        second += others * hidden.moment(0, seen) * idle.moment(2, unseen) * spared ** (others - 1)
        mass = float((hidden.weights.sum(axis=1) * idle.weights.sum(axis=1) ** others).sum())
        powers = np.ones((2, 1)) if ELEMENTWISE else np.stack([t, t * t]) * np.exp(-t * offset / scale)
        return np.asarray((powers * weights * np.stack([first.sum(axis=0), second.sum(axis=0)])).sum(axis=1) / mass)


def _laplace_axis(
    hidden: TokenScores, idle: TokenScores, offset: float, tokens: int, fineness: float
) -> tuple[Array, Array]:
    """t, evenly in its logarithm, small enough for the largest sums and large enough for the smallest."""
    if ELEMENTWISE:
        return np.zeros(1), np.ones(1)
    smallest = min(float(hidden.bottom.min()), float(idle.bottom.min())) + offset
    low = -LAPLACE_DEPTH - np.log(tokens + offset)
    high = LAPLACE_REACH - np.log(max(smallest, 1e-280))
    step = LAPLACE_STEP / fineness
    logs = np.arange(low, high + step, step)
    return np.exp(logs), np.full(logs.size, step)


def _one_token_scores(
    m_k: float, q_k: float, setting: Setting, fineness: float
) -> tuple[TokenScores, TokenScores, float] | None:
    """The hidden and an idle token, and c."""
    mean, *variances = score_law(m_k, q_k, setting.nu)
    location = location_of(of_scores(m_k, q_k), setting, False)
    narrow = np.inf if location is None else location.width()
    found, offset = [], np.zeros(1)
    for variance, middle in zip(variances, (mean, 0.0), strict=True):
        deviation = float(np.sqrt(variance))
        step = min(TOKEN_STEP * deviation, BODY_STEP, TOKEN_STEP * narrow) / fineness
        count = int(np.ceil(TOKEN_REACH * deviation / step)) if step > 0.0 else MOST_TOKENWISE
        if 2 * count >= MOST_TOKENWISE:
            return None
        u = step * np.arange(-count, count + 1)
        top, _, bottom, _, offset = token_ratio(middle + u, setting.params)
        density = np.exp(-0.5 * (u / deviation) ** 2)
        parts = (np.broadcast_to(e, u.shape) for e in (top, bottom))
        found.append((middle + u, TokenScores(density[None] / density.sum(), *parts)))
    (scores, hidden), (_, idle) = found
    if location is not None:
        if (weights := location.by_token(scores, setting.tokens, fineness)) is None:
            return None
        hidden, idle = (e._replace(weights=e.weights * w) for e, w in zip((hidden, idle), weights, strict=True))
    return hidden, idle, float(np.asarray(offset).flat[0])
