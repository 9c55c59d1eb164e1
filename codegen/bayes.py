"""The Bayes-optimal theory solved at finite samples: fixed points of the state evolution, and their branches.

The state evolution runs in -log V = log(1 + qh) of both blocks, which is q itself where that is small and keeps the
digits of V = 1 - q where that is. Coarse averages bring it to rest; Newton steps then follow on finer and finer ones
until two levels agree to the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import sympy as sp
from scipy import special

from replicode.codegen.averages import Array, compiled
from replicode.codegen.bayes_coupled import SCRAMBLES, CoupledChannel
from replicode.codegen.bayes_label import Overlaps
from replicode.codegen.bayes_own import OwnChannel
from replicode.codegen.bayes_rates import Evaluator, Rates, TooFine
from replicode.codegen.threads import one_thread
from replicode.theory.bayes import BayesSystem, entropy_of
from replicode.theory.lengths import Lengths
from replicode.theory.model import ALPHA, NOISE
from replicode.theory.population import A

COARSE, FINE = 0.6, 1.2
LEVELS = (COARSE, 0.75, 0.95, FINE, 1.5)
LOG_Z = sp.Symbol("log_Z", real=True)
_UNINFORMED = 1e-6
_SMALLEST = (1e-6, 1e-14)  # of V_v at an informed start, without noise and with it
_RECOVERED = 1e-6
_NOTHING = 1e-26
_SAME = 1e-4
_NEAR = 0.05
_STILL = 1e-7
_LARGEST_STEP = 1.0
_PAUSE = 5
_LONGEST_LEAP = 0.05
_MOST = 1500
_MOST_NEWTON = 8
_DIFFERENCE = 1e-3
_QUANTILE = float(special.stdtrit(SCRAMBLES - 1, 0.9995))
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Branch:
    """A fixed point of the state evolution, from an informed or an uninformed start.

    `error` bounds the error of test_risk and `entropy_error` that of free_entropy. `recovered`: without noise v* is
    found exactly, q_v = 1, and the free entropy is infinite.
    """

    start: str
    q_k: float
    q_v: float
    test_risk: float
    free_entropy: float
    converged: bool
    residual: float
    iterations: int
    error: float
    entropy_error: float
    recovered: bool


class BayesChannel:
    """The averages of one (system, nu, noise, lengths) at given overlaps, and the derived equations around them."""

    def __init__(self, system: BayesSystem, nu: float, noise: float, lengths: Lengths) -> None:
        self.noise = noise
        evaluator = CoupledChannel if system.location.coupled or np.isinf(nu) else OwnChannel
        self.evaluator: Evaluator = evaluator(system, nu, noise, lengths)
        blocks, values = (system.model.scores, system.model.values), system.model.values
        update = system.update[values.q].subs(values.qh, _STRENGTH)
        self.overlap, self.rest = (compiled(sp.simplify(e), (_STRENGTH,)) for e in (update, 1 - update))
        entropy = system.free_entropy.xreplace({entropy_of(system.model): LOG_Z}).subs({b.q: 1 - b.V for b in blocks})
        self.entropy = compiled(sp.expand(entropy), (ALPHA, *[b.V for b in blocks], *[b.qh for b in blocks], LOG_Z))
        self.risk = compiled(system.risk, (A, values.q, NOISE))
        self.noise_risk = float(compiled(system.model.noise_risk(), (NOISE,))(noise))
        self.told_V_v = compiled(system.revealed.V_v, (ALPHA, NOISE))
        self.contraction = compiled(system.revealed.contraction, (ALPHA,))

    def rates(self, q_k: float, q_v: float, fineness: float) -> Rates:
        """All averages at overlaps that are not close to one."""
        return self.evaluator.rates(Overlaps(q_k, 1.0 - q_k, q_v, 1.0 - q_v), fineness)

    def overlaps(self, known: Array) -> Overlaps:
        """q and V of both blocks from log(1 + qh); of k alone they come with v recovered."""
        qh = np.expm1(known)
        pairs = [(float(self.overlap(s)), float(self.rest(s))) for s in qh]
        return Overlaps(*pairs[0], *(pairs[1] if len(pairs) > 1 else (1.0, 0.0)))

    def free_entropy(self, alpha: float, at: Overlaps, rates: Rates) -> float:
        """Phi at overlaps and conjugates alpha times the rates there."""
        return float(self.entropy(alpha, at.V_k, at.V_v, alpha * rates.k, alpha * rates.v, rates.entropy))

    def recovers(self, alpha: float) -> bool:
        """Whether v* is found exactly from a start close enough to it."""
        return self.noise == 0.0 and float(self.contraction(alpha)) < 1.0


_STRENGTH = sp.Symbol("qh", positive=True)


@dataclass(frozen=True)
class _Search:
    """The state evolution of one branch: both blocks, or k alone once v is recovered."""

    channel: BayesChannel
    alpha: float
    recovered: bool

    def averages(self, known: Array, fineness: float) -> Rates:
        at = self.channel.overlaps(known)
        evaluator = self.channel.evaluator
        return evaluator.fresh(at, fineness) if self.recovered else evaluator.rates(at, fineness)

    def conjugates(self, rates: Rates) -> Array:
        """log(1 + qh), qh being alpha times the rates."""
        found = np.array([rates.revealed] if self.recovered else [rates.k, rates.v])
        return np.asarray(np.log1p(np.maximum(self.alpha * found, _NOTHING)))

    def image(self, known: Array, fineness: float) -> Array:
        return self.conjugates(self.averages(known, fineness))

    def free_entropy(self, at: Overlaps, rates: Rates) -> float:
        """Infinite once v is recovered."""
        return np.inf if self.recovered else self.channel.free_entropy(self.alpha, at, rates)

    def risk(self, known: Array, rates: Rates) -> float:
        """The test risk; quadrature may take E P_eps above 1, and the risk below what it can be."""
        return float(self.channel.risk(rates.location, self.channel.overlaps(known).q_v, self.channel.noise))

    def lowest_risk(self, known: Array) -> float:
        """That with every location known."""
        return float(self.channel.risk(1.0, self.channel.overlaps(known).q_v, self.channel.noise))


@one_thread()
def branches(channel: BayesChannel, alpha: float, tolerance: float) -> tuple[Branch, ...]:
    """The fixed points from an informed and an uninformed start; one suffices where both lead to the same.

    The informed start is the fixed point with every location told, above which there is none.
    """
    search = _Search(channel, alpha, False)
    low = _iterated(search, np.full(2, _UNINFORMED))
    told = _told(channel, alpha)
    if low.recovered:
        return (_finished(channel, alpha, "uninformed", told, tolerance),)
    uninformed = _finished(channel, alpha, "uninformed", low, tolerance)
    if channel.recovers(alpha):
        return (_finished(channel, alpha, "informed", told, tolerance), uninformed)
    V_v = max(float(channel.told_V_v(alpha, channel.noise)), _SMALLEST[channel.noise > 0.0])
    high = _iterated(search, np.array([told.known[0], -np.log(V_v)]))
    if np.abs(high.known - low.known).max() < _SAME:
        return (uninformed,)
    return (_finished(channel, alpha, "informed", high, tolerance), uninformed)


@dataclass(frozen=True)
class _Rest:
    """Where the coarse state evolution came to rest."""

    known: Array
    iterations: int
    recovered: bool


def _told(channel: BayesChannel, alpha: float) -> _Rest:
    """k where the labels tell every location."""
    found = _iterated(_Search(channel, alpha, True), np.ones(1))
    return _Rest(found.known, found.iterations, True)


def _iterated(search: _Search, known: Array) -> _Rest:
    """The state evolution on coarse averages until it rests, with Newton steps where it contracts and moves little.

    Where it drifts, as near the end of a branch, it leaps along: the map is monotone, so that a leap that still drifts
    the same way has passed no more than fixed points closer together than the longest leap.
    """
    image = search.image(known, COARSE)
    wait, leap = 0, 1.0
    for iteration in range(1, _MOST + 1):
        moved = np.abs(image - known).max()
        if moved < _STILL and _contracts(_jacobian(search, known, image)):
            return _Rest(image, iteration, False)
        if _escapes(search, known, image):
            return _Rest(image, iteration, True)
        if moved < _NEAR and wait == 0:
            trial = np.maximum(known + _newton_step(search, known, image), _NOTHING)
            if np.isfinite(trial).all() and np.abs(trial - known).max() < _LARGEST_STEP:
                beyond = search.image(trial, COARSE)
                if np.abs(beyond - trial).max() < 0.3 * moved:
                    known, image = trial, beyond
                    continue
            wait = _PAUSE
        wait = max(wait - 1, 0)
        drift = image - known
        leap = max(min(2.0 * leap, _LONGEST_LEAP * max(1.0, known.max()) / moved), 1.0)
        trial = np.maximum(known + leap * drift, _NOTHING)
        beyond = search.image(trial, COARSE)
        if leap > 1.0 and ((beyond - trial) * drift < 0.0).any():
            leap, trial = 0.5, image
            beyond = search.image(trial, COARSE)
        known, image = trial, beyond
    return _Rest(known, _MOST, False)


def _escapes(search: _Search, known: Array, image: Array) -> bool:
    """V_v -> 0: it is small already, falls, and falls faster the smaller it is."""
    if search.recovered or not search.channel.recovers(search.alpha):
        return False
    before, after = (search.channel.overlaps(x).V_v for x in (known, image))
    return after < min(before, _RECOVERED)


def _jacobian(search: _Search, known: Array, image: Array) -> Array:
    """d image / d log(1 + qh) by differences of coarse averages."""
    moves = _DIFFERENCE * np.eye(known.size)
    return np.stack([(search.image(known + d, COARSE) - image) / _DIFFERENCE for d in moves], axis=1)


def _contracts(jacobian: Array) -> bool:
    return bool(np.abs(np.linalg.eigvals(jacobian)).max() < 1.0 - 1e-6)


def _newton_step(search: _Search, known: Array, image: Array) -> Array:
    """Towards the fixed point; not a number where the map does not contract, so that it may be an unstable one."""
    jacobian = _jacobian(search, known, image)
    if not _contracts(jacobian):
        return np.full(known.size, np.nan)
    return np.asarray(np.linalg.solve(np.eye(known.size) - jacobian, image - known))


class _Level(NamedTuple):
    """The fixed point on the nodes of one level."""

    known: Array
    rates: Rates
    risk: float
    entropy: float
    residual: float
    iterations: int


def _polished(search: _Search, known: Array, inverse: Array, fineness: float, tolerance: float) -> _Level:
    """Newton steps with a given inverse of 1 - dF, which is right to _DIFFERENCE and leaves the residual stated here.

    The free entropy is that of the last evaluation, being stationary.
    """
    amplified = float(np.abs(inverse).sum())
    iterations, residual = 0, np.inf
    while residual >= 0.01 * tolerance and iterations < _MOST_NEWTON:
        rates, at = search.averages(known, fineness), search.channel.overlaps(known)
        iterations += 1
        move = search.conjugates(rates) - known
        gap = float(np.abs(move).max())
        known = np.maximum(known + inverse @ move, _NOTHING)
        residual = gap * min(1.0, amplified * (gap + _DIFFERENCE))
    fresh = search.channel.evaluator.fresh(search.channel.overlaps(known), fineness)
    return _Level(known, rates, search.risk(known, fresh), search.free_entropy(at, rates), residual, iterations)


def _finished(channel: BayesChannel, alpha: float, start: str, rest: _Rest, tolerance: float) -> Branch:
    """Finer and finer averages until two levels agree, or the next would be too fine."""
    search = _Search(channel, alpha, rest.recovered)
    jacobian = _jacobian(search, rest.known, search.image(rest.known, COARSE))
    inverse = np.asarray(np.linalg.inv(np.eye(rest.known.size) - jacobian), dtype=np.float64)
    now = _polished(search, rest.known, inverse, COARSE, tolerance)
    iterations, error, changed = rest.iterations + now.iterations, np.inf, 0.0 if rest.recovered else np.inf
    for fineness in LEVELS[1:]:
        before = now
        try:
            now = _polished(search, before.known, inverse, fineness, tolerance)
        except TooFine:
            break
        iterations += now.iterations
        error = abs(now.risk - before.risk) + 2.0 * now.residual * float(np.abs(inverse).sum())
        error += _ROUNDING * max(1.0, abs(now.risk))
        if not rest.recovered:
            changed = abs(now.entropy - before.entropy) + _ROUNDING * max(1.0, abs(now.entropy))
        if error + _scatter(search, now, inverse) <= tolerance:
            break
    at = channel.overlaps(now.known)
    return Branch(
        start=start,
        q_k=at.q_k,
        q_v=at.q_v,
        test_risk=max(now.risk, search.lowest_risk(now.known)),  # no farther from the truth, so that the error stands
        free_entropy=now.entropy,
        converged=now.residual < max(tolerance, 1e-10),
        residual=now.residual,
        iterations=iterations,
        error=float(error) + _scatter(search, now, inverse),
        entropy_error=float(changed) + alpha * _QUANTILE * now.rates.noise[2],
        recovered=rest.recovered,
    )


def _scatter(search: _Search, level: _Level, inverse: Array) -> float:
    """What the random nodes, if any, leave open of the risk: a two-sided bound of 99.9 %."""
    noise = np.array(level.rates.noise)
    if not noise.any():
        return 0.0
    at = search.channel.overlaps(level.known)
    rest = np.array([at.V_k, at.V_v])[: level.known.size]
    shift = np.abs(inverse) @ (search.alpha * rest * (noise[4:] if search.recovered else noise[:2]))
    moved = float(shift @ rest)
    return _QUANTILE * (2.0 * moved + float(noise[3]))
