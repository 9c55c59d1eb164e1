"""Gaussian calculus against linear algebra and high-order Gauss-Hermite integrals of explicit functions."""

import itertools

import numpy as np
import pytest
import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.gaussian.laws import FieldLaw, gaussian_from_log_weight, price_stein
from replicode.theory.language.nodes import X
from replicode.theory.model import DEFAULT_MODEL, NOISE, Z_STAR, Y

A, B, C = sp.symbols("a b c", real=True)
T = sp.Symbol("theta", real=True)
FIELDS = (A, B, C)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
GRID = np.array(list(itertools.product(NODES, repeat=3))).T
MASS = np.prod(np.array(list(itertools.product(WEIGHTS, repeat=3))).T, axis=0)

MEAN = sp.ImmutableMatrix([sp.Rational(1, 5), sp.Rational(-2, 5), sp.Rational(1, 2)])
COVARIANCE = sp.ImmutableMatrix(
    [
        [sp.Rational(9, 10), sp.Rational(3, 10), sp.Rational(-1, 5)],
        [sp.Rational(3, 10), sp.Rational(6, 5), sp.Rational(2, 5)],
        [sp.Rational(-1, 5), sp.Rational(2, 5), sp.Rational(7, 10)],
    ]
)
LAW = FieldLaw(FIELDS, MEAN, COVARIANCE)


def _floats(matrix, **at):
    return np.array(matrix.subs(at).tolist(), dtype=float)


def _average(law, expr, theta=0.0, weight=1):
    """E[weight expr] under a law of three fields, and E[weight]."""
    at = {T: theta}
    points = _floats(law.mean.subs(at)) + np.linalg.cholesky(_floats(law.covariance.subs(at))) @ GRID
    values = sp.lambdify(law.fields, [sp.sympify(weight).subs(at), sp.sympify(expr).subs(at)], "numpy")(*points)
    scale = np.broadcast_to(values[0], MASS.shape)
    return (scale * values[1]) @ MASS, scale @ MASS


def test_law_of_linear_combinations():
    loads = {
        A: {"first": sp.Integer(2), "second": sp.Rational(-1, 3)},
        B: {"second": sp.Rational(5, 4)},
        C: {"third": sp.sqrt(2), "first": sp.Integer(-1)},
    }
    law = FieldLaw.of(loads)
    loading = sp.Matrix([[loads[f].get(s, 0) for s in ("first", "second", "third")] for f in FIELDS])
    assert law.fields == FIELDS
    assert law.mean == sp.zeros(3, 1)
    assert sp.simplify(law.covariance - loading * loading.T) == sp.zeros(3, 3)


def test_law_of_a_token():
    k, v = DEFAULT_MODEL.scores, DEFAULT_MODEL.values
    law = DEFAULT_MODEL.token_law({"k": A, "v": B})
    entry = {(f, g): law.covariance[i, j] for i, f in enumerate(law.fields) for j, g in enumerate(law.fields)}
    assert sp.simplify(entry[A, A] - k.q) == 0
    assert sp.simplify(entry[B, B] - v.q) == 0
    assert entry[Y, Y] == 1 + NOISE**2
    assert (entry[B, Y], entry[B, Z_STAR], entry[A, B], entry[A, Y]) == (v.m, v.m, 0, 0)


@pytest.mark.parametrize("field", FIELDS)
def test_reweighted(field):
    """Moments under the density times N(field; mean, variance) / (its own marginal)."""
    i = FIELDS.index(field)
    mean, variance = sp.Rational(3, 10), sp.Rational(4, 5)
    law = LAW.reweighted(field, mean, variance)
    own = (field - MEAN[i]) ** 2 / COVARIANCE[i, i]
    weight = sp.sqrt(COVARIANCE[i, i] / variance) * sp.exp(own / 2 - (field - mean) ** 2 / (2 * variance))
    assert _average(LAW, 1, weight=weight)[1] == pytest.approx(1.0, abs=1e-8)
    for j, f in enumerate(FIELDS):
        assert float(law.mean[j]) == pytest.approx(_average(LAW, f, weight=weight)[0], abs=1e-7)
        for k, g in enumerate(FIELDS):
            second = _average(LAW, (f - law.mean[j]) * (g - law.mean[k]), weight=weight)[0]
            assert float(law.covariance[j, k]) == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize("field", FIELDS)
def test_given(field):
    i = FIELDS.index(field)
    others = [j for j in range(3) if j != i]
    law = LAW.given(field)
    covariance = _floats(COVARIANCE)
    gain = covariance[others, i] / covariance[i, i]
    assert law.fields == tuple(FIELDS[j] for j in others)
    schur = np.linalg.inv(np.linalg.inv(covariance)[np.ix_(others, others)])
    np.testing.assert_allclose(_floats(law.covariance), schur, atol=1e-14)
    for value in (-1.3, 0.6):
        expected = _floats(MEAN)[others, 0] + gain * (value - float(MEAN[i]))
        found = np.array(law.mean.subs(field, value).tolist(), dtype=float).ravel()
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_marginal():
    law = LAW.marginal(C, A)
    assert law.fields == (C, A)
    assert law.mean == sp.Matrix([MEAN[2], MEAN[0]])
    assert law.covariance == sp.Matrix([[COVARIANCE[2, 2], COVARIANCE[2, 0]], [COVARIANCE[0, 2], COVARIANCE[0, 0]]])


def test_score_is_minus_the_gradient_of_the_log_density():
    centred = sp.Matrix(FIELDS) - MEAN
    log_density = -(centred.T * COVARIANCE.inv() * centred)[0] / 2
    for field, score in zip(FIELDS, LAW.score(), strict=True):
        assert sp.expand(score + sp.diff(log_density, field)) == 0


@pytest.mark.parametrize("log_weight", [X, sp.Rational(3, 2) * X - 4, -(X**2) / 3 + X / 2, X**2 / 8 - X])
def test_gaussian_from_log_weight(log_weight):
    mean, variance = gaussian_from_log_weight(log_weight)
    x, step = np.linspace(-16, 16, 3201, retstep=True)
    density = np.exp(-(x**2) / 2 + sp.lambdify(X, log_weight)(x)) * step
    density /= density.sum()
    assert float(mean) == pytest.approx(x @ density, abs=1e-10)
    assert float(variance) == pytest.approx((x - float(mean)) ** 2 @ density, abs=1e-10)


def test_log_weights_that_are_not_gaussian_are_refused():
    with pytest.raises(Refusal, match="degree"):
        gaussian_from_log_weight(X**3)


F = sp.sin(A + B / 2) * sp.exp(sp.Rational(3, 10) * C) + A * B**2 + sp.cos(B) * C


def _moving(mean, covariance):
    return FieldLaw(FIELDS, sp.ImmutableMatrix(MEAN + sp.Matrix(mean)), sp.ImmutableMatrix(COVARIANCE + covariance))


def _symmetric(**entries):
    """A symmetric matrix from entries such as ab=T."""
    names = "abc"
    rate = sp.zeros(3, 3)
    for pair, value in entries.items():
        i, j = (names.index(n) for n in pair)
        rate[i, j] = rate[j, i] = value
    return rate


def _rate(law, at):
    """d/dtheta E[F] by central differences, extrapolated."""

    def difference(h):
        return (_average(law, F, at + h)[0] - _average(law, F, at - h)[0]) / (2 * h)

    return (4 * difference(1e-3) - difference(2e-3)) / 3


def _stein_integrand(law, known):
    """price_stein in names for the gradient, as the channel uses it; then the gradient of F put in."""
    names = {f: sp.Symbol(f"G_{f}", real=True) for f in known}
    return price_stein(law, names, T).xreplace({names[f]: sp.diff(F, f) for f in known})


LAWS = {
    "mean": _moving([T, T**2, -T / 2], sp.zeros(3, 3)),
    "variance": _moving([0, 0, 0], _symmetric(aa=T)),
    "covariance": _moving([0, 0, 0], _symmetric(ab=T)),
    "all": _moving([T, -T, T / 3], _symmetric(aa=T, bb=T, cc=T / 2, ab=T / 4, bc=-T / 5, ac=T / 3)),
    "all but cc": _moving([T, -T, 0], _symmetric(aa=T, ab=T / 4, bc=T / 5, ac=-T / 3)),
    "cc": _moving([0, 0, 0], _symmetric(cc=T)),
}


@pytest.mark.parametrize("name", LAWS)
def test_price_stein(name):
    law, at = LAWS[name], 0.15
    integrand = _stein_integrand(law, FIELDS)
    assert _average(law, integrand, at)[0] == pytest.approx(_rate(law, at), abs=1e-8)


@pytest.mark.parametrize("name", ["variance", "covariance", "all but cc"])
def test_price_stein_with_a_gradient_in_some_fields_only(name):
    """F depends on c too, as M does on y, but its derivative there is never asked for."""
    law, at = LAWS[name], 0.15
    integrand = _stein_integrand(law, (A, B))
    assert _average(law, integrand, at)[0] == pytest.approx(_rate(law, at), abs=1e-8)


def test_price_stein_says_which_gradient_it_lacks():
    with pytest.raises(Refusal, match="gradient in c or c"):
        _stein_integrand(LAWS["cc"], (A, B))


def test_price_stein_says_which_gradient_it_lacks_for_a_moving_mean():
    with pytest.raises(Refusal, match="gradient in c"):
        _stein_integrand(LAWS["mean"], (A, B))
