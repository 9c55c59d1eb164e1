"""One-pass stochastic gradient descent: every sequence is used once, and time is counted in steps per dimension."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

import numpy as np

from replicode.theory.errors import InputError, Refusal
from replicode.validation.data.sampling import Array, Dataset
from replicode.validation.statistics.measure import Overlaps
from replicode.validation.training.attention import TokenMap
from replicode.validation.training.learning import Learning, learning
from replicode.validation.training.train import Start


def one_pass(
    dataset: Dataset,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    start: Start,
    rng: np.random.Generator,
    rate: float,
    times: Sequence[float],
) -> tuple[Overlaps, ...]:
    """The overlaps at the given times t = steps/D, rising, of steps on the sequences in the order they were drawn.

    k <- k - rate (dloss/df) sum_l (df/dchi_l) X_l/sqrt(D) - (rate/D) dpenalty/dk, and v likewise with df/dz_l in place
    of df/dchi_l, on the same sequence. A longer run goes on with fresh data, the same teachers and a warm start.
    """
    if not (isfinite(rate) and rate > 0):
        raise InputError("rate", rate, "a finite number above 0")
    if dataset.coordinates is not None:
        raise Refusal(
            "one-pass descent on structured tokens: its equations do not close in m and q, since the mean of the "
            "gradient along each coordinate is multiplied by that coordinate's eigenvalue"
        )
    stops = [round(t * dataset.dim) for t in times]
    if not stops or stops != sorted(stops) or stops[0] < 0 or stops[-1] > dataset.samples:
        raise InputError("times", tuple(times), f"rising numbers from 0 to N/D = {dataset.samples / dataset.dim:g}")
    k, v = np.split(start.draw(rng, dataset).copy(), 2)
    order, of = _drawn_order(dataset), learning(dataset.model)
    found, done = [], 0
    for stop in stops:
        for batch, row in order[done:stop]:
            part = dataset.batches[batch]
            X, y = np.asarray(part.X[row], dtype=np.float64), float(part.y[row])
            _step(k, v, X, y, token_map, of, lambdas, rate)
        done = stop
        found.append(Overlaps.of(k, v, dataset.k_star, dataset.v_star))
    return tuple(found)


def _drawn_order(dataset: Dataset) -> list[tuple[int, int]]:
    """Batch and row of every sequence, in the order of the places."""
    owners = np.concatenate([np.full(b.y.size, i) for i, b in enumerate(dataset.batches)])
    rows = np.concatenate([np.arange(b.y.size) for b in dataset.batches])
    order = np.argsort(np.concatenate([b.places for b in dataset.batches]))
    return list(zip(owners[order].tolist(), rows[order].tolist()))


def _step(
    k: Array,
    v: Array,
    X: Array,
    y: float,
    token_map: TokenMap,
    of: Learning,
    lambdas: tuple[float, float],
    rate: float,
) -> None:
    """One step on one sequence X (L, D), in place."""
    dim = k.size
    fields = X @ np.stack([k, v], axis=1) / sqrt(dim)
    chi, z = fields[:, :1], fields[:, 1:]
    sigma = token_map.sigma(chi)
    pull = rate * float(of.loss_by_output(y, of.output(sigma, z).sum())) / sqrt(dim)
    slopes = token_map.pullback(chi, of.output_by_sigma(sigma, z)), of.output_by_value(sigma, z)
    for w, weight, slope in zip((k, v), lambdas, slopes, strict=True):
        w -= rate / dim * of.penalty_slope(w, weight) + pull * (slope[:, 0] @ X)
