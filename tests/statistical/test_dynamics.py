"""One-pass SGD on tokens against its equations in high dimension: all seven overlaps, at rising D, and what would fail.

The mean over seeds deviates by O(1/D), which two dimensions extrapolate away, 2 E_D - E_{D/2}; what is left is compared
with zero by Hotelling's statistic over all overlaps and times together. Where many seeds are needed the chain of the
overlaps is drawn, which is compared with SGD on tokens in a small dimension.
"""

from functools import cache

import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from replicode.codegen.compiler import generate
from replicode.theory.derive.dynamics import BATCH, derive_dynamics, pulls_of, rate_of, spreads_of
from replicode.theory.language.losses import model_of
from replicode.validation.training.reduced import descend_reduced
from replicode.validation.training.stream import OVERLAPS, Descent, Stream, descend

FALSE_ALARM = 1e-6
START = {"m_k": 0.7, "q_k": 2.5, "m_v": 0.7, "q_v": 2.5, "kv_star": 1.0, "vk_star": 1.0, "kv": 2.0}
BEGIN = np.array([START[n] for n in OVERLAPS])
TIMES = (0.5, 1.0)
NOISE, DECAY = 0.3, 1.0
CASES = {
    "softmax": ("softmax", "spiked", 2, 2.0, 1.0, {}),
    "linear": ("linear", "spiked", 2, 0.5, 0.03, {}),
    "erf": ("erf", "max", 2, np.inf, 0.2, {"c": 0.3}),
    "softmax_max": ("softmax", "max", 2, 2.0, 1.0, {}),
    "lengths": ("softmax", "spiked", "1:0.5,3:0.5", 2.0, 1.0, {}),
}


@cache
def system(name):
    return derive_dynamics(*CASES[name][:3])


@cache
def module(name):
    return generate(system(name)).load()


def theory(made, nu, rate, parameters, batch=1, spherical=False):
    """The overlaps at TIMES."""
    descent = made.Descent(rate, rate, DECAY, DECAY, batch, False, spherical)
    motion = made.Motion(descent, made.World(nu, NOISE, np.array(list(parameters.values()))), 2)
    return made.integrated(motion, BEGIN, np.array([0.0, *TIMES]), 1e-8).overlaps.T[1:]


def sgd(made, nu, rate, parameters, dim, seeds, run=descend, **more):
    stream = Stream.of(made, nu, NOISE, list(parameters.values()))
    rng = np.random.default_rng([dim, seeds])
    found = run(stream, Descent(rate, rate, DECAY, DECAY, **more), BEGIN, dim, seeds, TIMES, rng)
    return found.transpose(1, 0, 2).reshape(seeds, -1)


def extrapolated(made, nu, rate, parameters, dim, seeds, run=descend, **more):
    """Mean and covariance of the mean of all overlaps at all times, without what is of order 1/D."""
    fine, coarse = (sgd(made, nu, rate, parameters, d, seeds, run, **more) for d in (dim, dim // 2))
    covariance = 4 * np.cov(fine.T) / seeds + np.cov(coarse.T) / seeds
    return 2 * fine.mean(axis=0) - coarse.mean(axis=0), covariance


def p_value(measured, covariance, expected):
    """Hotelling's statistic, with so many seeds that it is chi-squared."""
    gap = measured - expected.ravel()
    seen = np.diag(covariance) > 1e-12
    statistic = gap[seen] @ np.linalg.solve(covariance[np.ix_(seen, seen)], gap[seen])
    return stats.chi2.sf(statistic, int(seen.sum()))


@cache
def chain(name):
    _, _, _, nu, rate, parameters = CASES[name]
    return extrapolated(module(name), nu, rate, parameters, 200, 15000, descend_reduced)


def test_the_chain_of_the_overlaps_is_sgd_on_tokens():
    """At D = 16, where no equation holds: means and covariances of both, by two-sample statistics."""
    tokens, overlaps = (sgd(module("softmax"), 2.0, 1.0, {}, 16, 3000, run) for run in (descend, descend_reduced))
    products = [np.c_[x, (x - x.mean(0)) ** 2] for x in (tokens, overlaps)]
    means, errors = (np.array([f(x, axis=0) for x in products]) for f in (np.mean, np.var))
    z = (means[0] - means[1]) / np.sqrt(errors.sum(axis=0) / 3000)
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / z.size / 2)


@pytest.mark.parametrize("name", ["softmax", pytest.param("linear", marks=pytest.mark.full)])
def test_the_chain_follows_the_equations(name):
    _, _, _, nu, rate, parameters = CASES[name]
    assert p_value(*chain(name), theory(module(name), nu, rate, parameters)) > FALSE_ALARM


@pytest.mark.parametrize("name", [n if n == "erf" else pytest.param(n, marks=pytest.mark.full) for n in CASES])
def test_sgd_follows_the_equations(name):
    _, _, _, nu, rate, parameters = CASES[name]
    found = extrapolated(module(name), nu, rate, parameters, 64, 800)
    assert p_value(*found, theory(module(name), nu, rate, parameters)) > FALSE_ALARM


def with_factor(found, overlap, term):
    """The right-hand side in which one term of one rate is 1.1 times what it is."""
    rates = {o: sp.expand(r) + (sp.Rational(1, 10) * term if o == overlap else 0) for o, r in found.rates.items()}
    model = found.model
    etas, decays = [rate_of(b) for b in model.blocks], [b.strength for b in model.blocks]
    arguments = [list(found.overlaps), list(pulls_of(model)), list(spreads_of(model)), *etas, *decays, BATCH]
    compiled = sp.lambdify(arguments, list(rates.values()), "numpy")
    return lambda *args: np.array(compiled(*args))


def terms(rates):
    """Every term of every rate, with the overlap that it moves."""
    return [(o, t) for o, rate in rates.items() for t in sp.Add.make_args(sp.expand(rate))]


def test_a_factor_in_any_term_is_rejected(monkeypatch):
    _, _, _, nu, rate, parameters = CASES["softmax"]
    made, every = module("softmax"), terms(system("softmax").rates)
    assert len(every) == 4 * 2 + 2 * 3 + 5
    for overlap, term in every:
        monkeypatch.setattr(made, "overlap_rates", with_factor(system("softmax"), overlap, term))
        assert p_value(*chain("softmax"), theory(made, nu, rate, parameters)) < FALSE_ALARM, (overlap, term)


@pytest.mark.parametrize("more", [{"batch": 3}, {"spherical": True}], ids=["batch", "spherical"])
def test_variants(more):
    made, nu, rate = module("softmax"), 2.0, 1.0
    found = extrapolated(made, nu, rate, {}, 48, 500, **more)
    assert p_value(*found, theory(made, nu, rate, {}, **more)) > FALSE_ALARM
    assert p_value(*found, theory(made, nu, rate, {})) < FALSE_ALARM


@pytest.mark.parametrize(
    "name, run",
    [
        ("softmax", descend_reduced),
        *[pytest.param(n, descend, marks=pytest.mark.full) for n in ("softmax", "linear", "erf", "softmax_max")],
    ],
)
def test_deviations_fall_as_the_root_of_the_dimension(name, run):
    """The mean square deviation times D is the same at all D: F-tests, corrected, for every overlap."""
    _, _, _, nu, rate, parameters = CASES[name]
    expected, dims = theory(module(name), nu, rate, parameters).ravel(), (500, 1000, 2000, 4000)
    seeds = 24 if run is descend else 100
    squares = [
        d * ((sgd(module(name), nu, rate, parameters, d, seeds, run) - expected) ** 2).mean(axis=0) for d in dims
    ]
    bound = stats.f.isf(FALSE_ALARM / (len(dims) - 1) / expected.size / 2, seeds, seeds)
    for square in squares[1:]:
        assert (square / squares[0] < bound).all() and (squares[0] / square < bound).all()


def test_sgd_diverges_above_the_largest_step_size():
    """Linear, D = 400: at 0.85 of it all runs are near the equations, at 1.15 all have left every bound."""
    made = module("linear")
    largest, stream = made.critical_rate(2.0, NOISE), Stream.of(made, 2.0, NOISE, ())
    start = {"m_k": 0.1, "q_k": 0.5, "m_v": 0.1, "q_v": 0.5}
    begin, norm = np.array([start.get(n, 0.0) for n in OVERLAPS]), OVERLAPS.index("q_k")
    ends = []
    for share in (0.85, 1.15):
        descent, rng = Descent(share * largest, share * largest, 0.0, 0.0), np.random.default_rng(0)
        with np.errstate(all="ignore"):
            ends.append(descend_reduced(stream, descent, begin, 400, 40, (15.0,), rng)[0, :, norm])
    expected = made.solve(2.0, NOISE, rate=0.85 * largest, time=15.0, start=start, points=2).order_parameters["q_k"][-1]
    assert np.abs(ends[0] / expected - 1.0).max() < 0.5 and abs(np.median(ends[0]) / expected - 1.0) < 0.05
    assert not (np.abs(ends[1]) < 1e3).any()


SHAPES = st.sampled_from(
    ["tanh({a}*x)", "exp(x/{a})/sum(exp(x/{a}))", "sigmoid(x - {a})", "({a} + x**2)/sum({a} + x**2)"]
)


@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(SHAPES, st.sampled_from(["1", "3/2", "2"]))
def test_a_drawn_activation(shape, a):
    made = generate(derive_dynamics(shape.format(a=a), "spiked", 2)).load()
    found = extrapolated(made, 1.0, 0.3, {}, 64, 600)
    assert p_value(*found, theory(made, 1.0, 0.3, {})) > FALSE_ALARM


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        ("logistic", "sign"),
        *[
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("huber:1", "outliers:0.2:2"), ("hinge", "logit:2"), ("quadratic", "magnitude"))
        ],
    ],
)
def test_other_losses_and_labels(loss, labels):
    """The chain of the overlaps at D = 100 and 200, extrapolated; a gain of 1.1 times what it is, is rejected."""
    model = model_of(loss, labels)
    made = generate(derive_dynamics("softmax", "spiked", 2, model)).load()
    stream = Stream.of(made, 2.0, NOISE, (), model)
    found = []
    for dim in (100, 200):
        rng = np.random.default_rng([dim, 7])
        path = descend_reduced(stream, Descent(1.0, 1.0, DECAY, DECAY), BEGIN, dim, 6000, TIMES, rng)
        found.append(path.transpose(1, 0, 2).reshape(6000, -1))
    coarse, fine = found
    covariance = 4 * np.cov(fine.T) / len(fine) + np.cov(coarse.T) / len(coarse)
    mean = 2 * fine.mean(axis=0) - coarse.mean(axis=0)
    assert p_value(mean, covariance, theory(made, 2.0, 1.0, {})) > FALSE_ALARM
    plain = made.loss_at
    made.loss_at = lambda y, f: tuple(c * t for c, t in zip((1.0, 1.1, 1.0), plain(y, f), strict=True))
    assert p_value(mean, covariance, theory(made, 2.0, 1.0, {})) < FALSE_ALARM
