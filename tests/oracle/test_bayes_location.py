"""gbar of weights that couple the scores, and the symmetric nodes: against direct averages."""

import itertools

import numpy as np
import pytest

from replicode.codegen.runtime.bayes_keys import symmetric_lattice
from replicode.theory.language.task import task
from replicode.validation.bayes import bayes_module

W = np.array([[0.3, -0.8, 1.1], [0.0, 0.0, 0.0], [2.0, -1.5, 0.4]])
SMOOTHED = "x - 2*log(1 + sum(exp(x)))"


def _location_weights(name, nu, w, variance):
    return bayes_module(task(name), w.shape[1]).location_weights(w, nu, variance)


def _direct(log_weight, w, variance, order=40):
    """E[g(e, chi*)] over chi* ~ N(w, variance) by a product of Gauss-Hermite rules."""
    u, weights = np.polynomial.hermite_e.hermegauss(order)
    weights /= weights.sum()
    total = np.zeros_like(w)
    for index in itertools.product(range(order), repeat=w.shape[1]):
        mass = np.prod(weights[list(index)])
        if mass > 1e-15:
            total += mass * np.exp(log_weight(w + np.sqrt(variance) * u[list(index)]))
    return total


@pytest.mark.parametrize("name", ["max", SMOOTHED])
def test_against_a_direct_average(name):
    nu, variance, tokens = 1.5, 0.4, W.shape[1]

    def log_weight(chi):
        if name == "max":
            return nu * chi - np.log(np.exp(nu * chi).sum(axis=1, keepdims=True)) + np.log(tokens)
        return chi - 2.0 * np.log(1.0 + np.exp(chi).sum(axis=1, keepdims=True))

    found = _location_weights(name, nu, W, variance)
    assert found.value == pytest.approx(_direct(log_weight, W, variance), abs=1e-9)


@pytest.mark.parametrize("name, nu", [("max", 2.0), ("max", np.inf), (SMOOTHED, 1.0)])
def test_gradient_by_differences(name, nu):
    h = 1e-4
    found = _location_weights(name, nu, W, 0.3).gradient
    for l, move in enumerate(h * np.eye(W.shape[1])):
        ahead, behind = (_location_weights(name, nu, W + s * move, 0.3).value for s in (1.0, -1.0))
        assert (ahead - behind) / (2.0 * h) == pytest.approx(found[:, :, l], abs=1e-7)


def test_largest_score_is_the_limit_of_large_nu():
    """The gap closes like 1/nu^2, and sum_e gbar = L on either side."""
    hard = _location_weights("max", np.inf, W, 0.5).value
    gaps = [np.abs(_location_weights("max", nu, W, 0.5).value - hard).max() for nu in (20.0, 40.0)]
    assert gaps[1] < 0.3 * gaps[0] < 0.01
    assert hard.sum(axis=1) == pytest.approx(3.0, abs=1e-12)
    assert _location_weights("max", 7.0, W, 0.5).value.sum(axis=1) == pytest.approx(3.0, abs=1e-12)


@pytest.mark.parametrize("tokens", [2, 3, 4])
@pytest.mark.parametrize("differences", [True, False])
def test_symmetric_nodes(tokens, differences):
    """E exp(a (x_1 - x_2)) symmetrised over the tokens, and moments, on one node for all permutations."""
    nodes = symmetric_lattice(tokens, 0.6, 7.5, differences, 10**6)
    a = 0.7
    pairs = nodes.scores[:, :, None] - nodes.scores[:, None, :]
    off = ~np.eye(tokens, dtype=bool)
    assert nodes.weights @ np.exp(a * pairs)[:, off].mean(axis=1) == pytest.approx(np.exp(a * a), abs=1e-8)
    square = 1.0 - 1.0 / tokens if differences else 1.0
    assert nodes.weights @ (nodes.scores**2).mean(axis=1) == pytest.approx(square, abs=1e-9)
    assert (np.diff(nodes.scores, axis=1) >= 0.0).all()
    assert symmetric_lattice(tokens, 0.6, 7.5, differences, 3) is None
