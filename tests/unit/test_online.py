"""One-pass SGD: its step against the gradient, its mean path against an exact recursion, ragged order."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from replicode.theory.errors import InputError
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.validation.data.sampling import Dataset, Sampler
from replicode.validation.data.scores import GaussianScores, scores_of
from replicode.validation.statistics.measure import Overlaps
from replicode.validation.training.attention import objective
from replicode.validation.training.online import _drawn_order, one_pass
from replicode.validation.training.train import Random, Warm

FALSE_ALARM = 1e-6


class Softmax:
    def sigma(self, chi):
        e = np.exp(chi - chi.max(axis=0))
        return e / e.sum(axis=0)

    def pullback(self, chi, cotangent):
        s = self.sigma(chi)
        return s * (cotangent - (s * cotangent).sum(axis=0))


class Ones:
    def sigma(self, chi):
        return np.ones_like(chi)

    def pullback(self, chi, cotangent):
        return np.zeros_like(chi)


def ragged(dim, samples, seed):
    law = lengths("1:0.3,3:0.7")
    scores = tuple(scores_of(task("max"), 2.0, n) for n in law.tokens)
    return Sampler(law, dim, samples, 0.3, scores).draw(np.random.default_rng(seed))


def test_a_step_is_the_gradient_of_one_sequence():
    """The objective of one sequence with lambda/D is what a step descends."""
    dataset = ragged(12, 1, 0)
    params = np.random.default_rng(1).standard_normal(24)
    _, gradient = objective(params, dataset, Softmax(), 0.7 / 12, 0.3 / 12)
    start = Warm(*np.split(params, 2))
    before, after = one_pass(dataset, Softmax(), (0.7, 0.3), start, np.random.default_rng(2), 0.5, (0.0, 1 / 12))
    k, v = np.split(params - 0.5 * gradient, 2)
    expected = Overlaps.of(k, v, dataset.k_star, dataset.v_star)
    np.testing.assert_allclose(list(vars(after).values()), list(vars(expected).values()), rtol=1e-12, atol=1e-13)
    assert before == Overlaps.of(*np.split(params, 2), dataset.k_star, dataset.v_star)


def test_sequences_are_used_in_the_order_they_were_drawn():
    dataset = ragged(4, 30, 3)
    places = [int(dataset.batches[b].places[row]) for b, row in _drawn_order(dataset)]
    assert places == list(range(30))
    first, second = dataset.first(20), (dataset.first(30))
    runs = [
        one_pass(d, Softmax(), (1.0, 1.0), Warm(np.ones(4), np.ones(4)), np.random.default_rng(0), 0.2, (5.0,))
        for d in (first, second)
    ]
    assert runs[0] == runs[1]


def test_the_mean_path_of_a_linear_problem_is_its_recursion():
    """sigma = 1 without signal: E[m_v] <- m_v (1 - rate lambda/D) + rate (1 - L m_v)/D, exactly at any D."""
    dim, tokens, rate, ridge, times = 40, 2, 0.6, 0.5, (0.0, 0.5, 1.0, 2.0)
    sampler = Sampler(lengths(tokens), dim, 2 * dim, 0.3, (GaussianScores(0.0),))
    paths = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        dataset = sampler.draw(rng)
        zero = Warm(np.zeros(dim), np.zeros(dim))
        paths.append([o.m_v for o in one_pass(dataset, Ones(), (0.0, ridge), zero, rng, rate, times)])
    found, m, steps = np.array(paths), 0.0, 0
    for column, time in enumerate(times):
        while steps < round(time * dim):
            m += rate * (1 - tokens * m - ridge * m) / dim
            steps += 1
        sample = found[:, column]
        sem = sample.std(ddof=1) / sqrt(sample.size)
        assert abs(sample.mean() - m) <= stats.t.isf(FALSE_ALARM / 2, sample.size - 1) * sem
    assert m > 0.3


def test_bad_input_is_refused():
    dataset = ragged(4, 8, 5)
    args = (dataset, Softmax(), (1.0, 1.0), Random(), np.random.default_rng(0))
    with pytest.raises(InputError, match="rate"):
        one_pass(*args, 0.0, (1.0,))
    for times in ((2.2,), (1.0, 0.5), (-1.0,), ()):
        with pytest.raises(InputError, match="times"):
            one_pass(*args, 0.1, times)


def test_a_data_set_is_not_changed_by_a_pass():
    dataset = ragged(4, 8, 6)
    k, v = np.ones(4), np.ones(4)
    one_pass(dataset, Softmax(), (1.0, 1.0), Warm(k, v), np.random.default_rng(0), 0.1, (2.0,))
    assert isinstance(dataset, Dataset) and (k == 1).all() and (v == 1).all()
