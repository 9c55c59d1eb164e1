"""The seam of the training dynamics: what is derived of an activation, a task and a model stands in place of these.

Overlaps stand in the order of OVERLAP_NAMES; pulls E[G sum_l f_l h_l] are those of k first, along the fields chi*, z*,
chi, z; spreads E[G^2 sum_l f_l f'_l] are those of kk, kv and vv. What stands here is
the theory of an output that is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import Array

OVERLAP_NAMES: tuple[str, ...] = ("m_k", "q_k", "m_v", "q_v", "kv_star", "vk_star", "kv")
INTEGRAND_DEGREE: int = 0  # in the scores, where it is a polynomial of them, else 0
SMOOTH: bool = True
POLYNOMIAL: bool = True  # all fields but the scores enter as polynomials: a square loss on Gaussian labels
TRANSLATED: bool = True  # the loss sees y - f alone
LOSS_KINKS: tuple[float, ...] = ()  # in f - y, or in y f
LABEL_PLANE: int = 1  # of how many normals nodes are needed for the average of G
FACTORISED: bool = False  # averages are taken one token at a time
FACTOR_TERMS: tuple[tuple[int, float, int, int, int, int], ...] = ()  # average, size, powers of y, N and 1/S, body
FIELDS: int = 4  # of a token: chi*, z*, chi, z
VALUE_STAR: int = 1
SCORE: int = 2
VALUE: int = 3


def attention(x: Array, params: Array) -> tuple[Array, Array]:
    """The activation, and its Jacobian d sigma_l / d x_j."""
    return np.zeros_like(x), np.zeros((len(x), *x.shape))


class SequenceKernel(NamedTuple):
    """The activation and its Jacobian at one number of tokens, which `share` of all sequences have."""

    tokens: int
    share: float
    attention: Callable[[Array, Array], tuple[Array, Array]]


SEQUENCES: tuple[SequenceKernel, ...] = (SequenceKernel(1, 1.0, attention),)


def hidden_given(overlaps: Array, nu: float) -> tuple[Array, Array, Array]:
    """Mean and covariance of chi*, z*, chi, z at the hidden token; coefficients of the normals behind its scores."""
    return np.zeros(FIELDS), np.eye(FIELDS), np.zeros((1, FIELDS))


def idle_given(overlaps: Array) -> tuple[Array, Array, Array]:
    """The same at an idle token."""
    return np.zeros(FIELDS), np.eye(FIELDS), np.zeros((1, FIELDS))


def label_weights(noise: float) -> tuple[float, float]:
    """The label's coefficients in z* of the hidden token and in its own noise."""
    return 1.0, 0.0


def pull_given(
    mean_r: Array, mean_f_l: Array, mean_h_l: Array, cov_f_l__r: Array, cov_h_l__r: Array, cov_f_l__h_l: Array
) -> Array:
    """E[G f_l h_l] given the scores, by Isserlis' theorem."""
    return np.zeros_like(mean_f_l)


def spread_given(
    mean_r: Array,
    mean_f_l: Array,
    mean_f_j: Array,
    cov_r__r: Array,
    cov_f_l__r: Array,
    cov_f_j__r: Array,
    cov_f_j__f_l: Array,
) -> Array:
    """E[G^2 f_l f_j] given the scores, by Isserlis' theorem."""
    return np.zeros_like(mean_f_l)


def risk_given(mean_r: Array, cov_r__r: Array) -> Array:
    """The risk given the scores."""
    return np.zeros_like(mean_r)


def loss_given(mean_r: Array, cov_r__r: Array) -> Array:
    """The average loss given the scores."""
    return np.zeros_like(mean_r)


def token_bodies(
    a: Array, da: Array, b: Array, db: Array, chi_star: Array, z_star: Array, chi: Array, z: Array
) -> tuple[Array, ...]:
    """The bodies of the sums over tokens that the averages are made of."""
    return (z,)


def loss_at(y: Array, f: Array) -> tuple[Array, Array, Array]:
    """The loss, G = -dloss/df, and the risk."""
    return np.zeros_like(f), np.zeros_like(f), np.zeros_like(f)


def absorbed_noise(noise: float) -> float:
    """The coefficient of the label's own noise where it may be taken from the output instead, else 0."""
    return 0.0


def joined_noise(noise: float) -> float:
    """The c of a label that sees z* + c xi alone."""
    return 0.0


def gained_product(
    gains: Array, mean_a: Array, mean_b: Array, a_1: Array, a_2: Array, b_1: Array, b_2: Array, cov_a__b: Array
) -> Array:
    """E[G a b], given the moments of G with Hermite polynomials and what a and b have of both normals."""
    return np.zeros_like(mean_a)


def overlap_rates(
    overlaps: Array,
    pulls: Array,
    spreads: Array,
    eta_k: float,
    eta_v: float,
    lambda_k: float,
    lambda_v: float,
    batch: float,
) -> Array:
    """The rates of the overlaps under one-pass SGD, time being steps/D."""
    return np.zeros_like(overlaps)


def spherical_rates(
    overlaps: Array,
    pulls: Array,
    spreads: Array,
    eta_k: float,
    eta_v: float,
    lambda_k: float,
    lambda_v: float,
    batch: float,
) -> Array:
    """The rates where both students are put back to their norms after every step."""
    return np.zeros_like(overlaps)


def mobility(overlaps: Array, eta_k: float, eta_v: float) -> Array:
    """The matrix that takes minus the slopes of the average loss to the rates of the flow."""
    return np.zeros((overlaps.size, overlaps.size))
