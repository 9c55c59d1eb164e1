"""Changing the model and rescaling the activation: what must stay, and what must scale, through derive to solve."""

from dataclasses import astuple, replace

import mpmath
import numpy as np
import pytest
import sympy as sp
from generated import module_of
from mpmath import mpf

import replicode as rc
from replicode.codegen.compiler import generate
from replicode.theory.derive.bayes import derive_bayes
from replicode.theory.derive.population import population_risk
from replicode.theory.derive.saddle import derive
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.nodes import W
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.theory.model import DEFAULT_MODEL, LABEL_NOISE, LAMBDA, NOISE, SIGMA, THETA, Block, F, Model, Y
from replicode.theory.properties.analysis import analysis
from replicode.validation.data.sampling import Sampler
from replicode.validation.data.scores import GaussianScores
from replicode.validation.module import GeneratedAttention
from replicode.validation.properties.subject import subject_of
from replicode.validation.statistics.measure import Overlaps, measure
from replicode.validation.training.attention import fields, objective
from replicode.validation.training.online import one_pass
from replicode.validation.training.train import Trained, Warm

CASE = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 2.0, "lambda_v": 0.5}
REFERENCE = 0.5532884048  # softmax, two tokens, at CASE
DOUBLED = Model(loss=(Y - F) ** 2, penalty=LAMBDA * THETA**2)


def _solved(text, tol=1e-9, model=None, **changed):
    module = generate(derive(text, "spiked", 2, model)).load() if model else module_of(text)
    return module.solve(**{**CASE, **changed}, tol=tol)


@pytest.fixture(scope="module")
def softmax():
    return _solved("softmax")


def _saddle_energy(solution):
    order = solution.order_parameters
    return CASE["alpha"] * solution.train_loss + sum(CASE[f"lambda_{b}"] * order[f"q_{b}"] / 2 for b in ("k", "v"))


def _check_doubled(plain, doubled, accuracy):
    """Twice the objective has the same minimiser, half the response V and twice the energy."""
    for name, factor in {"m": 1.0, "q": 1.0, "V": 0.5}.items():
        for b in ("k", "v"):
            expected = factor * plain.order_parameters[f"{name}_{b}"]
            assert doubled.order_parameters[f"{name}_{b}"] == pytest.approx(expected, rel=accuracy)
    assert doubled.test_risk == pytest.approx(plain.test_risk, rel=accuracy)
    assert doubled.energy == pytest.approx(2 * plain.energy, rel=accuracy)
    assert doubled.train_loss == pytest.approx(2 * plain.train_loss, rel=accuracy)


def test_doubled_model_softmax(softmax):
    _check_doubled(softmax, _solved("softmax", model=DOUBLED), 1e-8)


def test_doubled_model_linear():
    plain, doubled = (_solved("linear", tol=1e-4, model=m) for m in (None, DOUBLED))
    _check_doubled(plain, doubled, 1e-4)
    assert plain.energy == pytest.approx(_saddle_energy(plain), abs=1e-3)


def test_reference(softmax):
    assert softmax.converged and not softmax.warnings
    assert softmax.test_risk == pytest.approx(REFERENCE, abs=1e-9)


def test_energy_at_the_saddle(softmax):
    assert softmax.energy == pytest.approx(_saddle_energy(softmax), abs=1e-9)


@pytest.mark.parametrize(
    "text, changed, scales",
    [
        ("exp(2*x)/sum(exp(2*x))", {"lambda_k": 8.0}, {"m_k": 1 / 2, "q_k": 1 / 4, "V_k": 1 / 4}),
        ("3*exp(x)/sum(exp(x))", {"lambda_v": 4.5}, {"m_v": 1 / 3, "q_v": 1 / 9, "V_v": 1 / 9}),
        ("exp(-x)/sum(exp(-x))", {}, {"m_k": -1.0}),
    ],
)
def test_scale_covariance(softmax, text, changed, scales):
    """sigma(c chi) with lambda_k c^2, and c sigma with lambda_v c^2, describe the same estimators."""
    found = _solved(text, **changed)
    assert found.test_risk == pytest.approx(REFERENCE, abs=1e-8)
    assert found.energy == pytest.approx(softmax.energy, abs=1e-8)
    for name, value in softmax.order_parameters.items():
        assert found.order_parameters[name] == pytest.approx(scales.get(name, 1.0) * value, abs=1e-7)


K, V = DEFAULT_MODEL.blocks
QUARTIC = Model(loss=(Y - F) ** 4 / 4, penalty=LAMBDA * THETA**2)
RENAMED = Model(blocks=(Block("key", "chi", K.teacher, "score"), Block("val", "z", V.teacher, "value")))


def test_places_and_names():
    assert [DEFAULT_MODEL.index(s.name) for s in DEFAULT_MODEL.order_parameters] == list(range(6))
    assert [s.name for s in DEFAULT_MODEL.order_parameters] == ["m_k", "q_k", "V_k", "m_v", "q_v", "V_v"]
    assert [s.name for s in DEFAULT_MODEL.cross_overlaps] == ["k_vstar", "v_kstar", "k_v"]
    assert [DEFAULT_MODEL.index(s.name) for s in (K.mh, V.mh, V.Vh)] == [0, 3, 5]
    assert DEFAULT_MODEL.block("k") == DEFAULT_MODEL.scores == K and DEFAULT_MODEL.values == V
    with pytest.raises(InputError, match=r"m_x.*m_k, q_k"):
        DEFAULT_MODEL.index("m_x")
    with pytest.raises(InputError, match=r"'x'.*k or v"):
        DEFAULT_MODEL.block("x")


def test_equal_models_have_one_key():
    models = (DEFAULT_MODEL, DOUBLED, QUARTIC, RENAMED, Model(label=V.teacher), Model(risk=2 * (Y - F) ** 2))
    assert len({m.key for m in models}) == len(models)
    assert Model().key == DEFAULT_MODEL.key and Model() == DEFAULT_MODEL and hash(Model()) == hash(DEFAULT_MODEL)


@pytest.mark.parametrize("blocks, task_text", [(RENAMED.blocks, "max"), ((V, K), "spiked")])
def test_names_and_order_of_blocks_do_not_matter(blocks, task_text):
    plain, other = derive("softmax", task_text, 2), derive("softmax", task_text, 2, Model(blocks=blocks))
    renamed = {**K.renaming(other.model.scores), **V.renaming(other.model.values)}
    assert sum(p.value for p in other.priors.values()) == sum(p.value.xreplace(renamed) for p in plain.priors.values())
    assert other.prior_update == {s.xreplace(renamed): e.xreplace(renamed) for s, e in plain.prior_update.items()}
    for theta, average in plain.channel.items():
        found = other.channel[theta.xreplace(renamed)]
        gaps = (found.hidden - average.hidden.xreplace(renamed), found.idle - average.idle.xreplace(renamed))
        assert [sp.simplify(gap) for gap in gaps] == [0, 0]
    risks = [population_risk(s.task, s.model).on_manifold for s in (plain, other)]
    assert risks[1] == risks[0].xreplace(renamed)
    entropies = [derive_bayes(task_text, model=s.model) for s in (plain, other)]
    assert entropies[1].risk == entropies[0].risk.xreplace(renamed)
    modules = [generate(derive_bayes(task_text, 2, s.model)).load() for s in (plain, other)]
    assert modules[0].solve(3.0, 2.0, 0.3, tol=1e-4) == modules[1].solve(3.0, 2.0, 0.3, tol=1e-4)


@pytest.mark.parametrize("text, tol", [("softmax", 1e-9), pytest.param("relu", 1e-2, marks=pytest.mark.full)])
def test_a_module_of_reordered_blocks_has_the_same_solution(text, tol):
    module = generate(derive(text, "spiked", 2, Model(blocks=(V, K)))).load()
    assert module.ORDER_NAMES == ("m_v", "q_v", "V_v", "m_k", "q_k", "V_k") and module.V_K == 5
    found, plain = (m.solve(**CASE, tol=tol) for m in (module, module_of(text)))
    assert found.test_risk == pytest.approx(plain.test_risk, abs=2 * max(tol, plain.error))
    assert found.excess_risk == found.test_risk - CASE["noise"] * CASE["noise"]
    for name, value in plain.order_parameters.items():
        assert found.order_parameters[name] == pytest.approx(value, abs=1e-7 + plain.errors[name] + found.errors[name])
    assert found.replicon == pytest.approx(plain.replicon, rel=1e-4 if tol < 1e-6 else 0.1)


def test_names_of_blocks_that_a_module_does_not_have_are_refused():
    with pytest.raises(Refusal, match="blocks key, val"):
        generate(derive("softmax", "spiked", 2, RENAMED))


def test_a_scaled_risk_is_scaled_at_every_level():
    tripled = Model(risk=3 * (Y - F) ** 2)
    for plain, scaled in (
        (population_risk(task("max")).on_manifold, population_risk(task("max"), tripled).on_manifold),
        (derive_bayes("spiked").risk, derive_bayes("spiked", model=tripled).risk),
    ):
        assert sp.expand(scaled - 3 * plain) == 0
    assert sp.expand(tripled.noise_risk() - 3 * NOISE**2) == 0
    found, plain = (
        m.solve(**CASE, tol=1e-6)
        for m in (generate(derive("softmax", "spiked", 2, tripled)).load(), module_of("softmax"))
    )
    assert found.excess_risk == pytest.approx(3 * plain.excess_risk, abs=1e-5)


@pytest.mark.parametrize(
    "model, named",
    [
        (Model(loss=sp.Abs(Y - F) ** 3), "loss"),
        (Model(loss=sp.Abs(Y - sp.Abs(F))), "loss"),
        (Model(label=sp.sign(V.teacher) + LABEL_NOISE * sp.sign(V.teacher - 1)), "label"),
        (Model(output=SIGMA * W**2), "output"),
        (Model(penalty=LAMBDA * THETA**4), "penalty"),
        (Model(blocks=(V,)), "role score"),
    ],
)
def test_what_the_theory_does_not_reach_is_refused_by_name(model, named):
    with pytest.raises(Refusal, match=named):
        derive("softmax", "spiked", 2, model)


def test_a_risk_that_is_no_square_is_refused_by_name():
    with pytest.raises(Refusal, match="risk"):
        population_risk(task("spiked"), Model(risk=(Y - F) ** 4))


def test_validation_trains_what_the_model_says():
    """Value, gradient, training loss, penalties, labels and one step of gradient descent, for a loss of its own."""
    model = replace(QUARTIC, label=V.teacher**3 + NOISE * LABEL_NOISE, output=SIGMA * W + SIGMA**2 * W / 3)
    sampler = Sampler(lengths(2), 7, 5, 0.3, (GaussianScores(1.0, 1.0),), model=model)
    dataset = sampler.draw(np.random.default_rng(1))
    plain = replace(sampler, model=DEFAULT_MODEL).draw(np.random.default_rng(1))
    batch, (k, v) = dataset.batches[0], np.random.default_rng(2).standard_normal((2, 7))
    z = (batch.X[np.arange(5), batch.eps] @ dataset.v_star) / 7**0.5
    assert batch.y - z**3 == pytest.approx(plain.batches[0].y - z)

    attention = GeneratedAttention(module_of("softmax"), 1.0, 0.3, np.empty(0), model)
    sigma, values = attention.sigma(fields(batch.X, k)), fields(batch.X, v)
    losses = (batch.y - (sigma * values + sigma**2 * values / 3).sum(axis=0)) ** 4 / 4
    params = np.concatenate([k, v])
    value, gradient = objective(params, dataset, attention, 0.7, 0.4)
    assert value == pytest.approx(losses.sum() + 0.7 * (k @ k) + 0.4 * (v @ v))
    steps = 1e-5 * np.eye(params.size)
    both = [[objective(params + s * h, dataset, attention, 0.7, 0.4)[0] for s in (1, -1)] for h in steps]
    assert gradient == pytest.approx(np.array([(a - b) / 2e-5 for a, b in both]), rel=1e-6)

    measured = measure(dataset, Trained(k, v, 0.0, 0.0, True, 0), attention, (0.7, 0.4), lambda o: 0.0)
    assert measured["train_loss"] == pytest.approx(losses.mean())
    assert measured["energy"] == pytest.approx(value / 7)
    one = dataset.first(1)
    _, slope = objective(params, one, attention, 0.7 / 7, 0.4 / 7)
    (moved,) = one_pass(one, attention, (0.7, 0.4), Warm(k, v), np.random.default_rng(0), 0.1, (1 / 7,))
    expected = Overlaps.of(*np.split(params - 0.1 * slope, 2), one.k_star, one.v_star)
    assert astuple(moved) == pytest.approx(astuple(expected))


def test_the_properties_minimise_the_models_own_loss():
    """The loss with the values eliminated, by Newton's method, against the kernels of a scaled model."""
    system = derive("softmax", "spiked", 2, DOUBLED)
    of = subject_of(system, analysis(system.activation))
    with mpmath.workdps(30):
        for at in of.fields():
            assert mpmath.almosteq(of.run("loss", **at)["value"], of.loss(**at), rel_eps=mpf(10) ** -25)
        quartic = replace(of, model=QUARTIC)
        at = of.fields()[0]
        sigma, (a, b) = of.direct(at["x"]), at["w"]

        def whole(z, u):
            f = sigma[0] * z + sigma[1] * u
            return ((z - a) ** 2 + (u - b) ** 2) / (2 * at["V_v"]) + (at["y"] - f) ** 4 / 4

        best = mpmath.findroot(
            [lambda z, u: mpmath.diff(whole, (z, u), (1, 0)), lambda z, u: mpmath.diff(whole, (z, u), (0, 1))], (a, b)
        )
        assert mpmath.almosteq(quartic.loss(**at), whole(*best), rel_eps=mpf(10) ** -12)


SCALED_LOSS = Model(loss=2 * (Y - F) ** 2, penalty=2 * LAMBDA * THETA**2)


def test_the_front_door_takes_a_model():
    """Four times the objective: the same risks, four times the energy; and another cache entry than without."""
    at = {"tokens": 2, "alpha": 2.0, "nu": 1.0, "noise": 0.3, "digits": 5}
    plain, scaled = rc.solve("softmax", **at), rc.solve("softmax", model=SCALED_LOSS, **at)
    assert scaled.test_risk == pytest.approx(plain.test_risk, abs=1e-5)
    assert scaled.bayes_risk == plain.bayes_risk
    assert scaled.energy == pytest.approx(4 * plain.energy, rel=1e-4)
    assert scaled.asked["model"]["loss"] == str(SCALED_LOSS.loss) and "model" not in plain.asked
    with pytest.raises(Refusal, match="output"):
        rc.solve("softmax", model=Model(output=SIGMA * W**2), **at)
    with pytest.raises(Refusal, match="belongs into the activation"):
        rc.solve("softmax", model=Model(output=2 * SIGMA * W), **at)


def test_validation_follows_the_model_of_the_front_door():
    """Energies four times as large agree with a theory of four times the objective, and not with one of one."""
    at = {"tokens": 1, "alpha": 2.0, "nu": 1.0, "noise": 0.3, "dim": 80, "seeds": 10}
    found = rc.validate("softmax", model=SCALED_LOSS, **at)
    plain = rc.solve("softmax", bayes=False, **{k: at[k] for k in ("tokens", "alpha", "nu", "noise")})
    assert found.verdict != "disagrees"
    assert found.trained["energy"]["mean"] == pytest.approx(4 * plain.energy, rel=0.1)
    assert found.trained["test_risk"]["mean"] == pytest.approx(plain.test_risk, rel=0.1)
