"""The Bayes-optimal theory: its averages against samples and against each other, its fixed points, its command."""

import json

import mpmath
import numpy as np
import pytest
import sympy as sp
from click.testing import CliRunner
from scipy import special

from replicode.cli import main
from replicode.codegen.compiler import GeneratedModule
from replicode.codegen.emit.numpy import numpy_module
from replicode.codegen.lower import lower_bayes
from replicode.codegen.runtime.bayes_evolution import FINE, Branch
from replicode.codegen.runtime.bayes_rates import BayesOverlaps
from replicode.codegen.runtime.bayes_solver import is_hard
from replicode.modules import bayes_module
from replicode.theory.derive.bayes import GAP, SPREAD, W_CHI, derive_bayes
from replicode.theory.derive.population import A, B, population_risk
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.task import task
from replicode.theory.model import ALPHA, DEFAULT_MODEL, NOISE, NU
from replicode.verbs.bayes import bayes

NOISE_ = 0.3
COSH = "log(exp(x) + exp(-x))"
AVERAGES = ("k", "v", "entropy", "location")


def _channel(tokens, nu, noise=NOISE_, task="spiked"):
    return bayes_module(task, tokens).channel_at(nu, noise)


def _overlaps(q_k, q_v):
    return BayesOverlaps(q_k, 1.0 - q_k, q_v, 1.0 - q_v)


def test_derived_functions():
    system = derive_bayes("spiked")
    assert sp.simplify(sp.diff(system.prior, W_CHI) - sp.sqrt(NU)) == 0
    for b in DEFAULT_MODEL.blocks:
        assert sp.simplify(system.update[b.q] - b.qh / (1 + b.qh)) == 0
    assert sp.simplify(system.label_variance - (1 - DEFAULT_MODEL.values.q + NOISE**2)) == 0
    assert sp.simplify(system.label.slope - GAP / SPREAD) == 0
    assert sp.simplify(system.score_variance - (1 - DEFAULT_MODEL.scores.q)) == 0


@pytest.mark.parametrize("name", ["spiked", "max"])
def test_risk_is_the_population_risk_at_the_matched_overlaps(name):
    values = DEFAULT_MODEL.values
    risk = population_risk(task(name)).on_manifold.subs({values.m: values.q, B: A})
    assert sp.expand(derive_bayes(name).risk - risk) == 0


def test_told_locations_give_ridge_regression():
    """V = 1/(1 + alpha/(V + noise^2)); without noise V shrinks by 1/alpha."""
    found = derive_bayes("spiked").revealed
    V = found.V_v
    assert sp.simplify(V * (1 + ALPHA / (V + NOISE**2)) - 1) == 0
    assert found.contraction == 1 / ALPHA


def _samples(name, tokens, count, rng):
    """(chi*, log gbar(w, q)) of tasks whose gbar is elementary; token 0 is hidden."""
    chi = rng.standard_normal((tokens, count))
    if name == "spiked":
        chi[0] += np.sqrt(1.5)
        return chi, lambda w, q: np.sqrt(1.5) * w - 1.5 * q / 2.0, lambda w, q: np.full_like(w, np.sqrt(1.5))
    if name == "x**2/4":
        chi[0] *= np.sqrt(2.0)
        return chi, lambda w, q: w**2 / (2 + 2 * q) - np.log(1 + q) / 2.0, lambda w, q: w / (1 + q)
    chi[0] += rng.choice([-1.0, 1.0], count)
    return chi, lambda w, q: np.log(np.cosh(w)) - q / 2.0, lambda w, q: np.tanh(w)


@pytest.mark.parametrize("name", ["spiked", "x**2/4", COSH])
def test_averages_against_samples(name):
    """Four averages at one point, 4.5 sigma on 2e5 samples each: a false alarm in 12000 in all."""
    tokens, q_k, q_v, count = 3, 0.6, 0.7, 200_000
    found = _channel(tokens, 1.5, task=name).rates(_overlaps(q_k, q_v), FINE)
    rng = np.random.default_rng(17)
    spread = 1.0 - q_v + NOISE_**2
    chi, log_average, slope = _samples(name, tokens, count, rng)
    w = q_k * chi + np.sqrt(q_k - q_k**2) * rng.standard_normal(chi.shape)
    z = np.sqrt(q_v) * rng.standard_normal(chi.shape)
    y = z[0] + np.sqrt(spread) * rng.standard_normal(count)
    prior = log_average(w, q_k)
    weights = np.exp(prior - (y - z) ** 2 / (2.0 * spread))
    p = weights / weights.sum(axis=0)
    fresh = np.exp(prior)
    samples = {
        "k": (p**2 * slope(w, q_k) ** 2).sum(axis=0),
        "v": (p**2 * (y - z) ** 2 / spread**2).sum(axis=0),
        "entropy": np.log(weights.mean(axis=0) / np.sqrt(2.0 * np.pi * spread)),
        "location": fresh[0] / fresh.sum(axis=0),
        "revealed": slope(w[0], q_k) ** 2,
    }
    for field, values in samples.items():
        assert abs(values.mean() - getattr(found, field)) <= 4.5 * values.std() / np.sqrt(count) + 1e-12, field


def test_averages_of_the_largest_score_against_samples():
    """max, nu = inf, L = 2, where P = Phi((w_1 - w_2)/sqrt(2 V)) is closed; 4.5 sigma as above."""
    q_k, q_v, count = 0.7, 0.8, 300_000
    found = _channel(2, np.inf, task="max").rates(_overlaps(q_k, q_v), FINE)
    rng = np.random.default_rng(23)
    spread, width = 1.0 - q_v + NOISE_**2, np.sqrt(2.0 * (1.0 - q_k))
    chi = np.sort(rng.standard_normal((2, count)), axis=0)[::-1]
    w = q_k * chi + np.sqrt(q_k - q_k**2) * rng.standard_normal(chi.shape)
    z = np.sqrt(q_v) * rng.standard_normal(chi.shape)
    y = z[0] + np.sqrt(spread) * rng.standard_normal(count)
    lead = (w[0] - w[1]) / width
    P = special.ndtr(np.stack([lead, -lead]))
    N = np.exp(-((y - z) ** 2) / (2.0 * spread)) / np.sqrt(2.0 * np.pi * spread)
    Z = (P * N).sum(axis=0)
    slope = np.exp(-(lead**2) / 2.0) / np.sqrt(2.0 * np.pi) / width
    samples = {
        "k": 2.0 * (slope * (N[0] - N[1]) / Z) ** 2,
        "v": ((P * N / Z) ** 2 * (y - z) ** 2).sum(axis=0) / spread**2,
        "entropy": np.log(Z),
        "location": P[0],
        "revealed": 2.0 * (slope / P[0]) ** 2,
    }
    for field, values in samples.items():
        assert abs(values.mean() - getattr(found, field)) < 4.5 * values.std() / np.sqrt(count), field


@pytest.mark.parametrize("tokens, nu", [(2, 1.0), (3, 0.4)])
def test_two_ways_agree(tokens, nu):
    """One token at a time, and nodes over all scores, for a weight that needs only the first."""
    system = derive_bayes("spiked", tokens)
    sources = (numpy_module(lower_bayes(system, coupled)) for coupled in (False, True))
    modules = (GeneratedModule(source, f"{i}", {}).load() for i, source in enumerate(sources))
    one, all_ = (m.channel_at(nu, NOISE_).rates(_overlaps(0.5, 0.7), FINE) for m in modules)
    for field in (*AVERAGES, "revealed"):
        assert getattr(one, field) == pytest.approx(getattr(all_, field), abs=3e-9), field


@pytest.mark.parametrize("name, nu", [("spiked", 1.5), ("-x**4/10 + x", 1.0), ("max", np.inf), ("max", 3.0)])
def test_rates_are_derivatives_of_the_entropy(name, nu):
    """Stationarity of the free entropy: E |grad log Z|^2 = 2 d E[log Z]/dq in both blocks."""
    channel, q, h = _channel(2, nu, task=name), np.array([0.5, 0.6]), 4e-3
    found = channel.rates(_overlaps(*q), FINE)
    for i, rate in enumerate((found.k, found.v)):
        move = h * np.eye(2)[i]
        ends = [channel.rates(_overlaps(*(q + s * move)), FINE).entropy for s in (-2, -1, 1, 2)]
        slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
        assert 2 * slope == pytest.approx(rate, abs=2e-7)


def _pair_nodes(q_k, q_v, spread, shift):
    """L = 2 as seen from the hidden token 0: w_0 - w_1, d_0 and d_1 on a product of trapezoid rules."""
    u = np.arange(-7.0, 7.01, 0.2)
    weights = np.exp(-(u**2) / 2.0)
    weights /= weights.sum()
    lead, gap, other = np.meshgrid(u, u, u, indexing="ij")
    mass = weights[:, None, None] * weights[:, None] * weights
    d_0 = np.sqrt(spread) * gap
    return shift + np.sqrt(2.0 * q_k) * lead, d_0, d_0 + np.sqrt(2.0 * q_v) * other, mass


def test_nishimori_twins():
    """spiked: E[p_eps] = E[sum p^2] given the label and for a fresh sequence, by an independent quadrature, to 1e-8."""
    nu, q_k, q_v = 1.5, 0.6, 0.7
    found = _channel(2, nu).rates(_overlaps(q_k, q_v), FINE)
    spread = 1.0 - q_v + NOISE_**2
    lead, d_0, d_1, mass = _pair_nodes(q_k, q_v, spread, q_k * np.sqrt(nu))
    p = special.expit(np.sqrt(nu) * lead + (d_1**2 - d_0**2) / (2.0 * spread))
    fresh = special.expit(np.sqrt(nu) * lead)
    for hidden, average in ((p, found.k / nu), (fresh, found.location)):
        assert (mass * hidden).sum() == pytest.approx(average, abs=1e-8)
        assert (mass * (hidden**2 + (1.0 - hidden) ** 2)).sum() == pytest.approx(average, abs=1e-8)


def test_nishimori_twins_of_the_largest_score():
    """max, nu = inf: with the weight 2 P of token 0 in the average, to 1e-8; the squared slopes in w_z too."""
    q_k, q_v = 0.5, 0.7
    found = _channel(2, np.inf, task="max").rates(_overlaps(q_k, q_v), 1.5)
    spread = 1.0 - q_v + NOISE_**2
    lead, d_0, d_1, mass = _pair_nodes(q_k, q_v, spread, 0.0)
    P = special.ndtr(lead / np.sqrt(2.0 * (1.0 - q_k)))
    mass = 2.0 * P * mass
    ratio = np.exp((d_0**2 - d_1**2) / (2.0 * spread))
    p = P / (P + (1.0 - P) * ratio)
    assert (mass * P).sum() == pytest.approx(found.location, abs=1e-8)
    assert (mass * (P**2 + (1.0 - P) ** 2)).sum() == pytest.approx(found.location, abs=1e-8)
    assert (mass * p).sum() == pytest.approx((mass * (p**2 + (1.0 - p) ** 2)).sum(), abs=1e-8)
    squares = (p * d_0) ** 2 + ((1.0 - p) * d_1) ** 2
    assert (mass * squares).sum() / spread**2 == pytest.approx(found.v, abs=1e-8)


def test_no_signal_is_the_same_for_every_task():
    """nu = 0: nothing is learnt of k, and spiked equals max."""
    found = [bayes(task=name, tokens=3, nu=0.0, alpha=2.0, noise=NOISE_, digits=7) for name in ("spiked", "max")]
    assert all(f.order_parameters["q_k"] < 1e-15 for f in found)
    assert found[0].test_risk == pytest.approx(found[1].test_risk, abs=1e-8)
    assert found[0].free_entropy == pytest.approx(found[1].free_entropy, abs=1e-6)


def test_one_token_is_ridge_regression_of_the_best_strength():
    """L = 1: q = qh/(1 + qh) with qh = alpha/(1 - q + noise^2)."""
    alpha, noise = 1.7, 1.0
    q = mpmath.findroot(lambda q: q * (1 - q + noise**2 + alpha) - alpha, 0.5)
    for name in ("spiked", "max"):
        found = bayes(task=name, tokens=1, nu=2.0, alpha=alpha, noise=noise, digits=11)
        assert found.order_parameters["q_v"] == pytest.approx(float(q), abs=1e-10)
        assert found.test_risk == pytest.approx(1 + noise**2 - float(q), abs=1e-10)


@pytest.mark.parametrize("name, nu", [("spiked", 2.0), ("max", 2.0)])
def test_lengths(name, nu):
    """All weight on one length is that length; averages over lengths are linear."""
    at = _overlaps(0.6, 0.8), 0.75
    alone, certain, mixed, other = (_channel(t, nu, task=name).rates(*at) for t in (3, "3:1.0,5:0", "1:0.25,3:0.75", 1))
    for field in AVERAGES:
        assert getattr(alone, field) == getattr(certain, field)
        average = 0.25 * getattr(other, field) + 0.75 * getattr(alone, field)
        assert getattr(mixed, field) == pytest.approx(average, abs=1e-6), field


def _sampled(monkeypatch, nu):
    """max at three tokens: the channel on a lattice, and on scrambled nodes, as where the lattice is too large."""
    module = bayes_module(task("max"), 3)
    exact = module.channel_at(nu, NOISE_).rates(_overlaps(0.5, 0.7), 1.2)
    monkeypatch.setattr(module, "_coarsening", lambda *_: None)
    return module, exact, module.channel_at(nu, NOISE_).rates(_overlaps(0.5, 0.7), 0.95)


@pytest.mark.parametrize("nu", [np.inf, 2.0])
def test_sampled_nodes_cover_the_lattice(monkeypatch, nu):
    """5 sigma of the standard errors by the scatter of the sets; the chance of the location has none."""
    module, exact, found = _sampled(monkeypatch, nu)
    for field in found._fields[:5]:
        values = np.array([getattr(own, field) for own in found.sets])
        noise = values.std(ddof=1) / np.sqrt(values.size)
        assert noise < 0.02 * abs(getattr(exact, field))
        assert abs(getattr(found, field) - getattr(exact, field)) < 5.0 * noise + 1e-6, field
    fresh = module.channel_at(nu, NOISE_).fresh(_overlaps(0.5, 0.7), 0.95)
    assert fresh.location == pytest.approx(exact.location, abs=1e-6)


def test_the_error_of_sampled_nodes_covers_the_risk(monkeypatch):
    module = bayes_module(task("max"), 3)
    exact = module.solve(4.0, np.inf, 0.3, tol=1e-6)
    monkeypatch.setattr(module, "_coarsening", lambda *_: None)
    monkeypatch.setattr(module, "SAMPLED_GROWTH", 2.0)
    found = module.solve(4.0, np.inf, 0.3, tol=1e-6)
    assert 1e-4 < found.error < 3e-2
    assert abs(found.test_risk - exact.test_risk) < found.error


@pytest.mark.parametrize("tokens, expected", [(2, 0.36203361), (3, 0.49886682), (4, 0.59038473)])
def test_reference_values(tokens, expected):
    """spiked, nu = 2, noise = 0.3, alpha = 4; L = 2 is better than any activation there, and no phase is hard."""
    found = bayes(tokens=tokens, nu=2.0, alpha=4.0, noise=0.3, digits=7)
    assert found.test_risk == pytest.approx(expected, abs=1e-7)
    assert found.error < 1e-7 and not found.hard_phase and len(found.branches) == 1 and not found.warnings
    if tokens == 2:
        assert found.test_risk < 0.492665931


def test_error_covers_finer_levels():
    """At four digits and at ten: the difference is within the bounds."""
    for name, nu in (("spiked", 2.0), (COSH, 1.0), ("max", np.inf)):
        setting = {"task": name, "tokens": 2, "nu": nu, "alpha": 3.0, "noise": 0.2}
        rough, fine = bayes(digits=4, **setting), bayes(digits=8, **setting)
        assert abs(rough.test_risk - fine.test_risk) <= rough.error + fine.error
        assert rough.error <= 1e-4 and fine.error <= 1e-8


def test_branches_that_may_be_one_are_no_hard_phase():
    """Two starts that end within their errors of each other, and the same apart."""
    one = Branch("informed", 0.5, 0.5, 0.3, 2.0, True, 0.0, 9, 1e-3, 1e-3, False)
    assert not is_hard((one, one._replace(start="uninformed", test_risk=0.3015, free_entropy=1.0)))
    assert is_hard((one, one._replace(start="uninformed", test_risk=0.3025, free_entropy=1.0)))
    assert not is_hard((one, one._replace(start="uninformed", test_risk=0.3025, free_entropy=3.0)))


def test_hard_phase_without_noise():
    """spiked, L = 3, nu = 2, noise = 0, alpha = 1.2: v* is recovered, but not from an uninformed start."""
    alpha, nu = 1.2, 2.0
    found = bayes(tokens=3, nu=nu, alpha=alpha, digits=7)
    assert found.hard_phase and found.recovered and found.free_entropy == np.inf
    assert found.order_parameters["q_v"] == 1.0
    assert found.order_parameters["q_k"] == pytest.approx(alpha * nu / (1.0 + alpha * nu), abs=1e-12)
    informed, uninformed = found.branches
    assert uninformed["q_v"] < 0.8 and np.isfinite(uninformed["free_entropy"])
    nearly = bayes(tokens=3, nu=nu, alpha=alpha, noise=1e-6, digits=7)
    assert nearly.hard_phase and nearly.test_risk == pytest.approx(informed["test_risk"], abs=1e-6)
    assert [bayes(tokens=3, nu=nu, alpha=a, digits=6).hard_phase for a in (1.2405, 1.3)] == [True, False]


def test_the_recovered_branch_has_a_diverging_entropy():
    """Phi grows like (alpha - 1) log(1/V)/2 as V_v -> 0, V the variance of what is not yet known of v*."""
    alpha = 1.5
    search = bayes_module("spiked", 2).Search(_channel(2, 2.0, noise=0.0), alpha, 0.0)
    at = [BayesOverlaps(0.7, 0.3, 1.0 - V, V) for V in (1e-8, 1e-10)]
    low, high = (search.free_entropy(a, search.evaluator.rates(a, FINE)) for a in at)
    assert high - low == pytest.approx((alpha - 1.0) * np.log(100.0) / 2.0, rel=1e-3)


@pytest.mark.full
def test_hard_phase_of_the_largest_score():
    """max, nu = inf, L = 3, noise = 0.05: hard at alpha = 1.29, and neither at 1.2 nor at 1.4."""
    branches = bayes_module("max", 3).branches
    informed, uninformed = branches(1.29, np.inf, 0.05, 1e-5)
    assert informed.free_entropy > uninformed.free_entropy + 10.0 * informed.entropy_error
    assert informed.q_v > uninformed.q_v + 0.1
    assert [len(branches(alpha, np.inf, 0.05, 1e-5)) for alpha in (1.2, 1.4)] == [1, 1]


def test_an_even_weight_is_learnt_from_next_to_nothing():
    """x**2/4 at q_k = 0 tells nothing of k: with few samples that is stable, with more it is left."""
    few, more = (bayes(task="x**2/4", tokens=2, nu=1.0, alpha=a, noise=NOISE_, digits=6) for a in (0.5, 1.5))
    assert few.order_parameters["q_k"] < 1e-6 and few.converged
    assert more.order_parameters["q_k"] == pytest.approx(0.013812, abs=1e-5) and len(more.branches) == 1


def test_extremes():
    for alpha, nu, noise in ((1e-3, 2.0, 0.3), (1e4, 2.0, 0.3), (1.0, 300.0, 0.3), (1.0, 2.0, 1e3), (1.5, 2.0, 1e-6)):
        found = bayes(tokens=2, nu=nu, alpha=alpha, noise=noise, digits=5)
        assert found.converged and found.error < 1e-5 and noise**2 <= found.test_risk <= 1.0 + noise**2


def test_what_is_refused():
    with pytest.raises(Refusal):
        derive_bayes("x*sum(x)/L/4")
    with pytest.raises(InputError):
        bayes(tokens=2, nu=np.inf, alpha=1.0)
    for wrong in ({"alpha": 0.0}, {"alpha": np.nan}, {"noise": -1.0}, {"noise": np.inf}, {"nu": -1.0}, {"digits": 40}):
        with pytest.raises(InputError):
            bayes(**{"tokens": 2, "nu": 2.0, "alpha": 1.0, **wrong})


def test_command():
    found = CliRunner().invoke(
        main, ["bayes", "--tokens", "1", "--nu", "2", "--alpha", "2", "--noise", "0.3", "--json"]
    )
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    keys = "test_risk excess_risk order_parameters free_entropy hard_phase branches converged error warnings"
    assert set(keys.split()) <= set(result)
    refused = CliRunner().invoke(
        main, ["bayes", "--task", "x*sum(x)/L/4", "--tokens", "2", "--nu", "2", "--alpha", "2", "--json"]
    )
    assert refused.exit_code == 1 and json.loads(refused.stdout)["warnings"]
    recovered = CliRunner().invoke(main, ["bayes", "--tokens", "1", "--nu", "2", "--alpha", "2", "--json"])
    assert recovered.exit_code == 0 and json.loads(recovered.stdout)["free_entropy"] is None
    for bad in ("--alpha -1", "--alpha nan", "--alpha 1 --noise -1", "--alpha 1 --digits 40"):
        assert CliRunner().invoke(main, ["bayes", "--tokens", "2", "--nu", "2", *bad.split()]).exit_code == 2


def test_the_risk_is_not_below_what_it_can_be():
    """Without noise and with one token there is nothing to get wrong: quadrature must not leave less than nothing."""
    for name, nu, alpha in (("x**2/4", 1.0, 1.5), ("spiked", 2.0, 5.0)):
        found = bayes(task=name, tokens=1, nu=nu, alpha=alpha, digits=6)
        assert 0.0 <= found.test_risk <= found.error and found.excess_risk >= 0.0


@pytest.mark.parametrize("name, tokens, nu, alpha, noise", [("spiked", 2, 2.0, 4.0, 0.3), ("max", 3, 2.3, 1.5, 0.0)])
def test_the_error_is_one_that_the_risk_stands_by(name, tokens, nu, alpha, noise):
    rough, fine = (bayes(task=name, tokens=tokens, nu=nu, alpha=alpha, noise=noise, digits=d) for d in (6, 11))
    assert fine.error < 0.1 * rough.error and abs(rough.test_risk - fine.test_risk) <= rough.error


@pytest.mark.parametrize("name, nu", [("spiked", 2.0), ("max", np.inf)])
def test_the_free_entropy_of_a_module_is_stationary_where_it_is_solved(name, nu):
    """In q_k, q_v and their conjugates, by differences; and it is the value that the solution states."""
    module = bayes_module(name, 2)
    found = module.solve(3.0, nu, 0.3, tol=1e-7)
    at = np.array([*found.order_parameters.values(), *(q / (1.0 - q) for q in found.order_parameters.values())])

    def phi(x):
        return module.free_entropy({"q_k": x[0], "q_v": x[1]}, {"qh_k": x[2], "qh_v": x[3]}, 3.0, nu, 0.3)

    assert phi(at) == pytest.approx(found.free_entropy, abs=1e-5)
    for i, scale in enumerate((1.0 - at[0], 1.0 - at[1], at[2], at[3])):
        move = np.zeros(4)
        move[i] = 0.05 * scale
        assert abs(phi(at + move) - phi(at - move)) / 0.1 < 2e-3
    for wrong in ({"q_k": 1.0, "q_v": 0.5}, {"q_k": 0.5}, {"q_k": 0.5, "q_v": np.nan}):
        with pytest.raises(module.ArgumentError):
            module.free_entropy(wrong, {"qh_k": 1.0, "qh_v": 1.0}, 3.0, nu, 0.3)


def test_a_module_says_what_is_out_of_reach():
    """The module raises its own errors; the verb raises ours."""
    module = bayes_module("spiked", 2)
    for wrong in ({"alpha": -1.0}, {"nu": np.inf}, {"noise": -1.0}, {"tol": 0.0}):
        with pytest.raises(module.ArgumentError, match=next(iter(wrong))):
            module.solve(**{"alpha": 1.0, "nu": 2.0, "noise": 0.3, **wrong})
    with pytest.raises(Refusal, match="too far out"):
        bayes(task="-x**4/10 + nu*x", tokens=2, nu=1e5, alpha=1.0)
