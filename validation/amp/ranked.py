"""The law of the largest of x_l + noise_l, with its derivatives: the location given uncertain scores x.

The noise is s times a normal, plus Gumbel noise over a slope where the location is a softmax of scores and not their
largest. With F its distribution function and h = dlog F, the chance of token e and its derivatives are

    P_e = int dt h(t - x_e) prod_j F(t - x_j),       K_el = int dt h(t - x_e) h(t - x_l) prod_j F(t - x_j),

dP_e/dx_l = -K_el for l != e, and dP_e/dx_e = sum_{l != e} K_el: a common shift changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi, sqrt

import numpy as np
from scipy import special
from scipy.interpolate import CubicHermiteSpline

from replicode.validation.data.sampling import Array

NORMAL_REACH = 8.0
GUMBEL_REACH = (4.0, 40.0)
STEP, GUMBEL_STEP = 0.6, 0.25
TABLE_NODES = 4000
ROWS = 4096


@dataclass(frozen=True, eq=False)
class Noise:
    """log F and h = dlog F as functions, and where the largest of several draws may lie."""

    log_cdf: Callable[[Array], tuple[Array, Array]]
    nodes: Array


def normal_noise(s: float, tokens: int) -> Noise:
    """s times a normal."""

    def log_cdf(x: Array) -> tuple[Array, Array]:
        u = x / s
        log = special.log_ndtr(u)
        return log, np.exp(-0.5 * u * u - log) / (sqrt(2.0 * pi) * s)

    return Noise(log_cdf, _nodes(-NORMAL_REACH * s, NORMAL_REACH * s, _normal_step(s, tokens)))


def softmax_noise(s: float, slope: float, tokens: int) -> Noise:
    """s times a normal plus Gumbel noise over the slope, from a table."""
    low = -NORMAL_REACH * s - GUMBEL_REACH[0] / slope
    high = NORMAL_REACH * s + GUMBEL_REACH[1] / slope
    # Differences of scores take t - x far beyond the nodes on the right, where F is 1.
    grid = np.linspace(2.0 * low, high, TABLE_NODES)
    log, h, bend = _gumbel_table(grid, s, slope)
    table = CubicHermiteSpline(grid, np.stack([log, h], axis=1), np.stack([h, bend], axis=1))

    def log_cdf(x: Array) -> tuple[Array, Array]:
        found = table(np.clip(x, grid[0], grid[-1]))
        return found[..., 0], found[..., 1]

    return Noise(log_cdf, _nodes(low, high, max(_normal_step(s, tokens), GUMBEL_STEP / slope)))


def _normal_step(s: float, tokens: int) -> float:
    """Products of more distribution functions are sharper."""
    return STEP * s / sqrt(max(1.0, tokens / 4.0))


def _nodes(low: float, high: float, step: float) -> Array:
    return np.arange(low, high + step, step)


def _gumbel_table(x: Array, s: float, slope: float) -> tuple[Array, Array, Array]:
    """log F, h and dh at x, F = E exp(-exp(-slope (x - s xi))), scaled so that far tails do not vanish."""
    step = min(STEP, GUMBEL_STEP / (slope * s)) if s > 0.0 else STEP
    # Far to the left F is carried by xi far to the left.
    xi = _nodes(-4.0 * NORMAL_REACH, NORMAL_REACH, step)
    found = np.empty((3, x.size))
    for begin in range(0, x.size, 256):
        rows = slice(begin, begin + 256)
        fall = np.exp(np.minimum(-slope * (x[rows, None] - s * xi), 600.0))
        log = -fall - 0.5 * xi * xi + np.log(step / sqrt(2.0 * pi))
        top = log.max(axis=1, keepdims=True)
        parts = np.exp(log - top)
        total = parts.sum(axis=1)
        h = (parts * fall).sum(axis=1) * slope / total
        bend = (parts * fall * (fall - 1.0)).sum(axis=1) * slope**2 / total - h * h
        found[:, rows] = top[:, 0] + np.log(total), h, bend
    return found[0], found[1], found[2]


def chances(x: Array, noise: Noise) -> tuple[Array, Array]:
    """P_e (N, L) and dP_e/dx_l (N, L, L)."""
    P, slopes = np.empty(x.shape), np.empty((*x.shape, x.shape[1]))
    for begin in range(0, len(x), ROWS):
        rows = slice(begin, begin + ROWS)
        P[rows], slopes[rows] = _block(x[rows], noise)
    return P, slopes


def _block(x: Array, noise: Noise) -> tuple[Array, Array]:
    step = noise.nodes[1] - noise.nodes[0]
    t = x.max(axis=1)[:, None, None] + noise.nodes
    log, h = noise.log_cdf(t - x[:, :, None])
    weighted = h * (np.exp(log.sum(axis=1)) * step)[:, None]
    K = weighted @ h.swapaxes(1, 2)
    P = weighted.sum(axis=2)
    slopes = -K
    diagonal = np.arange(x.shape[1])
    slopes[:, diagonal, diagonal] = K.sum(axis=2) - K[:, diagonal, diagonal]
    return P, slopes


def noise_of(slope: float, s: float, tokens: int) -> Noise:
    """The noise whose largest sum has the law of softmax(slope (x + s xi)), or of its limit at an infinite slope."""
    return normal_noise(s, tokens) if slope == inf else softmax_noise(s, slope, tokens)
