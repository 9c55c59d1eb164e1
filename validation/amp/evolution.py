"""The state evolution of message passing, iteration by iteration, with errors: by quadrature and by sampling.

q^(t+1) is what the prior makes of qh = alpha E |grad_w log Z|^2 at the overlaps q^t, for k and v, and the test risk
1 + noise^2 - q_v E[P_eps]. The two ways share nothing but the derived evidence: one averages with the nodes of the
Bayes channel, the other over draws of the fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from types import ModuleType

import numpy as np

from replicode.codegen.loading import call
from replicode.codegen.runtime.bayes_rates import BayesOverlaps, Evaluator
from replicode.codegen.threads import one_thread
from replicode.theory.errors import Refusal
from replicode.theory.model import EIGENVALUE
from replicode.validation.amp.passing import Start
from replicode.validation.amp.problem import PassingProblem, drawn_scores
from replicode.validation.bayes import bayes_module
from replicode.validation.data.sampling import Array

FINENESS = (0.6, 0.85)
SMALLEST = 1e-9
ROUNDING = 1e-8  # SMALLEST stands for 0

Rates = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Evolution:
    """q_k, q_v and test_risk before every iteration and after the last; `errors` has a row for each of the three."""

    q_k: Array
    q_v: Array
    test_risk: Array
    errors: Array


def _evolution(tracks: Array, errors: Array) -> Evolution:
    return Evolution(tracks[0], tracks[1], tracks[2], errors)


@one_thread()
def by_quadrature(of: PassingProblem, start: Start, iterations: int = 10) -> Evolution:
    """From the averages of the generated module; the errors are the change from coarser nodes."""
    module = _module(of)
    channel = call(module, "channel_at", nu=of.nu, noise=of.noise)

    def rates(fineness: float) -> Rates:
        return lambda q: _channel_rates(channel, q, fineness)

    coarse, fine = (_track(rates(f), of, start, iterations) for f in FINENESS)
    return _evolution(fine, np.abs(fine - coarse) + ROUNDING)


def _module(of: PassingProblem) -> ModuleType:
    model = of.model if of.spectrum is None else replace(of.model, covariance=EIGENVALUE)
    return bayes_module(of.task, of.lengths, model)


def _channel_rates(channel: Evaluator, q: Array, fineness: float) -> Array:
    """E |grad_k log Z|^2, E |grad_v log Z|^2 and E P_eps."""
    q_k, q_v = np.maximum(q, SMALLEST).tolist()
    found = channel.rates(BayesOverlaps(q_k, 1.0 - q_k, q_v, 1.0 - q_v), fineness)
    if found.sets:
        raise Refusal("so many tokens are averaged over random nodes: take the state evolution by sampling")
    return np.array([found.k, found.v, found.location])


@one_thread()
def by_sampling(
    of: PassingProblem,
    start: Start,
    rng: np.random.Generator,
    iterations: int = 10,
    count: int = 20_000,
    replicas: int = 16,
) -> Evolution:
    """From draws of the fields: the mean of independent evolutions, and its standard error."""

    def rates(q: Array) -> Array:
        return _sampled_rates(of, q, count, rng)

    tracks = np.stack([_track(rates, of, start, iterations) for _ in range(replicas)])
    return _evolution(tracks.mean(axis=0), tracks.std(axis=0, ddof=1) / sqrt(replicas))


def _sampled_rates(of: PassingProblem, q: Array, count: int, rng: np.random.Generator) -> Array:
    """The same averages over `count` sequences of each length."""
    q_k, q_v = q.tolist()
    spread = sqrt(_module(of).label_variance(1.0 - q_v, of.noise))
    found = np.zeros(3)
    for law, tokens, share in zip(of.scores, of.lengths.tokens, of.lengths.weights):
        chi, eps = drawn_scores(law, tokens, count, rng)
        hidden = np.arange(count), eps
        w_k = q_k * chi + sqrt(q_k - q_k**2) * rng.standard_normal(chi.shape)
        w_v = sqrt(q_v) * rng.standard_normal(chi.shape)
        y = w_v[hidden] + spread * rng.standard_normal(count)
        squares = [(g**2).sum() / count for g in of.evidence.log_z_gradient(y, w_k, w_v, 1.0 - q_k, 1.0 - q_v)]
        found += share * np.array([*squares, of.evidence.location(w_k, 1.0 - q_k)[hidden].mean()])
    return found


def _track(rates: Rates, of: PassingProblem, start: Start, iterations: int) -> Array:
    """q_k, q_v and test_risk as rows."""
    q = np.array([start.q_k, start.q_v])
    found = np.empty((3, iterations + 1))
    for t in range(iterations + 1):
        *gains, location = rates(q)
        found[:, t] = *q, _module(of).risk_of_location(location, q[1], of.noise)
        at = _module(of).overlaps_at(*(of.alpha * np.array(gains)).tolist(), of.spectrum)
        q = np.array([at.q_k, at.q_v])
    return found
