"""How ladders of nodes are climbed, and the errors that are made of what they changed."""

import itertools

import numpy as np
import pytest
from scipy import stats

from replicode.codegen.runtime.refinement import (
    Safety,
    climbed,
    level_error,
    rested,
    slow_error,
    standard_error,
    t_bound,
)

SAFETY = Safety(2.0, rounding=1e-3)


def _falling(*values):
    return [np.array([v, 10.0 * v]) for v in values]


@pytest.mark.parametrize(("tol", "count"), [(1.0, 2), (0.3, 3), (0.2, 4), (0.0, 6)])
def test_no_more_is_made_than_is_needed(tol, count):
    made = []
    rungs = (made.append(n) or np.array([2.0**-n]) for n in range(6))
    found = climbed(rungs, lambda found: rested(found, tol))
    assert [float(f[0]) for f in found] == [2.0**-n for n in made] and len(made) == count


def test_one_alone_is_never_enough_and_a_ladder_may_end():
    assert climbed(iter([1]), lambda found: True) == [1] and climbed(itertools.count(), lambda found: True) == [0, 1]


def test_what_is_no_number_ends_a_ladder():
    assert rested([np.zeros(2), np.array([0.0, np.nan])], 1.0) and not rested([np.zeros(2), np.array([0.0, 2.0])], 1.0)


def test_an_error_is_a_multiple_of_the_last_step_and_nothing_is_known_of_one():
    np.testing.assert_allclose(level_error(_falling(3.0, 1.0, 0.5), SAFETY), [1.001, 10.001], rtol=1e-12)
    assert np.isinf(level_error(_falling(1.0), SAFETY)).all()


def test_one_agreement_by_chance_is_not_believed():
    assert np.isinf(slow_error(_falling(1.0, 0.5), SAFETY, 0.1)).all()
    agreed = slow_error([np.array([2.0, 2.0]), np.array([1.0, 1.0]), np.array([1.0, 0.8])], SAFETY, 0.1)
    np.testing.assert_allclose(agreed, [2.0 * 0.2 + 1e-3, 2.0 * 0.2 + 1e-3], rtol=1e-12)  # both fell to a fifth
    fast = slow_error([np.array([2.0]), np.array([1.0]), np.array([1.0])], SAFETY, 0.1)
    np.testing.assert_allclose(fast, [2.0 * 0.1 + 1e-3], rtol=1e-12)


def test_the_same_side_counts_the_whole_step_before(monkeypatch):
    monkeypatch.setattr("replicode.codegen.runtime.refinement.ONE_SIDED", True)
    found = slow_error([np.array([2.0]), np.array([1.0]), np.array([1.0])], SAFETY, 0.1)
    np.testing.assert_allclose(found, [2.0 + 1e-3], rtol=1e-12)


def test_a_t_bound_is_that_of_the_mean():
    values = np.random.default_rng(0).normal(size=(8, 3))
    low, high = stats.t.interval(0.999, 7, values.mean(axis=0), stats.sem(values))
    np.testing.assert_allclose(t_bound(values), 0.5 * (high - low), rtol=1e-12)
    np.testing.assert_allclose(standard_error(values), stats.sem(values), rtol=1e-12)
