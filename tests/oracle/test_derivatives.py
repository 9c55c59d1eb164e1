"""Derivatives of a solution against differences of solutions, and the implicit function theorem against itself."""

import numpy as np
import pytest

from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive
from replicode.theory.model import STRUCTURED_MODEL

POINT = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
STEP = 2e-2
SIX_DIGITS = 1e-6
QUANTITIES = ("test_risk", "excess_risk", "train_loss", "energy", "m_k", "q_k", "V_v", "mh_k", "qh_v")


def _module(activation="softmax", tokens=2, task="spiked"):
    return generate(derive(activation, task, tokens)).load()


@pytest.fixture(scope="module")
def softmax():
    return _module()


def _numbers(found):
    known = found._asdict() | found.order_parameters | found.conjugates
    return np.array([known[q] for q in QUANTITIES])


def _differenced(module, point, name, tol):
    """A central difference of fourth order of solves from the solution itself."""
    start = module.solve(**point, tol=tol).order_parameters
    step = STEP * point[name]

    def at(h):
        return _numbers(module.solve(**point | {name: point[name] + h}, tol=tol, init=start, branches=False))

    near, far = ((at(h * step) - at(-h * step)) / (2.0 * h * step) for h in (1.0, 2.0))
    return (4.0 * near - far) / 3.0


def _compared(module, point, names, tol, allowed=SIX_DIGITS):
    found = module.solve(**point, tol=tol, derivatives=True)
    for name in names:
        here = np.array([found.derivatives[name][q] for q in QUANTITIES])
        errors = np.array([found.derivative_errors[name][q] for q in QUANTITIES])
        gap = np.abs(here - _differenced(module, point, name, tol))
        assert (gap <= allowed * np.maximum(1.0, np.abs(here))).all(), (name, gap)
        assert (errors <= 10.0 * allowed * np.maximum(1.0, np.abs(here))).all(), (name, errors)


def test_softmax_two_tokens(softmax):
    _compared(softmax, POINT, POINT, 1e-10)


def test_mixture_of_lengths():
    _compared(_module(tokens="1:0.5,2:0.5"), POINT, ("nu", "lambda_k"), 1e-10)


def test_structured_tokens():
    """The strengths enter the prior through means over the eigenvalues."""
    module, spectrum = generate(derive("softmax", "spiked", 2, STRUCTURED_MODEL)).load(), [3.0, 1.0, 0.2]
    found = module.solve(**POINT, tol=1e-10, spectrum=spectrum, derivatives=("alpha", "lambda_k", "lambda_v"))
    for name in ("lambda_k", "lambda_v"):
        ends = [module.solve(**POINT | {name: 1.0 + h}, tol=1e-10, spectrum=spectrum) for h in (1e-3, -1e-3)]
        expected = (_numbers(ends[0]) - _numbers(ends[1])) / 2e-3
        assert [found.derivatives[name][q] for q in QUANTITIES] == pytest.approx(expected, abs=1e-6)


def test_nodes_that_are_kept_follow_a_setting():
    """Signed nodes keep their parts and what they last gave: both are of the setting as it was."""
    module = _module(tokens=3)
    setting = module.settings_of(2.0, 0.3, np.array([]))[0]
    order, channel = np.array([0.4, 0.3, 0.7, 0.4, 0.3, 0.7]), module.SignedChannel(1, setting, 6.0)
    channel.adapt(order)
    before = channel.averages(order).rates
    moved = module.on_same_nodes(channel, "nu", 0.5)
    fresh = module.SignedChannel(1, moved.setting, 6.0)
    fresh.adapt(order)
    fresh.center, fresh.scale = channel.center, channel.scale
    assert moved.averages(order).rates == pytest.approx(fresh.averages(order).rates, abs=1e-14)
    assert np.abs(channel.averages(order).rates - before).max() == 0.0
    assert np.abs(moved.averages(order).rates - before).max() > 1e-3


def test_max_task():
    _compared(_module(task="max"), POINT, ("nu", "lambda_v"), 1e-8)


def test_a_parameter_of_the_activation():
    _compared(_module("tempered"), POINT | {"beta": 1.3}, ("beta",), 1e-10)


@pytest.mark.full
@pytest.mark.parametrize(
    ("activation", "tokens", "task", "tol"),
    [
        ("linear", 2, "spiked", 1e-8),
        ("softmax", 3, "spiked", 1e-7),
        ("softmax", 2, "max", 1e-10),
        ("softmax", "1:0.5,2:0.5", "spiked", 1e-10),
    ],
)
def test_all_parameters(activation, tokens, task, tol):
    _compared(_module(activation, tokens, task), POINT, POINT, tol)


@pytest.mark.full
def test_where_folds_weigh_the_error_covers(softmax):
    """At nu = 1, lambda = 0.3 folds are subtracted, and no derivative is derived."""
    point = POINT | {"nu": 1.0, "lambda_k": 0.3, "lambda_v": 0.3}
    found = softmax.solve(**point, tol=1e-6, derivatives=("alpha", "noise"))
    assert found.folded_mass > 1e-6
    for name in ("alpha", "noise"):
        here = np.array([found.derivatives[name][q] for q in QUANTITIES])
        errors = np.array([found.derivative_errors[name][q] for q in QUANTITIES])
        gap = np.abs(here - _differenced(softmax, point, name, 1e-7))
        assert (gap <= errors + 1e-4 * np.abs(here)).all(), (name, gap, errors)


def test_lambda_and_alpha_take_no_further_pass(softmax):
    """What alpha and the lambdas need is derived; the nodes are visited for the Hessian of E[M] only."""
    found = softmax.solve(**POINT, tol=1e-6, derivatives=True)
    assert found.derivative_methods["lambda_k"] == found.derivative_methods["alpha"] == "derived"
    assert found.derivative_methods["nu"].startswith("differences")


def test_energy_follows_its_explicit_derivative(softmax):
    """At the saddle f moves by what is explicit in it: df/dlambda_b = q_b/2."""
    found = softmax.solve(**POINT, tol=1e-9, derivatives=("lambda_k", "lambda_v"))
    for block in "kv":
        slope = found.derivatives[f"lambda_{block}"]["energy"]
        assert abs(slope - found.order_parameters[f"q_{block}"] / 2.0) < 1e-12


def test_no_derivative_at_an_infinite_signal():
    found = _module(task="max").solve(**POINT | {"nu": np.inf}, tol=1e-4, derivatives=True)
    assert "nu" not in found.derivatives and "alpha" in found.derivatives


def test_unknown_parameter_is_refused(softmax):
    with pytest.raises(ValueError, match="derivatives"):
        softmax.solve(**POINT, derivatives=("beta",))


def test_warm_start_ends_where_the_cold_one_does(softmax):
    start = softmax.solve(**POINT, tol=1e-6).order_parameters
    point = POINT | {"alpha": 4.4}
    warm = softmax.solve(**point, tol=1e-10, init=start)
    cold = softmax.solve(**point, tol=1e-10)
    assert abs(warm.test_risk - cold.test_risk) <= warm.error + cold.error
    assert warm.iterations < cold.iterations
    with pytest.raises(ValueError, match="keys"):
        softmax.solve(**point, init={"m_k": 1.0})
