"""Training dynamics: rates against the risk and against other ways to them, trajectories, fixed points, the verb."""

import inspect
import json
import subprocess
import sys
from functools import cache
from itertools import product

import numpy as np
import pytest
import sympy as sp
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import replicode as rc
from replicode.cli import main
from replicode.codegen.compiler import generate
from replicode.theory.derive import dynamics
from replicode.theory.derive.dynamics import derive_dynamics
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.losses import model_of
from replicode.theory.model import LABEL_NOISE, NOISE, Z_STAR, Model

CASES = {
    "softmax": ("softmax", "spiked", 2, 2.0, ()),
    "linear": ("linear", "spiked", "1:0.3,2:0.7", 1.0, ()),
    "erf": ("erf", "spiked", 2, 1.3, (0.3,)),
    "ranked": ("softplus", "max", 2, 2.0, ()),
    "hard": ("softmax", "max", 2, np.inf, ()),
    "own": ("erf", "nu*tanh(x)", 2, 2.0, (0.3,)),
    "normalised": ("softmax", "nu*tanh(x) - log(sum(exp(nu*tanh(x))))", 2, 2.0, ()),
}
LEVELS = {"ranked": 4, "own": 4, "normalised": 4, "softmax": 1, "hard": 2}


@cache
def module(name):
    return generate(derive_dynamics(*CASES[name][:3])).load()


def motion(name, level=3, noise=0.3, **descent):
    made = module(name)
    return made.Motion(made.Descent(**descent), made.World(CASES[name][3], noise, np.array(CASES[name][4])), level)


unit = st.floats(-0.9, 0.9)


@st.composite
def overlaps(draw, most=1.0):
    """The overlaps of two vectors with each other and with orthonormal teachers."""
    k, v = (np.array([draw(unit) for _ in range(4)]) * most for _ in range(2))
    k[2] += 0.4
    return np.array([k[0], k @ k, v[1], v @ v, k[1], v[0], k @ v])


SLOW = ("ranked", "own", "normalised")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.full) if n in SLOW else n for n in CASES])
@settings(max_examples=3, deadline=None)
@given(at=overlaps())
def test_the_flow_is_minus_the_slopes_of_the_risk_times_the_mobility(name, at):
    m = motion(name, LEVELS.get(name, 3), eta_k=0.7, eta_v=0.4, flow=True)
    slopes = module(name).slopes_of(m.risk, at) / 2
    assert np.abs(m.rates(at) + m.mobility(at) @ slopes).max() < 1e-8 * (1 + np.abs(at).max() ** 2)


@pytest.mark.parametrize("name", ["softmax", *(pytest.param(n, marks=pytest.mark.full) for n in ("linear", "erf"))])
@settings(max_examples=4, deadline=None)
@given(at=overlaps(), speed=st.sampled_from([0.0, 0.3, 2.0]))
def test_the_risk_never_rises_along_the_flow(name, at, speed):
    m = motion(name, 1, eta_k=1.0, eta_v=speed, flow=True)
    path = module(name).integrated(m, at, np.linspace(0, 4, 15), 1e-8)
    risks = np.array([m.risk(o) for o in path.overlaps.T])
    assert (np.diff(risks) <= 1e-9).all()


SHAPES = st.sampled_from(
    ["tanh({a}*x)", "exp({a}*x)/sum(exp({a}*x))", "sigmoid(x - {a})", "relu(x + {a})/L", "exp(x)/({a} + sum(exp(x)))"]
)


@pytest.mark.full
@settings(max_examples=10, deadline=None)
@given(SHAPES, st.sampled_from(["1/2", "1", "2"]), st.sampled_from(["spiked", "max"]), overlaps())
@example("tanh({a}*x)", "1/2", "spiked", np.array([0.0, 0.16, 0.0, 0.0, 0.0, 0.0, 0.0]))  # no v at all
def test_the_risk_never_rises_along_the_flow_of_drawn_activations(shape, a, task, at):
    made = generate(derive_dynamics(shape.format(a=a), task, 2)).load()
    m = made.Motion(made.Descent(1.0, 0.7, flow=True), made.World(1.5, 0.3, np.zeros(0)), 2)
    path = made.integrated(m, at, np.linspace(0, 3, 10), 1e-8)
    assert (np.diff([m.risk(o) for o in path.overlaps.T]) <= 1e-8).all()


LOSSES = [
    ("huber:1", "gaussian", 1e-8),
    ("logistic", "sign", 1e-8),
    *[
        pytest.param(*case, marks=pytest.mark.full)
        for case in (
            ("quadratic", "magnitude", 1e-8),
            ("absolute", "outliers:0.1:3", 1e-8),
            ("hinge", "probit:2", 1e-7),
            ("logistic", "logit:2", 1e-8),
            ("(y - f)**4/4", "gaussian", 1e-8),
            ("log(1 + (y - f)**2)", "tanh(z + noise*xi)", 1e-6),
        )
    ],
]


@cache
def learned_module(act, loss, labels):
    return generate(derive_dynamics(act, "spiked", 2, model_of(loss, labels))).load()


@pytest.mark.parametrize(("loss", "labels", "tol"), LOSSES)
def test_the_flow_of_any_loss_is_minus_its_slopes_times_the_mobility(loss, labels, tol):
    made, at = learned_module("softmax", loss, labels), np.array([0.4, 0.9, 0.6, 0.8, 0.05, -0.03, 0.1])
    m = made.Motion(made.Descent(0.7, 0.4, flow=True), made.World(2.0, 0.3, np.zeros(0)), 2)
    assert np.abs(m.rates(at) + m.mobility(at) @ made.slopes_of(m.loss, at)).max() < tol


@pytest.mark.parametrize(("task", "level"), [("spiked", 2), pytest.param("max", 5, marks=pytest.mark.full)])
def test_averages_of_any_gain_are_those_of_isserlis_where_it_is_linear(task, level):
    """A square loss and a Gaussian label, given as two equal branches, spreads included."""
    line, half = Z_STAR + NOISE * LABEL_NOISE, sp.Rational(1, 2)
    twice = Model(label=sp.Tuple(sp.Tuple(line, half), sp.Tuple(line, half)))
    at, found = np.array([0.4, 0.9, 0.6, 0.8, 0.25, -0.13, 0.3]), []
    for model in (None, twice):
        made = generate(derive_dynamics("erf", task, 2, model)).load()
        found.append(np.r_[*made.averages_at(at, made.World(1.5, 0.3, np.array([0.2])), level)])
        assert hasattr(made, "gained_averages") == (model is not None)
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_a_trajectory_of_a_logistic_loss():
    made = learned_module("softmax", "logistic", "sign")
    found = made.solve(2.0, 0.3, rate=1.0, time=6.0, flow=True, tol=1e-5, points=7)
    assert found.test_loss is not None and (np.diff(found.test_loss) < 0).all() and found.error < 1e-5


ETAS = 0.3, 0.2
STUDENTS = np.array([[0.5, -0.4, 0.6, 0.2], [0.3, 0.7, -0.2, 0.5]])  # along k*, v* and two more directions


@cache
def exact_rates():
    """The rates of 1 + x at two tokens: 5 Gauss-Hermite nodes for each of four normals of both tokens are exact."""
    k, v = STUDENTS
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    grid = np.array(list(product(range(5), repeat=8))).T
    X, w = nodes[grid].reshape(2, 4, -1), (weights / weights.sum())[grid].prod(axis=0)
    X[0, 0] += 1.0  # spiked, nu = 1
    chi, z = np.einsum("i,lin->ln", k, X), np.einsum("i,lin->ln", v, X)
    r = X[0, 1] - ((1 + chi) * z).sum(axis=0)
    pull = {"k": r * z, "v": r * (1 + chi)}
    fields = {"k*": X[:, 0], "v*": X[:, 1], "k": chi, "v": z}
    mean = {(a, b): w @ (pull[a] * fields[b]).sum(axis=0) for a in "kv" for b in fields}
    both = {a + b: w @ (pull[a] * pull[b]).sum(axis=0) for a, b in ("kk", "kv", "vv")}
    of_k, of_v = ETAS
    return np.array(
        [
            of_k * mean["k", "k*"],
            2 * of_k * mean["k", "k"] + of_k**2 * both["kk"],
            of_v * mean["v", "v*"],
            2 * of_v * mean["v", "v"] + of_v**2 * both["vv"],
            of_k * mean["k", "v*"],
            of_v * mean["v", "k*"],
            of_k * mean["k", "v"] + of_v * mean["v", "k"] + of_k * of_v * both["kv"],
        ]
    )


@pytest.fixture(scope="module")
def polynomial():
    return derive_dynamics("linear", "spiked", 2)


def polynomial_rates(made):
    k, v = STUDENTS
    at = np.array([k[0], k @ k, v[1], v @ v, k[1], v[0], k @ v])
    return made.Motion(made.Descent(*ETAS), made.World(1.0, 0.0, np.zeros(0)), 4).rates(at)


def test_the_rates_of_a_polynomial_by_exact_nodes_over_all_fields(polynomial):
    np.testing.assert_allclose(polynomial_rates(generate(polynomial).load()), exact_rates(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["pull_given", "spread_given"])
def test_a_factor_in_any_term_given_the_scores_is_seen(polynomial, name, monkeypatch):
    made, average = generate(polynomial).load(), getattr(polynomial, name.removesuffix("_given"))
    arguments = [sp.Symbol(a, real=True) for a in inspect.signature(getattr(made, name)).parameters]
    for term in sp.Add.make_args(average):
        monkeypatch.setattr(made, name, sp.lambdify(arguments, average + term / 10, "numpy"))
        assert np.abs(polynomial_rates(made) - exact_rates()).max() > 1e-4, term


def test_decay_batch_and_a_fixed_v():
    at = np.array([0.4, 0.9, 0.6, 0.8, 0.05, -0.03, 0.1])
    plain = motion("softmax", eta_k=0.5, eta_v=0.5)
    spread = plain.rates(at) - motion("softmax", eta_k=0.5, eta_v=0.5, flow=True).rates(at)
    batched = motion("softmax", eta_k=0.5, eta_v=0.5, batch=4.0).rates(at)
    np.testing.assert_allclose(batched, plain.rates(at) - 0.75 * spread, atol=1e-14)
    decayed = motion("softmax", eta_k=0.5, eta_v=0.5, lambda_k=0.2, lambda_v=0.6).rates(at)
    powers = np.array([[1, 0], [2, 0], [0, 1], [0, 2], [1, 0], [0, 1], [1, 1]])
    np.testing.assert_allclose(decayed, plain.rates(at) - 0.5 * powers @ [0.2, 0.6] * at, atol=1e-14)
    held = motion("softmax", eta_k=0.5, eta_v=0.0).rates(at)
    assert held[2] == held[3] == held[5] == 0 and held[0] != 0


def test_the_jacobian_by_plain_differences():
    at, m = np.array([0.4, 0.9, 0.6, 0.8, 0.05, -0.03, 0.1]), motion("hard", 2, eta_k=0.5, eta_v=0.3)
    step = 1e-5
    plain = [(m.rates(at + step * e) - m.rates(at - step * e)) / (2 * step) for e in np.eye(7)]
    np.testing.assert_allclose(m.jacobian(at), np.array(plain).T, atol=1e-8)


def test_stationary_points_are_those_of_population():
    """Softmax at k = sqrt(nu) k*, v = v*, the Bayes risk; it attracts, off the manifold too."""
    softmax = rc.population("softmax", task="spiked", tokens=2, nu=2.0, noise=0.3)
    found = module("softmax").fixed_points(2.0, 0.3, flow=True)
    best = found[0]
    assert best.stable and best.manifold_attracts and abs(best.test_risk - softmax.test_risk) < 1e-9
    assert abs(softmax.test_risk - softmax.bayes_risk) < 1e-9
    for name, value in softmax.order_parameters.items():
        assert abs(best.order_parameters[name] - value) < 1e-4
    assert max(abs(best.order_parameters[n]) for n in ("kv_star", "vk_star", "kv")) < 1e-6


@pytest.mark.full
def test_the_stationary_point_of_linear_is_its_closed_optimum():
    """m_k = sqrt(nu) (L-1)/L, q_k = m_k^2, excess L (L-1)/(L^2 + nu (L-1))."""
    best = generate(derive_dynamics("linear", "spiked", 2)).load().fixed_points(2.0, 0.3, flow=True)[0]
    assert best.stable and best.manifold_attracts and abs(best.test_risk - 0.09 - 1 / 3) < 1e-9
    assert abs(best.order_parameters["m_k"] - 0.5**0.5) < 1e-5 and abs(best.order_parameters["q_k"] - 0.5) < 1e-5


def test_trajectories_reach_the_population_optimum():
    found = module("softmax").solve(2.0, 0.3, rate=1.0, time=200.0, flow=True, tol=1e-6)
    assert abs(found.test_risk[-1] - 0.31479975) < 1e-4 and found.escape is not None and found.escape < 6
    assert found.error < 1e-6 and (np.diff(found.test_risk) < 1e-12).all()
    assert abs(found.plateau_risk - (0.5 + 0.09)) < 1e-9


@pytest.mark.full
def test_the_plateau_of_an_even_task_is_left_in_a_time_that_grows_as_log_D():
    """A weight even in chi* has no drift of m_k: the time from m_k = D^(-1/2) grows by per_log_dim log D."""
    made = generate(derive_dynamics("(1 + x**2)/sum(1 + x**2)", "nu*x**2/4", 2)).load()
    how = {"rate": 1.0, "spherical": True, "flow": True}
    start = {"q_k": 1.0, "m_v": 1.0, "q_v": 1.0}
    flat = made.plateau(1.0, 0.3, start=start, **how)
    assert abs(flat.drift) < 1e-9 and flat.per_log_dim is not None
    times = []
    for dim in (1e4, 1e6):
        begin = start | {"m_k": dim**-0.5, "q_k": 1.0}
        path = made.solve(1.0, 0.3, time=30 * flat.per_log_dim, start=begin, tol=1e-5, points=801, **how)
        times.append(float(np.interp(0.5, path.order_parameters["m_k"], path.time)))
    assert abs((times[1] - times[0]) / np.log(100) / flat.per_log_dim - 1) < 0.05


@pytest.mark.full
def test_above_the_largest_step_size_nothing_attracts():
    made = module("softmax")
    largest = made.critical_rate(2.0, 0.3)
    below, above = (made.fixed_points(2.0, 0.3, rate=f * largest)[:1] for f in (0.9, 1.1))
    assert below and below[0].stable and not (above and above[0].stable)


OFF = np.array([0.4, 0.9, 0.6, 0.8, 0.05, -0.03, 0.1])


@pytest.mark.parametrize(
    ("act", "params"),
    [("softmax", ()), ("erf", (0.3,)), *(pytest.param(a, (), marks=pytest.mark.full) for a in ("softmax1", "linear"))],
)
def test_one_token_at_a_time_is_all_at_once(act, params, monkeypatch):
    """Pulls, spreads, risk and loss of a mixture of lengths: Laplace integrals and power series against lattices."""
    found = []
    for ratio, few in ((lambda _: None, 9), (dynamics.ratio, 1)):
        monkeypatch.setattr(dynamics, "ratio", ratio)
        monkeypatch.setattr(dynamics, "MANY_TOKENS", few)
        made = generate(derive_dynamics(act, "spiked", "1:0.3,3:0.7")).load()
        assert hasattr(made, "factorised_averages") == (few == 1)
        found.append(np.r_[*made.averages_at(OFF, made.World(2.0, 0.3, np.array(params)), 6 if few == 9 else 1)])
    np.testing.assert_allclose(found[0], found[1], atol=2e-12)


SMALLEST = "-nu*x - log(sum(exp(-nu*x))) + log(L)"


@pytest.mark.parametrize(
    ("act", "task", "nu"),
    [
        ("softmax", "max", 2.0),
        ("softmax", "max", np.inf),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("erf", "nu*tanh(x)", 2.0), ("sigmoid", SMALLEST, np.inf), ("softmax1", SMALLEST, 1.0))
        ),
    ],
)
def test_the_weight_of_the_location_one_token_at_a_time(act, task, nu, monkeypatch):
    """All averages off the manifold: integrals over s, or over the winner's score, against lattices of all tokens."""
    found = []
    monkeypatch.setattr(dynamics, "MANY_WEIGHTED", 2)
    for ratio, level in ((lambda _: None, 6), (dynamics.ratio, 0)):
        monkeypatch.setattr(dynamics, "ratio", ratio)
        made = generate(derive_dynamics(act, task, 2)).load()
        assert hasattr(made, "factorised_averages") == (level == 0)
        found.append(np.r_[*made.averages_at(OFF, made.World(nu, 0.3, np.zeros(len(made.PARAMETERS))), level)])
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_many_tokens_of_the_max_task():
    """Eight tokens: two levels of nodes agree, and the flow is minus the slopes of the loss."""
    made = generate(derive_dynamics("softmax", "max", 8)).load()
    flow = made.Motion(made.Descent(0.5, 0.5, flow=True), made.World(2.0, 0.3, np.zeros(0)), 0)
    assert np.abs(flow.rates(OFF) - flow._replace(level=2).rates(OFF, 2)).max() < 1e-10
    assert np.abs(flow.rates(OFF) + flow.mobility(OFF) @ made.slopes_of(flow.loss, OFF)).max() < 1e-9


def test_many_tokens():
    made = generate(derive_dynamics("softmax", "spiked", 8)).load()
    m = made.Motion(made.Descent(0.5, 0.5), made.World(2.0, 0.3, np.zeros(0)), 0)
    assert np.abs(m.rates(OFF) - m._replace(level=2).rates(OFF, 2)).max() < 1e-10
    slopes = made.slopes_of(m.loss, OFF)
    flow = m._replace(descent=made.Descent(0.5, 0.5, flow=True))
    assert np.abs(flow.rates(OFF) + m.mobility(OFF) @ slopes).max() < 1e-9
    found = made.solve(2.0, 0.3, rate=0.5, time=2.0, points=3)
    assert found.error < 1e-7 and max(found.errors.values()) < 1e-7


@pytest.mark.full
def test_many_tokens_against_sobol_nodes(monkeypatch):
    exact = generate(derive_dynamics("softmax", "spiked", 8)).load()
    monkeypatch.setattr(dynamics, "ratio", lambda _: None)
    sampled = generate(derive_dynamics("softmax", "spiked", 8)).load()
    one, two = (m.averages_at(OFF, m.World(2.0, 0.3, np.zeros(0)), 3) for m in (exact, sampled))
    assert np.abs(one.pulls - two.pulls).max() < 2e-3 and abs(one.risk - two.risk) < 2e-3


def test_bad_input_is_refused():
    made = module("softmax")
    for change, name in (
        ({"rate": 0.0}, "rate"),
        ({"time": -1.0}, "time"),
        ({"start": {"m_q": 1.0}}, "start"),
        ({"start": {"m_k": 2.0, "q_k": 1.0}}, "start"),
        ({"batch": 0.5}, "batch"),
        ({"points": 1}, "points"),
        ({"rate_v": -1.0}, "rate_v"),
    ):
        with pytest.raises(made.ArgumentError, match=name):
            made.solve(2.0, **({"rate": 0.5, "time": 1.0} | change))
    with pytest.raises(Refusal, match="noise"):
        generate(derive_dynamics("softmax", "spiked", 2, model_of("huber:1", "z + z*noise*xi")))
    with pytest.raises(InputError, match="start"):
        rc.dynamics("softmax", tokens=2, nu=2.0, rate=0.5, time=1.0, start={"m_k": "x"})


def test_a_diverging_step_size_is_told():
    found = rc.dynamics("linear", tokens=2, nu=2.0, rate=2.0, time=10.0, points=11)
    assert found.diverged and not found.ok and any("diverge" in w for w in found.warnings)


def test_the_command(tmp_path):
    run = CliRunner().invoke
    common = ["--tokens", "2", "--nu", "2", "--rate", "0.1", "--time", "2", "--points", "5", "--json"]
    found = run(main, ["dynamics", "softmax", *common, "--start", "m_k=0.1,q_k=1", "--compare", "linear"])
    assert found.exit_code == 0, found.output
    shown = json.loads(found.stdout)
    assert shown["time"] == [0.0, 0.5, 1.0, 1.5, 2.0] and len(shown["test_risk"]) == 5
    assert list(shown["order_parameters"]) == ["m_k", "q_k", "m_v", "q_v", "kv_star", "vk_star", "kv"]
    assert shown["order_parameters"]["q_k"][0] == 1 and "linear" in shown["compare"]
    assert run(main, ["dynamics", "softmax", *common, "--start", "m_k:0.1"]).exit_code == 2
    assert run(main, ["dynamics", "softmax", "linear", *common]).exit_code == 2


def test_a_module_runs_as_a_script(tmp_path):
    file = generate(derive_dynamics("softmax", "spiked", 2)).save(tmp_path / "train.py")
    arguments = ["--nu", "2", "--rate", "0.5", "--time", "1", "--start", "m_k=0.1,q_k=0.5", "--points", "3", "--json"]
    run = subprocess.run([sys.executable, "-I", file, *arguments], capture_output=True, text=True, check=True)
    assert len(json.loads(run.stdout)["order_parameters"]["m_v"]) == 3


def test_kinks_that_no_node_follows_are_said():
    """Two sets of nodes may agree on wrong rates; only ratios of one token's functions have panels at their kinks."""
    there, followed = (
        rc.dynamics(sigma, tokens=2, nu=2.0, rate=0.2, time=0.1) for sigma in ("relu(x) - mean(relu(x))", "relu(x)")
    )
    assert any(w.startswith("kinks:") for w in there.warnings) and not there.ok
    assert not any(w.startswith("kinks:") for w in followed.warnings)
