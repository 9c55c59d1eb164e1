"""Branches of saddle points: the map's slopes against differences, and what is followed against solves."""

import numpy as np
import pytest

import replicode as rc
from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive

POINT = {"alpha": 3.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}


@pytest.fixture(scope="module")
def softmax():
    return generate(derive("softmax", "spiked", 2)).load()


def test_slopes_of_the_map(softmax):
    """At a point that is no solution, in u and in each parameter, against central differences on other nodes."""
    u = softmax.free_coordinates({"m_k": 0.4, "q_k": 0.4, "V_k": 0.6, "m_v": 0.7, "q_v": 0.8, "V_v": 0.4})
    for name in POINT:
        _, by_u, by_p, _ = softmax.linearised_map(u, name, **POINT)
        step = 1e-3 * POINT[name]
        above, below = (softmax.linearised_map(u, name, **POINT | {name: POINT[name] + h})[0] for h in (step, -step))
        assert np.allclose(by_p, (above - below) / (2.0 * step), atol=1e-4), name
    for i, move in enumerate(1e-3 * np.eye(u.size)):
        above, below = (softmax.linearised_map(u + d, "alpha", **POINT)[0] for d in (move, -move))
        assert np.allclose(by_u[:, i], (above - below) / 2e-3, atol=1e-4), i


def test_a_branch_is_what_solves_say_from_either_end():
    ends = {s: rc.branch("softmax", tokens=2, alpha="2.5:4", nu=2, noise=0.3, start=s) for s in ("low", "high")}
    for found in ends.values():
        assert found.ok and found.complete and not found.spinodals
        alpha, risk = found.columns["alpha"][2], found.columns["test_risk"][2]
        assert abs(rc.solve("softmax", tokens=2, alpha=alpha, nu=2, noise=0.3, bayes=False).test_risk - risk) < 1e-6
    up, down = (np.array([f.columns["alpha"], f.columns["energy"]]) for f in ends.values())
    assert up[0, 0] == 2.5 and down[0, 0] == 4.0
    between = np.interp(up[0, 1:-1], down[0, ::-1], down[1, ::-1])
    assert np.abs(between - up[1, 1:-1]).max() < 3e-3  # straight lines between points


@pytest.mark.full
def test_kinks_are_refused():
    with pytest.raises(rc.Refusal, match="smooth"):
        rc.branch("relu", tokens=1, alpha="1:2", nu=2, noise=0.3)
