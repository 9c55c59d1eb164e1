"""Population averages by three ways that share no quadrature: factorised over tokens, nodes over all tokens, closed."""

import mpmath
import numpy as np
import pytest
import sympy as sp
from generated import bayes_gain, module_of
from mpmath import mpf

from replicode.codegen.compiler import generate
from replicode.codegen.interpret.functions import evaluated
from replicode.codegen.runtime.nodes import lattice, level_count
from replicode.codegen.runtime.optimum import COARSE, FINE
from replicode.modules import module_for
from replicode.theory.derive.saddle import derive
from replicode.theory.gaussian.closed import ScoreOverlaps, closed_averages, hard_averages
from replicode.theory.language.activation import Activation, activation
from replicode.theory.language.nodes import L
from replicode.theory.language.task import task
from replicode.theory.model import DEFAULT_MODEL, NU

KERNELS = ("softmax", "softplus", "softmax1", "exp(x)/sqrt(sum(exp(2*x)))")
SIMPLE = ("linear", "erf", "sigmoid", "x - mean(x)", "exp(x - mean(x))", "(1 + x)*mean(x**2)")
TASKS = ("spiked", "max", "nu*tanh(x)", "x**2*nu/(4*(1 + nu))")
K = DEFAULT_MODEL.scores
POINT = {"m": 0.8, "tau": 0.5, "nu": 1.3, "c": 0.3}


def _factorised(text, task_text, tokens, m=POINT["m"], tau=POINT["tau"], nu=POINT["nu"], fineness=FINE):
    module = module_for(text, task_text, tokens, level="population")[0]
    return module.averages_at(m, tau, nu, np.array([POINT[p] for p in module.PARAMETERS]), fineness)


def _all_at_once(text, task_text, tau):
    """The sums over both tokens as they are typed, the weight at the teacher's scores, on nodes of all scores."""
    m, values = POINT["m"], {NU: POINT["nu"], sp.Symbol("c", real=True): POINT["c"]}
    nodes, weights = lattice(4 if tau else 2, 4.0 * level_count(4 if tau else 2, 3), 5)
    logs = evaluated(Activation("weight", task(task_text).log_weight).token_form(), nodes[:2], values)
    location = weights * np.exp(logs)
    sigma = evaluated(activation(text).token_form(), m * nodes[:2] + (tau * nodes[2:] if tau else 0.0), values)
    sums = (location * sigma).sum(), (location.sum(axis=0) * (sigma * sigma).sum(axis=0)).sum()
    return np.array(sums) / location.sum()


@pytest.mark.parametrize("task_text", TASKS)
@pytest.mark.parametrize("text", KERNELS + SIMPLE)
def test_tokens_one_at_a_time_and_all_at_once(text, task_text):
    """tau = 0 keeps the nodes over all tokens in two dimensions, where they are good to 1e-9."""
    expected = _all_at_once(text, task_text, 0.0)
    np.testing.assert_allclose(_factorised(text, task_text, 2, tau=0.0), expected, rtol=2e-9, atol=1e-12)


@pytest.mark.parametrize("task_text", ["spiked", "max"])
@pytest.mark.parametrize("text", ["softmax", "erf"])
def test_scores_with_a_component_across(text, task_text):
    np.testing.assert_allclose(_factorised(text, task_text, 2), _all_at_once(text, task_text, POINT["tau"]), rtol=1e-6)


CLOSED = (
    "linear",
    "erf",
    "relu",
    "exp",
    "abs(x)",
    "x**2",
    "cos(x)",
    "relu(c + x)",
    "x*erf(x)",
    "x - mean(x)",
    "exp(-x**2)",
)


def _numbers(expr, values):
    return float(sp.N(expr.subs(values), 20))


@pytest.mark.parametrize("text", CLOSED)
def test_closed_forms_on_spiked_are_the_quadrature(text):
    found = closed_averages(activation(text), task("spiked"))
    m, q = POINT["m"], POINT["m"] ** 2 + POINT["tau"] ** 2
    for tokens in (1, 2, 5):
        values = {K.m: m, K.q: q, NU: POINT["nu"], L: tokens, sp.Symbol("c", real=True): POINT["c"]}
        expected = _factorised(text, "spiked", tokens)
        assert [_numbers(found.A, values), _numbers(found.B, values)] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("tokens", [1, 2, 3])
@pytest.mark.parametrize("text", ["linear", "exp", "x**2", "x - mean(x)", "erf(x)", "relu", "exp(x - mean(x))"])
@pytest.mark.parametrize("m", [0.8, -0.6])
def test_closed_forms_at_hard_max_are_the_threshold_integral(text, tokens, m):
    size = sp.Symbol("size", positive=True)
    found = hard_averages(activation(text), task("max"), tokens, ScoreOverlaps.aligned(size if m > 0 else -size))
    expected = _factorised(text, "max", tokens, m=m, tau=0.0, nu=np.inf)
    values = {size: sp.Float(repr(abs(m)), 30)}
    assert [_numbers(found.A, values), _numbers(found.B, values)] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    "tokens, mean", [(2, 0.5641895835477563), (3, 0.8462843753216345), (4, 1.0293753730039641), (5, 1.1629644736405196)]
)
def test_mean_of_the_largest_of_normals(tokens, mean):
    """Order statistics from the tables."""
    found = hard_averages(activation("linear"), task("max"), tokens)
    assert _numbers(sp.diff(found.A, K.m), {}) == pytest.approx(mean, rel=1e-13)


def _sigmoid(u):
    return 1 / (1 + mpmath.exp(-u))


@pytest.mark.parametrize("nu", ["0.3", "2", "12", "40"])
def test_bayes_of_two_tokens_in_one_dimension(nu):
    """L = 2: the posterior is a sigmoid of the difference of the scores, N(nu, 2 nu) for spiked."""
    with mpmath.workdps(30):
        nu_ = mpf(nu)
        ends = [-12, *[mpf(i) for i in range(-8, 9, 2)], 12]
        spiked = mpmath.quad(lambda z: mpmath.npdf(z) * _sigmoid(nu_ + mpmath.sqrt(2 * nu_) * z), ends)
        square = mpmath.quad(lambda z: mpmath.npdf(z) * 2 * _sigmoid(nu_ * mpmath.sqrt(2) * z) ** 2, ends)
    for name, expected in (("spiked", spiked), ("max", square)):
        found = bayes_gain(name, float(nu), 2)
        assert abs(found.gain - float(expected)) <= found.error + 1e-15
        assert found.error < 1e-11


@pytest.mark.parametrize("task_text", ["spiked", "max"])
def test_bayes_of_many_tokens_against_samples(task_text):
    """4 sigma on 2e5 samples: a false alarm in 16000 per case."""
    rng = np.random.default_rng(11)
    for tokens, nu in ((3, 2.0), (8, 5.0)):
        chi = rng.standard_normal((200_000, tokens))
        scale = nu if task_text == "max" else np.sqrt(nu)
        if task_text == "spiked":
            chi[:, 0] += scale
        p = np.exp(scale * (chi - chi.max(axis=1, keepdims=True)))
        p /= p.sum(axis=1, keepdims=True)
        values = p[:, 0] if task_text == "spiked" else (p * p).sum(axis=1)
        found = bayes_gain(task_text, nu, tokens)
        assert abs(values.mean() - found.gain) < 4.0 * values.std() / np.sqrt(values.size)


def test_coarse_and_fine_rules_agree_to_what_the_search_needs():
    for text in KERNELS:
        coarse, fine = (_factorised(text, "spiked", 3, fineness=f) for f in (COARSE, FINE))
        np.testing.assert_allclose(coarse, fine, rtol=1e-6)


def test_poles_of_the_kernel_are_graded():
    """poly2 is 0/0 where all scores are -1; the sums there decay only like a power of s."""
    a, b = _factorised("poly2", "spiked", 2, tau=0.0)
    m, nu = POINT["m"], POINT["nu"]

    rng = np.random.default_rng(5)
    z = rng.standard_normal((2, 400_000))
    x, y = 1 + m * (z[0] + np.sqrt(nu)), 1 + m * z[1]
    p = x**2 / (x**2 + y**2)
    assert abs(p.mean() - a) < 4 * p.std() / np.sqrt(p.size)
    square = p**2 + (1 - p) ** 2
    assert abs(square.mean() - b) < 4 * square.std() / np.sqrt(p.size)


@pytest.mark.parametrize(("power", "m"), [(2, 0.77), (2, 1.31), (4, 0.6)])
def test_the_zero_of_a_kernel_to_all_digits(power, m):
    """(1+x)^p over its sum is a function of the angle around (-1, -1): polar coordinates, nothing singular left."""
    nu = POINT["nu"]
    x, w = np.polynomial.legendre.leggauss(400)
    r, radial = 0.5 * (x[:, None] + 1.0) * 14.0 * m, 0.5 * w[:, None] * 14.0 * m
    angle = 2.0 * np.pi * np.arange(1440) / 1440
    one, two = np.cos(angle) ** power, np.sin(angle) ** power
    teacher = [(r * turn - 1.0) / m for turn in (np.cos(angle), np.sin(angle))]
    density = np.exp(-0.5 * ((teacher[0] - np.sqrt(nu)) ** 2 + teacher[1] ** 2)) * r * radial / m**2 / 1440
    share = one / (one + two)
    expected = [float((density * f).sum()) for f in (share, share**2 + (1.0 - share) ** 2)]
    text = f"(1 + x)**{power}/sum((1 + x)**{power})"
    assert float(density.sum()) == pytest.approx(1.0, abs=1e-12)
    assert _factorised(text, "spiked", 2, m, 0.0, nu) == pytest.approx(expected, abs=1e-12)


def test_a_sum_whose_body_vanishes_somewhere():
    """1 + x^2 summed is L + sum x^2, whose body x^2 must not be divided by: one token at a time against all at once."""
    text = "(1 + x**2)/sum(1 + x**2)"
    found = _factorised(text, "spiked", 2, 0.7, 0.4, 1.0)
    module = module_of(text)
    both = module.population_averages(0.7, 0.7**2 + 0.4**2, module.settings_of(1.0, 0.0, np.array([])), 1e-10)
    assert found == pytest.approx((both.A, both.B), abs=1e-8)


def test_a_constant_has_no_scores_to_average_over():
    """A = sigma and B = L sigma^2, without any quadrature."""
    module = generate(derive("2", "spiked", 2)).load()
    found = module.population_averages(0.7, 0.8, module.settings_of(1.0, 0.0, np.array([])))
    assert (found.A, found.B, found.error) == (2.0, 8.0, 0.0)
