"""gbar_e(w) = E[g(e, chi*) | w] of weights that couple the tokens' scores, and its gradient, from one-token tables.

An inverse power of a token sum is a Laplace integral over s = exp(t), and the limit nu -> infinity an integral over the
winner's score t; either way gbar_e = c int dt marked(t, w_e) prod_{l != e} plain(t, w_l), where plain and marked are
averages over one token's chi* ~ N(w, V_k). Slopes in w are averages with the score of that Gaussian (Stein).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from replicode.codegen.runtime.bayes_kernel import (
    POWER,
    body_log,
    every_log,
    marked_log,
    token_kinks,
    weight_coefficient,
    weight_offset,
    winner_below,
    winner_below_slope,
    winner_density,
    winner_density_slope,
)
from replicode.codegen.runtime.inputs import OutOfReach
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.nodes import COMPOSITE_NODES, gauss_panels

LOCATION_REACH = 9.0
LOCATION_STEP = 0.35
LOCATION_LOW, LOCATION_HIGH = 38.0, 4.0
LOCATION_PANEL = 1.2
LOCATION_BODY_PANEL = 2.0
LOCATION_MOST_NODES = 400_000
LOCATION_NODES = 4096
LOCATION_BLOCK = 1_000_000
LOCATION_GONE = 1e-100


WINNER_REACH = 6.5
WINNER_LAWS = (winner_below, winner_density, winner_below_slope, winner_density_slope)


class OneToken(NamedTuple):
    """plain and marked with their slopes in w, each (values of w, nodes of t), and the weights of t."""

    plain: Array
    marked: Array
    plain_slope: Array
    marked_slope: Array
    weights: Array


class Weights(NamedTuple):
    """gbar (nodes, tokens) and its gradient (nodes, hidden token, token)."""

    value: Array
    gradient: Array


def combined(one: OneToken, index: NDArray[np.intp]) -> Weights:
    """gbar and its gradient where token l of a node has the w of row index[node, l]."""
    count, tokens = index.shape
    value, gradient = np.empty((count, tokens)), np.empty((count, tokens, tokens))
    rows = max(1, LOCATION_BLOCK // (tokens * one.weights.size))
    ratios = _ratios(one)
    for begin in range(0, count, rows):
        b = index[begin : begin + rows]
        product = one.plain[b].prod(axis=1) * one.weights
        found = _joined(product[:, None], *(r[b] for r in ratios))
        value[begin : begin + rows], gradient[begin : begin + rows] = found
    return Weights(value, gradient)


def _ratios(one: OneToken) -> list[Array]:
    """marked and both slopes over plain."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return [np.where(one.plain > LOCATION_GONE, f / one.plain, 0.0) for f in one[1:4]]


def _joined(product: Array, marked: Array, plain_slope: Array, marked_slope: Array) -> Weights:
    """gbar and its gradient: the product over the tokens is (nodes, 1, t), one-token ratios are (nodes, tokens, t)."""
    diagonal = np.arange(marked.shape[1])
    weighted = marked * product
    gradient = weighted @ plain_slope.transpose(0, 2, 1)
    gradient[:, diagonal, diagonal] = (marked_slope * product).sum(axis=2)
    return Weights(weighted.sum(axis=2), gradient)


def hard_tables(w: Array, nu: float, V_k: float, tokens: int, fineness: float) -> OneToken:
    """nu = inf, on a trapezoid over all scores of the winner."""
    deviation, step = np.sqrt(V_k), _winner_step(V_k, tokens, fineness)
    t = np.arange(w.min() - LOCATION_REACH * deviation, w.max() + LOCATION_REACH * deviation + step, step)
    plain, marked, plain_slope, marked_slope = (law(t, w[:, None], V_k) for law in WINNER_LAWS)
    return OneToken(plain, marked, plain_slope, marked_slope, np.full(t.size, tokens * step))


def hard_weights(scores: Array, nu: float, V_k: float, fineness: float = 1.0, scale: float = 1.0) -> Weights:
    """nu = inf at nodes that share no scores: the winner's is next to the largest, or above."""
    tokens, w = scores.shape[1], scale * scores[:, :, None]
    step = _winner_step(V_k, tokens, fineness)
    t = w.max(axis=1, keepdims=True) + np.arange(-WINNER_REACH * np.sqrt(V_k), WINNER_REACH * np.sqrt(V_k) + step, step)
    plain, marked, plain_slope, marked_slope = (law(t, w, V_k) for law in WINNER_LAWS)
    one = OneToken(plain, marked, plain_slope, marked_slope, np.full(1, tokens * step))
    return _joined(one.plain.prod(axis=1, keepdims=True) * one.weights, *_ratios(one))


def _winner_step(V_k: float, tokens: int, fineness: float) -> float:
    """Products of many distribution functions are sharper."""
    return float(1.2 * np.sqrt(V_k) * LOCATION_STEP / (fineness * np.sqrt(max(tokens / 3.0, 1.0))))


class TokenGrid(NamedTuple):
    """Nodes of chi* with weights, and the logarithms of the token functions at them."""

    x: Array
    weights: Array
    marked: Array
    every: Array
    body: Array


def soft_tables(w: Array, nu: float, V_k: float, tokens: int, fineness: float) -> OneToken:
    """Finite nu: t = log s of the Laplace integral, and averages over chi* by one matrix product for all w and t."""
    grid = _token_grid(w, nu, V_k, tokens)
    log_s, weights = _laplace_axis(grid, nu, V_k, tokens, fineness)
    lead = POWER * log_s if POWER else 0.0
    found = np.zeros((4, w.size, log_s.size))
    for begin in range(0, grid.x.size, LOCATION_NODES):
        b = slice(begin, begin + LOCATION_NODES)
        gap = grid.x[b] - w[:, None]
        kernel = grid.weights[b] * np.exp(-(gap**2) / (2.0 * V_k)) / np.sqrt(2.0 * np.pi * V_k)
        slopes = kernel * gap / V_k
        decay = grid.every[b, None] - np.exp(np.minimum(grid.body[b, None] + log_s, 700.0))
        plain, marked = np.exp(decay), np.exp(decay + grid.marked[b, None] + lead)
        found += [kernel @ plain, kernel @ marked, slopes @ plain, slopes @ marked]
    return OneToken(found[0], found[1], found[2], found[3], weight_coefficient(nu, float(tokens)) * weights)


def _laplace_axis(grid: TokenGrid, nu: float, V_k: float, tokens: int, fineness: float) -> tuple[Array, Array]:
    """log s over all that matters; a body of steady growth is smeared by chi*, and the step follows."""
    if not POWER:
        return np.full(1, -np.inf), np.ones(1)
    growth = np.abs(np.diff(grid.body) / np.diff(grid.x))
    width = max(1.0, float(growth.min()) * np.sqrt(V_k / max(tokens / 3.0, 1.0)))
    step = LOCATION_STEP * width / fineness
    log_s = np.arange(-grid.body.max() - LOCATION_LOW / POWER, -grid.body.min() + LOCATION_HIGH + step, step)
    damping = np.exp(-weight_offset(nu, float(tokens)) * np.exp(np.minimum(log_s, 700.0)))
    return log_s, step * damping / special.gamma(POWER)


def _token_grid(w: Array, nu: float, V_k: float, tokens: int) -> TokenGrid:
    low, high = (e + s * LOCATION_REACH * np.sqrt(V_k) for e, s in ((w.min(), -1.0), (w.max(), 1.0)))
    scan = np.linspace(low, high, 2001)
    logs = [log(scan, nu, float(tokens)) for log in (marked_log, every_log, body_log)]
    steepest = max(np.abs(np.diff(log)).max() / (scan[1] - scan[0]) for log in logs)
    width = min(LOCATION_PANEL * np.sqrt(V_k), LOCATION_BODY_PANEL / max(steepest, 1e-300))
    count = int(np.ceil((high - low) / width))
    if not count * COMPOSITE_NODES < LOCATION_MOST_NODES:
        raise OutOfReach("the weight of the task is too sharp for the quadrature over chi*: take a smaller nu, or inf")
    edges = np.r_[np.linspace(low, high, count + 1), token_kinks(nu, float(tokens))]
    x, weights = gauss_panels(np.unique(edges[(edges >= low) & (edges <= high)]))
    return TokenGrid(x, weights, *(log(x, nu, float(tokens)) for log in (marked_log, every_log, body_log)))


def limited_tables(w: Array, nu: float, V_k: float, tokens: int, fineness: float) -> OneToken:
    """Of a weight that has a limit."""
    return (hard_tables if np.isinf(nu) else soft_tables)(w, nu, V_k, tokens, fineness)


one_token_tables: Callable[[Array, float, float, int, float], OneToken] = soft_tables


def location_weights(scores: Array, nu: float, V_k: float, fineness: float = 1.0, scale: float = 1.0) -> Weights:
    """gbar and its gradient at w = scale times scores (nodes, tokens), normalised only where the weight itself is."""
    values, index = np.unique(scores, return_inverse=True)
    one = one_token_tables(scale * values, nu, V_k, scores.shape[1], fineness)
    return combined(one, np.reshape(index, scores.shape))


def limited_weights(scores: Array, nu: float, V_k: float, fineness: float = 1.0, scale: float = 1.0) -> Weights:
    """Of a weight that has a limit, at nodes that share no scores."""
    return (hard_weights if np.isinf(nu) else location_weights)(scores, nu, V_k, fineness, scale)


node_weights: Callable[[Array, float, float, float, float], Weights] = location_weights
