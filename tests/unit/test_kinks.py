"""Where kinks are, which of them are refused, and how training rounds them off."""

import numpy as np
import pytest
import sympy as sp
from strategies import system_of

from replicode.codegen.compiled.fast import c_source
from replicode.codegen.compiler import generate
from replicode.codegen.precise.saddle import check_dimension
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.activation import activation
from replicode.theory.language.nodes import X, relu
from replicode.theory.properties.kinks import kink_points, piecewise
from replicode.validation.module import GeneratedAttention
from replicode.validation.training.kinks import WIDTHS, Rounded, stages

A, C = sp.symbols("a c", real=True)


@pytest.mark.parametrize(
    "text, points",
    [
        ("relu", {0}),
        ("1 + abs(x - 1)", {1}),
        ("relu(a*x + c) - 0.1*relu(-x)", {0, -C / A}),
        ("(1 + relu(x))/sum(1 + relu(x))", {0}),
        ("x*abs(x)", {0}),
        ("exp(-abs(2*x - c))", {C / 2}),
        ("softmax", set()),
    ],
)
def test_kinks_are_found(text, points):
    assert set(kink_points(activation(text))) == points


@pytest.mark.parametrize(
    "text, where",
    [
        ("relu(x**2 - 1)", "-1 + x**2 = 0"),
        ("abs(x - mean(x))", "x - sum(x)/L = 0"),
        ("relu(x)*abs(relu(x) - 1)", "-1 + relu(x) = 0"),
        ("abs(x)/x", "jumps"),
        ("abs(x)**1.5", "curvature"),
        ("abs(x)*(1 + sqrt(abs(x)))", "curvature"),
    ],
)
def test_other_kinks_are_refused(text, where):
    with pytest.raises(Refusal, match="own score") as refused:
        piecewise(activation(text))
    assert where in str(refused.value)


def test_no_delta_is_left_on_the_kink():
    twice = sp.diff(piecewise(activation("abs(x - c)*exp(x)")).expr, X, 2)
    assert not twice.has(sp.DiracDelta, sp.Derivative, sp.sign)
    assert piecewise(activation("abs(x)")).expr == 2 * relu(X) - X


def test_smooth_modules_do_not_carry_the_kinks():
    assert "kink" not in generate(system_of("softmax", 2)).source


@pytest.fixture(scope="module")
def module():
    return generate(system_of("abs(x - c) - relu(x + 0.5)", 2)).load()


def test_points_of_a_module(module):
    setting = module.Setting(1.0, 0.0, np.array([0.7]))
    assert module.kinks_of(setting) == pytest.approx([-0.5, 0.7])
    assert module.kinks_of(setting._replace(params=np.array([-0.5]))) == pytest.approx([-0.5])


def test_what_needs_smoothness_says_so(module):
    with pytest.raises(Refusal, match="kinks"):
        check_dimension(module, {"c": 0.7})
    with pytest.raises(InputError, match="numpy"):
        c_source(system_of("relu", 2))


def test_population_averages_on_panels():
    """E relu and E relu^2 of a Gaussian score in closed form."""
    from scipy.stats import norm

    module = generate(system_of("relu", 3)).load()
    m_k, q_k, nu = 0.6, 0.9, 1.7
    mean, scale = m_k * np.sqrt(nu), np.sqrt(q_k)
    t = mean / scale
    first = mean * norm.cdf(t) + scale * norm.pdf(t)
    second = (mean**2 + q_k) * norm.cdf(t) + mean * scale * norm.pdf(t)
    one, two, error = module.population_averages(m_k, q_k, module.settings_of(nu, 0.0, np.empty(0)))
    assert one == pytest.approx(first, abs=1e-13) and two == pytest.approx(second + q_k, abs=1e-13)
    assert error < 1e-12


def test_rounded_kinks(module):
    attention = GeneratedAttention(module, 1.0, 0.0, np.array([0.7]))
    assert [s.width for s in stages(attention)] == list(WIDTHS)
    chi = np.random.default_rng(1).uniform(-1.5, 1.5, (2, 300))
    rounded, step = Rounded(attention, attention.kinks, 0.2), 1e-6
    slope = (rounded.sigma(chi + step) - rounded.sigma(chi - step)) / (2 * step)
    assert rounded.pullback(chi, np.ones_like(chi)) == pytest.approx(slope, abs=1e-7)
    away = (np.abs(chi[..., None] - np.array(attention.kinks)) >= 0.2).all(axis=-1)
    assert np.array_equal(rounded.sigma(chi)[away], attention.sigma(chi)[away])
    assert not np.allclose(rounded.sigma(chi)[~away], attention.sigma(chi)[~away], atol=1e-3)
    smooth = GeneratedAttention(generate(system_of("softmax", 2)).load(), 1.0, 0.0, np.empty(0))
    assert stages(smooth) == (smooth,)
