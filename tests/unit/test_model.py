"""Changing the model and rescaling the activation: what must stay, and what must scale, through derive to solve."""

import pytest
from generated import module_of

from replicode.codegen.emit import generate
from replicode.theory.model import LAMBDA, THETA, F, Model, Y
from replicode.theory.saddle import derive

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
