"""The Bayes-optimal theory solved at finite samples: fixed points of the state evolution, and their branches.

The state evolution runs in -log V = log(1 + qh) of both blocks, which is q itself where that is small and keeps the
digits of V = 1 - q where that is. Coarse averages bring it to rest; Newton steps then follow on finer and finer ones
until two levels agree to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.bayes_kernel import risk_of_location
from replicode.codegen.runtime.bayes_own import OwnChannel
from replicode.codegen.runtime.bayes_prior import contraction_at, entropy_at, informed_at, overlaps_at
from replicode.codegen.runtime.bayes_rates import BayesOverlaps, Evaluator, Rates, TooFine
from replicode.codegen.runtime.driver import Rested, driven, forward_slopes, spectral_radius
from replicode.codegen.runtime.inputs import check_number, check_physics
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.prior import Spectrum, spectrum_of
from replicode.codegen.runtime.refinement import Safety, climbed, level_error, t_bound

COARSE, FINE = 0.6, 1.2
LEVELS = (COARSE, 0.75, 0.95, FINE, 1.5)
NOTHING_KNOWN = 1e-6
RECOVERED = 1e-6
NOTHING = 1e-26
SAME = 1e-4
NEAR = 0.05
STILL = 1e-7
LARGEST_STEP = 1.0
PAUSE = 5
LONGEST_LEAP = 0.05
MOST_ITERATIONS = 1500
MOST_NEWTON = 8
DIFFERENCE = 1e-3
ROUNDING = 1e-13
RANDOM_FINEST = 1e-5  # nothing smaller is asked of random nodes

channel_at: Callable[[float, float], Evaluator] = OwnChannel


class Branch(NamedTuple):
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


def recovers(alpha: float, noise: float, spectrum: Spectrum | None = None) -> bool:
    """Whether v* is found exactly from a start close enough to it."""
    return noise == 0.0 and contraction_at(alpha, spectrum) < 1.0


class Search(NamedTuple):
    """The state evolution of one branch: both blocks, or k alone once v is recovered."""

    evaluator: Evaluator
    alpha: float
    noise: float
    recovered: bool = False
    spectrum: Spectrum | None = None

    def overlaps(self, known: Array) -> BayesOverlaps:
        """q and V of both blocks from log(1 + qh)."""
        qh = [float(s) for s in np.expm1(known)]
        at = overlaps_at(qh[0], 0.0 if self.recovered else qh[1], self.spectrum)
        return at._replace(q_v=1.0, V_v=0.0) if self.recovered else at

    def averages(self, known: Array, fineness: float) -> Rates:
        """All averages, or those without a label once v is recovered."""
        at = self.overlaps(known)
        return self.evaluator.fresh(at, fineness) if self.recovered else self.evaluator.rates(at, fineness)

    def conjugates(self, rates: Rates) -> Array:
        """log(1 + qh), qh being alpha times the rates."""
        found = np.array([rates.revealed] if self.recovered else [rates.k, rates.v])
        return np.asarray(np.log1p(np.maximum(self.alpha * found, NOTHING)))

    def image(self, known: Array, fineness: float) -> Array:
        """One application of the state evolution."""
        return self.conjugates(self.averages(known, fineness))

    def free_entropy(self, at: BayesOverlaps, rates: Rates) -> float:
        """Phi at overlaps and conjugates alpha times the rates there; infinite once v is recovered."""
        if self.recovered:
            return np.inf
        conjugates = self.alpha * rates.k, self.alpha * rates.v
        return entropy_at(self.alpha, at, *conjugates, rates.entropy, self.spectrum)

    def risk(self, known: Array, rates: Rates) -> float:
        """The test risk; quadrature may take E P_eps above 1, and the risk below what it can be."""
        return float(risk_of_location(rates.location, self.overlaps(known).q_v, self.noise))

    def lowest_risk(self, known: Array) -> float:
        """That with every location known."""
        return float(risk_of_location(1.0, self.overlaps(known).q_v, self.noise))


def branches(alpha: float, nu: float, noise: float, tol: float, spectrum: Any = None) -> tuple[Branch, ...]:
    """The fixed points from an informed and an uninformed start; one suffices where both lead to the same.

    The informed start is the fixed point with every location revealed, above which there is none.
    """
    check_physics(alpha, nu, noise)
    check_number("tol", tol, "a finite number above 0", tol > 0)
    search = Search(channel_at(nu, noise), alpha, noise, spectrum=spectrum_of(spectrum))
    known = search._replace(recovered=True)
    low = _iterated(search, np.full(2, NOTHING_KNOWN))
    revealed = _iterated(known, np.ones(1))
    if not low.converged and _escapes(search, low.last.known, low.last.image):
        return (_finished(known, "uninformed", revealed, tol),)
    uninformed = _finished(search, "uninformed", low, tol)
    if recovers(alpha, noise, search.spectrum):
        return (_finished(known, "informed", revealed, tol), uninformed)
    high = _iterated(search, np.array([revealed.last.image[0], informed_at(alpha, noise, search.spectrum)]))
    if np.abs(high.last.image - low.last.image).max() < SAME:
        return (uninformed,)
    return (_finished(search, "informed", high, tol), uninformed)


class _Drift(NamedTuple):
    """A point with its image, how long Newton steps are not tried, and how far the last leap went."""

    known: Array
    image: Array
    wait: int = 0
    leap: float = 1.0

    @property
    def moved(self) -> float:
        """How far the map moves the point."""
        return float(np.abs(self.image - self.known).max())


def _iterated(search: Search, known: Array) -> Rested[_Drift]:
    """The state evolution on coarse averages until it rests, with Newton steps where it contracts and moves little."""

    def ended(now: _Drift) -> bool | None:
        if now.moved == 0.0 or (now.moved < STILL and _contracts(_jacobian(search, now.known, now.image))):
            return True
        return False if _escapes(search, now.known, now.image) else None

    start = _Drift(known, search.image(known, COARSE))
    return driven(start, ended, lambda now: _by_newton(search, now) or _leapt(search, now), MOST_ITERATIONS)


def _by_newton(search: Search, now: _Drift) -> _Drift | None:
    """After a Newton step, where it leads on."""
    if now.moved < NEAR and now.wait == 0:
        trial = np.maximum(now.known + _newton_step(search, now.known, now.image), NOTHING)
        if np.isfinite(trial).all() and np.abs(trial - now.known).max() < LARGEST_STEP:
            beyond = now._replace(known=trial, image=search.image(trial, COARSE))
            return beyond if beyond.moved < 0.3 * now.moved else None
    return None


def _leapt(search: Search, now: _Drift) -> _Drift:
    """After a step of the map, or a leap along it where it drifts, as near the end of a branch.

    The map is monotone, so that a leap that still drifts the same way has passed no more than fixed points closer
    together than the longest leap.
    """
    known, image, wait, leap = now
    wait = PAUSE if now.moved < NEAR and wait == 0 else wait
    drift = image - known
    leap = max(min(2.0 * leap, LONGEST_LEAP * max(1.0, known.max()) / now.moved), 1.0)
    trial = np.maximum(known + leap * drift, NOTHING)
    beyond = search.image(trial, COARSE)
    if leap > 1.0 and ((beyond - trial) * drift < 0.0).any():
        leap, trial = 0.5, image
        beyond = search.image(trial, COARSE)
    return _Drift(trial, beyond, max(wait - 1, 0), leap)


def _escapes(search: Search, known: Array, image: Array) -> bool:
    """V_v -> 0: it is small already, falls, and falls faster the smaller it is."""
    if search.recovered or not recovers(search.alpha, search.noise, search.spectrum):
        return False
    before, after = (search.overlaps(x).V_v for x in (known, image))
    return after < min(before, RECOVERED)


def _jacobian(search: Search, known: Array, image: Array) -> Array:
    """d image / d log(1 + qh) by differences of coarse averages."""
    return forward_slopes(lambda moved: search.image(moved, COARSE), known, image, DIFFERENCE)


def _contracts(jacobian: Array) -> bool:
    return spectral_radius(jacobian) < 1.0 - 1e-6


def _newton_step(search: Search, known: Array, image: Array) -> Array:
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
    scatter: float


def _polished(search: Search, known: Array, inverse: Array, fineness: float, tolerance: float) -> _Level:
    """Newton steps with a given inverse of 1 - dF, which is right to DIFFERENCE and leaves the residual stated here.

    The free entropy is that of the last evaluation, being stationary.
    """
    amplified = float(np.abs(inverse).sum())

    def corrected(known: Array) -> tuple[Array, BayesOverlaps, Rates, float]:
        rates, at = search.averages(known, fineness), search.overlaps(known)
        move = search.conjugates(rates) - known
        gap = float(np.abs(move).max())
        after = np.maximum(known + inverse @ move, NOTHING)
        return after, at, rates, gap * min(1.0, amplified * (gap + DIFFERENCE))

    solved = 0.01 * tolerance
    found = driven(corrected(known), lambda s: not s[-1] >= solved or None, lambda s: corrected(s[0]), MOST_NEWTON)
    known, at, rates, residual = found.last
    fresh = search.evaluator.fresh(search.overlaps(known), fineness)
    scatter = _scatter(search, known, rates, fresh, inverse, fineness) if rates.sets else 0.0
    entropy = search.free_entropy(at, rates)
    return _Level(known, rates, search.risk(known, fresh), entropy, residual, found.iterations, scatter)


def _finished(search: Search, start: str, rest: Rested[_Drift], tolerance: float) -> Branch:
    """Finer and finer averages until two levels agree, or the next would be too fine."""
    known = rest.last.image
    jacobian = _jacobian(search, known, search.image(known, COARSE))
    inverse = np.asarray(np.linalg.inv(np.eye(known.size) - jacobian), dtype=np.float64)
    first = _polished(search, known, inverse, COARSE, tolerance)
    tolerance = max(tolerance, RANDOM_FINEST) if first.rates.sets else tolerance

    def levels() -> Iterator[_Level]:
        yield (now := first)
        with suppress(TooFine):
            for fineness in LEVELS[1:]:
                yield (now := _polished(search, now.known, inverse, fineness, tolerance))

    def error(found: Sequence[_Level]) -> float:
        opened = _left([f.risk for f in found], found[-1].scatter)
        return opened + 2.0 * found[-1].residual * float(np.abs(inverse).sum())

    found = climbed(levels(), lambda found: error(found) <= tolerance)
    now, at = found[-1], search.overlaps(found[-1].known)
    sets = [r.entropy for r in now.rates.sets]
    of_sets = search.alpha * float(t_bound(sets)) if sets else 0.0
    return Branch(
        start=start,
        q_k=at.q_k,
        q_v=at.q_v,
        test_risk=max(now.risk, search.lowest_risk(now.known)),  # no farther from the truth, so that the error stands
        free_entropy=now.entropy,
        converged=now.residual < max(tolerance, 1e-10),
        residual=now.residual,
        iterations=rest.iterations + sum(f.iterations for f in found),
        error=error(found),
        entropy_error=0.0 if search.recovered else _left([f.entropy for f in found], of_sets),
        recovered=search.recovered,
    )


def _left(found: Sequence[float], scatter: float) -> float:
    """What nodes leave open: their scatter where they are random, else what the last level changed."""
    safety = Safety(1.0, ROUNDING * max(1.0, abs(found[-1])))
    return scatter + safety.rounding if scatter and len(found) > 1 else float(level_error(np.array(found), safety))


def _scatter(search: Search, known: Array, rates: Rates, fresh: Rates, inverse: Array, fineness: float) -> float:
    """What random nodes leave open of the risk: that at the fixed point of each set, to first order."""
    base = search.risk(known, fresh)

    def risk(moved: Array) -> Array:
        return np.array([search.risk(moved, search.evaluator.fresh(search.overlaps(moved), fineness))])

    slopes = forward_slopes(risk, known, np.array([base]), DIFFERENCE)[0]
    mean = search.conjugates(rates)
    moves = [slopes @ inverse @ (search.conjugates(own) - mean) for own in rates.sets]
    return float(t_bound([m + search.risk(known, own) for m, own in zip(moves, fresh.sets, strict=True)]))
