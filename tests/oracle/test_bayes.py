"""The Bayes-optimal theory: its averages against samples and against each other, its fixed points, its command."""

import json

import mpmath
import numpy as np
import pytest
import sympy as sp
from click.testing import CliRunner

from codegen.bayes import COARSE, FINE, BayesChannel
from replicode.bayes_level import bayes
from replicode.cli import main
from theory.bayes import W_CHI, derive_bayes
from theory.lengths import lengths
from theory.model import ALPHA, NU, QH, Q

NOISE_ = 0.3


def _channel(tokens, nu, noise=NOISE_, task="spiked"):
    return BayesChannel(derive_bayes(task), nu, noise, lengths(tokens))


def test_derived_functions_of_spiked():
    system = derive_bayes("spiked")
    assert sp.simplify(sp.diff(system.prior, W_CHI) - sp.sqrt(NU)) == 0
    for b in ("k", "v"):
        assert sp.simplify(system.update[Q[b]] - QH[b] / (1 + QH[b])) == 0
    assert sp.diff(system.free_entropy, ALPHA) != 0


@pytest.mark.parametrize("task", ["spiked", "x**2/4"])
def test_averages_against_samples(task):
    """Four averages at one point, 4.5 sigma on 2e5 samples each: a false alarm in 18000 in all."""
    tokens, nu, q_k, q_v, count = 3, 1.5, 0.6, 0.7, 200_000
    found = _channel(tokens, nu, task=task).rates(q_k, q_v, FINE)
    rng = np.random.default_rng(17)
    spread = 1.0 - q_v + NOISE_**2
    chi = rng.standard_normal((tokens, count))
    slope, curvature = (np.sqrt(nu), 0.0) if task == "spiked" else (0.0, 0.5)
    variance = 1.0 / (1.0 - curvature)
    chi[0] = slope * variance + np.sqrt(variance) * chi[0]
    w = q_k * chi + np.sqrt(q_k - q_k**2) * rng.standard_normal(chi.shape)
    z = np.sqrt(q_v) * rng.standard_normal(chi.shape)
    y = z[0] + np.sqrt(spread) * rng.standard_normal(count)
    narrow = 1.0 - curvature * (1.0 - q_k)
    prior = (slope * w + curvature * w**2 / 2.0 + slope**2 * (1.0 - q_k) / 2.0) / narrow - np.log(narrow) / 2.0
    prior -= slope**2 * variance / 2.0 + np.log(variance) / 2.0
    t = prior - (y - z) ** 2 / (2.0 * spread)
    weights = np.exp(t)
    p = weights / weights.sum(axis=0)
    fresh = np.exp(prior)
    samples = {
        "k": (p**2 * ((slope + curvature * w) / narrow) ** 2).sum(axis=0),
        "v": (p**2 * (y - z) ** 2 / spread**2).sum(axis=0),
        "entropy": np.log(weights.mean(axis=0) / np.sqrt(2.0 * np.pi * spread)),
        "location": fresh[0] / fresh.sum(axis=0),
    }
    for name, values in samples.items():
        assert abs(values.mean() - getattr(found, name)) < 4.5 * values.std() / np.sqrt(count), name


def test_rates_are_derivatives_of_the_entropy():
    """Stationarity of the free entropy: E |grad log Z|^2 = 2 d E[log Z]/dq in both blocks."""
    channel, q, h = _channel(2, 1.5), np.array([0.5, 0.6]), 2e-3
    found = channel.rates(*q, FINE)
    for i, rate in enumerate((found.k, found.v)):
        move = h * np.eye(2)[i]
        ends = [channel.rates(*(q + s * move), FINE).entropy for s in (-2, -1, 1, 2)]
        slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
        assert 2 * slope == pytest.approx(rate, abs=1e-6)


def test_one_token_is_ridge_regression_of_the_best_strength():
    """L = 1: q = qh/(1 + qh) with qh = alpha/(1 - q + noise^2)."""
    alpha, noise = 1.7, 1.0
    found = bayes(tokens=1, nu=2.0, alpha=alpha, noise=noise, digits=9)
    q = mpmath.findroot(lambda q: q * (1 - q + noise**2 + alpha) - alpha, 0.5)
    assert found.order_parameters["q_v"] == pytest.approx(float(q), abs=1e-10)
    assert found.test_risk == pytest.approx(1 + noise**2 - float(q), abs=1e-10)


def test_nishimori_twin():
    """spiked: E sum p^2 = E p_eps, so that the rate of k at q_v = 0 and no label is nu E p_eps."""
    nu = 1.5
    channel = _channel(3, nu, noise=30.0)
    found = channel.rates(0.6, 1e-9, COARSE)
    assert found.k / nu == pytest.approx(found.location, abs=2e-3)


@pytest.mark.full
def test_reference_values():
    """spiked, L = 2, nu = 2, noise = 0.3, alpha = 4: 0.36203 within 2e-5, and better than any activation."""
    found = bayes(tokens=2, nu=2.0, alpha=4.0, noise=0.3, digits=7)
    assert abs(found.test_risk - 0.36203) < 2e-5
    assert found.error < 1e-7 and not found.hard_phase
    assert found.test_risk < 0.492665931


def _words(text):
    return text.split()


def test_command():
    found = CliRunner().invoke(
        main, ["bayes", "--tokens", "1", "--nu", "2", "--alpha", "2", "--noise", "0.3", "--json"]
    )
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    keys = {
        "test_risk",
        "excess_risk",
        "order_parameters",
        "free_entropy",
        "hard_phase",
        "branches",
        "converged",
        "error",
    }
    assert keys <= set(result)
    refused = CliRunner().invoke(
        main, ["bayes", "--task", "max", "--tokens", "2", "--nu", "2", "--alpha", "2", "--json"]
    )
    assert refused.exit_code == 1 and json.loads(refused.stdout)["warnings"]
    for bad in ("--alpha -1", "--alpha nan", "--alpha 1 --noise -1", "--alpha 1 --digits 40"):
        assert CliRunner().invoke(main, ["bayes", "--tokens", "2", "--nu", "2", *_words(bad)]).exit_code == 2
