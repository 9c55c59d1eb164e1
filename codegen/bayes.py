"""Numerical Bayes-optimal theory at finite samples: averages over one token at a time, fixed points, branches.

Given the label y the tokens are independent. Negative powers of Z are Laplace integrals and log Z is Frullani's, so
that any number of tokens costs one-token averages over (w_chi, w_z) for every node of y and of log s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp

from codegen.averages import Array, TokenTable, compiled
from theory.bayes import ENTROPY, SPREAD, W_CHI, W_Z, BayesSystem
from theory.errors import Refusal
from theory.lengths import Lengths
from theory.model import ALPHA, BLOCKS, NOISE, NU, QH, Q, Y

_REACH = 9.0
_STEP = 0.5
_LOG_STEP = 0.3
COARSE, CHECK, FINE = 0.6, 0.85, 1.0
_SAME = 1e-4
_NEAR = 0.02
_MOST = 500
_MOST_NEWTON = 8
_MOST_LABELS = 120
LOG_Z = sp.Symbol("log_Z", real=True)
_SYMBOLS = (W_CHI, W_Z, Y, SPREAD, NU, Q["k"])


@dataclass(frozen=True)
class Rates:
    """E sum_l |grad_w log Z|^2 for k and v, E log Z and E p_eps of a fresh sequence."""

    k: float
    v: float
    entropy: float
    location: float


@dataclass(frozen=True)
class Branch:
    """A fixed point of the state evolution, from an informed or an uninformed start."""

    start: str
    q_k: float
    q_v: float
    test_risk: float
    free_entropy: float
    converged: bool
    residual: float
    iterations: int
    error: float


class BayesChannel:
    """The averages of one (system, nu, noise, lengths) at given overlaps."""

    def __init__(self, system: BayesSystem, nu: float, noise: float, lengths: Lengths) -> None:
        self.nu, self.noise, self.lengths = nu, noise, lengths
        self.exponent = compiled(system.exponent, _SYMBOLS)
        self.prior = compiled(system.prior, _SYMBOLS)
        self.rate_functions = [compiled(system.rates[b], _SYMBOLS) for b in ("k", "v")]
        overlap = (NU, Q["k"])
        self.hidden_mean, self.hidden_variance = (
            compiled(e, overlap) for e in (system.hidden_mean, system.hidden_variance)
        )
        self.label_variance = compiled(system.label_variance, (Q["v"], NOISE))
        self.updates = [compiled(system.update[Q[b]], (QH[b],)) for b in BLOCKS]
        symbols = (ALPHA, *[Q[b] for b in BLOCKS], *[QH[b] for b in BLOCKS], LOG_Z)
        self.entropy = compiled(system.free_entropy.xreplace({ENTROPY: LOG_Z}), symbols)

    def rates(self, q_k: float, q_v: float, fineness: float) -> Rates:
        """All four averages."""
        spread = float(self.label_variance(q_v, self.noise))
        total = 1.0 + self.noise**2
        h = min(_STEP, 0.6 * np.sqrt(spread / total)) / fineness
        if _REACH / h > _MOST_LABELS:
            raise Refusal(f"the labels tell the values almost exactly (V_v + noise^2 = {spread:.1e}): too sharp")
        y = h * (np.arange(int(_REACH / h) + 1) + 0.5)
        weights = np.exp(-(y**2) / 2.0)
        weights /= weights.sum()
        found = np.array([self._given_label(float(v), q_k, q_v, spread, fineness) for v in np.sqrt(total) * y])
        k, v, entropy = weights @ found
        log_norm = -0.5 * np.log(2.0 * np.pi * spread)
        return Rates(float(k), float(v), float(entropy + log_norm), self._fresh_location(q_k, fineness))

    def _scores(self, q_k: float, hidden: bool, sharp: float, fineness: float) -> tuple[Array, Array]:
        """Nodes of w_chi with the logarithms of their weights."""
        mean = float(self.hidden_mean(self.nu, q_k)) if hidden else 0.0
        deviation = float(np.sqrt(self.hidden_variance(self.nu, q_k) if hidden else q_k))
        h = min(_STEP, 0.9 / max(1.0, sharp * deviation)) / fineness
        u = h * np.arange(-int(_REACH / h), int(_REACH / h) + 1, dtype=np.float64)
        return mean + deviation * u, -(u**2) / 2.0 - np.log(np.exp(-(u**2) / 2.0).sum())

    def _values(self, y: float, q_v: float, spread: float, hidden: bool, fineness: float) -> tuple[Array, Array]:
        """Nodes of w_z given the label."""
        total = 1.0 + self.noise**2
        mean = q_v * y / total if hidden else 0.0
        deviation = np.sqrt(q_v * spread / total if hidden else q_v)
        h = min(_STEP, 0.6 * np.sqrt(spread) / max(deviation, 1e-12)) / fineness
        u = h * np.arange(-int(_REACH / h), int(_REACH / h) + 1, dtype=np.float64)
        return mean + deviation * u, -(u**2) / 2.0 - np.log(np.exp(-(u**2) / 2.0).sum())

    def _nodes(
        self, y: float, q_k: float, q_v: float, spread: float, hidden: bool, fineness: float
    ) -> tuple[list[Array | float], Array]:
        chi, log_chi = self._scores(q_k, hidden, np.sqrt(self.nu), fineness)
        z, log_z = self._values(y, q_v, spread, hidden, fineness)
        log = (log_chi[:, None] + log_z).ravel()
        keep = log > log.max() - 40.0
        grid = [np.repeat(chi, z.size)[keep], np.tile(z, chi.size)[keep]]
        return [*grid, y, spread, self.nu, q_k], log[keep]

    def _given_label(self, y: float, q_k: float, q_v: float, spread: float, fineness: float) -> Array:
        """E[sum p^2 rate] for k and v and E[log sum exp t - log L], given y."""
        sides = [self._nodes(y, q_k, q_v, spread, hidden, fineness) for hidden in (True, False)]
        exponents = [np.asarray(self.exponent(*arguments)) + np.zeros_like(log) for arguments, log in sides]
        axis = _axis(exponents, fineness)
        step = axis[1] - axis[0]
        ones = [np.ones_like(log) for _, log in sides]
        plain = [TokenTable(o, log, (t,), (0.0,)).at([axis]) for o, (_, log), t in zip(ones, sides, exponents)]
        found = np.zeros(3)
        tokens = np.array(self.lengths.tokens)
        chance = np.array(self.lengths.weights)
        rest = [(plain[1][:, None] ** np.maximum(tokens - 1 - i, 0)) for i in (0, 1)]
        for b, rate in enumerate(self.rate_functions):
            squared = []
            for one, (arguments, log), t in zip(ones, sides, exponents):
                with np.errstate(divide="ignore"):
                    log_rate = np.log(np.asarray(rate(*arguments)) + np.zeros_like(log))
                squared.append(TokenTable(one, log + log_rate, (t,), (2.0,)).at([axis]))
            hidden = squared[0][:, None] * rest[0]
            idle = (tokens - 1) * squared[1][:, None] * plain[0][:, None] * rest[1]
            found[b] = float(((hidden + idle).sum(axis=0) * step) @ chance)
        smooth = np.exp(-np.exp(np.minimum(axis, 50.0)))
        frullani = (smooth[:, None] - plain[0][:, None] * rest[0]).sum(axis=0) * step - np.log(tokens)
        found[2] = float(frullani @ chance)
        return found

    def _fresh_location(self, q_k: float, fineness: float) -> float:
        """E p_eps of a fresh sequence, whose label is not known."""
        sides = [self._scores(q_k, hidden, np.sqrt(self.nu), 1.5 * fineness) for hidden in (True, False)]
        exponents = [np.asarray(self.prior(w, 0.0, 0.0, 1.0, self.nu, q_k)) + np.zeros_like(w) for w, _ in sides]
        axis = _axis(exponents, fineness)
        ones = [np.ones_like(w) for w, _ in sides]
        own = TokenTable(ones[0], sides[0][1], (exponents[0],), (1.0,)).at([axis])
        idle = TokenTable(ones[1], sides[1][1], (exponents[1],), (0.0,)).at([axis])
        tokens = np.array(self.lengths.tokens)
        values = (own[:, None] * idle[:, None] ** (tokens - 1)).sum(axis=0) * (axis[1] - axis[0])
        return float(values @ np.array(self.lengths.weights))


def _axis(exponents: Sequence[Array], fineness: float) -> Array:
    """log s from where nothing is felt yet to where everything is gone."""
    low = min(float(t.min()) for t in exponents)
    high = max(float(t.max()) for t in exponents)
    return np.arange(-high - 45.0, -low + 5.0, _LOG_STEP / fineness)


def branches(channel: BayesChannel, alpha: float, tolerance: float) -> tuple[Branch, ...]:
    """The fixed points from an informed and an uninformed start; one suffices where both lead to the same."""
    starts = {"informed": np.full(2, 1.0 - 1e-4), "uninformed": np.full(2, 1e-6)}
    coarse = {name: _iterated(channel, alpha, q) for name, q in starts.items()}
    same = np.abs(coarse["informed"][0] - coarse["uninformed"][0]).max() < _SAME
    kept = ("uninformed",) if same else ("informed", "uninformed")
    return tuple(_finished(channel, alpha, name, *coarse[name], tolerance) for name in kept)


def _iterated(channel: BayesChannel, alpha: float, q: Array) -> tuple[Array, int]:
    """The state evolution on coarse averages until it rests, with Newton steps once it moves little."""
    new = _updated(channel, alpha, q, COARSE)
    for iteration in range(_MOST):
        moved = float(np.abs(new - q).max())
        if moved < 1e-7:
            return new, iteration + 1
        if moved < _NEAR:
            trial = q + _inverse_jacobian(channel, alpha, q, new) @ (new - q)
            if np.all((trial > 0.0) & (trial < 1.0)) and np.abs(trial - q).max() < 20.0 * moved:
                image = _updated(channel, alpha, trial, COARSE)
                if np.abs(image - trial).max() < 0.3 * moved:
                    q, new = trial, image
                    continue
        q, new = new, _updated(channel, alpha, new, COARSE)
    return q, _MOST


def _inverse_jacobian(channel: BayesChannel, alpha: float, q: Array, image: Array) -> Array:
    """(1 - dF/dq)^-1 of the state evolution F by differences of coarse averages."""
    steps = 1e-3 * np.minimum(q, 1.0 - q)
    columns = [(_updated(channel, alpha, q + d, COARSE) - image) / d.max() for d in np.diag(steps)]
    return np.asarray(np.linalg.inv(np.eye(2) - np.array(columns).T))


def _finished(channel: BayesChannel, alpha: float, start: str, q: Array, iterations: int, tolerance: float) -> Branch:
    """Newton on fine averages, with the coarse Jacobian, which is exact enough for steps this small."""
    inverse = _inverse_jacobian(channel, alpha, q, _updated(channel, alpha, q, COARSE))
    residual = np.inf
    for _ in range(_MOST_NEWTON):
        here = _updated(channel, alpha, q, FINE)
        residual = float(np.abs(here - q).max())
        q = np.clip(q + inverse @ (here - q), 1e-12, 1.0 - 1e-12)
        iterations += 1
        if residual < 0.01 * tolerance:
            break
    rates, check = (channel.rates(float(q[0]), float(q[1]), f) for f in (FINE, CHECK))
    shift = np.abs(inverse @ (_overlaps(channel, alpha, rates) - _overlaps(channel, alpha, check)))
    gain, other = q[1] * rates.location, q[1] * check.location
    return Branch(
        start=start,
        q_k=float(q[0]),
        q_v=float(q[1]),
        test_risk=float(1.0 + channel.noise**2 - gain),
        free_entropy=float(channel.entropy(alpha, *q, alpha * rates.k, alpha * rates.v, rates.entropy)),
        converged=residual < max(tolerance, 1e-10),
        residual=residual,
        iterations=iterations,
        error=float(abs(gain - other) + 2.0 * shift.sum() + residual * np.abs(inverse).sum() + 1e-15),
    )


def _updated(channel: BayesChannel, alpha: float, q: Array, fineness: float) -> Array:
    return _overlaps(channel, alpha, channel.rates(float(q[0]), float(q[1]), fineness))


def _overlaps(channel: BayesChannel, alpha: float, rates: Rates) -> Array:
    """The overlaps at conjugates qh = alpha times the rates, by the derived update."""
    return np.array([float(f(alpha * r)) for f, r in zip(channel.updates, (rates.k, rates.v))])
