"""The population risk: plain Monte Carlo of the model at finite D, and closed forms for linear and erf."""

import numpy as np
import pytest
from generated import module_of
from scipy import stats

FALSE_ALARM = 1e-6  # of each Monte Carlo comparison; at fixed seeds it either holds or does not
DIM = 50
SAMPLES = 20_000


@pytest.fixture(scope="module")
def modules():
    return lambda text, tokens: module_of(text, "spiked", tokens)


def _directions(rng, overlaps):
    """k*, v* orthogonal of norm sqrt(D) exactly, and k, v with given components along them and random rests."""
    frame = np.linalg.qr(rng.normal(size=(DIM, 4)))[0].T * np.sqrt(DIM)
    return frame[0], frame[1], overlaps[0] @ frame, overlaps[1] @ frame


def _measured(k, v, k_star, v_star):
    pairs = (k, k_star), (k, k), (v, v_star), (v, v), (k, v_star), (v, k_star), (k, v)
    return np.array([a @ b for a, b in pairs]) / DIM


def _losses(rng, sigma, directions, tokens, nu, noise):
    """(y - f)^2 of fresh samples, straight from the definition of the model."""
    k_star, v_star, k, v = directions
    tokens_of = rng.normal(size=(SAMPLES, tokens, DIM))
    hidden = rng.integers(tokens, size=SAMPLES)
    rows = np.arange(SAMPLES)
    tokens_of[rows, hidden] += np.sqrt(nu) * k_star / np.sqrt(DIM)
    label = tokens_of[rows, hidden] @ v_star / np.sqrt(DIM) + noise * rng.normal(size=SAMPLES)
    scores, values = (tokens_of @ d / np.sqrt(DIM) for d in (k, v))
    return (label - (sigma(scores.T) * values.T).sum(axis=0)) ** 2


ON_MANIFOLD = np.array([[0.8, 0.0, 0.6, 0.0], [0.0, 0.9, 0.0, 0.3]])
OFF_MANIFOLD = np.array([[0.8, -0.5, 0.6, 0.3], [0.6, 0.7, 0.9, 0.2]])  # k.v*/D = -0.5, v.k*/D = 0.6, k.v/D = 0.73


@pytest.mark.parametrize("text, tokens", [("softmax", 3), ("erf", 2), ("exp(x)/(1 + sum(exp(x)))", 2)])
@pytest.mark.parametrize("along", [ON_MANIFOLD, OFF_MANIFOLD], ids=["on", "off"])
def test_risk_of_overlaps_is_the_risk_of_the_model(modules, text, tokens, along):
    nu, noise = 1.7, 0.4
    module = modules(text, tokens)
    rng = np.random.default_rng(20250921)
    directions = _directions(rng, along)
    k_star, v_star, k, v = directions
    overlaps = _measured(k, v, k_star, v_star)
    parameters = dict.fromkeys(module.PARAMETERS, 0.3)
    params = np.array(list(parameters.values()))
    losses = _losses(rng, lambda chi: module.sigma(chi, params), directions, tokens, nu, noise)
    z = (losses.mean() - module.risk_of_overlaps(overlaps, nu, noise, **parameters)) / stats.sem(losses)
    assert abs(z) < stats.norm.isf(FALSE_ALARM / 2)
    if along is OFF_MANIFOLD:
        flat = np.r_[overlaps[:4], 0, 0, 0]
        far = (losses.mean() - module.risk_of_overlaps(flat, nu, noise, **parameters)) / stats.sem(losses)
        assert abs(far) > 10  # the cross overlaps are seen
    else:
        assert np.abs(overlaps[4:]).max() < 1e-12
        on_manifold = module.population_risk(*overlaps[:4], nu, noise, **parameters)
        assert on_manifold == pytest.approx(module.risk_of_overlaps(overlaps, nu, noise, **parameters), abs=1e-9)


@pytest.mark.parametrize("tokens", [2, 3])
@pytest.mark.parametrize("nu", [0.5, 4.0])
def test_linear_optimum(modules, tokens, nu):
    """At m_k = sqrt(nu) (L-1)/L, q_k = m_k^2 and the best v the excess risk is L (L-1) / (L^2 + nu (L-1))."""
    module, noise = modules("linear", tokens), 0.3
    best = np.sqrt(nu) * (tokens - 1) / tokens

    def excess(m_k, q_k):
        """1 - A^2/B, A and B read off the risk, which is linear in m_v and q_v."""
        risk = {at: module.population_risk(m_k, q_k, *at, nu, noise) for at in ((0, 0), (1, 0), (0, 1))}
        a, b = (risk[0, 0] - risk[1, 0]) / 2, risk[0, 1] - risk[0, 0]
        m_v = a / b
        return module.population_risk(m_k, q_k, m_v, m_v**2, nu, noise) - noise**2

    optimum = excess(best, best**2)
    assert optimum == pytest.approx(tokens * (tokens - 1) / (tokens**2 + nu * (tokens - 1)), abs=1e-10)
    for m_k, q_k in ((1.01 * best, (1.01 * best) ** 2), (0.99 * best, (0.99 * best) ** 2), (best, 1.02 * best**2)):
        assert excess(m_k, q_k) > optimum


@pytest.mark.parametrize("m_k, q_k, nu", [(0.7, 0.9, 2.0), (-0.4, 1.6, 0.5)])
def test_linear_risk_away_from_the_optimum(modules, m_k, q_k, nu):
    """A = 1 + m_k sqrt(nu), B = sum_l E (1 + chi_l)^2 = L (1 + q_k) + 2 m_k sqrt(nu) + m_k^2 nu."""
    tokens, m_v, q_v, noise = 3, 0.5, 0.4, 0.2
    shift = m_k * np.sqrt(nu)
    a, b = 1 + shift, tokens * (1 + q_k) + 2 * shift + shift**2
    found = modules("linear", tokens).population_risk(m_k, q_k, m_v, q_v, nu, noise)
    assert found == pytest.approx(1 + noise**2 - 2 * m_v * a + q_v * b, abs=1e-10)


@pytest.mark.parametrize("q_k", [0.3, 1.0, 2.5])
def test_erf_without_signal(modules, q_k):
    """E[erf(a g)] = 0 and E[erf(a g)^2] = 1 - (4/pi) arctan(1/sqrt(1 + 4 a^2)) give A = 1 and B."""
    tokens, m_v, q_v = 2, 0.6, 0.7
    square = 1 - 4 / np.pi * np.arctan(1 / np.sqrt(1 + 4 * q_k))
    found = modules("erf", tokens).population_risk(0.2, q_k, m_v, q_v, 0.0, c=0.0)
    assert found == pytest.approx(1 - 2 * m_v + q_v * tokens * (1 + square), abs=1e-10)
