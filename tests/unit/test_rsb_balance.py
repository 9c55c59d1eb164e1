"""Equilibrium of states: the y where a known complexity vanishes as it falls, on toy maps; and which grids are fine."""

import numpy as np
import pytest

from replicode.codegen.runtime.rsb_balance import followed_to_balance
from replicode.codegen.runtime.rsb_evolution import Evaluated, from_free, to_free
from replicode.codegen.runtime.rsb_grid import Grid, axis_over, smoothing

ORDER = np.array([0.6, 2.0, 2.1, 5.0, 1.1, 1.3, 1.33, 0.7])
RISING, EQUILIBRIUM = 0.5, 10.0
TILT = np.linspace(0.01, -0.04, 8)  # of the unknowns in log y
PULL = 30.0  # of the complexity by what is left of the equations, against 2e-4 at its largest


class Toy:
    """States on a line in log y, a linear map that contracts to them, and a complexity with two zeros in y."""

    def __init__(self, shift=0.0, ends=np.inf):
        self.shift, self.ends = shift, ends

    def adapt(self, order):
        return self

    def members(self):
        return []

    def states(self, y):
        return to_free(ORDER) + TILT * np.log(y / EQUILIBRIUM) + self.shift

    def at(self, order, y):
        away = to_free(order) - self.states(y)
        updated = from_free(to_free(order) - 0.6 * away) if y < self.ends else np.full(8, np.nan)
        zeros = np.log(y / RISING) * np.log(EQUILIBRIUM * np.exp(self.shift) / y)
        complexity = 2e-4 * zeros / 2.25 + PULL * float(away.sum())
        return Evaluated(order, y, None, None, updated, 0.35, complexity / y**2)


@pytest.mark.parametrize("begin", [0.6, 2.0, 9.0, 25.0])
def test_the_complexity_vanishes_as_it_falls(begin):
    step = Toy()
    found = followed_to_balance(step, step.at(ORDER, begin)).on(step)
    assert found.known and found.residual < 1e-5
    assert found.states.y == pytest.approx(EQUILIBRIUM, rel=2e-3)
    assert found.at_rest.y == pytest.approx(EQUILIBRIUM, rel=2e-4)
    assert to_free(found.at_rest.order) == pytest.approx(step.states(found.at_rest.y), abs=1e-4)


def test_other_nodes_move_equilibrium():
    coarse, fine = Toy(), Toy(0.05)
    found = followed_to_balance(coarse, coarse.at(ORDER, 2.0)).on(fine)
    assert found.at_rest.y == pytest.approx(EQUILIBRIUM * np.exp(0.05), rel=5e-4)
    assert to_free(found.at_rest.order) == pytest.approx(fine.states(found.at_rest.y), abs=1e-4)


def test_a_zero_where_the_complexity_rises_is_no_equilibrium():
    step = Toy()
    assert not followed_to_balance(step, step.at(ORDER, 0.4)).on(step).known


def test_states_that_merge_on_the_way_are_not_an_equilibrium():
    step = Toy(ends=4.0)
    found = followed_to_balance(step, step.at(ORDER, 2.0)).on(step)
    assert not (found.residual < 1e-3 and found.known and abs(found.missed) < 0.03)


@pytest.mark.parametrize("noise", [0.2, 0.5, 0.66, 0.67, 1.0, 2.0])
def test_noise_counts_as_resolved_where_it_is_averaged_over(noise):
    """A wave of three deviations of the noise, by its density at the points of the grid."""
    axis = axis_over(0.0, 30.0, noise**2, Grid(2.0, 20.0, 120, 1e9))
    assert axis.step == pytest.approx(1.0, rel=3e-3)
    size = noise / axis.step
    assert axis.resolved == (size > 2.0 / 3.0)
    if axis.resolved:
        middle = len(axis.points) // 2 // axis.stride
        waves = np.cos(2.0 * axis.points[:, None] / noise + np.linspace(0.0, np.pi, 40))
        exact = np.exp(-2.0) * np.cos(2.0 * axis.outer[middle] / noise + np.linspace(0.0, np.pi, 40))
        assert np.abs(smoothing(axis)[middle] @ waves - exact).max() < 0.1
