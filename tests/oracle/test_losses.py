"""Other losses and labels against independent numbers: closed forms, published tables, integrals done another way."""

import math
from functools import cache

import numpy as np
import pytest
import sympy as sp
from scipy import optimize, special

import replicode as rc
from replicode.codegen.compiler import generate
from replicode.theory.derive.label import label_law
from replicode.theory.derive.saddle import derive
from replicode.theory.language.losses import model_of
from replicode.theory.language.nodes import sigmoid
from replicode.theory.model import LABEL_NOISE, NOISE, Z_STAR, Model

RIDGE = {"tokens": 1, "bayes": False, "digits": 10}


def test_ridge_has_the_published_overlaps():
    found = rc.solve("1", alpha=1, noise=0, lambda_v=0.1, **RIDGE)
    assert set(found.order_parameters) == {"m_v", "q_v", "V_v"} and set(found.conjugates) == {"mh_v", "qh_v", "Vh_v"}
    assert found.order_parameters["m_v"] == pytest.approx(0.729844, abs=5e-7)
    assert found.order_parameters["q_v"] == pytest.approx(0.615861, abs=5e-7)
    nearly = rc.solve("1", alpha=2, noise=0.5, lambda_v=1e-4, **RIDGE)
    assert nearly.excess_risk == pytest.approx(0.2499000649660, abs=1e-11) and nearly.ok


@pytest.mark.parametrize("alpha, noise", [(3, 0.5), (1.01, 0.3), (0.5, 0.5), (0.9, 0.5), (0.05, 1.0)])
def test_ridgeless_regression_has_its_closed_form(alpha, noise):
    """Below alpha = 1 lambda_v = 0 is the limit, the interpolation of least norm; the bound covers the difference."""
    closed = noise**2 / (alpha - 1) if alpha > 1 else 1 - alpha + noise**2 * alpha / (1 - alpha)
    found = rc.solve("1", alpha=alpha, noise=noise, lambda_v=0, **RIDGE)
    assert abs(found.excess_risk - closed) <= found.error < 1e-10 and found.ok


def test_a_loss_that_interpolates_has_the_same_limit():
    at = {"alpha": 0.5, "noise": 0.5, "lambda_v": 0, **RIDGE, "digits": 6}
    assert rc.solve("1", loss="huber:1", **at).excess_risk == pytest.approx(0.75, abs=1e-6)


@cache
def logistic(gamma_squared):
    model = model_of("logistic", f"logit:{math.sqrt(gamma_squared)!r}")
    return generate(derive("1", "spiked", 1, model)).load()


def maximum_likelihood(kappa, gamma_squared):
    """alpha*, sigma*, lambda* of Sur and Candes, and the solution."""
    found = logistic(gamma_squared).solve(1 / kappa, 0.0, lambda_v=0.0, tol=1e-10)
    m, q, v = (found.order_parameters[n] for n in ("m_v", "q_v", "V_v"))
    return (m / math.sqrt(gamma_squared), math.sqrt((q - m * m) / kappa), v), found


TABLE = {5: (1.5, 4.75, 3.03), 5.25: (1.51, 4.84, 3.12), 6: (1.55, 5.13, 3.42), 9: (1.75, 6.45, 4.83)}
TABLE |= {11.25: (1.95, 7.73, 6.26)}  # Zhao, Sur, Candes 2022, Table 13, kappa = 0.2, each to .01


@pytest.mark.parametrize("square", [5, *(pytest.param(s, marks=pytest.mark.full) for s in (5.25, 6, 9, 11.25))])
def test_logistic_maximum_likelihood_meets_the_table(square):
    (alpha, sigma, scale), found = maximum_likelihood(0.2, square)
    assert found.converged and found.error < 1e-10 and not found.warnings
    assert np.abs(np.array([alpha, sigma, scale]) - TABLE[square]).max() < 0.0101


def test_logistic_maximum_likelihood_solves_the_equations_of_sur_and_candes():
    """Their three equations, by a trapezoid rule in their own two variables and a prox of its own."""
    kappa, square = 0.1, 5
    (alpha, sigma, scale), _ = maximum_likelihood(kappa, square)
    assert alpha == pytest.approx(1.16778, abs=5e-6) and sigma == pytest.approx(3.34656, abs=5e-6)
    t = np.arange(-9, 9.01, 0.06)
    a, b = (g.ravel() for g in np.meshgrid(t, t))
    weight = np.exp(-(a * a + b * b) / 2)
    weight /= weight.sum()
    first = math.sqrt(square) * a
    second = -alpha * first + math.sqrt(kappa) * sigma * b
    prox = second.copy()
    for _ in range(60):
        p = special.expit(prox)
        prox -= (prox - second + scale * p) / (1 + scale * p * (1 - p))
    chance, push = 2 * special.expit(first), scale * special.expit(prox)
    curvature = 1 + scale * special.expit(prox) * special.expit(-prox)
    assert weight @ (chance * push**2) / kappa**2 == pytest.approx(sigma**2, rel=1e-9)
    assert weight @ (chance * first * push) == pytest.approx(0.0, abs=1e-9)
    assert weight @ (chance / curvature) == pytest.approx(1 - kappa, rel=1e-9)


def test_without_a_minimum_the_threshold_is_told():
    """Candes and Sur 2020: the labels are separable up to 1/alpha = min_t E (xi - t y z)_+^2, here over z and xi."""
    t = np.arange(-9, 9.001, 0.02)
    z, xi = (g.ravel() for g in np.meshgrid(t, t))
    weight = np.exp(-(z * z + xi * xi) / 2)
    weight /= weight.sum()
    chance = special.expit(math.sqrt(5) * z)

    def violation(slope):
        return sum(
            float(weight @ (p * np.maximum(xi - y * slope * z, 0) ** 2)) for y, p in ((1, chance), (-1, 1 - chance))
        )

    kappa = optimize.minimize_scalar(violation, bounds=(0, 3), method="bounded").fun
    assert 1 / logistic(5).separability(0.0) == pytest.approx(kappa, abs=1e-6)
    with pytest.raises(rc.Refusal, match=r"separated.* above alpha = 3\.0713605"):
        rc.solve("1", tokens=1, alpha=3.07, lambda_v=0, loss="logistic", labels=f"logit:{math.sqrt(5)!r}")
    with pytest.raises(rc.Refusal, match="lambda_v above 0 alone"):
        rc.solve("1", tokens=1, alpha=3.07, lambda_v=0, loss="hinge", labels="sign")


def test_huber_regression_solves_its_equations():
    """The three equations of robust ridge regression, their averages over the residual in closed form."""
    alpha, noise, penalty, delta = 3.0, 0.6, 0.4, 0.8
    found = rc.solve("1", tokens=1, alpha=alpha, noise=noise, lambda_v=penalty, loss="huber:0.8", bayes=False, digits=8)
    m, q, v = (found.order_parameters[n] for n in ("m_v", "q_v", "V_v"))
    spread = math.sqrt(1 + noise**2 - 2 * m + q)
    edge = delta * (1 + v) / spread
    inside = math.erf(edge / math.sqrt(2))
    density = math.exp(-(edge**2) / 2) / math.sqrt(2 * math.pi)
    square = spread**2 / (1 + v) ** 2 * (inside - 2 * edge * density) + delta**2 * (1 - inside)
    vh = alpha * inside / (1 + v)
    bound = 4 * max(found.errors[n] for n in ("m_v", "q_v", "V_v"))
    assert bound < 1e-6
    assert v == pytest.approx(1 / (penalty + vh), abs=bound) and m == pytest.approx(vh * v, abs=bound)
    assert q == pytest.approx((vh**2 + alpha * square) * v**2, abs=bound)
    assert found.test_risk == pytest.approx(spread**2, abs=1e-9)


GAUSSIAN = Z_STAR + NOISE * LABEL_NOISE
SAME_LABEL = {
    "lines": sp.Tuple(sp.Tuple(GAUSSIAN, sp.Rational(1, 3)), sp.Tuple(GAUSSIAN, sp.Rational(2, 3))),
    "sampled": sp.Tuple(sp.Tuple(GAUSSIAN, sigmoid(Z_STAR)), sp.Tuple(GAUSSIAN, sigmoid(-Z_STAR))),
}
POINT = {"m_k": 0.35, "q_k": 0.6, "V_k": 0.3, "m_v": 0.5, "q_v": 0.8, "V_v": 0.3}
CONJUGATES = {"mh_k": 0.6, "qh_k": 0.5, "Vh_k": 0.8, "mh_v": -0.9, "qh_v": 1.1, "Vh_v": 1.4}
CASE = {"alpha": 2.3, "nu": 1.4, "noise": 0.35, "lambda_k": 0.7, "lambda_v": 1.2}


@pytest.mark.parametrize("kind", ["lines", pytest.param("sampled", marks=pytest.mark.full)])
def test_a_gaussian_label_is_a_closed_case_of_the_others(kind):
    """The same label as a Gaussian field, as one of two lines, and told from a sampled z*: the same equations."""
    model = Model(label=SAME_LABEL[kind])
    assert label_law(model).kind == kind
    plain, other = (generate(derive("softmax", "spiked", 2, m)).load() for m in (None, model))
    found = [m.residual(POINT, CONJUGATES, **CASE, nodes=n) for m, n in ((plain, 30_000), (other, 200_000))]
    assert np.abs(found[0] - found[1]).max() < 2e-6
    assert other.population_risk(0.3, 0.6, 0.5, 0.8, 1.4, 0.35) == pytest.approx(
        plain.population_risk(0.3, 0.6, 0.5, 0.8, 1.4, 0.35), abs=1e-9
    )
    assert other.noise_risk(0.35, *other.label_moments(0.35)) == pytest.approx(0.35**2, abs=1e-9)


def test_a_threshold_is_a_closed_case_of_a_chance():
    """sign(gamma z + xi) against values 1 and -1 with the chances Phi(+-gamma z)."""
    gamma = sp.Rational(3, 2)
    chances = [(s, sp.erfc(-s * gamma * Z_STAR / sp.sqrt(2)) / 2) for s in (1, -1)]
    label = sp.Tuple(*[sp.Tuple(sp.Integer(s), p) for s, p in chances])
    other = Model(label=label, loss=model_of("logistic", "sign").loss)
    assert label_law(other).kind == "chances"
    plain, told = (generate(derive("1", "spiked", 1, m)).load() for m in (model_of("logistic", "probit:1.5"), other))
    found = [m.solve(4.0, 0.0, lambda_v=0.3, tol=1e-9) for m in (plain, told)]
    for name in ("test_risk", "excess_risk", "train_loss", "test_loss", "classification_error"):
        assert getattr(found[0], name) == pytest.approx(getattr(found[1], name), abs=2e-8), name


def test_the_error_of_sign_labels_is_an_angle():
    found = rc.solve("1", tokens=1, alpha=5, noise=0.5, loss="logistic", labels="sign", bayes=False)
    m, q = found.order_parameters["m_v"], found.order_parameters["q_v"]
    assert found.classification_error == pytest.approx(math.acos(m / math.sqrt(1.25 * q)) / math.pi, abs=1e-10)
    assert found.test_loss > found.train_loss and found.errors["classification_error"] < 1e-8


def test_ridge_on_magnitudes_has_its_closed_form():
    """Nothing in y is linear in z: m = 0, q = alpha (E y^2 + q) V^2/(1 + V)^2, 1/V = lambda + alpha/(1 + V)."""
    found = rc.solve("1", tokens=1, alpha=3, noise=0.3, lambda_v=1, labels="magnitude", bayes=False)
    V = (-3 + np.sqrt(13)) / 2
    share = 3 * V**2 / (1 + V) ** 2
    exact = {"m_v": 0.0, "q_v": 1.09 * share / (1 - share), "V_v": V}
    for name, value in exact.items():
        assert abs(found.order_parameters[name] - value) <= found.errors[name] < 1e-7, name
    assert abs(found.test_risk - 1.09 - exact["q_v"]) <= found.error < 1e-7


# By panels of one variable that end at the kinks, to 1e-12: a program of its own, from the equations of one token.
NAMED = ("test_risk", "train_loss", "energy", "m_v", "q_v", "V_v", "classification_error")
KINKED = {
    ("hinge", "sign"): (
        {"alpha": 2, "lambda_v": 0.2},
        (
            1.337321452609,
            0.066518598250,
            0.373265677511,
            1.294023884498,
            2.402284810112,
            1.224650121361,
            0.185530315681,
        ),
    ),
    ("huber:1", "gaussian"): (
        {"alpha": 0.7, "lambda_v": 0.3, "noise": 0.3, "spectrum": [0.2, 0, 1, 3, 0.8]},
        (0.355826797711, 0.036753023212, 0.071596426816, 0.639796376985, 0.545419551681, 1.200678743383),
    ),
    ("huber:0.5", "magnitude"): (
        {"alpha": 3, "lambda_v": 0.4, "noise": 0.2},
        (1.289870740501, 0.222377827031, 0.717107629193, 0.0, 0.249870740501, 0.735477745887),
    ),
}


@pytest.mark.parametrize("loss, labels", KINKED)
def test_kinks_stay_within_their_errors(loss, labels):
    point, exact = KINKED[loss, labels]
    found = rc.solve("1", tokens=1, loss=loss, labels=labels, bayes=False, **point)
    values = {**found.order_parameters, **found._asdict()}
    bounds = {**found.errors, "test_risk": found.error}
    for name, value in zip(NAMED, exact):
        assert abs(values[name] - value) <= bounds[name] + 1e-11 < 1e-4, name
