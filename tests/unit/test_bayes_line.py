"""The Bayes-optimal line: errors that cover, jumps that are not smoothed over, refused nodes that stay holes."""

import math

import pytest

from replicode.branches.bayes_line import bayes_line
from replicode.inputs.ranges import Range

AXIS = Range("alpha", 1.0, 10.0, 101)


def line_of(function, goal=1e-6, axis=AXIS):
    asked = []

    def risk(value):
        asked.append(value)
        found = function(value)
        return None if found is None else (found, 1e-9)

    return bayes_line(axis, risk, goal, lambda _: None), asked


SMOOTH = [lambda a: 0.3 + 1.0 / (1.0 + a**2), lambda a: math.exp(-a), lambda a: math.tanh(2.0 * (a - 3.0))]


@pytest.mark.parametrize("function", SMOOTH)
def test_the_error_covers_between_nodes(function):
    line, asked = line_of(function, goal=1e-5)
    for value in AXIS.values()[::3]:
        risk, error = line.at(value)
        assert abs(risk - function(value)) <= error <= 2e-5
    assert len(asked) < 101 and not line.jumps


def test_a_jump_is_located_and_not_smoothed_over():
    def first_order(alpha):
        return 0.9 - 0.01 * alpha if alpha < 4.1234 else 0.3 - 0.01 * alpha

    line, _ = line_of(first_order)
    ((low, high),) = line.jumps
    assert math.exp(low) < 4.1234 < math.exp(high)
    for value in AXIS.values():
        risk, error = line.at(value)
        assert abs(risk - first_order(value)) <= error
        assert error < 2e-6 or math.exp(low) < value < math.exp(high)


def test_a_refused_node_leaves_a_hole():
    line, _ = line_of(lambda a: None if 2.0 < a < 4.0 else 1.0 / a)
    assert line.at(3.0) == (None, None)
    assert line.at(8.0)[0] == pytest.approx(0.125, abs=4e-6)


def test_no_line_where_nothing_is_given():
    line, asked = line_of(lambda _: None)
    assert line is None and len(asked) == 2
