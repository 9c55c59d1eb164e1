"""The derived Jacobian: Hamilton-Jacobi and the paths of the fields where all is Gaussian, and the twelve equations."""

import pytest
import sympy as sp

from replicode.theory.derive.curvature import derivable, derive_curvature, moved, second_rate_symbol
from replicode.theory.derive.saddle import derive, envelope_of, rate_symbol
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.model import ALPHA, DEFAULT_MODEL, NOISE, Y

HIDDEN, IDLE = DEFAULT_MODEL.hidden, DEFAULT_MODEL.idle
K, V = DEFAULT_MODEL.scores, DEFAULT_MODEL.values


@pytest.fixture(scope="module")
def ridge():
    return derive("softmax", "spiked", 1)


def _averaged(integrand, means, covariance):
    """The average of a polynomial of degree two in Gaussian fields."""
    fields = list(means)
    poly = sp.Poly(sp.expand(integrand), *fields)
    total = sp.S.Zero
    for powers, coefficient in poly.terms():
        factors = [f for f, p in zip(fields, powers, strict=True) for _ in range(p)]
        assert len(factors) <= 2
        moment = sp.Mul(*[means[f] for f in factors])
        total += coefficient * (moment + (covariance[factors[0], factors[1]] if len(factors) == 2 else 0))
    return total


def test_ridge_in_closed_form(ridge):
    """One token, sigma = 1: M = (y - w)^2 / (2 (1 + V)), so that E[M] and its Hessian are explicit."""
    found = derive_curvature(ridge)
    w, g = HIDDEN.w["v"], HIDDEN.g["v"]
    c = ridge.model.loss_curvature()
    envelope = c * (Y - w) ** 2 / (2 * (1 + c * V.V))
    law = ridge.hidden_law.marginal(w, Y)
    means = dict(zip(law.fields, law.mean, strict=True))
    cov = {(a, b): law.covariance[i, j] for i, a in enumerate(law.fields) for j, b in enumerate(law.fields)}
    explicit = _averaged(envelope, means, cov)
    gain = {g: -sp.diff(envelope, w)}
    for a in (V.m, V.q, V.V):
        for b in (V.m, V.q, V.V):
            moves = [found.displacements[s].hidden.subs(gain) for s in (a, b)]
            pair = (a, b) if (a, b) in found.bending else (b, a)
            bent = found.bending[pair].hidden.subs(gain) if pair in found.bending else 0
            rule = _averaged(moves[0] * sp.diff(envelope, w, 2) * moves[1] + bent, means, cov)
            assert sp.simplify(rule - sp.diff(explicit, a, b)) == 0, (a, b)


def test_two_tokens_with_a_quadratic_loss():
    """A loss chi^T K chi / 2 couples the hidden and the idle score: M = w^T K (I + V K)^-1 w / 2."""
    system = derive("linear", "spiked", 2)
    found = derive_curvature(system)
    k = sp.Matrix([[2, 1], [1, 3]])
    m, q, v = K.m, K.q, K.V
    w = sp.Matrix([HIDDEN.w["k"], IDLE.w["k"]])
    response = k * (sp.eye(2) + v * k).inv()
    gain = -response * w
    laws = [system.hidden_law.marginal(w[0]), system.idle_law.marginal(w[1])]
    means = {w[i]: laws[i].mean[0] for i in range(2)}
    cov = {(w[i], w[j]): laws[i].covariance[0] if i == j else sp.S.Zero for i in range(2) for j in range(2)}
    explicit = _averaged((w.T * response * w)[0] / 2, means, cov)
    gains = {HIDDEN.g["k"]: gain[0], IDLE.g["k"]: gain[1], HIDDEN.g["v"]: 0, IDLE.g["v"]: 0}
    for i, a in enumerate((m, q, v)):
        for b in (m, q, v)[i:]:
            one, two = (
                sp.Matrix([found.displacements[s].hidden, found.displacements[s].idle]).subs(gains) for s in (a, b)
            )
            bent = found.bending.get((a, b))
            more = sp.Add(bent.hidden, bent.idle).subs(gains) if bent else 0
            rule = _averaged((one.T * response * two)[0] + more, means, cov)
            assert sp.simplify(rule - sp.diff(explicit, a, b)) == 0, (a, b)


def test_the_rates_are_the_work_along_the_paths(ridge):
    """E[grad M . t] is what Price and Stein say of d E[M]/d theta, integrand by integrand."""
    found = derive_curvature(derive("softmax", "x**2/5 + sqrt(nu)*x", 2))
    channel = derive("softmax", "x**2/5 + sqrt(nu)*x", 2).channel
    for block in DEFAULT_MODEL.blocks:
        b = block.name
        for theta in (block.m, block.q):
            moves, rate = found.displacements[theta], channel[theta]
            assert sp.simplify(rate.hidden + HIDDEN.g[b] * moves.hidden) == 0
            assert sp.simplify(rate.idle + IDLE.g[b] * moves.idle) == 0


def test_the_twelve_equations(ridge):
    """The Jacobian is the derivative of the gradient, d2EM where that has dEM."""
    found = derive_curvature(ridge)
    order = DEFAULT_MODEL.order_parameters
    unknowns = (*order, *DEFAULT_MODEL.conjugates)
    assert found.jacobian == found.jacobian.T
    for i, a in enumerate(unknowns):
        for j, b in enumerate(unknowns):
            rates = {
                rate_symbol(t): rate_symbol(t)
                + (b * second_rate_symbol(*sorted((t, b), key=order.index)) if b in order else 0)
                for t in order
            }
            expected = sp.diff(ridge.gradient[a].subs(rates), b)
            assert sp.simplify(found.jacobian[i, j] - expected) == 0
    assert found.jacobian[0, 1] == ALPHA * second_rate_symbol(K.m, K.q)
    assert not found.jacobian.has(envelope_of(DEFAULT_MODEL).func)


@pytest.mark.parametrize(("block", "law"), [(K, "hidden_law"), (V, "hidden_law"), (K, "idle_law"), (V, "idle_law")])
def test_paths_are_those_at_fixed_noise(block, law):
    """A field given the label is mean + deviation times noise; its derivatives at fixed noise, once and twice."""
    law, field = getattr(derive("softmax", "spiked", 2), law), HIDDEN.w[block.name]
    field = field if field in law.fields else IDLE.w[block.name]
    given = law.given(Y) if Y in law.fields else law
    i, noise = given.fields.index(field), sp.Symbol("noise_of_the_path")
    path = given.mean[i] + sp.sqrt(given.covariance[i, i]) * noise
    for parameters in ((block.m,), (block.q,), (block.m, block.m), (block.m, block.q), (block.q, block.q)):
        free = sorted((path.free_symbols | {field}) - {noise}, key=str)
        values = {s: sp.Rational(3 + i, 7) + (2 if s == block.q else 0) for i, s in enumerate(free)}
        at = values | {field: path.xreplace(values)}
        expected = sp.diff(path, *parameters).xreplace(values)
        assert abs(sp.N((moved(law, field, *parameters).xreplace(at) - expected).subs(noise, 0.37))) < 1e-12


def test_where_it_is_not_derived():
    """A weight that moves with the order parameters, or a kink: no paths, but the twelve equations all the same."""
    for activation, task in (("softmax", "max"), ("relu", "spiked")):
        system = derive(activation, task, 2)
        found = derive_curvature(system)
        assert not derivable(system) and not found.displacements and not found.bending
        assert found.jacobian.shape == (12, 12)


def test_fields_that_depend_on_each_other_are_refused():
    a, b = HIDDEN.w["k"], HIDDEN.w["v"]
    law = FieldLaw.of({a: {"one": sp.S.One}, b: {"one": V.q, "two": NOISE}})
    with pytest.raises(Exception, match="depend on each other"):
        moved(law, b, V.q)
