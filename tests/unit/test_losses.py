"""Losses and labels as users name them: what is read, what is derived of them, and what is refused."""

import numpy as np
import pytest
import sympy as sp
from click.testing import CliRunner
from scipy import optimize

import replicode as rc
from replicode.cli import main
from replicode.codegen.compiler import generate
from replicode.modules import module_for
from replicode.theory.derive.channel import eliminate_values
from replicode.theory.derive.label import label_law
from replicode.theory.derive.saddle import derive
from replicode.theory.errors import InputError
from replicode.theory.language.losses import model_of
from replicode.theory.model import DEFAULT_MODEL, F, Y
from replicode.validation.properties.learned import learned_properties
from replicode.validation.training.learning import learning, roundings


def test_the_defaults_are_the_default_model():
    assert model_of() is DEFAULT_MODEL
    assert model_of("(y - f)**2/2", "xi*noise + z") is DEFAULT_MODEL


def test_regression_is_solved_without_a_look_at_its_stability():
    module, _ = module_for("1", "spiked", 1, model=model_of("logistic", "sign"))
    plain, looked = (module.solve(4, 0, tol=1e-3, branches=False, stability=s) for s in (False, True))
    assert plain.test_risk == looked.test_risk and plain.warnings == ("replica symmetry: not looked into",)


KINDS = {
    "sign": ("threshold", True),
    "probit:2": ("threshold", True),
    "sign(2*z + 1 - xi)": ("threshold", False),
    "logit:1.5": ("chances", True),
    "outliers:0.1:5": ("lines", False),
    "2*z + 1": ("lines", False),
    "magnitude": ("sampled", False),
    "tanh(z) + xi/3": ("sampled", False),
}


@pytest.mark.parametrize("text", KINDS)
def test_every_label_has_its_kind(text):
    loss = "logistic" if KINDS[text][0] in ("threshold", "chances") else "huber:1"
    told = label_law(model_of(loss, text))
    assert (told.kind, told.mirrored) == KINDS[text]


@pytest.mark.parametrize(
    "loss, labels, said",
    [
        ("logistic", "gaussian", "labels.*1 and -1"),
        ("softplus(-3*y*f)", "magnitude", "labels.*1 and -1"),
        ("huber", "gaussian", "huber:DELTA"),
        ("huber:0", "gaussian", "DELTA"),
        ("huber:x", "gaussian", "DELTA"),
        ("square", "gaussian", "quadratic, absolute, huber:DELTA"),
        ("y**2", "gaussian", "the output f"),
        ("y*q", "gaussian", "'q' means nothing here"),
        ("__import__('os')", "gaussian", "loss"),
        ("(y - f)**2 - 7*cos(f)", "gaussian", "convex"),
        ("quadratic", "logit", "logit:GAMMA"),
        ("quadratic", "outliers:2:1", "P"),
        ("quadratic", "f + z", "'f' means nothing here"),
        ("quadratic", "3", "depends on z or xi"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(loss, labels, said):
    with pytest.raises(InputError, match=said):
        rc.solve("softmax", tokens=2, alpha=1, nu=1, loss=loss, labels=labels)


@pytest.mark.parametrize("arguments", [["--loss", "logistic"], ["--loss", "absolut"], ["--labels", "f + z"]])
def test_bad_input_leaves_with_two(arguments):
    command = ["solve", "softmax", "--tokens", "2", "--alpha", "1", "--nu", "1", *arguments, "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2 and "allowed" in done.output


def test_the_signal_may_be_left_out_where_no_score_is_seen():
    assert rc.solve("2", tokens=1, alpha=2, bayes=False).converged
    with pytest.raises(InputError, match="nu"):
        rc.solve("softmax", tokens=2, alpha=2)


LOSSES = ["absolute", "huber:0.7", "hinge", "logistic", "relu(y - f) + (y - f)**2/4", "log(1 + (y - f)**2)"]


def _but(*ordinary):
    """All losses, of which these are tried in every run."""
    return [text if text in ordinary else pytest.param(text, marks=pytest.mark.full) for text in LOSSES]


@pytest.mark.parametrize("text", _but("huber:0.7", "hinge", "logistic"))
def test_the_envelope_is_a_minimum(text):
    """Value, gain and loss at the prox of generated kernels, against a minimisation by SciPy, on one token."""
    model = model_of(text, "sign" if text in ("hinge", "logistic") else "gaussian")
    module = generate(derive("1", "spiked", 1, model)).load()
    rng = np.random.default_rng(5)
    w = rng.normal(0, 2, (1, 40))
    y = np.sign(rng.normal(size=40)) if model.margin else rng.normal(0, 2, 40)
    scale = 0.8
    value, _, _, gain, loss = module.KERNELS[0].gradient(np.zeros_like(w), w, y, scale, np.empty(0))
    cost = learning(model).loss
    for i in range(y.size):

        def whole(u, i=i):
            return (u - w[0, i]) ** 2 / (2 * scale) + float(cost(y[i], u))

        grid = np.linspace(w[0, i] - 8, w[0, i] + 8, 4001)
        start = min(grid, key=whole)
        best = optimize.minimize_scalar(
            whole, bounds=(start - 0.01, start + 0.01), method="bounded", options={"xatol": 1e-10}
        )
        assert value[i] == pytest.approx(best.fun, abs=1e-6)
        assert w[0, i] + scale * gain[i] == pytest.approx(best.x, abs=1e-4)
        assert loss[i] == pytest.approx(float(cost(y[i], w[0, i] + scale * gain[i])), abs=1e-9)


@pytest.mark.parametrize("text", _but("absolute", "logistic"))
def test_the_derivatives_of_the_envelope(text):
    """In U and in N, by differences of generated kernels: linear at two tokens, loss, slope and curvature."""
    model = model_of(text, "sign" if text in ("hinge", "logistic") else "gaussian")
    module = generate(derive("linear", "spiked", 2, model)).load()
    rng = np.random.default_rng(2)
    x, w = rng.normal(0, 0.7, (2, 2, 30))
    y = np.sign(rng.normal(size=30)) if model.margin else rng.normal(0, 1, 30)
    kernel, step = module.KERNELS[0], 1e-6
    value, slope, curvature = kernel.hessian(x, w, y, 0.7, np.empty(0))
    assert np.abs(value - kernel.loss(x, w, y, 0.7, np.empty(0))).max() < 1e-13
    for i in range(2):
        move = np.zeros_like(x)
        move[i] = step
        up, down = (kernel.hessian(x + s * move, w, y, 0.7, np.empty(0)) for s in (1, -1))
        rough = np.abs((up[1] - down[1]) / (2 * step) - curvature[i]).max(axis=0)
        assert np.abs((up[0] - down[0]) / (2 * step) - slope[i]).max() < 1e-6
        assert np.median(rough) < 1e-6 and (rough < 1e-4).mean() > 0.9  # a kink may lie between


def test_losses_with_pieces_are_in_closed_form():
    for text in ("absolute", "huber:2", "hinge"):
        found = eliminate_values(model_of(text, "sign" if text == "hinge" else "gaussian"))
        assert not sp.Tuple(*[e for _, e in found.steps]).has(sp.Function("loss_prox")) and found.convex
        assert not found.smooth
    assert eliminate_values(model_of("logistic", "sign")).smooth
    assert not eliminate_values(model_of("log(1 + (y - f)**2)")).convex


def test_training_rounds_off_what_jumps():
    """The envelope of a loss whose slope jumps is below it by at most tau/2, and has its slope away from the jump."""
    assert roundings(model_of("huber:1")) == roundings(model_of("logistic", "sign")) == (None,)
    model = model_of("absolute")
    sharp, rounded = learning(model), learning(model, roundings(model)[-1])
    y, f = np.random.default_rng(0).normal(size=(2, 50))
    below = sharp.loss(y, f) - rounded.loss(y, f)
    assert below.min() >= 0 and below.max() <= roundings(model)[-1] / 2 + 1e-12
    assert np.abs(sharp.loss_by_output(y, f) - rounded.loss_by_output(y, f)).max() < 1e-12


def test_labels_are_drawn_by_their_chances():
    """Mean and square of drawn labels against the moments of a generated module; false alarms: 6e-5."""
    for labels, loss in (("logit:2", "logistic"), ("outliers:0.2:3", "quadratic")):
        model = model_of(loss, labels)
        module = generate(derive("1", "spiked", 1, model)).load()
        rng = np.random.default_rng(3)
        z = rng.standard_normal(200_000)
        y = learning(model).label(z, 0.4, rng)
        square, along, _ = module.label_moments(0.4)
        for sample, mean in ((y * y, square), (y * z, along)):
            assert abs(sample.mean() - mean) < 4.5 * sample.std() / np.sqrt(z.size) + 1e-9


def test_a_model_is_part_of_what_was_asked():
    found = rc.solve("1", tokens=1, alpha=2, loss="huber:1", bayes=False)
    assert found.asked["loss"] == "huber:1" and found.asked["labels"] == "gaussian"
    assert "test_loss" in found.to_dict() and "classification_error" not in found.to_dict()
    plain = rc.solve("1", tokens=1, alpha=2, bayes=False)
    assert "loss" not in plain.asked and "test_loss" not in plain.to_dict()


@pytest.mark.parametrize(
    "loss, labels", [("logistic", "sign"), pytest.param("huber:1", "outliers:0.1:4", marks=pytest.mark.full)]
)
def test_every_step_of_the_derivation_holds(loss, labels):
    """Both sides of each step at a random point, as tests/unit/test_chain.py does for the default."""
    system = derive("1", "spiked", 1, model_of(loss, labels))
    for step in system.steps:
        free = sorted((step.lhs - step.rhs).free_symbols, key=str)
        at = {s: sp.Rational(3 + 2 * i, 7 + i) / (1 + (s.name.startswith("m_"))) for i, s in enumerate(free)}
        if not any(e.has(sp.Integral, sp.Function("loss_prox")) for e in (step.lhs, step.rhs)):
            gap = (step.lhs - step.rhs).doit().subs(at).evalf(30)
            assert abs(gap) < 1e-20, step.rule
    assert Y in system.model.loss.free_symbols and F in system.model.loss.free_symbols


def test_population_takes_squares_and_gaussian_labels():
    point = {"tokens": 2, "nu": 2.0, "noise": 0.3}
    plain = rc.population("linear", **point)
    assert rc.population("linear", **point, loss="3*(y - f)**2", spectrum="power:1:9").excess_risk == plain.excess_risk
    for more, said in (({"loss": "huber:1"}, "least squared error"), ({"labels": "magnitude"}, "linear in z and xi")):
        with pytest.raises(rc.Refusal, match=said):
            rc.population("linear", **point, **more)


def test_the_properties_of_loss_and_labels(monkeypatch):
    model = model_of("logistic", "logit:2")
    module = generate(derive("1", "spiked", 1, model)).load()
    assert {v.outcome for v in learned_properties(module, model, {}).values()} == {"passed", "not applicable"}
    other = generate(derive("1", "spiked", 1, model_of("softplus(-2*y*f)", "logit:1"))).load()
    found = {name for name, v in learned_properties(other, model, {}).items() if v.outcome == "failed"}
    assert found == {"loss: the values are eliminated", "labels: moments"}
    rates = module.residual
    monkeypatch.setattr(module, "residual", lambda *a, **b: 1.01 * rates(*a, **b))
    name = "loss and labels: residual is the gradient"
    assert learned_properties(module, model, {})[name].outcome == "failed"
