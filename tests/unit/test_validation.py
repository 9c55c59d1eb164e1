"""The validation room piece by piece: sampler laws, gradients, training, overlaps, seeds and the report."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy import special, stats

from replicode.theory.errors import InputError
from replicode.theory.lengths import lengths
from replicode.validation.data.sampling import Dataset, Sampler, sphere_frame
from replicode.validation.data.scores import GaussianScores
from replicode.validation.experiment import Ensemble, Experiment, Failure, report, run, run_one, streams
from replicode.validation.statistics.measure import QUANTITIES, Overlaps, measure
from replicode.validation.training.attention import Centre, objective, predictions
from replicode.validation.training.methods import Adam, GradientDescent, Lbfgs, relative_gradient_norm
from replicode.validation.training.train import Informed, Random, Warm, train

FALSE_ALARM = 1e-6  # of each law test below; at fixed seeds they either hold or do not


class Softmax:
    def sigma(self, chi):
        e = np.exp(chi - chi.real.max(axis=0))
        return e / e.sum(axis=0)

    def pullback(self, chi, cotangent):
        s = self.sigma(chi)
        return s * (cotangent - (s * cotangent).sum(axis=0))


class ShiftedErf:
    """1 + erf(0.5 + x): element-wise, not normalised."""

    def sigma(self, chi):
        return 1 + special.erf(0.5 + chi)

    def pullback(self, chi, cotangent):
        return cotangent * 2 / sqrt(np.pi) * np.exp(-((0.5 + chi) ** 2))


class Custom:
    """x_l^2 / (1 + sum_j exp(x_j)) + x_l: neither element-wise, nor normalised, nor shift invariant."""

    def sigma(self, chi):
        return chi**2 / (1 + np.exp(chi).sum(axis=0)) + chi

    def pullback(self, chi, cotangent):
        total = 1 + np.exp(chi).sum(axis=0)
        through_sum = (cotangent * chi**2).sum(axis=0) / total**2 * np.exp(chi)
        return cotangent * (2 * chi / total + 1) - through_sum


class Ones:
    """sigma = 1: ridge regression on the sum of the tokens, solvable in closed form."""

    def sigma(self, chi):
        return np.ones_like(chi)

    def pullback(self, chi, cotangent):
        return np.zeros_like(chi)


MAPS = [Softmax(), ShiftedErf(), Custom()]


def sampler(tokens, dim, samples, noise, mean, std, **options):
    """Sequences of one length with a Gaussian hidden score."""
    return Sampler(lengths(tokens), dim, samples, noise, (GaussianScores(mean, std),), **options)


def ones_risk(tokens, noise, score_mean):
    """Population risk of sigma = 1: the hidden token's mean adds (score_mean v.k*/D)^2."""
    return lambda o: 1 + noise**2 - 2 * o.m_v + tokens * o.q_v + (score_mean * o.v_kstar) ** 2


def small_problem(tokens=3, dim=6, samples=9):
    rng = np.random.default_rng(7)
    dataset = sampler(tokens, dim, samples, 0.4, 1.1, 0.8).draw(rng)
    return dataset, rng.standard_normal(2 * dim)


@pytest.mark.parametrize("token_map", MAPS, ids=lambda m: type(m).__name__)
def test_gradient_is_the_complex_step_derivative(token_map):
    dataset, params = small_problem()
    _, gradient = objective(params, dataset, token_map, 0.7, 0.3)
    steps = 1e-30j * np.eye(params.size)
    expected = [objective(params + h, dataset, token_map, 0.7, 0.3)[0].imag / 1e-30 for h in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("token_map", MAPS, ids=lambda m: type(m).__name__)
def test_gradient_is_the_sixth_order_difference(token_map):
    dataset, params = small_problem()
    _, gradient = objective(params, dataset, token_map, 0.7, 0.3)
    direction = np.random.default_rng(1).standard_normal(params.size)
    h = 5e-3
    at = {j: objective(params + j * h * direction, dataset, token_map, 0.7, 0.3)[0] for j in range(-3, 4)}
    slope = (45 * (at[1] - at[-1]) - 9 * (at[2] - at[-2]) + (at[3] - at[-3])) / (60 * h)
    assert gradient @ direction == pytest.approx(slope, rel=1e-7)


def test_objective_is_its_definition():
    dataset, params = small_problem()
    k, v = params[:6], params[6:]
    total = 0.0
    (batch,) = dataset.batches
    for X, y in zip(batch.X, batch.y):
        weights = Softmax().sigma((X @ k / sqrt(6))[:, None])[:, 0]
        total += (y - weights @ (X @ v) / sqrt(6)) ** 2 / 2
    total += 0.7 * k @ k / 2 + 0.3 * v @ v / 2
    assert objective(params, dataset, Softmax(), 0.7, 0.3)[0] == pytest.approx(total, rel=1e-13)


@pytest.mark.parametrize("dim", [2, 5, 300])
def test_teachers_are_exact(dim):
    d = sampler(2, dim, 3, 0.1, 1.0, 1.0).draw(np.random.default_rng(dim))
    assert d.k_star @ d.k_star == pytest.approx(dim, rel=1e-13)
    assert d.v_star @ d.v_star == pytest.approx(dim, rel=1e-13)
    assert abs(d.k_star @ d.v_star) < 1e-13 * dim


def test_teachers_have_no_preferred_side():
    rng = np.random.default_rng(5)
    draws = np.array([np.concatenate(sphere_frame(rng, 3, 2)) for _ in range(4000)])
    z = draws.mean(axis=0) / (draws.std(axis=0) / sqrt(4000))
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 12)


def assert_normal_moments(sample, mean, std):
    """Mean and variance of a normal sample, each at half the false-alarm rate."""
    n = sample.size
    z = (sample.mean() - mean) / (std / sqrt(n))
    assert abs(z) < stats.norm.isf(FALSE_ALARM / 4)
    chi2 = ((sample - mean) ** 2).sum() / std**2
    assert FALSE_ALARM / 4 < stats.chi2.sf(chi2, n) < 1 - FALSE_ALARM / 4


def test_sampler_laws():
    n, tokens, dim = 40_000, 3, 5
    d = sampler(tokens, dim, n, 0.3, 1.4, 0.6).draw(np.random.default_rng(2))
    (b,) = d.batches
    rows = np.arange(n)
    scores = b.X @ d.k_star / sqrt(dim)
    hidden, idle = scores[rows, b.eps], scores[rows, (b.eps + 1) % tokens]
    values = b.X[rows, b.eps] @ d.v_star / sqrt(dim)
    (other,) = sphere_frame(np.random.default_rng(3), dim, 1, orthogonal_to=(d.k_star, d.v_star))
    assert_normal_moments(hidden, 1.4, 0.6)
    assert_normal_moments(idle, 0, 1)
    assert_normal_moments(values, 0, 1)
    assert_normal_moments(b.X[rows, b.eps] @ other / sqrt(dim), 0, 1)
    assert_normal_moments(b.y - values, 0, 0.3)
    for left, right in [(hidden, values), (hidden, idle), (hidden, b.y - values), (values, b.y - values)]:
        assert stats.pearsonr(left, right).pvalue > FALSE_ALARM
    assert stats.chisquare(np.bincount(b.eps, minlength=tokens)).pvalue > FALSE_ALARM


def test_sampler_refuses_bad_numbers():
    law = (GaussianScores(1.0),)
    good = {"lengths": lengths(2), "dim": 10, "samples": 5, "noise": 0.1, "scores": law}
    for name, bad in [("dim", 1), ("samples", 0), ("noise", -1.0), ("noise", float("nan")), ("scores", 2 * law)]:
        with pytest.raises(InputError, match=name):
            Sampler(**(good | {name: bad}))
    for name, bad in [("mean", (float("inf"), 1.0)), ("std", (0.0, -1.0)), ("std", (0.0, float("nan")))]:
        with pytest.raises(InputError, match=name):
            GaussianScores(*bad)


def test_informed_start_has_the_overlaps_asked_for():
    dataset = sampler(2, 20, 3, 0.1, 1.0, 1.0).draw(np.random.default_rng(0))
    k, v = np.split(Informed(0.8, 0.9, -0.3, 0.5).draw(np.random.default_rng(1), dataset), 2)
    got = Overlaps.of(k, v, dataset.k_star, dataset.v_star)
    expected = Overlaps(0.8, 0.9, -0.3, 0.5, 0, 0, 0)
    np.testing.assert_allclose(list(vars(got).values()), list(vars(expected).values()), atol=1e-13)


def test_informed_start_takes_q_equal_to_m_squared_and_nothing_below():
    m = 1 / 3
    Informed(m, m * m * (1 - 1e-15), 1.0, 1.0)
    with pytest.raises(InputError, match="q_v"):
        Informed(1.0, 1.0, 1.0, 0.9)


def test_random_start_has_its_scale():
    dataset = sampler(1, 2000, 1, 0.1, 1.0, 1.0).draw(np.random.default_rng(0))
    assert_normal_moments(Random(0.2).draw(np.random.default_rng(1), dataset), 0, 0.2)


@pytest.mark.parametrize("start", [Informed(0.5, 0.6, 0.5, 0.6), Random(0.3)], ids=["informed", "random"])
def test_training_solves_ridge_regression(start):
    dataset = sampler(2, 30, 90, 0.5, 1.0, 1.0).draw(np.random.default_rng(4))
    trained = train(dataset, Ones(), (1.0, 0.8), start, np.random.default_rng(5))
    (batch,) = dataset.batches
    A = batch.X.sum(axis=1) / sqrt(30)
    exact = np.linalg.solve(A.T @ A + 0.8 * np.eye(30), A.T @ batch.y)
    assert trained.converged and trained.gradient_norm <= 1e-6
    np.testing.assert_allclose(trained.v, exact, atol=1e-5)
    np.testing.assert_allclose(trained.k, 0, atol=1e-5)
    value, gradient = objective(np.concatenate([trained.k, trained.v]), dataset, Ones(), 1.0, 0.8)
    assert trained.objective == value
    assert trained.gradient_norm == relative_gradient_norm(np.r_[trained.k, trained.v], value, gradient)


def test_the_gradient_norm_has_no_units():
    """It is the relative fall by a step of the length sqrt(|params|^2 + D), whatever the objective is counted in."""
    params, gradient = np.arange(6.0), np.array([3.0, 0.0, 0.0, 4.0, 0.0, 0.0])
    assert relative_gradient_norm(params, 2.0, gradient) == pytest.approx(5.0 * sqrt(55.0 + 3.0) / 2.0, rel=1e-14)
    assert relative_gradient_norm(params, 14.0, 7.0 * gradient) == relative_gradient_norm(params, 2.0, gradient)


def test_training_from_both_starts_ends_at_the_same_minimum_under_strong_ridge():
    dataset = sampler(2, 60, 240, 0.3, sqrt(2), 1.0).draw(np.random.default_rng(6))
    ends = [
        train(dataset, Softmax(), (2.0, 0.5), start, np.random.default_rng(7))
        for start in (Informed(1.4, 2.0, 0.9, 0.9), Random())
    ]
    assert all(end.converged for end in ends)
    assert ends[0].objective == pytest.approx(ends[1].objective, rel=1e-9)
    np.testing.assert_allclose(ends[0].k, ends[1].k, atol=1e-4)


def test_training_says_when_it_has_not_converged():
    dataset, _ = small_problem()
    one = train(
        dataset, Softmax(), (1.0, 1.0), Random(), np.random.default_rng(0), method=Lbfgs(rounds=1, iterations=1)
    )
    assert not one.converged and one.gradient_norm > 1e-6


def test_a_flat_place_that_lies_higher_is_not_taken_for_a_minimum():
    """A narrow well: the first trial step of unit length leaves it for a plateau without slope."""

    def well(params):
        depth = np.exp(-50 * params @ params)
        return 2 - depth, 100 * depth * params

    end, _ = Lbfgs().minimise(well, np.array([0.15, 0.0]), 1e-6)
    np.testing.assert_allclose(end, 0, atol=1e-6)


def test_training_carries_on_where_a_round_stops_early():
    dataset, _ = small_problem()
    args = (dataset, Softmax(), (1.0, 1.0), Random())
    assert train(*args, np.random.default_rng(0), method=Lbfgs(rounds=100, iterations=3)).converged


@pytest.mark.parametrize("method", [GradientDescent(0.05), Adam(0.1)], ids=["descent", "adam"])
def test_every_method_ends_at_the_same_minimum(method):
    dataset = sampler(2, 30, 120, 0.3, sqrt(2), 1.0).draw(np.random.default_rng(6))
    args = (dataset, Softmax(), (2.0, 0.5), Informed(1.4, 2.0, 0.9, 0.9))
    one, other = (train(*args, np.random.default_rng(7), method=m) for m in (Lbfgs(), method))
    assert other.converged and other.iterations > one.iterations
    assert other.objective == pytest.approx(one.objective, rel=1e-9)
    np.testing.assert_allclose(other.k, one.k, atol=1e-4)
    few = train(*args, np.random.default_rng(7), method=replace(method, steps=3))
    assert not few.converged and few.iterations == 3


def test_gradient_descent_takes_its_steps():
    dataset, params = small_problem()
    _, gradient = objective(params, dataset, Softmax(), 0.7, 0.3)
    start = Warm(*np.split(params, 2))
    one = train(dataset, Softmax(), (0.7, 0.3), start, np.random.default_rng(0), method=GradientDescent(0.1, steps=1))
    np.testing.assert_allclose(np.r_[one.k, one.v], params - 0.1 * gradient, rtol=1e-12)


def test_methods_and_warm_starts_refuse_bad_input():
    dataset, _ = small_problem()
    for bad in (0.0, float("nan")):
        for method in (GradientDescent, Adam):
            with pytest.raises(InputError, match="rate"):
                method(bad)
    with pytest.raises(InputError, match="start"):
        train(dataset, Softmax(), (1.0, 1.0), Warm(np.ones(5), np.ones(5)), np.random.default_rng(0))


def test_training_in_single_precision_meets_the_minimum_of_double():
    args = (2, 60, 240, 0.3, sqrt(2), 1.0)
    single = sampler(*args, single=True).draw(np.random.default_rng(13))
    (batch,) = single.batches
    double = Dataset((replace(batch, X=batch.X.astype(np.float64)),), single.k_star, single.v_star)
    start = Informed(1.4, 2.0, 0.9, 0.9)
    rough, fine = (train(d, Softmax(), (2.0, 0.5), start, np.random.default_rng(14)) for d in (single, double))
    assert rough.converged and rough.gradient_norm <= 1e-5
    assert rough.objective == pytest.approx(fine.objective, rel=1e-8)
    np.testing.assert_allclose(rough.k, fine.k, atol=1e-4)


@pytest.mark.parametrize("single", [False, True])
def test_a_centre_changes_rounding_only(single):
    dataset = sampler(3, 40, 60, 0.3, sqrt(2), 1.0, single=single).draw(np.random.default_rng(15))
    exact = Dataset(
        tuple(replace(b, X=b.X.astype(np.float64)) for b in dataset.batches), dataset.k_star, dataset.v_star
    )
    rng = np.random.default_rng(16)
    params = rng.standard_normal(80)
    near = params + 1e-4 * rng.standard_normal(80)
    value, gradient = objective(near, exact, Softmax(), 0.7, 0.3)
    centred = objective(near, dataset, Softmax(), 0.7, 0.3, Centre.at(params, dataset))
    assert centred[0] == pytest.approx(value, rel=1e-11 if single else 1e-13)
    np.testing.assert_allclose(centred[1], gradient, atol=1e-5 if single else 1e-12)


class Huge(Ones):
    def __init__(self, size):
        self.size = size

    def sigma(self, chi):
        return np.full_like(chi, self.size)


@pytest.mark.parametrize("size", [1e160, np.inf])
def test_training_survives_an_infinite_objective(size):
    dataset, _ = small_problem()
    assert not train(dataset, Huge(size), (1.0, 1.0), Random(), np.random.default_rng(0)).converged


def test_overlaps_are_their_definition():
    k, v, k_star, v_star = np.eye(4)[0] * 2, np.array([1.0, 3, 0, 0]), np.array([5.0, 7, 0, 0]), np.ones(4)
    assert Overlaps.of(k, v, k_star, v_star) == Overlaps(2.5, 1.0, 1.0, 2.5, 0.5, 6.5, 0.5)


def test_measures_of_a_trained_softmax():
    dataset = sampler(2, 40, 120, 0.3, 1.0, 1.0).draw(np.random.default_rng(8))
    trained = train(dataset, Softmax(), (0.9, 0.4), Random(), np.random.default_rng(9))
    got = measure(dataset, trained, Softmax(), (0.9, 0.4), lambda o: o.k_v)
    assert tuple(got) == QUANTITIES
    assert got["energy"] == pytest.approx(trained.objective / 40, rel=1e-12)
    (batch,) = dataset.batches
    f = predictions(trained.k, trained.v, batch, Softmax())
    assert got["train_loss"] == pytest.approx(((batch.y - f) ** 2).mean() / 2, rel=1e-12)
    assert got["test_risk"] == pytest.approx(trained.k @ trained.v / 40, rel=1e-12)
    assert got["m_v"] == pytest.approx(trained.v @ dataset.v_star / 40, rel=1e-12)


def test_the_overlaps_give_the_exact_test_risk_at_finite_dimension():
    dim, tokens, noise, shift = 4, 2, 0.3, 1.5
    rng = np.random.default_rng(10)
    fresh = sampler(tokens, dim, 200_000, noise, shift, 1.0).draw(rng)
    v = 0.5 * fresh.v_star + 0.6 * fresh.k_star + 0.2 * rng.standard_normal(dim)
    (batch,) = fresh.batches
    losses = (batch.y - predictions(v, v, batch, Ones())) ** 2
    exact = ones_risk(tokens, noise, shift)(Overlaps.of(v, v, fresh.k_star, fresh.v_star))
    z = (losses.mean() - exact) / (losses.std() / sqrt(losses.size))
    assert abs(z) < stats.norm.isf(FALSE_ALARM / 2)


SETTING = Ensemble(lengths(2), alpha=3.0, noise=0.5, scores=(GaussianScores(1.0),))


def ones_run(dims, seeds, root_seed=0, **options):
    risk = ones_risk(2, 0.5, 1.0)
    return run(SETTING, Ones(), (1.0, 0.8), Random(), risk, dims, seeds, root_seed, **options)


def test_runs_are_reproducible_and_can_be_enlarged():
    small, again, large = ones_run((10, 20), 3), ones_run((10, 20), 3), ones_run((20, 10, 30), 5)
    for quantity in QUANTITIES:
        for dim in (10, 20):
            np.testing.assert_array_equal(small.values[quantity][dim], again.values[quantity][dim])
            np.testing.assert_array_equal(small.values[quantity][dim], large.values[quantity][dim][:3])
    other = ones_run((10, 20), 3, root_seed=1)
    assert not np.isin(other.values["energy"][10], small.values["energy"][10]).any()
    assert len(np.unique(small.values["energy"][10])) == 3


def test_no_two_trainings_share_a_stream():
    keys = [(0, 10, 0), (0, 10, 1), (0, 20, 0), (1, 10, 0)]
    first = [rng.standard_normal() for key in keys for rng in streams(*key)]
    assert len(set(first)) == 8


def test_one_run_is_the_experiments_run():
    one = run_one(SETTING, Ones(), (1.0, 0.8), Random(), ones_risk(2, 0.5, 1.0), 20, 2)
    assert one["energy"] == ones_run((10, 20), 3).values["energy"][20][2]


def test_sample_numbers_are_right_on_average():
    rng = np.random.default_rng(0)
    whole = {replace(SETTING, alpha=1.3).sampler(10, rng).samples for _ in range(50)}
    assert whole == {13}
    drawn = np.array([replace(SETTING, alpha=1.37).sampler(10, rng).samples for _ in range(4000)])
    assert set(drawn) == {13, 14}
    assert stats.binomtest(int((drawn == 14).sum()), 4000, 0.7).pvalue > FALSE_ALARM


def test_progress_counts_every_training():
    seen = []
    ones_run((10, 20), 2, progress=lambda done, total, text: seen.append((done, total, text)))
    assert [s[:2] for s in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert "D = 20, seed 1" in seen[-1][2]


def test_failed_trainings_are_listed_and_not_averaged():
    experiment = ones_run((10, 20), 3, tolerance=1e-300)
    assert [(f.dim, f.seed) for f in experiment.failures] == [(d, s) for d in (10, 20) for s in range(3)]
    assert all(sample.size == 0 for sample in experiment.values["energy"].values())
    got = report({"energy": 1.0}, experiment)
    assert got["verdict"] == "undecided" and got["p_value"] is None and got["failures"] == 6
    assert any("6 of 6" in warning for warning in got["warnings"])


def experiment_with(values, failures=(), seeds=20):
    filled = {q: {d: np.zeros(seeds) for d in values} for q in QUANTITIES}
    return Experiment(filled | {"energy": values}, tuple(failures), tuple(values), seeds, 0)


def noisy(mean, seed=0, n=20):
    return mean + 0.001 * np.random.default_rng(seed).standard_normal(n)


def test_report_has_the_keys_of_the_interface_and_is_json():
    got = report({"energy": 1.0, "excess_risk": 0.3}, experiment_with({100: noisy(1.0), 200: noisy(1.0, 1)}))
    assert {"theory", "trained", "dim", "seeds", "verdict", "p_value", "power", "warnings"} <= set(got)
    assert {"mean", "sem", "z"} <= set(got["trained"]["energy"])
    assert (got["verdict"], got["dim"], got["seeds"], got["warnings"]) == ("agrees", 200, 20, [])
    assert list(got["trained"]) == ["energy"] and got["theory"]["excess_risk"] == 0.3
    json.dumps(got, allow_nan=False)


def test_report_warns_of_a_single_dimension_and_of_disagreement():
    got = report({"energy": 1.1}, experiment_with({100: noisy(1.0)}))
    assert got["verdict"] == "disagrees"
    assert any("single dimension" in w for w in got["warnings"])
    assert any("energy disagrees" in w for w in got["warnings"])


def test_report_is_undecided_when_many_trainings_failed():
    values = {100: noisy(1.0)[:16], 200: noisy(1.0, 1)}
    few = report({"energy": 1.0}, experiment_with(values, [Failure(100, s, 1e-3, 9) for s in range(4)]))
    assert few["verdict"] == "agrees" and any("4 of 40" in w for w in few["warnings"])
    many = report({"energy": 1.0}, experiment_with(values, [Failure(100, s, 1e-3, 9) for s in range(5)]))
    assert many["verdict"] == "undecided"


def test_report_is_json_when_a_quantity_is_exactly_known():
    got = report({"m_k": 0.5, "energy": 1.0}, experiment_with({100: noisy(1.0)}))
    json.dumps(got, allow_nan=False)
    assert got["verdict"] == "disagrees" and got["trained"]["m_k"]["z"] is None


def test_run_refuses_bad_settings():
    for bad, name in [({"dims": ()}, "dims"), ({"dims": (10, 10)}, "dims"), ({"seeds": 1}, "seeds")]:
        with pytest.raises(InputError, match=name):
            ones_run(**({"dims": (10,), "seeds": 2} | bad))


def test_dataset_is_what_the_labels_say():
    d = sampler(3, 8, 5, 0.0, 1.0, 1.0).draw(np.random.default_rng(0))
    (b,) = d.batches
    assert isinstance(d, Dataset) and b.X.shape == (5, 3, 8) and (d.dim, d.samples) == (8, 5)
    np.testing.assert_allclose(b.y, [x[e] @ d.v_star / sqrt(8) for x, e in zip(b.X, b.eps)], atol=1e-14)
