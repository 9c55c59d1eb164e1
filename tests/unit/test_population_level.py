"""The population command: closed forms, the Bayes risk, Nishimori points, lengths, and what it refuses."""

import json
import math
import subprocess
import sys

import pytest
import sympy as sp
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from replicode.cli import main
from replicode.codegen.compiler import generate
from replicode.theory.derive.nishimori import nishimori
from replicode.theory.derive.population import derive_population
from replicode.theory.errors import InputError
from replicode.theory.language.activation import activation, registered
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.theory.model import LABEL_NOISE, NOISE, Z_STAR, F, Model, Y
from replicode.verbs.population import population

L_, NU_ = sp.symbols("L nu")


def test_linear_on_spiked_for_all_lengths_and_signals():
    """Anchor: L (L - 1) / (L^2 + nu (L - 1)), derived and not typed in."""
    found = sp.sympify(population("linear", tokens=3, nu=2.0).closed_form)
    assert sp.simplify(found - L_ * (L_ - 1) / (L_**2 + NU_ * (L_ - 1))) == 0
    assert found.free_symbols == {L_, NU_}
    for tokens, nu in ((2, 0.5), (7, 30.0), (4, 0.0), (1, 2.0)):
        result = population("linear", tokens=tokens, nu=nu)
        assert abs(result.excess_risk - float(found.subs({L_: tokens, NU_: nu}))) <= result.error + 1e-15


@pytest.mark.parametrize("tokens", [2, 3, 4, 5])
def test_linear_at_hard_max(tokens):
    """1 - (1 + mu^2)/L with mu the mean of the largest of L normals."""
    mean = {2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi), 4: 1.0293753730039641, 5: 1.1629644736405196}
    result = population("linear", task="max", tokens=tokens, nu=math.inf)
    expected = 1.0 - (1.0 + mean[tokens] ** 2) / tokens
    assert float(sp.N(sp.sympify(result.closed_form))) == pytest.approx(expected, rel=1e-14)
    assert result.excess_risk == pytest.approx(expected, abs=1e-13)
    assert result.bayes_risk == 0.0


CLOSED = {
    "x": "L/(L + nu)",
    "1 + x - mean(x)": "(L - 1)/(L + nu)",
    "x - mean(x)": "(L**2 + nu)/(L*(L + nu))",
    "x**2": "(3*L + 4*nu - 1)/(3*L + nu**2 + 6*nu)",
    "2 + 3*x": "L*(L - 1)/(L**2 + nu*(L - 1))",
}


@pytest.mark.parametrize("text", CLOSED)
def test_closed_optima_by_hand(text):
    found = sp.sympify(population(text, tokens=3, nu=2.0).closed_form)
    assert sp.simplify(found - sp.sympify(CLOSED[text])) == 0


@pytest.mark.parametrize("text, case", [("relu", {"nu": 2.0}), ("abs(x)", {"nu": 0.7}), ("x", {"nu": 1.0})])
def test_scale_free_activations_report_the_flat_direction(text, case):
    result = population(text, tokens=3, **case)
    assert result.flat_directions
    values = {L_: 3, NU_: case["nu"]}
    assert float(sp.N(sp.sympify(result.closed_form).subs(values))) == pytest.approx(result.excess_risk, abs=1e-12)


def test_a_fraction_recognised_and_then_proved():
    assert population("1 + erf(x)", task="max", tokens=2, nu=math.inf).closed_form == "1/3"


@pytest.mark.parametrize("text", ["erf", "relu", "exp"])
def test_averages_in_closed_form(text):
    result = population(text, tokens=2, nu=1.0)
    assert result.A is not None and result.B is not None
    assert {"m_k", "q_k"} <= {
        s.name for s in sp.sympify(result.B, locals={"owens_t": sp.Function("owens_t")}).free_symbols
    }


@pytest.mark.parametrize("name", ["spiked", "max"])
@pytest.mark.parametrize("tokens, nu", [(2, 0.3), (3, 4.0), (8, 1.0), (16, 9.0)])
def test_softmax_is_bayes(name, tokens, nu):
    """By the numerical optimum, which knows nothing of the Nishimori condition."""
    if name == "spiked" or nu < 2.0:
        module = generate(derive_population("softmax", name, tokens)).load()
        found = module.optimum(nu)
        assert abs(found.gain - module.location_gain(nu).gain) < 1e-10
        assert found.m == pytest.approx(math.sqrt(nu) if name == "spiked" else nu, rel=1e-5)
    result = population("softmax", task=name, tokens=tokens, nu=nu)
    assert abs(result.test_risk - result.bayes_risk) < 1e-10
    assert result.nishimori


def test_nishimori_holds_for_softmax_and_its_like_only():
    for name in ("spiked", "max"):
        for text in (*registered(), "exp(2*x)/sum(exp(2*x))", "exp(-x)/sum(exp(-x))", "exp(x)/(2*sum(exp(x)))"):
            held = nishimori(activation(text), task(name)) is not None
            assert held == (text in ("softmax", "tempered") or (text.startswith("exp(") and "sum" in text)), text


def test_nishimori_of_a_quadratic_signal():
    """softmax of x^2 is Bayes where the weight is quadratic, softmax itself is not."""
    quadratic = task("nu*x**2/(4*(1 + nu))")
    found = nishimori(activation("exp(x**2)/sum(exp(x**2))"), quadratic)
    assert found is not None and sp.simplify(found.c**2 - NU_pos() / (4 * (1 + NU_pos()))) == 0
    assert nishimori(activation("softmax"), quadratic) is None


def NU_pos():
    from replicode.theory.model import NU

    return NU


def test_variable_length_costs_softmax_nothing_and_linear_something():
    spread, parts = "1:0.2,2:0.3,3:0.5", {1: 0.2, 2: 0.3, 3: 0.5}

    def cost(text):
        mixture = population(text, tokens=spread, nu=2.0).excess_risk
        return mixture - sum(p * population(text, tokens=n, nu=2.0).excess_risk for n, p in parts.items())

    assert abs(cost("softmax")) < 1e-12
    assert 0.02 < cost("linear") < 0.15


def test_one_length_is_that_length():
    assert population("linear", tokens="2:1", nu=1.5).to_dict() == population("linear", tokens=2, nu=1.5).to_dict()
    mixed = population("linear", tokens="2:1.0,3:0.0", nu=1.5)
    assert mixed.excess_risk == population("linear", tokens=2, nu=1.5).excess_risk


def test_decay_of_softmax_and_linear():
    """softmax on spiked falls like exp(-nu/4) at L = 2, linear like L/nu."""
    softmax = [population("softmax", tokens=2, nu=nu).excess_risk for nu in (60.0, 64.0)]
    assert math.log(softmax[0] / softmax[1]) / 4.0 == pytest.approx(0.25, abs=0.02)
    assert population("linear", tokens=3, nu=1e4).excess_risk == pytest.approx(3e-4, rel=1e-2)


TEXTS = st.sampled_from(
    [
        "linear",
        "erf(x)",
        "sigmoid",
        "exp(x/2)",
        "relu",
        "softplus",
        "1 + tanh(x - mean(x))",
        "x**2",
        "softmax1",
        "1 + cos(x)",
    ]
)


@settings(max_examples=6)
@given(TEXTS, st.sampled_from(["spiked", "max", "nu*tanh(x)"]), st.sampled_from([1, 2, 3]), st.integers(0, 40))
def test_no_activation_beats_bayes(text, name, tokens, tenths):
    result = population(text, task=name, tokens=tokens, nu=tenths / 10)
    assert result.test_risk >= result.bayes_risk - result.error - 1e-12


def _run(*arguments):
    return CliRunner().invoke(main, ["population", *arguments])


def test_command():
    found = _run("linear", "--tokens", "3", "--nu", "2", "--noise", "0.3", "--json")
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    keys = ["excess_risk", "test_risk", "bayes_risk", "order_parameters", "parameters", "closed_form", "error"]
    assert set(keys) < set(result)
    assert result["test_risk"] == pytest.approx(result["excess_risk"] + 0.09)
    assert list(result["order_parameters"]) == ["m_k", "q_k", "m_v", "q_v"]
    infinite = json.loads(_run("softmax", "--task", "max", "--tokens", "3", "--nu", "inf", "--json").stdout)
    assert infinite["order_parameters"]["m_k"] is None and infinite["excess_risk"] == 0.0


def test_free_parameters_are_optimised_and_given_ones_kept():
    free, kept = population("erf", tokens=2, nu=2.0), population("erf", tokens=2, nu=2.0, c=0.0)
    assert free.excess_risk < kept.excess_risk - 1e-4
    assert kept.parameters == {"c": 0.0}
    low, high = free.brackets["c"]
    assert low < free.parameters["c"] < high


def test_what_runs_off_to_infinity_is_told():
    result = population("softplus", task="max", tokens=2, nu=math.inf)
    assert result.order_parameters["m_k"] == math.inf
    assert any("falls as |k| grows" in w for w in result.warnings)


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("softmax", "--tokens", "2", "--nu", "-1"), "nu"),
        (("softmax", "--tokens", "2", "--nu", "nan"), "nu"),
        (("softmax", "--tokens", "2", "--nu", "inf"), "nu"),
        (("softmax", "--tokens", "0", "--nu", "1"), "tokens"),
        (("softmax", "--tokens", "1:0.5,2:0.6", "--nu", "1"), "tokens"),
        (("softmax", "--tokens", "1:x", "--nu", "1"), "tokens"),
        (("softmax", "--tokens", "2", "--nu", "1", "--noise", "-1"), "noise"),
        (("exp(x**2)", "--tokens", "2", "--nu", "1"), "activation"),
        (("softmax", "--tokens", "2", "--nu", "1", "--task", "x**2"), "task"),
        (("softmax", "--tokens", "2", "--nu", "1", "--task", "b*x"), "task"),
        (("softmax", "--tokens", "2", "--nu", "1", "--task", "maximum"), "task"),
        (("erf", "--tokens", "2", "--nu", "1", "--param", "d=1"), "param"),
    ],
)
def test_bad_input_is_named(arguments, named):
    found = _run(*arguments)
    assert found.exit_code == 2
    assert named in found.stderr and "allowed is" in found.stderr
    assert not found.stdout


def test_lengths():
    assert lengths("3:0.5,1:0.5").tokens == (1, 3)
    assert lengths(" 4 ").fixed == 4
    with pytest.raises(InputError, match="each length once"):
        lengths("1:0.5,1:0.5")


@pytest.mark.parametrize("task_text", ["max", "nu*tanh(x)", "spiked"])
def test_risk_off_the_manifold_against_samples(task_text):
    """Seven overlaps, weights by importance; 4.5 sigma on 2e5 samples: a false alarm in 150000 per case."""
    import numpy as np

    from replicode.codegen.interpret.functions import evaluated
    from replicode.theory.derive.population import BIAS_IDLE, CHI_EPS, CHI_IDLE, SIGMA_EPS, SIGMA_IDLE
    from replicode.theory.derive.population import population_risk as derived
    from replicode.theory.language.activation import Activation
    from replicode.theory.model import CHI_STAR, DEFAULT_MODEL, NOISE, NU

    nu, noise, tokens, count = 1.2, 0.3, 2, 200_000
    m, q, mv, qv, kvs, vks, kv = overlaps = 0.7, 1.1, 0.6, 0.9, 0.25, -0.3, 0.2
    named = (*DEFAULT_MODEL.overlaps, *DEFAULT_MODEL.cross_overlaps)
    values = {**dict(zip(named, overlaps, strict=True)), NOISE: noise, NU: nu}
    covariance = np.array([[1, 0, m, vks], [0, 1, kvs, mv], [m, kvs, q, kv], [vks, mv, kv, qv]])
    rng = np.random.default_rng(3)
    fields = np.linalg.cholesky(covariance) @ rng.standard_normal((tokens, 4, count))
    chi_star, z_star, chi, z = np.moveaxis(fields, 1, 0)
    setting = task(task_text)
    weight = np.exp(evaluated(Activation("weight", setting.log_weight).token_form(), chi_star, {NU: nu}))[0]
    sigma = evaluated(activation("softmax").token_form(), chi, {})
    direct = (z_star[0] + noise * rng.standard_normal(count) - (sigma * z).sum(axis=0)) ** 2
    risk = derived(setting)
    idle_values = {**values, CHI_IDLE: chi[1], SIGMA_IDLE: sigma[1], CHI_STAR: chi_star[1]}
    bias, idle = (_numeric(e, idle_values) for e in (risk.bias, risk.idle))
    hidden_values = {**values, CHI_EPS: chi[0], SIGMA_EPS: sigma[0], CHI_STAR: chi_star[0], BIAS_IDLE: bias}
    gap = weight * (direct - _numeric(risk.hidden, hidden_values) - idle) / weight.mean()
    assert abs(gap.mean()) < 4.5 * gap.std() / math.sqrt(count)


def _numeric(expr, values):
    symbols = sorted(expr.free_symbols, key=str)
    return sp.lambdify(symbols, expr, "numpy")(*[values[s] for s in symbols])


def test_derive_population_for_a_task_that_couples_the_scores():
    found = CliRunner().invoke(main, ["derive", "linear", "--task", "max", "--level", "population", "--json"])
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    assert sp.simplify(sp.sympify(result["equations"]["B"]) - L_ * (1 + sp.Symbol("q_k"))) == 0
    assert result["steps"]


@pytest.mark.parametrize(
    "text, values, excess", [("erf", {"c": 1.0}, 0.398120188695), ("relu(1 + x)", {}, 0.330874990248)]
)
def test_the_number_does_not_wait_for_a_closed_form(text, values, excess):
    """Where |k| looks like the root of a fraction and no algebra shows it, as simplify tried to without end."""
    result = population(text, tokens=2, nu=2.0, parameters=values)
    assert abs(result.excess_risk - excess) < 1e-9 + result.error
    assert result.closed_form is None


def test_limits_that_take_long_are_left_out(monkeypatch):
    monkeypatch.setattr("replicode.theory.derive.optimum._STEPS", 100_000)
    result = population("x**64", tokens=2, nu=2.0)
    assert float(sp.sympify(result.closed_form).subs({L_: 2, NU_: 2})) == pytest.approx(result.excess_risk, abs=1e-12)


def _derived(text, tokens):
    arguments = ["derive", text, "--level", "population", "--tokens", tokens, "--json"]
    return json.loads(CliRunner().invoke(main, arguments).stdout)


def test_derive_population_averages_over_the_lengths():
    mixed = _derived("linear", "1:0.25,3:0.75")
    at = {n: _derived("linear", n)["equations"] for n in ("1", "3")}
    assert mixed["tokens"] == "1:0.25,3:0.75"
    for name in "AB":
        expected = sp.sympify(at["1"][name]) / 4 + 3 * sp.sympify(at["3"][name]) / 4
        assert sp.simplify(sp.sympify(mixed["equations"][name]) - expected) == 0


def test_derive_population_names_the_averages_that_are_not_closed():
    found = _derived("softmax", "1:0.2,2:0.8")
    assert found["equations"]["A"] == "A_L_1/5 + 4*A_L_2/5"
    assert found["symbols"]["A_L_2"] == "A where the number of tokens is 2"
    step = next(s for s in found["steps"] if "P(L) = 1:0.2,2:0.8" in s["rule"])
    assert sp.simplify(sp.sympify(step["lhs"]) - sp.sympify(step["rhs"])) == 0


def test_a_weight_that_depends_on_a_varying_length_is_refused_at_population_level():
    arguments = ["derive", "linear", "--task", "sqrt(nu)*x/L", "--level", "population", "--tokens", "1:0.5,2:0.5"]
    assert CliRunner().invoke(main, arguments).exit_code == 1


@pytest.mark.parametrize("text", ["linear", "softmax"])
def test_another_model(text):
    """Twice the noise by the label, twice the label, and another unit of the risk."""
    plain = population(text, tokens=2, nu=2.0, noise=0.3)
    noisy = population(text, tokens=2, nu=2.0, noise=0.15, model=Model(label=Z_STAR + 2 * NOISE * LABEL_NOISE))
    twice = Model(label=2 * (Z_STAR + NOISE * LABEL_NOISE), risk=3 * (Y - F) ** 2)
    scaled = population(text, tokens=2, nu=2.0, noise=0.3, model=twice)
    for name in ("excess_risk", "test_risk", "bayes_risk"):
        assert getattr(noisy, name) == pytest.approx(getattr(plain, name), rel=1e-14)
        assert getattr(scaled, name) == pytest.approx(12 * getattr(plain, name), rel=1e-14)
    assert scaled.order_parameters["m_v"] == pytest.approx(2 * plain.order_parameters["m_v"], rel=1e-9)
    if text == "linear":
        assert sp.sympify(scaled.closed_form) == 12 * sp.sympify(plain.closed_form)


GENERATED = {
    "softmax": ("softmax", "spiked", 2, {}),
    "free": ("erf", "spiked", 2, {}),
    "given": ("erf", "spiked", 2, {"c": 0.4}),
    "kinked": ("relu", "spiked", 2, {}),
    "lengths": ("linear", "spiked", "1:0.5,2:0.5", {}),
    "weighted": ("linear", "nu*tanh(x)", 2, {}),
}


@pytest.mark.parametrize("case", GENERATED)
def test_a_generated_module_finds_the_same_optimum(case):
    """`solve` of the module and the verb agree, and its nodes over the scores are a second way to the risk."""
    text, weight, tokens, values = GENERATED[case]
    module = generate(derive_population(text, weight, tokens)).load()
    found = module.solve(2.0, 0.3, **values)
    expected = population(text, task=weight, tokens=tokens, nu=2.0, noise=0.3, **values)
    assert abs(found.excess_risk - expected.excess_risk) <= found.error + expected.error < 1e-10
    assert found.test_risk == pytest.approx(expected.test_risk, abs=1e-10) and not found.warnings
    if case != "kinked":  # relu does not see the size of k
        assert found.order_parameters == pytest.approx(expected.order_parameters, abs=1e-6)
    overlaps = [found.order_parameters[n] for n in ("m_k", "q_k", "m_v", "q_v")]
    assert module.population_risk(*overlaps, 2.0, 0.3, **found.parameters) == pytest.approx(found.test_risk, abs=1e-8)


@pytest.mark.parametrize(
    ("text", "weight", "tokens", "nu", "excess"),
    [
        ("linear", "max", 3, math.inf, 1.0 - (1.0 + 2.25 / math.pi) / 3.0),
        ("x - mean(x)", "spiked", 8, 2.0, 33.0 / 40.0),
    ],
)
def test_a_generated_module_where_nodes_over_all_scores_do_not_reach(text, weight, tokens, nu, excess):
    """A hard winner and many coupled tokens: nodes left errors of 3e-2 and 2e-4."""
    found = generate(derive_population(text, weight, tokens)).load().solve(nu)
    assert abs(found.excess_risk - excess) <= found.error + 1e-13 and found.error < 1e-12


@pytest.mark.parametrize(
    ("text", "weight", "excess", "allowed"),
    [
        ("relu(x**2 - 1)", "spiked", 0.69246554, 1e-3),
        ("sigmoid", "x*mean(x)/9", 0.5, 1e-10),
        ("1 + tanh(x - mean(x))", "2*relu(x)", 0.16424418, 1e-4),
    ],
)
def test_kinks_and_weights_that_only_this_level_takes(text, weight, excess, allowed):
    """Kinks in what is not linear in the score, a weight that couples the scores, one with a kink."""
    found = population(text, task=weight, tokens=2, nu=1.0)
    assert abs(found.excess_risk - excess) <= found.error + 1e-8 and found.error <= allowed


def test_a_generated_module_runs_alone(tmp_path):
    path = tmp_path / "linear.py"
    arguments = ["generate", "linear", "--level", "population", "--tokens", "2", "-o", str(path)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    command = [sys.executable, "-I", str(path), "--nu", "2", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(run.stdout)["excess_risk"] == pytest.approx(1 / 3, abs=1e-12)
    refused = subprocess.run([*command, "--param", "c=1"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "parameters: got ['c']" in refused.stderr
