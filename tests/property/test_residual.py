"""`residual` is the gradient of `free_energy` in all twelve unknowns, at points that solve nothing."""

from functools import cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import BUILT_IN, PARAMETERS, system_of

from replicode.codegen.compiler import generate

ORDER = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")
CONJUGATES = ("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v")
CASE = {"alpha": 2.3, "nu": 1.4, "noise": 0.35, "lambda_k": 0.7, "lambda_v": 1.2}
POINT = {"m_k": 0.35, "q_k": 0.6, "V_k": 0.4, "m_v": 0.5, "q_v": 0.8, "V_v": 0.3} | {
    "mh_k": 0.6, "qh_k": 0.5, "Vh_k": 0.8, "mh_v": -0.9, "qh_v": 1.1, "Vh_v": 1.4,
}  # fmt: skip
ACCURACY = 1e-5
STEP = 2e-3


def _called(function, point, nodes, parameters):
    order, conjugates = ({n: point[n] for n in names} for names in (ORDER, CONJUGATES))
    return function(order, conjugates, **CASE, nodes=nodes, **parameters)


def _difference(module, point, unknown, nodes, parameters):
    """Fourth-order central difference of the free energy in one unknown."""

    def at(move):
        return _called(module.free_energy, {**point, unknown: point[unknown] + move}, nodes, parameters)

    near, far = ((at(h) - at(-h)) / (2 * h) for h in (STEP, 2 * STEP))
    return (4 * near - far) / 3


@cache
def loaded(text, tokens):
    return generate(system_of(text, tokens)).load()


def check(text, tokens, point, nodes):
    module = loaded(text, tokens)
    parameters = {p: float(PARAMETERS[p]) for p in module.PARAMETERS}
    found = _called(module.residual, point, nodes, parameters)
    assert found.shape == (12,)
    for value, unknown in zip(found, (*ORDER, *CONJUGATES), strict=True):
        # E[M] does not depend on the conjugates, so that few nodes do for them.
        expected = _difference(module, point, unknown, nodes if unknown in ORDER else 50, parameters)
        assert value == pytest.approx(expected, rel=ACCURACY, abs=ACCURACY), unknown


SMALL = {"V_k": 0.1, "V_v": 0.1}
NODES = {1: 9_000, 2: 27_000, 3: 120_000}  # softmax; what needs two dimensions more gets ten times as many


@pytest.mark.parametrize("tokens, widths", [(1, {}), (2, {}), (2, {"V_k": 0.6, "V_v": 0.2}), (3, SMALL)])
def test_softmax(tokens, widths):
    check(BUILT_IN["softmax"], tokens, POINT | widths, NODES[tokens])


def test_linear_at_one_token():
    check(BUILT_IN["linear"], 1, POINT | SMALL, 10 * NODES[1])


def test_where_the_prox_jumps():
    """On a few Sobol nodes, where no average is known to 1e-3: the rates are derivatives of their sum for E[M]."""
    check(BUILT_IN["linear"], 2, POINT | {"V_k": 0.7, "V_v": 0.6}, 4_000)


TEXTS = st.sampled_from(
    [
        "sigmoid(x)",
        "1 + erf(c + x)",
        "exp(x)/(1 + sum(exp(x)))",
        "softplus(x)/sum(softplus(x))",
        "tanh(x - mean(x))/L + c",
        "sigmoid(c*x)/(1 + mean(sigmoid(x)**2))",
    ]
)


@st.composite
def points(draw):
    """Physical points: q > m^2, V > 0, and V_k small enough that the prox does not jump."""
    number = {n: draw(st.integers(0, 100)) / 100 for n in POINT}
    point = {**POINT}
    for b in ("k", "v"):
        m = point[f"m_{b}"] = number[f"m_{b}"] - 0.5
        point[f"q_{b}"] = m * m + 0.2 + 0.6 * number[f"q_{b}"]
        point[f"V_{b}"] = 0.1 + 0.2 * number[f"V_{b}"]
        point[f"mh_{b}"] = 2 * number[f"mh_{b}"] - 1
        point[f"qh_{b}"] = 0.1 + number[f"qh_{b}"]
        point[f"Vh_{b}"] = 0.1 + number[f"Vh_{b}"]
    return point


@settings(max_examples=2, phases=[Phase.explicit, Phase.generate])  # shrinking would take minutes
@given(TEXTS, st.integers(1, 2), points())
def test_random_activations_and_points(text, tokens, point):
    check(text, tokens, point, 10 * NODES[tokens])


def test_the_order_of_the_gradient():
    """Moving one conjugate changes the entries that it multiplies, and no others of the first six."""
    module = loaded(BUILT_IN["linear"], 1)
    base = _called(module.residual, POINT, 500, {})
    for i, (conjugate, factor) in enumerate(zip(CONJUGATES, (1.0, 0.5, -0.5) * 2, strict=True)):
        moved = _called(module.residual, {**POINT, conjugate: POINT[conjugate] + 0.25}, 500, {})
        change = np.zeros(6)
        change[{0: 0, 1: 2, 2: 1}[i % 3] + 3 * (i // 3)] = 0.25 * factor
        np.testing.assert_allclose((moved - base)[:6], change, atol=1e-12)
