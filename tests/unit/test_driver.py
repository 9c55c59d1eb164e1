"""The loop that drives every level to its fixed points, and the moves that it makes."""

import numpy as np
import pytest

from replicode.codegen.runtime.driver import Chord, Mixing, driven

MATRIX = np.array([[0.6, 0.3], [-0.2, 0.7]])
SHIFT = np.array([0.1, -0.2])
FIXED = np.linalg.solve(np.eye(2) - MATRIX, SHIFT)


def _image(point):
    return MATRIX @ point + SHIFT


@pytest.mark.parametrize(
    ("limit", "verdict", "last", "count", "converged"),
    [(9, True, 3, 4, True), (9, False, 3, 4, False), (3, True, 2, 3, False), (4, True, 3, 4, True)],
)
def test_it_ends_as_told_or_at_the_limit(limit, verdict, last, count, converged):
    found = driven(0, lambda n: verdict if n == 3 else None, lambda n: n + 1, limit)
    assert found == (last, count, converged)


def test_nothing_follows():
    assert driven(0, lambda n: None, lambda n: n + 1 if n < 2 else None, 9) == (2, 3, False)


def test_at_the_limit_the_best_counts_and_no_state_is_made_for_nothing():
    made = []
    found = driven(5, lambda n: None, lambda n: made.append(n) or n - 2, 5, size=abs)
    assert found == (1, 5, False) and made == [5, 3, 1, -1]


def test_mixing_solves_a_linear_map_in_few_steps():
    mixing = Mixing(np.zeros(2), 1.0)
    for _ in range(7):
        image = _image(mixing.point)
        mixing.after(image, float(np.abs(image - mixing.point).max()))
    np.testing.assert_allclose(mixing.point, FIXED, atol=1e-8)


def test_a_chord_is_newtons_method_and_tells_where_it_stalls():
    chord = Chord(np.zeros(2), np.linalg.inv(np.eye(2) - MATRIX))
    np.testing.assert_allclose(chord.after(_image(chord.point)), FIXED, atol=1e-13)
    assert chord.contracts(1.0) and chord.contracts(0.5) and not chord.contracts(0.4) and chord.stalled
    plain = Chord(SHIFT, np.full((2, 2), np.inf))
    np.testing.assert_array_equal(plain.after(_image(SHIFT)), _image(SHIFT))
