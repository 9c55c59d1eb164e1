"""The replica calculation: RS matrices, both channel rules, and the prior against explicit integrals and minima."""

import pytest
import sympy as sp

from replicode.theory.derive.replica import (
    BETA,
    CHANNEL_FIELD,
    CHANNEL_V,
    CHANNEL_VARIANCE,
    CHANNEL_Z,
    MT,
    N_REPLICAS,
    QT,
    VT,
    ReplicaMatrix,
    gaussian_channel,
    ground_state,
    per_replica,
    prior_free_energies,
    prior_free_energy,
)
from replicode.theory.errors import Refusal
from replicode.theory.model import DEFAULT_MODEL, LAMBDA, THETA, F, Model, Y

FIRST = ReplicaMatrix(sp.Rational(7, 5), sp.Rational(-1, 3))
SECOND = ReplicaMatrix(sp.Rational(2, 3), sp.Rational(5, 4))
MODELS = [DEFAULT_MODEL, Model(loss=3 * (Y - F) ** 2, penalty=5 * LAMBDA * THETA**2)]
K, V = DEFAULT_MODEL.scores, DEFAULT_MODEL.values


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
    channel, c = gaussian_channel(model), model.loss_curvature()
    springs = c * CHANNEL_VARIANCE / (2 * (1 + c * CHANNEL_V))
    assert sp.simplify(channel.exact - springs) == 0
    assert sp.simplify(channel.ruled - springs) == 0
    at_rest = sp.solve(sp.diff(channel.objective, CHANNEL_Z), CHANNEL_Z)[0]
    assert sp.simplify(channel.minimum - channel.objective.subs(CHANNEL_Z, at_rest)) == 0
    assert sp.simplify(channel.minimum * CHANNEL_VARIANCE - springs * CHANNEL_FIELD**2) == 0


@pytest.mark.parametrize("size", [1, 2, 3])
def test_replicated_gaussian_channel(size):
    """The determinant behind `gaussian_channel`, by the covariance of the residuals of `size` replicas."""
    v, d, beta = sp.Rational(3, 7), sp.Rational(5, 2), sp.Rational(11, 3)
    covariance = v / beta * sp.eye(size) + d * sp.ones(size)
    ruled = ReplicaMatrix(1 + v, beta * d).log_det().subs(N_REPLICAS, size)
    assert sp.simplify(sp.exp(ruled) - (sp.eye(size) + beta * covariance).det()) == 0


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_replicated_prior_is_a_gaussian_integral(model, size):
    """int dtheta* N(theta*) prod dtheta_a exp(...), as the determinant of an explicit precision matrix."""
    point = {
        MT: "0.3",
        QT: "0.2",
        VT: "1.7",
        BETA: "2.5",
        K.strength: "0.6",
        K.m: "0.4",
        K.q: "1.1",
        K.V: "0.9",
    }
    point = {s: sp.Rational(v) for s, v in point.items()}
    found = prior_free_energy(model, K).replicated.subs(N_REPLICAS, size).subs(point).evalf(30)

    students = (BETA * model.penalty_curvature(K) + VT) * sp.eye(size) - QT * sp.ones(size)
    precision = sp.Matrix(sp.BlockMatrix([[sp.ones(1), -MT * sp.ones(1, size)], [-MT * sp.ones(size, 1), students]]))
    overlaps = K.V / BETA * sp.eye(size) + K.q * sp.ones(size)
    legendre = (overlaps * (VT * sp.eye(size) - QT * sp.ones(size))).trace() / 2 - size * MT * K.m
    expected = sp.log((2 * sp.pi) ** size / precision.det()) / 2 + legendre
    assert abs(found - expected.subs(point).evalf(30)) < 1e-25


@pytest.mark.parametrize("block", DEFAULT_MODEL.blocks)
@pytest.mark.parametrize("model", MODELS)
def test_prior_free_energy_is_a_minimum_in_a_random_field(model, block):
    """At zero temperature: E min_theta penalty + Vh theta^2/2 - (mh theta* + sqrt(qh) xi) theta, and Legendre terms."""
    field = sp.Symbol("field", real=True)
    objective = model.penalty.subs(LAMBDA, block.strength) + block.Vh * THETA**2 / 2 - field * THETA
    (best,) = sp.solve(sp.diff(objective, THETA), THETA)
    minimum = sp.expand(objective.subs(THETA, best)).subs(field**2, block.mh**2 + block.qh)
    legendre = block.m * block.mh - block.q * block.Vh / 2 + block.V * block.qh / 2
    assert sp.simplify(prior_free_energy(model, block).value - minimum - legendre) == 0


def test_prior_is_stationary_where_it_should_be():
    value = prior_free_energy(DEFAULT_MODEL, V).value
    m, q, v, mh, qh, vh, weight = V.m, V.q, V.V, V.mh, V.qh, V.Vh, V.strength
    width = 1 / (weight + vh)
    at = {v: width, m: mh * width, q: (mh**2 + qh) * width**2}
    for conjugate in (mh, qh, vh):
        assert sp.simplify(sp.diff(value, conjugate).subs(at, simultaneous=True)) == 0


def test_models_that_leave_the_gaussian_world_are_refused():
    with pytest.raises(Refusal, match="penalty"):
        Model(penalty=LAMBDA * sp.Abs(THETA)).penalty_curvature(K)
    with pytest.raises(Refusal, match="loss"):
        Model(loss=(Y - F) ** 2 / 2 + Y - F).loss_curvature()


@pytest.mark.parametrize("model", MODELS)
def test_the_renamed_block_is_the_derived_one(model):
    renamed, derived = prior_free_energies(model)["v"], prior_free_energy(model, V)
    assert renamed.precision == derived.precision
    for name in ("coupling", "legendre", "replicated", "entropy", "scaled", "value"):
        assert sp.simplify(getattr(renamed, name) - getattr(derived, name)) == 0
