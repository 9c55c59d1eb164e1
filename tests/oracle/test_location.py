"""The weight of the hidden location: closed integrals at 30 digits, and every reduction against a more general one."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from generated import module_of as plain_module

import replicode.theory.derive.saddle
from replicode.codegen.compiler import generate
from replicode.theory.derive.location import location
from replicode.theory.errors import Refusal
from replicode.theory.language.task import task

NONE = np.array([])
ORDER = np.array([0.5, 0.6, 0.4, 0.7, 0.8, 0.3])
MU = float(ORDER[0] / ORDER[1])
SPREAD = float(np.sqrt(1.0 - ORDER[0] ** 2 / ORDER[1]))
W = np.array([[0.3, -1.2, 2.5], [-0.4, 0.9, 0.1], [1.1, -0.2, -0.6]])


def module_of(activation, text, tokens, kind=None, monkeypatch=None):
    """The generated module, its weight taken to be of another, more general kind where one is named."""
    if kind is None:
        return plain_module(activation, text, tokens)
    monkeypatch.setattr(
        replicode.theory.derive.saddle, "location", lambda setting: replace(location(setting), kind=kind)
    )
    return generate(replicode.theory.derive.saddle.derive(activation, text, tokens)).load()


def winning(leads, but=None):
    """Density of the winner's noise times the cdfs of the others, one of which may be replaced by its density."""

    def integrand(t):
        parts = [mpmath.npdf(t + d, 0, SPREAD) if j == but else mpmath.ncdf((t + d) / SPREAD) for j, d in leads]
        return mpmath.npdf(t, 0, SPREAD) * mpmath.fprod(parts)

    return mpmath.quad(integrand, mpmath.linspace(-9 * SPREAD, 9 * SPREAD, 5))


@pytest.mark.parametrize("tokens", [2, 3])
def test_the_largest_score_wins(tokens):
    module = module_of("softmax", "max", tokens)
    found = module.location_at(ORDER, module.Setting(np.inf, 0.3, NONE)).at(W[:tokens], np.empty((0, 3)))
    with mpmath.workdps(18):
        for i in range(3):
            x = [mpmath.mpf(MU) * mpmath.mpf(float(w)) for w in W[:tokens, i]]
            leads = [(j, x[0] - other) for j, other in enumerate(x[1:])]
            assert abs(found.value[i] - tokens * winning(leads)) < 1e-11
            assert abs(found.value[i] * found.slopes[1, i] + tokens * winning(leads, 0)) < 1e-10
    assert np.abs(found.slopes.sum(axis=0)).max() < 1e-13


def of_two(nu, lead):
    """E 2 sigmoid(nu (lead + sqrt(2) SPREAD u)) and its slope in the lead."""
    parts = mpmath.linspace(-9, 9, 13)

    def averaged(function):
        return mpmath.quad(lambda u: 2 * mpmath.npdf(u) * function(nu * (lead + mpmath.sqrt(2) * SPREAD * u)), parts)

    return averaged(lambda v: 1 / (1 + mpmath.exp(-v))), averaged(lambda v: nu / (4 * mpmath.cosh(v / 2) ** 2))


@pytest.mark.parametrize("nu", [0.3, 2.0, 30.0])
def test_softmax_of_two_scores(nu):
    module = module_of("softmax", "max", 2)
    found = module.location_at(ORDER, module.Setting(nu, 0.3, NONE)).at(W[:2], np.empty((0, 3)))
    with mpmath.workdps(18):
        for i in range(3):
            value, slope = of_two(nu, mpmath.mpf(MU) * mpmath.mpf(float(W[0, i] - W[1, i])))
            assert abs(found.value[i] - value) < 1e-11
            assert abs(found.value[i] * found.slopes[0, i] - slope) < 1e-9


def test_softmax_of_three_scores():
    nu = 1.5
    module = module_of("softmax", "max", 3)
    found = module.location_at(ORDER, module.Setting(nu, 0.3, NONE)).at(W, np.empty((0, 3)))
    zeta, weights = module.lattice(3, 400_000.0, 5)
    stars = MU * W[:, :, None] + SPREAD * zeta[:, None, :]
    parts = np.exp(nu * (stars - stars.max(axis=0)))
    g = 3.0 * parts / parts.sum(axis=0)
    assert found.value == pytest.approx(g[0] @ weights, abs=1e-9)
    other = -(g[0] * g[1] / 3.0) @ weights * nu
    assert found.value * found.slopes[1] == pytest.approx(other, abs=1e-8)


@pytest.mark.parametrize("activation", ["softmax", pytest.param("1 + x", marks=pytest.mark.full)])
def test_a_gaussian_weight_as_a_table(activation, monkeypatch):
    point = (4.0, 2.0, 0.3, 2.0, 1.0)
    plain = module_of(activation, "spiked", 2).solve(*point, tol=1e-6)
    table = module_of(activation, "spiked", 2, "own", monkeypatch).solve(*point, tol=1e-6)
    assert table.test_risk == pytest.approx(plain.test_risk, abs=plain.error + table.error)
    assert table.energy == pytest.approx(plain.energy, abs=1e-5)
    assert table.replicon == pytest.approx(plain.replicon, rel=1e-3)


def test_the_largest_score_against_sampled_scores(monkeypatch):
    point = (4.0, 2.0, 0.3, 2.0, 1.0)
    reduced = module_of("softmax", "max", 2).solve(*point, tol=1e-6)
    sampled = module_of("softmax", "max", 2, "normalised", monkeypatch).solve(*point, tol=1e-4)
    assert "5 dimensions" in sampled.method and "3 dimensions" in reduced.method
    assert sampled.test_risk == pytest.approx(reduced.test_risk, abs=sampled.error)
    assert sampled.energy == pytest.approx(reduced.energy, abs=1e-4)


def test_without_signal_every_task_is_the_same():
    found = [
        module_of("softmax", text, 2).solve(3.0, 0.0, 0.3, 1.0, 1.0, tol=1e-7)
        for text in ("spiked", "max", "nu*tanh(x)")
    ]
    assert all(abs(s.order_parameters["m_k"]) < 1e-6 for s in found)
    assert [s.test_risk for s in found] == pytest.approx([found[0].test_risk] * 3, abs=3e-7)


def test_hard_limit_is_approached():
    module = module_of("softmax", "max", 2)
    risks = [module.solve(4.0, nu, 0.3, 1.0, 1.0, tol=1e-4).test_risk for nu in (5.0, 40.0, np.inf)]
    assert risks[0] > risks[1] > risks[2]
    assert risks[1] - risks[2] < 0.1 * (risks[0] - risks[2])


@pytest.mark.parametrize("text", ["abs(x)", "nu*x - sum(exp(x))"])
def test_weights_without_a_reduction_are_refused(text):
    with pytest.raises(Refusal):
        location(task(text))
