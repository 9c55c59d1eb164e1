"""Laws of every activation, loss and label: the residual is the gradient of the free energy; units; the energy."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive
from replicode.theory.language.losses import model_of
from replicode.theory.model import EIGENVALUE

CASE = {"alpha": 2.3, "nu": 1.4, "noise": 0.35, "lambda_k": 0.7, "lambda_v": 1.2}
STEP = 2e-3


@cache
def loaded(act, tokens, loss, labels, structured=False):
    model = model_of(loss, labels)
    model = replace(model, covariance=EIGENVALUE) if structured else model
    return generate(derive(act, "spiked", tokens, model)).load()


# What an average of a function with kinks has on so many nodes decides the accuracy.
REGRESSION = [
    ("1", 1, "logistic", "logit:2", 3_000, 1e-6),
    ("1", 1, "huber:1", "outliers:0.2:3", 1_000_000, 1e-4),
    ("1", 1, "absolute", "gaussian", 100_000, 1e-4),
    ("2", 2, "hinge", "sign", 100_000, 1e-3),
    ("1", 1, "log(1 + exp(f - y)) + (y - f)**2/3", "tanh(z) + noise*xi", 60_000, 1e-4),
]
ATTENTION = [
    ("softmax", 2, "logistic", "sign", 30_000, 1e-5),
    ("softmax", 2, "huber:1", "gaussian", 6_000, 2e-2),
    ("softmax", 2, "quadratic", "outliers:0.2:3", 40_000, 1e-4),
]
overlap = st.floats(-0.6, 0.6)
spread = st.floats(0.3, 1.2)
response = st.floats(0.2, 0.7)
conjugate = st.floats(0.2, 1.5)


def check(case, draw, spectrum=None):
    """Every component of the residual against a difference of the free energy."""
    act, tokens, loss, labels, nodes, accuracy = case
    module = loaded(act, tokens, loss, labels, spectrum is not None)
    data = {} if spectrum is None else {"spectrum": spectrum}
    order, conjugates = {}, {}
    for block in ("k", "v"):
        if f"m_{block}" in module.ORDER_NAMES:
            m, room, v = draw(overlap), draw(spread), draw(response)
            order |= {f"m_{block}": m, f"q_{block}": m * m + room, f"V_{block}": v}
            conjugates |= {f"{name}_{block}": draw(conjugate) for name in ("mh", "qh", "Vh")}
    found = module.residual(order, conjugates, **CASE, **data, nodes=nodes)
    assert found.size == 2 * len(order)

    def energy(name, move):
        moved = [{n: x + move * (n == name) for n, x in part.items()} for part in (order, conjugates)]
        enough = nodes if name in order else 50  # E[M] has no conjugates
        return module.free_energy(*moved, **CASE, **data, nodes=enough)

    for value, name in zip(found, (*module.ORDER_NAMES, *module.CONJUGATE_NAMES), strict=True):
        near, far = ((energy(name, h) - energy(name, -h)) / (2 * h) for h in (STEP, 2 * STEP))
        assert value == pytest.approx((4 * near - far) / 3, rel=accuracy, abs=accuracy), name


@pytest.mark.parametrize("case", REGRESSION[:2], ids=lambda c: f"{c[2]} {c[3]}")
@given(data=st.data())
@settings(max_examples=2)
def test_the_residual_is_the_gradient(case, data):
    check(case, data.draw)


@pytest.mark.full
@pytest.mark.parametrize("case", [*REGRESSION[2:], *ATTENTION], ids=lambda c: f"{c[0]} {c[2]} {c[3]}")
@given(data=st.data())
@settings(max_examples=1)
def test_the_residual_is_the_gradient_of_more(case, data):
    check(case, data.draw)


# (nodes, accuracy) of regression and of attention: kinks, and labels that are sampled, are slow to average.
FEW = {"smooth": ((3_000, 1e-5), (60_000, 1e-4)), "rough": ((400_000, 1e-3), (100_000, 3e-2))}
ANY_LABEL = {"quadratic": "smooth", "log(1 + exp(f - y)) + (y - f)**2/3": "smooth", "huber:0.8": "rough"}
ANY_LABEL |= {"absolute": "rough", "log(1 + (y - f)**2)": "smooth"}
TWO_LABELS = {"logistic": "smooth", "hinge": "rough", "softplus(1 - 2*y*f)": "smooth"}
REAL = {"gaussian": "smooth", "outliers:0.2:3": "smooth", "magnitude": "rough", "tanh(z) + noise*xi": "rough"}
SAMPLED = ("magnitude", "tanh(z) + noise*xi")  # with two tokens more dimensions than these nodes resolve
SIGNS = {"sign": "smooth", "logit:2": "smooth", "probit:1.5": "smooth"}
SCORES = [("softmax", 2), ("linear", 1), ("sigmoid(x)", 1), ("exp(x)/(1 + sum(exp(x)))", 2), ("linear", 2)]
CONSTANTS = [("1", 1), ("2", 2)]


@st.composite
def models(draw, activations):
    """An activation, a loss, a label that it can take, and a spectrum now and then, with the nodes that they need."""
    act, tokens = draw(st.sampled_from(activations))
    real = draw(st.booleans())
    told = {name: kind for name, kind in REAL.items() if tokens == 1 or name not in SAMPLED}
    losses, labels = (ANY_LABEL, told) if real else (TWO_LABELS | {"quadratic": "smooth"}, SIGNS)
    loss, label = draw(st.sampled_from(sorted(losses))), draw(st.sampled_from(sorted(labels)))
    kind = "rough" if "rough" in (losses[loss], labels[label]) else "smooth"
    if draw(st.booleans()):
        size = draw(st.integers(1, 4))
        columns = [[draw(st.floats(0.1, 3.0)) for _ in range(size)] for _ in range(3)]
        spectrum = np.array(columns).T
    else:
        spectrum = None
    return (act, tokens, loss, label, *FEW[kind][act not in ("1", "2")]), spectrum


@given(models(CONSTANTS[:1]), st.data())
@settings(max_examples=2, phases=[Phase.generate], deadline=None)
def test_the_residual_is_the_gradient_for_drawn_models(drawn, data):
    check(drawn[0], data.draw, drawn[1])


@pytest.mark.full
@given(models([*SCORES, *CONSTANTS]), st.data())
@settings(max_examples=24, phases=[Phase.generate], deadline=None)
def test_the_residual_is_the_gradient_for_more_drawn_models(drawn, data):
    check(drawn[0], data.draw, drawn[1])


@given(scale=st.floats(0.3, 3.0))
@settings(max_examples=2)
def test_units_do_not_matter(scale):
    """sigma and v may trade a factor: the values of a constant c are those of 1 at lambda/c^2, over c."""
    plain, scaled = loaded("1", 1, "logistic", "logit:2"), loaded("1*c", 1, "logistic", "logit:2")
    one = plain.solve(4.0, 0.0, lambda_v=0.6 / scale**2, tol=1e-8)
    other = scaled.solve(4.0, 0.0, lambda_v=0.6, tol=1e-8, c=scale)
    assert other.test_risk == pytest.approx(one.test_risk, abs=1e-7)
    assert other.order_parameters["m_v"] * scale == pytest.approx(one.order_parameters["m_v"], abs=1e-7)


@pytest.mark.full
@given(alpha=st.floats(1.5, 8.0), penalty=st.floats(0.05, 2.0))
@settings(max_examples=6)
def test_idle_tokens_of_a_constant_are_noise(alpha, penalty):
    """Two tokens with sigma = 1: f has twice the variance; at the solution the energy is alpha train_loss + penalty."""
    module = loaded("2", 2, "hinge", "sign")
    found = module.solve(alpha, 0.0, 0.3, lambda_v=penalty, tol=1e-4)
    assert found.converged
    energy = alpha * found.train_loss + penalty * found.order_parameters["q_v"] / 2
    assert found.energy == pytest.approx(energy, abs=1e-3)
    assert np.isfinite(found.test_loss) and 0 < found.classification_error < 0.5
