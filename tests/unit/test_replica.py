"""The replica calculation: RS matrices, both channel rules, the prior, and every step of a derivation by numbers."""

import mpmath
import pytest
import sympy as sp
from mpmath import mpf

from theory.errors import Refusal
from theory.model import LAMBDA, LAMBDAS, MH, QH, RESIDUAL, THETA, VH, M, Model, Q, V
from theory.replica import (
    BETA,
    N_REPLICAS,
    ReplicaMatrix,
    gaussian_channel,
    ground_state,
    per_replica,
    prior_free_energy,
)
from theory.saddle import derive

FIRST = ReplicaMatrix(sp.Rational(7, 5), sp.Rational(-1, 3))
SECOND = ReplicaMatrix(sp.Rational(2, 3), sp.Rational(5, 4))
MODELS = [Model(), Model(loss=3 * RESIDUAL**2, penalty=5 * LAMBDA * THETA**2)]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_replica_matrices(size):
    matrix, other = FIRST.explicit(size), SECOND.explicit(size)
    assert matrix == sp.Matrix(size, size, lambda i, j: FIRST.b + (FIRST.a if i == j else 0))
    at = {N_REPLICAS: size}
    inverse = FIRST.inverse()
    assert sp.Matrix(inverse.explicit(size).subs(at)) == matrix.inv()
    assert sp.simplify(sp.exp(SECOND.log_det().subs(at)) - other.det()) == 0
    assert FIRST.sum().subs(at) == sum(matrix)
    assert FIRST.trace_with(SECOND).subs(at) == (matrix * other).trace()
    assert inverse.trace_with(FIRST).subs(at) == size


def test_limits():
    c = sp.Symbol("c")
    assert per_replica(sp.exp(c * N_REPLICAS) - 1 + N_REPLICAS**2) == c
    assert ground_state(-3 * BETA + sp.log(BETA)) == 3


@pytest.mark.parametrize("model", MODELS)
def test_gaussian_channel(model):
    """E min_z (z - w)^2/(2 V) + c (y - z)^2/2 is c D / (2 (1 + c V)), two springs in series."""
    step = gaussian_channel(model)
    v, d, c = sp.Symbol("V", positive=True), sp.Symbol("D", positive=True), model.loss_curvature()
    assert sp.simplify(step.lhs - step.rhs) == 0
    assert sp.simplify(step.rhs - c * d / (2 * (1 + c * v))) == 0


@pytest.mark.parametrize("size", [1, 2, 3])
def test_replicated_gaussian_channel(size):
    """The determinant behind `gaussian_channel`, by the covariance of the residuals of `size` replicas."""
    v, d, beta = sp.Rational(3, 7), sp.Rational(5, 2), sp.Rational(11, 3)
    covariance = v / beta * sp.eye(size) + d * sp.ones(size)
    ruled = ReplicaMatrix(1 + v, beta * d).log_det().subs(N_REPLICAS, size)
    assert sp.simplify(sp.exp(ruled) - (sp.eye(size) + beta * covariance).det()) == 0


def _replicated(steps):
    """The replicated prior integral with its Legendre terms, as the derivation differentiates it in n."""
    (step,) = (s for s in steps if s.rule.startswith("prior integral"))
    derivative = step.lhs.args[0]
    assert derivative.variables == (N_REPLICAS,)
    return derivative.expr


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_replicated_prior_is_a_gaussian_integral(model, size):
    """int dtheta* N(theta*) prod dtheta_a exp(...), as the determinant of an explicit precision matrix."""
    mt, qt, vt = sp.symbols("mt qt Vt", positive=True)
    point = {
        mt: "0.3",
        qt: "0.2",
        vt: "1.7",
        BETA: "2.5",
        LAMBDAS["k"]: "0.6",
        M["k"]: "0.4",
        Q["k"]: "1.1",
        V["k"]: "0.9",
    }
    point = {s: sp.Rational(v) for s, v in point.items()}
    found = _replicated(prior_free_energy(model, "k").steps).subs(N_REPLICAS, size).subs(point).evalf(30)

    curvature = model.penalty_curvature().subs(LAMBDA, LAMBDAS["k"])
    students = (BETA * curvature + vt) * sp.eye(size) - qt * sp.ones(size)
    precision = sp.Matrix(sp.BlockMatrix([[sp.ones(1), -mt * sp.ones(1, size)], [-mt * sp.ones(size, 1), students]]))
    overlaps = V["k"] / BETA * sp.eye(size) + Q["k"] * sp.ones(size)
    legendre = (overlaps * (vt * sp.eye(size) - qt * sp.ones(size))).trace() / 2 - size * mt * M["k"]
    expected = sp.log((2 * sp.pi) ** size / precision.det()) / 2 + legendre
    assert abs(found - expected.subs(point).evalf(30)) < 1e-25


@pytest.mark.parametrize("block", ["k", "v"])
@pytest.mark.parametrize("model", MODELS)
def test_prior_free_energy_is_a_minimum_in_a_random_field(model, block):
    """At zero temperature: E min_theta penalty + Vh theta^2/2 - (mh theta* + sqrt(qh) xi) theta, and Legendre terms."""
    field = sp.Symbol("field", real=True)
    objective = model.penalty.subs(LAMBDA, LAMBDAS[block]) + VH[block] * THETA**2 / 2 - field * THETA
    (best,) = sp.solve(sp.diff(objective, THETA), THETA)
    minimum = sp.expand(objective.subs(THETA, best)).subs(field**2, MH[block] ** 2 + QH[block])
    legendre = M[block] * MH[block] - Q[block] * VH[block] / 2 + V[block] * QH[block] / 2
    assert sp.simplify(prior_free_energy(model, block).value - minimum - legendre) == 0


def test_prior_is_stationary_where_it_should_be():
    value = prior_free_energy(Model(), "v").value
    m, q, v, mh, qh, vh, weight = (s["v"] for s in (M, Q, V, MH, QH, VH, LAMBDAS))
    width = 1 / (weight + vh)
    at = {v: width, m: mh * width, q: (mh**2 + qh) * width**2}
    for conjugate in (mh, qh, vh):
        assert sp.simplify(sp.diff(value, conjugate).subs(at, simultaneous=True)) == 0


def test_models_that_leave_the_gaussian_world_are_refused():
    with pytest.raises(Refusal, match="penalty"):
        Model(penalty=LAMBDA * sp.Abs(THETA)).penalty_curvature()
    with pytest.raises(Refusal, match="loss"):
        Model(loss=RESIDUAL**2 / 2 + RESIDUAL).loss_curvature()


def _number(expr, point):
    """The expression at a point; derivatives at n = 0 and limits beta -> infinity are taken numerically."""
    if isinstance(expr, sp.Subs):
        (variable,), (where,) = expr.variables, expr.point
        assert isinstance(expr.expr, sp.Derivative)
        inner = expr.expr.expr.xreplace(point)
        h = mpf(10) ** -20
        up, down = (_number(inner, {variable: sp.Float(str(where + s * h), 60)}) for s in (1, -1))
        return (up - down) / (2 * h)
    if isinstance(expr, sp.Limit):
        body, variable, where = expr.args[:3]
        assert where == sp.oo
        return _number(body, {**point, variable: sp.Integer(10) ** 30})
    return mpf(str(expr.xreplace(point).evalf(60)))


@pytest.fixture(scope="module")
def steps():
    return derive("softmax").steps


@pytest.mark.parametrize("seed", [1, 2])
def test_every_step_by_numbers(seed, steps):
    assert len(steps) >= 9
    with mpmath.workdps(60):
        for step in steps:
            symbols = (step.lhs.free_symbols | step.rhs.free_symbols) - {N_REPLICAS if step.lhs.has(sp.Subs) else None}
            point = {s: _draw(s, seed) for s in sorted(symbols, key=lambda s: s.name)}
            assert abs(_number(step.lhs, point) - _number(step.rhs, point)) < mpf(10) ** -25, step.rule


def _draw(symbol, seed):
    """A value for a symbol; the replicated prior exists only while qt and mt are small."""
    code = sum(ord(c) * 31**i for i, c in enumerate(f"{symbol.name}{seed}"))
    value = sp.Rational(code % 997 + 200, 1200)
    return value / 20 if symbol.name in ("mt", "qt") else value
