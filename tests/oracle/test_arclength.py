"""Continuation through folds: branches that are known in closed form, and the spinodals of the Bayes-optimal level."""

import math

import numpy as np
import pytest

from replicode.branches.arclength import Steps, follow
from replicode.branches.bayes_follow import bayes_branch

ENDS = (-2.6, 2.6)


def _cubic(u, p):
    """u^3 - u = p: folds at p = -+ 2/sqrt(27), where u = +- 1/sqrt(3)."""
    return np.array([u[0] ** 3 - u[0] - p]), np.array([[3.0 * u[0] ** 2 - 1.0]]), np.array([-1.0])


def _circle(u, p):
    """A closed branch: u^2 + p^2 = 1."""
    return np.array([u[0] ** 2 + p**2 - 1.0]), np.array([[2.0 * u[0]]]), np.array([2.0 * p])


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_goes_round_each_fold_of_a_cubic_once(side):
    start = -side * 1.6
    found = follow(_cubic, np.array([start]), start**3 - start, side, ENDS, Steps())
    assert found.complete and len(found.folds) == 2
    assert [round(f.p * side, 9) for f in found.folds] == [round(s * 2.0 / math.sqrt(27.0), 9) for s in (1.0, -1.0)]
    assert len(found.crossings(0.1)) == 3 and len(found.crossings(1.0)) == 1
    assert all(abs(_cubic(x.u, x.p)[0][0]) < 1e-9 for x in found.points)
    assert np.sign(found.points[-1].u[0]) == side


def test_a_closed_branch_does_not_end():
    found = follow(_circle, np.array([1.0]), 0.0, 1.0, ENDS, Steps())
    assert not found.complete and len(found.folds) > 2
    assert all(abs(abs(f.p) - 1.0) < 1e-9 for f in found.folds)


def test_no_solution_next_to_the_start():
    assert not follow(_circle, np.array([3.0]), 2.0, 1.0, (1.5, 2.5), Steps()).points


@pytest.mark.full
def test_spinodals_and_transition_of_max_from_either_end():
    """max, nu = inf, three tokens, noise 0.05: 1.2519, 1.2731, 1.3007, each to six digits, the same from both ends."""
    ends = {
        start: bayes_branch(task="max", tokens=3, nu=math.inf, noise=0.05, low=1.2, high=1.35, start=start)
        for start in ("low", "high")
    }
    for found in ends.values():
        assert found.ok and len(found.spinodals) == 2 and len(found.transitions) == 1
        assert max(found.errors["spinodals"] + found.errors["transitions"]) < 1e-6
    up, down = ends["low"], ends["high"]
    assert np.allclose(up.spinodals, down.spinodals[::-1], atol=1e-8)
    assert np.allclose(up.transitions, down.transitions, atol=1e-8)
    assert np.allclose(up.spinodals, (1.3007297, 1.2519256), atol=2e-6) and abs(up.transitions[0] - 1.2731202) < 2e-6


@pytest.mark.full
def test_spinodals_against_an_independent_continuation():
    """pycont-lite follows the same equations with a Jacobian of its own."""
    pycont = pytest.importorskip("pycont")
    from replicode.branches.bayes_follow import FINENESS, Evolution
    from replicode.modules import bayes_module

    module = bayes_module("max", 3)
    system = Evolution(module, math.inf, 0.05, FINENESS[0])
    (seed,) = module.branches(1.22, math.inf, 0.05, 1e-6)
    u = -np.log1p(-np.array([seed.q_k, seed.q_v]))

    def evolution(u, alpha):
        return np.log1p(alpha * system._both(u)) - u

    wanted = {"initial_directions": "increase_p", "param_max": 1.35, "rdiff": 1e-6, "tolerance": 1e-8}
    found = pycont.arclengthContinuation(evolution, u, 1.22, 1e-4, 0.2, 0.02, 60, wanted, "off")
    path = np.concatenate([b.p_path[: b._index] for b in found.branches])
    turns = [b for a, b, c in zip(path, path[1:], path[2:]) if (b - a) * (c - b) < 0.0]
    ours = bayes_branch(task="max", tokens=3, nu=math.inf, noise=0.05, low=1.2, high=1.35)
    assert np.allclose(turns, ours.spinodals, atol=1e-4)  # the points of its path that are next to the folds
