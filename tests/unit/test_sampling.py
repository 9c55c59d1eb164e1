"""Sampled data of every task and length law: scores and locations against population averages, ragged batches."""

from __future__ import annotations

from math import inf, pi, sqrt

import numpy as np
import pytest
from generated import bayes_gain
from scipy import integrate, stats

import replicode.validation.data.sampling
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.validation.data.sampling import Sampler, sphere_frame
from replicode.validation.data.scores import ExtremeScores, GaussianScores, LocatedScores, OwnScores, scores_of
from replicode.validation.experiment import Ensemble, streams
from replicode.validation.training.attention import objective, predictions

FALSE_ALARM = 1e-6  # of each law test below; at fixed seeds they either hold or do not


class Softmax:
    def sigma(self, chi):
        e = np.exp(chi - chi.real.max(axis=0))
        return e / e.sum(axis=0)

    def pullback(self, chi, cotangent):
        s = self.sigma(chi)
        return s * (cotangent - (s * cotangent).sum(axis=0))


def drawn(spec, nu, tokens, dim=4, samples=100_000, noise=0.2, seed=0, **options):
    law = lengths(tokens)
    scores = tuple(scores_of(task(spec), nu, n) for n in law.tokens)
    return Sampler(law, dim, samples, noise, scores, **options).draw(np.random.default_rng(seed))


def teacher_scores(dataset, batch):
    return batch.X @ dataset.k_star / sqrt(dataset.dim)


def assert_mean(sample, mean):
    """A z test at the false-alarm rate."""
    z = (sample.mean() - mean) / (sample.std() / sqrt(sample.size))
    assert abs(z) < stats.norm.isf(FALSE_ALARM / 2), (sample.mean(), mean, z)


def posterior(log_weights):
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


COSH = "softplus(2*nu*x) - nu*x"  # log cosh(nu x), up to a constant
QUARTIC = "-x**4/10 + nu*x"

LOG_WEIGHTS = {
    "spiked": lambda x, nu: sqrt(nu) * x,
    "max": lambda x, nu: nu * x,
    "x**2/4": lambda x, nu: x**2 / 4,
    COSH: lambda x, nu: np.log(np.cosh(nu * x)),
    QUARTIC: lambda x, nu: -(x**4) / 10 + nu * x,
    "2*relu(x)": lambda x, nu: 2 * np.maximum(x, 0),
    "-x - log(sum(exp(-x)))": lambda x, nu: -x,
}


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("spec", [spec for spec in LOG_WEIGHTS if spec != QUARTIC])
def test_the_location_is_as_predictable_as_the_population_average_says(spec, tokens):
    """E_w[p_eps], p = g/sum g: the sampled scores and locations enter together, the average is by quadrature."""
    dataset = drawn(spec, 1.5, tokens)
    (batch,) = dataset.batches
    p = posterior(LOG_WEIGHTS[spec](teacher_scores(dataset, batch), 1.5))
    at_hidden = p[np.arange(batch.eps.size), batch.eps]
    gain = bayes_gain(spec, 1.5, tokens).gain
    if tokens == 1:
        assert at_hidden.min() == 1.0 and gain == pytest.approx(1.0, abs=1e-9)
        return
    assert_mean(at_hidden, gain)
    # Nishimori: given the scores, eps has the probabilities p.
    assert_mean(at_hidden - (p**2).sum(axis=1), 0.0)
    assert stats.chisquare(np.bincount(batch.eps, minlength=tokens)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("spec", [COSH, QUARTIC, "2*relu(x)", "x**2/4"])
def test_the_hidden_score_has_the_reweighted_density(spec):
    dataset = drawn(spec, 1.5, 2, seed=1)
    (batch,) = dataset.batches
    scores = teacher_scores(dataset, batch)
    rows = np.arange(batch.eps.size)
    x = np.linspace(-30, 30, 60_001)
    density = np.exp(LOG_WEIGHTS[spec](x, 1.5) - x**2 / 2)
    cdf = integrate.cumulative_simpson(density, x=x, initial=0.0)
    assert stats.kstest(scores[rows, batch.eps], lambda t: np.interp(t, x, cdf / cdf[-1])).pvalue > FALSE_ALARM
    assert stats.kstest(scores[rows, 1 - batch.eps], "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("nu", [0.0, 2.0, inf])
def test_scores_of_the_max_task_keep_their_law_and_the_labels_are_the_hidden_values(nu):
    dataset = drawn("max", nu, 3, seed=2)
    (batch,) = dataset.batches
    scores = teacher_scores(dataset, batch)
    assert stats.kstest(scores.ravel(), "norm").pvalue > FALSE_ALARM
    rows = np.arange(batch.eps.size)
    values = batch.X[rows, batch.eps] @ dataset.v_star / sqrt(dataset.dim)
    assert stats.kstest(values, "norm").pvalue > FALSE_ALARM
    assert stats.kstest((batch.y - values) / 0.2, "norm").pvalue > FALSE_ALARM
    if nu == 0.0:
        assert_mean(scores[rows, batch.eps], 0.0)
    if nu == inf:
        np.testing.assert_array_equal(batch.eps, scores.argmax(axis=1))
        assert_mean(scores[rows, batch.eps], 3 / (2 * sqrt(pi)))


def test_the_hard_limit_follows_the_sign_of_the_slope():
    low = drawn("-nu*x - log(sum(exp(-nu*x)))", inf, 2, samples=200)
    np.testing.assert_array_equal(low.batches[0].eps, teacher_scores(low, low.batches[0]).argmin(axis=1))


def test_each_kind_of_weight_has_its_law():
    assert scores_of(task("spiked"), 2.0, 3) == GaussianScores(sqrt(2.0), 1.0)
    assert scores_of(task("x*nu/L"), 2.0, 4) == GaussianScores(0.5, 1.0)
    assert scores_of(task("max"), inf, 3) == ExtremeScores(1)
    assert isinstance(scores_of(task("max"), 0.0, 3), LocatedScores)
    assert isinstance(scores_of(task(COSH), 1.0, 3), OwnScores)


def test_narrow_and_distant_densities_are_found():
    for spec, nu, mean, std in [
        ("-nu*(x-3)**2 + abs(x)/10**9", 1e6, 3.0, sqrt(0.5e-6)),
        ("nu*abs(x)", 90.0, 0.0, 90.0),
    ]:
        law = scores_of(task(spec), nu, 2)
        _, scores = law.draw(np.random.default_rng(3), np.zeros((20_000, 2)))
        assert_mean(scores, mean)
        assert scores.std() == pytest.approx(std, rel=0.05)


def test_a_coarse_envelope_gives_the_same_law():
    log_density = scores_of(task(COSH), 2.0, 2).log_density
    steps = np.full(4, log_density(np.linspace(-8, 8, 4001)).max() + 0.01)
    _, scores = OwnScores(log_density, np.arange(-8.0, 8.0, 4.0), 4.0, steps).draw(
        np.random.default_rng(4), np.zeros((20_000, 2))
    )
    assert stats.kstest(scores, lambda t: (stats.norm.cdf(t - 2) + stats.norm.cdf(t + 2)) / 2).pvalue > FALSE_ALARM


def test_an_envelope_that_is_too_low_is_refused():
    law = scores_of(task(COSH), 1.0, 2)
    lower = OwnScores(law.log_density, law.edges, law.width, law.log_steps - 0.1)
    with pytest.raises(Refusal, match="rough"):
        lower.draw(np.random.default_rng(0), np.zeros((1000, 2)))


def test_what_cannot_be_sampled_is_refused():
    with pytest.raises(InputError, match="nu"):
        scores_of(task("spiked"), inf, 2)
    with pytest.raises(InputError, match="nu"):
        scores_of(task("spiked"), -1.0, 2)
    with pytest.raises(InputError, match="nu"):
        scores_of(task("max"), float("nan"), 2)
    with pytest.raises(Refusal, match="couples"):
        scores_of(task("x + 0.1*sum(x**2)/L"), 1.0, 2)
    for spec in ("nu*x**2/4", "nu*x**2/4 + abs(x)"):
        with pytest.raises(Refusal, match="infinite"):
            scores_of(task(spec), 3.0, 2)


MIXED = "1:0.2,2:0.3,4:0.5"


def test_lengths_have_their_shares_and_every_sequence_its_place():
    dataset = drawn("spiked", 2.0, MIXED, dim=3, samples=20_000)
    counts = [batch.y.size for batch in dataset.batches]
    assert [batch.X.shape[1] for batch in dataset.batches] == [1, 2, 4]
    assert dataset.samples == 20_000
    assert stats.chisquare(counts, 20_000 * np.array([0.2, 0.3, 0.5])).pvalue > FALSE_ALARM
    np.testing.assert_array_equal(np.sort(np.concatenate([b.places for b in dataset.batches])), np.arange(20_000))
    # The lengths come in no order: the first half has the same shares.
    first = [batch.y.size for batch in dataset.first(10_000).batches]
    assert stats.chi2_contingency([first, np.subtract(counts, first)]).pvalue > FALSE_ALARM


def test_every_length_has_its_own_weight():
    """E_w[p_eps] at each length, where the log-weight knows L too."""
    dataset = drawn("nu*x/L", 3.0, MIXED)
    for batch in dataset.batches:
        tokens = batch.X.shape[1]
        p = posterior(3.0 * teacher_scores(dataset, batch) / tokens)
        if tokens > 1:
            gain = bayes_gain(f"nu*x/{tokens}", 3.0, tokens).gain
            assert_mean(p[np.arange(batch.eps.size), batch.eps], gain)


def test_lengths_that_do_not_occur_have_no_batch():
    dataset = drawn("max", 1.0, "2:0.999999,3:0.000001", samples=50)
    assert [batch.X.shape for batch in dataset.batches] == [(50, 2, 4)]
    assert [batch.y.size for batch in drawn("max", 1.0, MIXED, samples=1).batches] == [1]


@pytest.mark.parametrize("tokens", [3, MIXED])
def test_the_first_sequences_are_views_of_the_same_data(tokens):
    dataset = drawn("spiked", 2.0, tokens, samples=60)
    part = dataset.first(25)
    assert part.samples == 25 and part.k_star is dataset.k_star
    for batch in part.batches:
        whole = next(b for b in dataset.batches if b.X.shape[1] == batch.X.shape[1])
        assert np.shares_memory(batch.X, whole.X) and batch.places.max() < 25
        np.testing.assert_array_equal(batch.y, whole.y[: batch.y.size])
    with pytest.raises(InputError, match="samples"):
        dataset.first(61)


def test_ragged_gradient_is_the_complex_step_derivative():
    dataset = drawn("max", 2.0, MIXED, dim=6, samples=30)
    assert len(dataset.batches) == 3
    params = np.random.default_rng(1).standard_normal(12)
    _, gradient = objective(params, dataset, Softmax(), 0.7, 0.3)
    steps = 1e-30j * np.eye(params.size)
    expected = [objective(params + h, dataset, Softmax(), 0.7, 0.3)[0].imag / 1e-30 for h in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


def test_the_ragged_objective_is_its_definition():
    dataset = drawn("spiked", 2.0, MIXED, dim=5, samples=40)
    params = np.random.default_rng(2).standard_normal(10)
    k, v = np.split(params, 2)
    total = 0.7 * k @ k / 2 + 0.3 * v @ v / 2
    for batch in dataset.batches:
        for X, y in zip(batch.X, batch.y):
            weights = Softmax().sigma((X @ k / sqrt(5))[:, None])[:, 0]
            total += (y - weights @ (X @ v) / sqrt(5)) ** 2 / 2
    assert objective(params, dataset, Softmax(), 0.7, 0.3)[0] == pytest.approx(total, rel=1e-13)


def test_chunks_change_nothing_but_rounding(monkeypatch):
    whole = drawn("spiked", 2.0, MIXED, dim=7, samples=50)
    params = np.random.default_rng(3).standard_normal(14)
    value, gradient = objective(params, whole, Softmax(), 0.7, 0.3)
    monkeypatch.setattr(replicode.validation.data.sampling, "CHUNK_BYTES", 500)
    again = drawn("spiked", 2.0, MIXED, dim=7, samples=50)
    assert len(list(whole.batches[-1].chunks())) > 5
    for a, b in zip(whole.batches, again.batches):
        np.testing.assert_array_equal(a.X, b.X)
    chunked = objective(params, whole, Softmax(), 0.7, 0.3)
    assert chunked[0] == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(chunked[1], gradient, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("spec", ["spiked", "max", COSH])
def test_single_precision_keeps_the_law_and_rounds_the_objective(spec):
    dataset = drawn(spec, 1.5, 3, dim=50, samples=4000, single=True, seed=4)
    (batch,) = dataset.batches
    assert batch.X.dtype == np.float32 and batch.y.dtype == np.float64
    rows = np.arange(4000)
    in_double = batch.X.astype(np.float64)
    values = in_double[rows, batch.eps] @ dataset.v_star / sqrt(50)
    assert stats.kstest((batch.y - values) / 0.2, "norm").pvalue > FALSE_ALARM
    p = posterior(LOG_WEIGHTS[spec](teacher_scores(dataset, batch), 1.5))
    assert_mean(p[rows, batch.eps], bayes_gain(spec, 1.5, 3).gain)
    k, v = sphere_frame(np.random.default_rng(5), 50, 2)
    f = predictions(k, v, batch, Softmax())
    weights = Softmax().sigma((in_double @ k).T / sqrt(50))
    np.testing.assert_allclose(f, (weights * (in_double @ v).T / sqrt(50)).sum(axis=0), atol=3e-5)


def test_given_teachers_are_kept():
    teachers = sphere_frame(np.random.default_rng(6), 9, 2)
    sampler = Sampler(lengths(2), 9, 5, 0.1, (ExtremeScores(1),))
    dataset = sampler.draw(np.random.default_rng(7), teachers)
    assert dataset.k_star is teachers[0] and dataset.v_star is teachers[1]


def test_a_setting_of_one_length_given_as_a_distribution_draws_the_same_data():
    fixed, listed = (Ensemble.of(task("max"), lengths(n), 3.0, inf, 0.1) for n in (2, "2:1.0"))
    a, b = (s.sampler(8, streams(0, 8, 0)[0]).draw(streams(0, 8, 0)[0]) for s in (fixed, listed))
    np.testing.assert_array_equal(a.batches[0].X, b.batches[0].X)
