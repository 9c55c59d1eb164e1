"""Trained estimators against their theory, for other losses and labels: one Holm family of quantities and points.

The chance that a right theory is rejected is FALSE_ALARM for each test function. The same numbers reject a theory whose
test risks are wrong by the `shift` of validation/statistics/comparison.py where the power is stated.
"""

import numpy as np
import pytest

from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive
from replicode.theory.language.losses import model_of
from replicode.validation.experiment import run
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import compare_grid
from replicode.validation.statistics.measure import QUANTITIES

FALSE_ALARM = 1e-3


def trained(act, tokens, loss, labels, points, dims, seeds):
    """Theory and trainings at each (alpha, nu, noise, lambda) by name."""
    model = model_of(loss, labels)
    module = generate(derive(act, "spiked", tokens, model)).load()
    values, theory, errors = {}, {}, {}
    for alpha, nu, noise, penalty in points:
        name = f"{act} {loss} {labels} {alpha} {nu} {noise} {penalty}"
        solution = module.solve(alpha, nu, noise, penalty, penalty, tol=None)
        assert solution.converged and solution.rs_stable, name
        attention = GeneratedAttention(module, nu, noise, np.empty(0), model)
        found = run(
            attention.setting(alpha),
            attention,
            (penalty, penalty),
            attention.start("informed"),
            attention.risk,
            dims,
            seeds,
        )
        fields = {**solution._asdict(), **solution.order_parameters}
        theory[name] = {q: fields[q] for q in QUANTITIES if q in fields}
        known = {**solution.errors, "test_risk": solution.error}
        errors[name], values[name] = {q: known[q] for q in theory[name]}, found.values
        assert not found.failures, name
    return values, theory, errors


def compared(cases, dims, seeds):
    """All cases as one family."""
    parts = [trained(*case, dims, seeds) for case in cases]
    values, theory, errors = ({k: v for part in parts for k, v in part[i].items()} for i in range(3))
    return compare_grid(values, theory, errors, false_alarm=FALSE_ALARM)


REGRESSION = [
    ("1", 1, "huber:1", "outliers:0.1:5", [(3.0, 0.0, 0.3, 1.0)]),
    ("1", 1, "logistic", "logit:2", [(3.0, 0.0, 0.0, 0.5)]),
]
MORE_REGRESSION = [
    ("1", 1, "huber:1", "outliers:0.1:5", [(2.0, 0.0, 0.3, 0.2), (6.0, 0.0, 1.0, 1.0)]),
    ("1", 1, "absolute", "gaussian", [(3.0, 0.0, 0.3, 1.0), (4.0, 0.0, 1.0, 0.5)]),
    ("1", 1, "hinge", "sign", [(3.0, 0.0, 0.3, 1.0)]),
    ("1", 1, "logistic", "probit:2", [(5.0, 0.0, 0.0, 0.1)]),
    ("1", 1, "(y - f)**2/2", "magnitude", [(3.0, 0.0, 0.3, 1.0)]),
]
POINTS = [(4.0, 2.0, 0.3, 1.0), (3.0, 3.0, 0.5, 0.7), (6.0, 2.0, 0.1, 1.0)]
ATTENTION = [
    ("softmax", 2, "huber:1", "gaussian", POINTS),
    ("softmax", 2, "logistic", "sign", POINTS),
    ("linear", 2, "huber:1", "gaussian", POINTS),
    ("linear", 2, "logistic", "sign", POINTS),
]


def told(found):
    return {n: (round(t.z, 1), t.p) for n, t in found.tests.items() if t.p < 0.05}


def test_regression_agrees_with_trained_estimators():
    found = compared(REGRESSION, (40, 80), 20)
    assert found.p_value > FALSE_ALARM, told(found)


@pytest.mark.full
def test_more_regression_agrees_with_trained_estimators():
    found = compared(MORE_REGRESSION, (60, 120, 240), 40)
    assert found.p_value > FALSE_ALARM, told(found)


@pytest.mark.full
@pytest.mark.parametrize("case", ATTENTION, ids=lambda c: f"{c[0]} {c[2]}")
def test_attention_agrees_with_trained_attention(case):
    found = compared([case], (120, 240, 480), 60)
    assert found.p_value > FALSE_ALARM, told(found)
    assert found.verdict == "agrees", (found.verdict, found.power)
