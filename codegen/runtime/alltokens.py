"""A and B over all tokens at once, for activations that do not factorise over them.

Scores are nodes of a shifted lattice in few dimensions and of scrambled Sobol sequences otherwise; sigma and the task's
weight are evaluated as they stand. The location is summed over, so that only the scores are sampled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replicode.codegen.runtime.kernel import HARD_LIMIT, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import weighted_sum
from replicode.codegen.runtime.nodes import lattice, level_count, sobol
from replicode.codegen.runtime.onetoken import Law
from replicode.codegen.runtime.population_kernel import location_logs

SCORES_ON_LATTICE = 6
SCORES_LOG2 = 14
SMOOTH_SCORES: bool = True  # whether neither the activation nor the weight has kinks

Sigma = Callable[[Array, Setting], Array]


def own_sigma(chi: Array, setting: Setting) -> Array:
    """The activation itself."""
    return setting.kernel.sigma(chi, setting.params)


def posterior_sigma(chi: Array, setting: Setting) -> Array:
    """The posterior of the location at these scores."""
    weight = location_weights(chi, setting.nu)
    return np.asarray(weight / weight.sum(axis=0))


def location_weights(chi: Array, nu: float) -> Array:
    """The weight of every location given the teacher's scores, up to a constant."""
    if np.isinf(nu):
        return np.asarray(HARD_LIMIT * chi == (HARD_LIMIT * chi).max(axis=0), dtype=float)
    return np.asarray(np.exp(location_logs(chi, nu, float(len(chi)))))


def sampled_moments(law: Law, setting: Setting, sigma: Sigma, level: int) -> Array:
    """A and B of one length on the nodes of a level."""
    tokens, residual = setting.tokens, np.sqrt(max(law.q - law.m**2, 0.0))
    two = law.hidden is None and residual > 0.0
    nodes, weights = _all_scores(tokens * (2 if two else 1), level, np.isinf(setting.nu))
    if law.hidden is not None:
        mean, variance = law.hidden
        x = np.sqrt(law.q) * nodes
        x[0] = law.m * mean + np.sqrt(max(law.q + law.m**2 * (variance - 1.0), 0.0)) * nodes[0]
        sigmas = sigma(x, setting)
        return np.array([weighted_sum(sigmas[0], weights), weighted_sum((sigmas * sigmas).sum(axis=0), weights)])
    chi = nodes[:tokens]
    sigmas = sigma(law.m * chi + (residual * nodes[tokens:] if two else 0.0), setting)
    location = location_weights(chi, setting.nu)
    total = weighted_sum(location.sum(axis=0), weights)
    a = weighted_sum((location * sigmas).sum(axis=0), weights)
    b = weighted_sum(location.sum(axis=0) * (sigmas * sigmas).sum(axis=0), weights)
    return np.asarray([a, b] / total)


def _all_scores(dim: int, level: int, jumps: bool) -> tuple[Array, Array]:
    if SMOOTH_SCORES and not jumps and dim <= SCORES_ON_LATTICE:
        return lattice(dim, 4.0 * level_count(dim, level), 1 + level)
    return sobol(dim, SCORES_LOG2 + level, 1 + level)
