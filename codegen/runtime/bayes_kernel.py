"""The seam of the Bayes-optimal level: what is derived of a task stands in the place of these functions.

Blocks are k (scores) and v (values); q is the overlap of a block's estimate with its teacher, V = 1 - q, and qh its
conjugate. What stands here is the theory of a weight that is 1 and of a label of unit variance.
"""

from __future__ import annotations

import numpy as np

from replicode.codegen.runtime.kernel import Array

LENGTHS: tuple[tuple[int, float], ...] = ((1, 1.0),)
DIFFERENCES: bool = False
POWER: float = 0.0


def label_log_density(d: Array, V_y: float) -> Array:
    """The log-density of the label at a gap d = y - w_z."""
    return np.zeros_like(d)


def label_slope(d: Array, V_y: float) -> Array:
    """Its slope in w_z."""
    return np.zeros_like(d)


def label_variance(V_v: float, noise: float) -> float:
    """The variance V_y of the label given the hidden token's w_z."""
    return 1.0


def label_total(noise: float) -> float:
    """The variance of the label."""
    return 1.0


def bayes_update(qh_k: float, qh_v: float) -> tuple[float, float, float, float]:
    """The overlaps q_k, V_k, q_v and V_v at which the free entropy is stationary in the conjugates."""
    return 0.0, 1.0, 0.0, 1.0


def coordinate_prior_terms(qh_k: float, c_i: Array) -> tuple[Array, ...]:
    """What every coordinate of a structured teacher adds to psi, to q, to V and to the slope of V in qh."""
    return c_i, c_i, c_i, c_i


def free_entropy_value(
    alpha: float, V_k: float, V_v: float, qh_k: float, qh_v: float, log_Z: float, *priors: Array
) -> float:
    """The free entropy, given E[log Z]."""
    return 0.0


def risk_of_location(A: float, q_v: float, noise: float) -> float:
    """The test risk, A being the mean chance that the posterior of a fresh sequence gives its hidden token."""
    return 0.0


def revealed_V_v(alpha: float, noise: float) -> float:
    """The fixed point V_v with every location revealed."""
    return 1.0


def revealed_strength(alpha: float, V_v: float, noise: float) -> float:
    """qh_v with every location revealed."""
    return 0.0


def revealed_contraction(alpha: float) -> float:
    """The factor by which V_v falls per iteration, where labels without noise tell every location."""
    return 1.0


def hidden_score(nu: float) -> tuple[float, float]:
    """Mean and variance of the hidden token's chi*, where it is Gaussian."""
    return 0.0, 1.0


def prior_log_average(w_chi: Array, nu: float, q_k: float) -> Array:
    """The logarithm of gbar, where the average of the weight over chi* given w_chi is closed."""
    return np.zeros_like(w_chi)


def prior_slope(w_chi: Array, nu: float, q_k: float) -> Array:
    """Its slope in w_chi."""
    return np.zeros_like(w_chi)


def own_kinks(nu: float) -> Array:
    """The scores at which the hidden token's own weight has a kink."""
    return np.zeros(0)


def marked_log(x: Array, nu: float, L: float) -> Array:
    """The logarithm of the factor of the weight that the hidden token alone has."""
    return np.zeros_like(x)


def every_log(x: Array, nu: float, L: float) -> Array:
    """The logarithm of the factor that every token has."""
    return np.zeros_like(x)


def body_log(x: Array, nu: float, L: float) -> Array:
    """The logarithm of what a token adds to the sum, of which the weight has the power -POWER."""
    return np.zeros_like(x)


def token_kinks(nu: float, L: float) -> Array:
    """The scores at which any of the three has a kink."""
    return np.zeros(0)


def weight_coefficient(nu: float, L: float) -> float:
    """The constant factor of the weight."""
    return 1.0


def weight_offset(nu: float, L: float) -> float:
    """What the sum begins with."""
    return 0.0


def winner_below(t: Array, w_chi: Array, V_k: float) -> Array:
    """The chance at nu = inf that a token's chi* loses against the winner's score t."""
    return np.zeros_like(t * w_chi)


def winner_density(t: Array, w_chi: Array, V_k: float) -> Array:
    """The density of a token's chi* at t."""
    return np.zeros_like(t * w_chi)


def winner_below_slope(t: Array, w_chi: Array, V_k: float) -> Array:
    """The slope of the chance in w_chi."""
    return np.zeros_like(t * w_chi)


def winner_density_slope(t: Array, w_chi: Array, V_k: float) -> Array:
    """The slope of the density in w_chi."""
    return np.zeros_like(t * w_chi)
