"""Message passing piece by piece: evidence, chances of noisy ranks, the sphere, batches, fixed points, refusals."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from scipy import special

from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.theory.model import LABEL_NOISE, Z_STAR, Model
from replicode.theory.model import NOISE as DELTA
from replicode.validation.amp.evidence import averaged_chances, evidence_of
from replicode.validation.amp.evolution import by_quadrature, by_sampling
from replicode.validation.amp.passing import INFORMED, UNINFORMED, Start, message_passing
from replicode.validation.amp.problem import fresh_risk, problem
from replicode.validation.amp.ranked import chances, noise_of
from replicode.validation.bayes import bayes_module
from replicode.validation.data.sampling import Batch, Dataset, Sampler
from replicode.validation.data.scores import GaussianScores

NOISE = 0.3


def spiked_log_z(y, w_k, w_v, V_k, V_v, nu):
    t = np.sqrt(nu) * w_k - (y[:, None] - w_v) ** 2 / (2.0 * (V_v + NOISE**2))
    return special.logsumexp(t, axis=1)


def hard_log_z(y, w_k, w_v, V_k, V_v, nu):
    """Two tokens, in closed form."""
    P = special.ndtr((w_k - w_k[:, ::-1]) / np.sqrt(2.0 * V_k))
    return np.log((P * np.exp(-((y[:, None] - w_v) ** 2) / (2.0 * (V_v + NOISE**2)))).sum(axis=1))


@pytest.mark.parametrize(("name", "nu", "log_z"), [("spiked", 2.0, spiked_log_z), ("max", inf, hard_log_z)])
def test_gradients_of_the_log_evidence(name, nu, log_z):
    rng = np.random.default_rng(0)
    y, w = 1.5 * rng.standard_normal(40), rng.standard_normal((2, 40, 2))
    found = evidence_of(task(name), 2, nu, NOISE).log_z_gradient(y, *w, 0.4, 0.2)
    for block in (0, 1):
        for token in (0, 1):
            move = np.zeros((2, 1, 2))
            move[block, 0, token] = 1e-5
            up, down = (log_z(y, *(w + s * move), 0.4, 0.2, nu) for s in (1.0, -1.0))
            assert found[block][:, token] == pytest.approx((up - down) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("tokens", [2, 3, 5])
@pytest.mark.parametrize("nu", [inf, 3.0])
def test_chances_meet_the_averages_of_the_bayes_theory(tokens, nu):
    x = np.random.default_rng(1).standard_normal((30, tokens))
    P, slopes = chances(x, noise_of(nu, np.sqrt(0.2), tokens))
    found = bayes_module(task("max"), tokens).location_weights(x, nu, 0.2)
    assert found.value / tokens == pytest.approx(P, abs=1e-8)
    assert found.gradient / tokens == pytest.approx(slopes, abs=1e-8)
    assert P.sum(axis=1) == pytest.approx(1.0, abs=1e-9)


def test_a_weight_that_is_no_ranking_goes_through_the_bayes_theory():
    """exp(x^2/4)/sum exp(x^2/4): its chances against an average over draws, 4.5 sigma."""
    setting = task("x**2/4 - log(sum(exp(x**2/4)))")
    x, V = np.array([[0.4, -1.3, 0.9]]), 0.3
    P, _ = averaged_chances(bayes_module(setting, 3), 1.0)(x, V)
    chi = x + np.sqrt(V) * np.random.default_rng(2).standard_normal((20_000, 3))
    drawn = special.softmax(chi**2 / 4.0, axis=1)
    assert (np.abs(drawn.mean(axis=0) - P[0]) < 4.5 * drawn.std(axis=0) / np.sqrt(20_000)).all()
    assert evidence_of(setting, 3, 1.0, NOISE).location(x, V) == pytest.approx(P)


@pytest.mark.parametrize(("name", "nu", "moved"), [("spiked", 2.0, 2.0), ("x**2/4", 1.0, 1.0), ("max", 3.0, 0.0)])
def test_how_far_the_weight_moves_the_scores(name, nu, moved):
    assert evidence_of(task(name), 2, nu, NOISE).excess(2) == pytest.approx(moved, abs=1e-6)


def test_the_same_sequences_in_two_batches():
    of = problem("spiked", 2, 2.0, NOISE, 3.0)
    whole = of.draw(60, np.random.default_rng(3))
    (batch,) = whole.batches
    halves = [Batch(*(getattr(batch, f)[part] for f in ("X", "y", "eps", "places"))) for part in _halves(batch.y.size)]
    apart = Dataset(tuple(halves), whole.k_star, whole.v_star)
    one, two = (message_passing(d, of.evidence, UNINFORMED, np.random.default_rng(0), 5) for d in (whole, apart))
    assert one.k == pytest.approx(two.k, abs=1e-4) and one.v == pytest.approx(two.v, abs=1e-4)


def _halves(count):
    return slice(0, count // 3), slice(count // 3, count)


def test_one_token_ends_at_ridge_regression():
    """L = 1: at the fixed point noise^2 G = y - X v/sqrt(D), so that v solves a ridge regression, on its sphere."""
    dim, count = 40, 80
    sampler = Sampler(lengths(1), dim, count, 0.5, (GaussianScores(1.0),))
    dataset = sampler.draw(np.random.default_rng(4))
    ended = message_passing(
        dataset, evidence_of(task("spiked"), 1, 1.0, 0.5), UNINFORMED, np.random.default_rng(0), 300
    )
    assert ended.steps[-2].moved < 1e-12
    F = dataset.batches[0].X[:, 0] / np.sqrt(dim)
    G = (dataset.batches[0].y - F @ ended.v) / 0.25
    strength = 0.25 * (1.0 / ended.last.V_v - G @ G / dim)
    ridge = np.linalg.solve(F.T @ F + strength * np.eye(dim), F.T @ dataset.batches[0].y)
    assert ended.v == pytest.approx(ridge, abs=1e-9)
    assert ended.last.overlaps.q_v + ended.last.V_v == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(("name", "nu"), [("spiked", 2.0), ("max", inf)])
def test_both_starts_come_to_rest_at_the_same_estimates(name, nu):
    """Without the curvature along k the spiked one grows by -q_v nu in every iteration and never rests."""
    of = problem(name, 2, nu, NOISE, 4.0)
    dataset = of.draw(300, np.random.default_rng(5))
    ends = [message_passing(dataset, of.evidence, s, np.random.default_rng(1), 60) for s in (UNINFORMED, INFORMED)]
    assert all(end.steps[-2].moved < 1e-4 for end in ends)
    assert np.abs(ends[0].v - ends[1].v).max() < 1e-3 and np.abs(ends[0].k - ends[1].k).max() < 1e-3


def test_the_risk_of_estimates_on_the_manifold():
    """Overlaps m = q of the state evolution have its test risk, within 4.5 sigma."""
    of = problem("spiked", "2:0.5,3:0.5", 2.0, NOISE, 4.0)
    start = Start(0.6, 0.7)
    dataset = of.draw(50, np.random.default_rng(6))
    step = message_passing(dataset, of.evidence, start, np.random.default_rng(0), 1).steps[0]
    assert (step.overlaps.m_k, step.overlaps.q_v, step.V_k) == pytest.approx((0.6, 0.7, 0.4))
    risk, error = fresh_risk(of, step, 100_000, np.random.default_rng(1))
    assert abs(risk - by_quadrature(of, start, 1).test_risk[0]) < 4.5 * error


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
def test_starts_are_overlaps(bad):
    with pytest.raises(InputError, match="q_k"):
        Start(bad, 0.5)


def test_bad_numbers_and_tasks_are_refused():
    of = problem("spiked", 2, 2.0, NOISE, 3.0)
    dataset = of.draw(10, np.random.default_rng(0))
    with pytest.raises(InputError, match="iterations"):
        message_passing(dataset, of.evidence, UNINFORMED, np.random.default_rng(0), 0)
    for alpha in (0.0, inf, np.nan):
        with pytest.raises(InputError, match="alpha"):
            replace(of, alpha=alpha)
    with pytest.raises(Refusal, match="couples"):
        evidence_of(task("x - log(1 + sum(exp(x)))"), 2, 1.0, NOISE)
    broken = replace(dataset, batches=(replace(dataset.batches[0], y=np.full(30, np.nan)),))
    with pytest.raises(Refusal, match="finite"):
        message_passing(broken, of.evidence, UNINFORMED, np.random.default_rng(0))


def test_another_model():
    """Twice the noise by the label is twice the noise: in the data, both evolutions, and the risk of estimates."""
    noisy = Model(label=Z_STAR + 2 * DELTA * LABEL_NOISE)
    ways = problem("spiked", 2, 2.0, 0.3, 4.0), problem("spiked", 2, 2.0, 0.15, 4.0, noisy)
    plain, found = (of.draw(30, np.random.default_rng(3)).batches[0].y for of in ways)
    assert found == pytest.approx(plain, rel=1e-12)
    start = Start(0.3, 0.4)
    for evolve in (by_quadrature, lambda of, *rest: by_sampling(of, start, np.random.default_rng(1), 2, 500, 2)):
        plain, found = (evolve(of, start, 2) for of in ways)
        assert found.test_risk == pytest.approx(plain.test_risk, rel=1e-10) and found.q_v == pytest.approx(plain.q_v)
    data = [of.draw(30, np.random.default_rng(3)) for of in ways]
    seeded = [np.random.default_rng(1) for _ in ways]
    ends = [message_passing(d, of.evidence, start, r, 3) for d, of, r in zip(data, ways, seeded, strict=True)]
    assert ends[1].v == pytest.approx(ends[0].v, abs=1e-6)
    risks = [fresh_risk(of, ends[0].last, 500, np.random.default_rng(2))[0] for of in ways]
    assert risks[1] == pytest.approx(risks[0], rel=1e-10)
