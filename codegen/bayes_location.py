"""gbar_e(w) = E[g(e, chi*) | w] of weights that couple the tokens' scores, and its gradient, from one-token tables.

An inverse power of a token sum is a Laplace integral over s = exp(t), and the limit nu -> infinity an integral over the
winner's score t; either way gbar_e = c int dt marked(t, w_e) prod_{l != e} plain(t, w_l), where plain and marked are
averages over one token's chi* ~ N(w, V_k). Slopes in w are averages with the score of that Gaussian (Stein).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy import special

from replicode.codegen.averages import Array, Signed, compiled, gauss_panels, signed
from replicode.theory.bayes import THRESHOLD, W_CHI, BayesSystem
from replicode.theory.errors import Refusal
from replicode.theory.model import NU
from replicode.theory.nodes import L, X

_REACH = 9.0
_STEP = 0.35
_LOW, _HIGH = 38.0, 4.0
_PANEL = 1.2
_BODY_PANEL = 2.0
_MOST_NODES = 400_000
_NODES = 4096
_BLOCK = 1_000_000
_GONE = 1e-100


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


class Tables(Protocol):
    """One-token tables at given values of w."""

    def at(self, w: Array, V_k: float, tokens: int, fineness: float) -> OneToken:
        """For chi* ~ N(w, V_k)."""


def tables(system: BayesSystem, nu: float) -> Tables:
    """Those of the limit nu -> infinity, or of a finite nu."""
    return HardTables(system) if np.isinf(nu) else SoftTables(system, nu)


def location_weights(system: BayesSystem, nu: float, w: Array, V_k: float, fineness: float = 1.0) -> Weights:
    """gbar and its gradient at w (nodes, tokens), not normalised where the weight itself is not."""
    values, index = np.unique(w, return_inverse=True)
    one = tables(system, nu).at(values, V_k, w.shape[1], fineness)
    return combined(one, np.reshape(index, w.shape))


def combined(one: OneToken, index: NDArray[np.intp]) -> Weights:
    """gbar and its gradient where token l of a node has the w of row index[node, l]."""
    count, tokens = index.shape
    value, gradient = np.empty((count, tokens)), np.empty((count, tokens, tokens))
    rows = max(1, _BLOCK // (tokens * one.weights.size))
    diagonal = np.arange(tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [np.where(one.plain > _GONE, f / one.plain, 0.0) for f in one[1:4]]
    for begin in range(0, count, rows):
        b = index[begin : begin + rows]
        product = one.plain[b].prod(axis=1) * one.weights
        marked, plain_slope, marked_slope = (r[b] for r in ratios)
        weighted = marked * product[:, None]
        value[begin : begin + rows] = weighted.sum(axis=2)
        part = weighted @ plain_slope.transpose(0, 2, 1)
        part[:, diagonal, diagonal] = (marked_slope * product[:, None]).sum(axis=2)
        gradient[begin : begin + rows] = part
    return Weights(value, gradient)


class HardTables:
    """nu = infinity: the winner's score t, whose law is derived in closed form."""

    def __init__(self, system: BayesSystem) -> None:
        if system.hard is None:
            system.task.hard_limit()
            raise AssertionError("a task without a limit is refused")
        functions = (system.hard.below, system.hard.density)
        slopes = [sp.diff(f, W_CHI) for f in functions]
        q, v = system.model.scores.q, system.model.scores.V
        self.functions = [compiled(f.subs(q, 1 - v), (THRESHOLD, W_CHI, v)) for f in (*functions, *slopes)]

    def at(self, w: Array, V_k: float, tokens: int, fineness: float) -> OneToken:
        """On a trapezoid over all scores; products of many distribution functions are sharper."""
        deviation = np.sqrt(V_k)
        step = 1.2 * deviation * _STEP / (fineness * np.sqrt(max(tokens / 3.0, 1.0)))
        t = np.arange(w.min() - _REACH * deviation, w.max() + _REACH * deviation + step, step)
        found = [np.asarray(f(t, w[:, None], V_k)) for f in self.functions]
        return OneToken(found[0], found[1], found[2], found[3], np.full(t.size, tokens * step))


@dataclass(frozen=True)
class _Grid:
    """Nodes of chi* with weights, and the logarithms of the token functions at them."""

    x: Array
    weights: Array
    own: Array
    every: Array
    body: Array


class SoftTables:
    """Finite nu: t = log s of the Laplace integral, and chi* by Gauss-Legendre panels."""

    def __init__(self, system: BayesSystem, nu: float) -> None:
        weight = system.location
        self.nu = nu
        self.coefficient = compiled(weight.coefficient, (L, NU))
        symbols = (X, NU, L)
        self.own, self.every = (signed(e, symbols) for e in (weight.own, weight.every))
        self.power = None if weight.power is None else float(weight.power.power)
        self.body = None if weight.power is None else signed(weight.power.body, symbols)
        self.offset = compiled(sp.S.Zero if weight.power is None else weight.power.offset, (NU, L))

    def at(self, w: Array, V_k: float, tokens: int, fineness: float) -> OneToken:
        """Averages over chi* by one matrix product for all w and t."""
        grid = self._grid(w, V_k, tokens)
        log_s, weights = self._axis(grid, V_k, tokens, fineness)
        lead = 0.0 if self.power is None else self.power * log_s
        found = np.zeros((4, w.size, log_s.size))
        for begin in range(0, grid.x.size, _NODES):
            b = slice(begin, begin + _NODES)
            gap = grid.x[b] - w[:, None]
            kernel = grid.weights[b] * np.exp(-(gap**2) / (2.0 * V_k)) / np.sqrt(2.0 * np.pi * V_k)
            slopes = kernel * gap / V_k
            decay = grid.every[b, None] - np.exp(np.minimum(grid.body[b, None] + log_s, 700.0))
            plain, marked = np.exp(decay), np.exp(decay + grid.own[b, None] + lead)
            found += [kernel @ plain, kernel @ marked, slopes @ plain, slopes @ marked]
        scale = float(self.coefficient(float(tokens), self.nu))
        return OneToken(found[0], found[1], found[2], found[3], scale * weights)

    def _axis(self, grid: _Grid, V_k: float, tokens: int, fineness: float) -> tuple[Array, Array]:
        """log s over all that is felt; a body of steady growth is smeared by chi*, and the step follows."""
        if self.power is None:
            return np.full(1, -np.inf), np.ones(1)
        growth = np.abs(np.diff(grid.body) / np.diff(grid.x))
        width = max(1.0, float(growth.min()) * np.sqrt(V_k / max(tokens / 3.0, 1.0)))
        step = _STEP * width / fineness
        log_s = np.arange(-grid.body.max() - _LOW / self.power, -grid.body.min() + _HIGH + step, step)
        offset = float(self.offset(self.nu, float(tokens)))
        damping = np.exp(-offset * np.exp(np.minimum(log_s, 700.0)))
        return log_s, step * damping / special.gamma(self.power)

    def _grid(self, w: Array, V_k: float, tokens: int) -> _Grid:
        low, high = (e + s * _REACH * np.sqrt(V_k) for e, s in ((w.min(), -1.0), (w.max(), 1.0)))
        functions = [f for f in (self.own, self.every, self.body) if f is not None]
        scan = np.linspace(low, high, 2001)
        slopes = [np.abs(np.diff(self._log(f, scan, tokens))).max() / (scan[1] - scan[0]) for f in functions]
        width = min(_PANEL * np.sqrt(V_k), _BODY_PANEL / max(*slopes, 1e-300))
        count = int(np.ceil((high - low) / width))
        if not count * 12 < _MOST_NODES:
            raise Refusal("the weight of the task is too sharp for the quadrature over chi*: take a smaller nu, or inf")
        kinks = [float(k(0.0, self.nu, float(tokens))) for f in functions for k in f.kinks]
        edges = np.r_[np.linspace(low, high, count + 1), kinks]
        x, weights = gauss_panels(np.unique(edges[(edges >= low) & (edges <= high)]))
        own, every = (self._log(f, x, tokens) for f in (self.own, self.every))
        body = np.zeros(x.size) if self.body is None else self._log(self.body, x, tokens)
        return _Grid(x, weights, own, every, body)

    def _log(self, function: Signed, x: Array, tokens: int) -> Array:
        return np.asarray(function.log(x, self.nu, float(tokens)), dtype=float) + np.zeros_like(x)
