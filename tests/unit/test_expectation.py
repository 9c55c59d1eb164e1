"""Every rule of the Gaussian averages against mpmath at 30 digits, and the nodes left where no rule applies."""

import random
import time

import mpmath
import pytest
import sympy as sp
from mpmath import mpf

from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.expectation import GaussianIntegral, closed_form, expectation
from replicode.theory.gaussian.rules import SIGN_RULES
from replicode.theory.gaussian.special import bivariate_normal_cdf, normal_cdf, owens_t
from replicode.theory.gaussian.terms import READINGS, Reader, Sign, addends
from replicode.theory.language.functions import BY_NODE
from replicode.theory.language.nodes import X, relu, sigmoid, softplus, step

A, C, M, MU = sp.symbols("a c m mu", real=True)
Q = sp.Symbol("q", positive=True)
NU = sp.Symbol("nu", nonnegative=True)
T = sp.Symbol("t", real=True)
DIGITS = 30
exp, erf, erfc, cos, sin, tanh, log, Abs = sp.exp, sp.erf, sp.erfc, sp.cos, sp.sin, sp.tanh, sp.log, sp.Abs

NUMERIC = {
    "relu": lambda u: max(u, mpf(0)),
    "step": lambda u: mpf(u > 0),
    "sigmoid": lambda u: 1 / (1 + mpmath.exp(-u)),
    "softplus": lambda u: mpmath.log(1 + mpmath.exp(u)),
}


def function(expr, *variables):
    return sp.lambdify(variables, expr, modules=[NUMERIC, "mpmath"])


def number(value):
    return sp.N(value, 60)._to_mpmath(mpmath.mp.prec) if isinstance(value, sp.Basic) else mpf(value)


def quadrature(f, mean, variance, kinks=()):
    """E f(x) with ten digits to spare: the trapezoidal rule, or Gauss-Legendre panels that end at the kinks."""
    with mpmath.workdps(DIGITS + 10):
        mean, deviation = number(mean), mpmath.sqrt(number(variance))

        def weighted(t):
            return f(mean + deviation * t) * mpmath.npdf(t)

        if not kinks:
            return mpmath.fsum(weighted(mpf(k) / 12) for k in range(-12 * 16, 12 * 16 + 1)) / 12
        cuts = {mpf(k) for k in range(-18, 19, 2)} | {(number(k) - mean) / deviation for k in kinks}
        return mpmath.quad(weighted, sorted(cuts), method="gauss-legendre")


def agree(found, reference, digits=DIGITS - 2):
    with mpmath.workdps(DIGITS + 10):
        found, reference = (sp.N(v, DIGITS + 5) if isinstance(v, sp.Basic) else v for v in (found, reference))
        return abs(number(found) - number(reference)) <= mpf(10) ** -digits * (1 + abs(number(reference)))


SIGN_EXAMPLES = {
    "no_sign": [()],
    "one_sign": [(Sign(sp.Rational(7, 5), sp.Rational(-2, 3), 1),), (Sign(sp.S.One, sp.Rational(1, 3), 0),)],
    "odd_signs": [(Sign(sp.S.One, sp.S.Zero, 0), Sign(sp.Integer(2), sp.S.Zero, 1), Sign(sp.Integer(3), sp.S.Zero, 1))],
    "uniform_signs": [
        (Sign(sp.Rational(3, 2), sp.S.Zero, 1),) * 4,
        (Sign(sp.S.One, sp.S.Zero, 0), *(Sign(sp.Rational(3, 2), sp.S.Zero, 1),) * 3),
    ],
    "centred_pair": [
        (Sign(sp.Rational(4, 5), sp.S.Zero, 1), Sign(sp.Rational(-5, 3), sp.Rational(1, 2), 1)),
        (Sign(sp.S.One, sp.Rational(-1, 2), 0), Sign(sp.Rational(5, 3), sp.S.Zero, 1)),
        (Sign(sp.S.One, sp.S.Zero, 0), Sign(sp.Rational(5, 3), sp.S.Zero, 1)),
    ],
    "proportional_pair": [
        (Sign(sp.Integer(2), sp.Rational(1, 3), 1),) * 2,
        (Sign(sp.Rational(4, 5), sp.Rational(-1, 4), 1), Sign(sp.Rational(-5, 3), sp.Rational(1, 2), 1)),
        (Sign(sp.S.One, sp.Rational(-1, 4), 0), Sign(sp.Rational(5, 3), sp.Rational(-1, 2), 1)),
    ],
    "general_pair": [
        (Sign(sp.Rational(4, 5), sp.Rational(-1, 4), 1), Sign(sp.Rational(5, 3), sp.Rational(1, 2), 1)),
        (Sign(sp.S.One, sp.Rational(1, 4), 0), Sign(sp.Rational(-5, 3), sp.Rational(1, 2), 1)),
    ],
}


def sign_value(sign, y):
    u = number(sign.slope) * y + number(sign.offset)
    return mpmath.erf(u / mpmath.sqrt(2)) if sign.blur else mpmath.sign(u)


@pytest.mark.parametrize("rule", SIGN_RULES, ids=lambda rule: rule.__name__)
def test_sign_rule(rule):
    variance = sp.Rational(4, 9)
    for signs in SIGN_EXAMPLES[rule.__name__]:
        kinks = [-s.offset for s in signs if not s.blur]
        reference = quadrature(lambda y, signs=signs: mpmath.fprod(sign_value(s, y) for s in signs), 0, variance, kinks)
        assert agree(rule(signs, variance), reference)


def test_sign_rules_decline():
    """Three signs with offsets are nobody's, and no rule takes what is not its own."""
    three = (Sign(sp.Integer(2), sp.Rational(1, 3), 1),) * 3
    assert [rule(three, sp.S.One) for rule in SIGN_RULES] == [None] * len(SIGN_RULES)
    four = (Sign(sp.Integer(2), sp.S.Zero, 1),) * 4
    assert [rule(four, sp.S.One) for rule in SIGN_RULES] == [None] * len(SIGN_RULES)


READING_EXAMPLES = {
    exp: [exp(-3 * (T - A) ** 2 + T / 3)],
    sp.Pow: [sp.Integer(3) ** (T + A)],
    erf: [erf(A - 2 * T), erf(Abs(T - A))],
    erfc: [erfc(A + 2 * T)],
    sp.sign: [sp.sign(A - 3 * T)],
    step: [step(A - 3 * T), step(relu(T) - 1)],
    Abs: [Abs(A * T - 1), Abs(T) ** 3],
    relu: [relu(A * T + 1), relu(T + A) ** 3, relu(relu(T + 2) - 1), relu(-T) * relu(1 - T)],
    cos: [cos(A - T) * cos(2 * T), cos(3 * T) ** 3],
    sin: [sin(A - T) * cos(2 * T), sin(3 * T) * sin(3 * T + A), sin(T) ** 3],
    sigmoid: [sigmoid(-T) * (1 + T)],
    softplus: [softplus(-T) ** 2],
}


def terms_value(terms, y, values):
    def at(e):
        return number(e.subs(values))

    total = mpf(0)
    for (kind, n), c in terms.items():
        part = at(c) * y**n * mpmath.exp(at(kind.curvature) * y**2 + at(kind.tilt) * y)
        for s in kind.signs:
            part *= sign_value(Sign(s.slope.subs(values), s.offset.subs(values), s.blur), y)
        if kind.wave:
            u = at(kind.wave.rate) * y + at(kind.wave.phase)
            part *= mpmath.sin(u) if kind.wave.sine else mpmath.cos(u)
        for f, k in kind.others:
            part *= function(f.subs(values), T)(y) ** k
        total += part
    return total


@pytest.mark.parametrize("kind", READINGS, ids=lambda kind: kind.__name__)
def test_reading(kind):
    rng = random.Random(7)
    for expr in READING_EXAMPLES.get(kind) or [kind(-T - A), T * kind(3 - T)]:
        terms = Reader(T, READINGS).read(expr)
        assert not any(k.others for k, _ in terms) or (kind in BY_NODE and BY_NODE[kind].averaged is None)
        for _ in range(4):
            a, y = sp.Rational(rng.randint(1, 30), 17), mpf(rng.uniform(-2, 2))
            with mpmath.workdps(30):
                assert agree(terms_value(terms, y, {A: a}), function(expr.subs(A, a), T)(y), 25)


POINT = {MU: sp.Rational(-3, 7), Q: sp.Rational(9, 11), C: sp.Rational(2, 5), A: sp.Rational(-4, 3)}
CLOSED = [
    (1 + X) ** 2,
    (C + X) ** 7,
    X**3 * exp(X),
    exp(A * X**2 + X + C),
    X**2 * exp(-(X**2)) * cos(C * X),
    (1 + exp(X)) ** 3 * X,
    cos(A * X + C),
    X**3 * sin(X) * exp(X),
    cos(X) ** 2 * sin(2 * X),
    1 + erf(C + X),
    (1 + erf(C + X)) ** 2,
    erfc(C - X) * X**2,
    X**3 * erf(A * X) * exp(X),
    X**2 * erf(X) ** 2,
    erf(A * X) * erf(X) * X,
    erf(X + C) * erf(A * X - C) * exp(-X),
    relu(X),
    relu(C + X) ** 2,
    relu(A * X + C) * X**2,
    Abs(X - C),
    Abs(X) ** 3,
    relu(X) * exp(X),
    exp(-Abs(X)),
    exp(-(relu(X) ** 2)),
    relu(X) * erf(X),
    step(X - C) * erf(A * X + C) * X**2,
    relu(X) * relu(X + 1),
    Abs(X + 1) * Abs(X - 1) * relu(X + 2),
    relu(X) * relu(-X + 3) * exp(X),
    step(X + C) * step(-X - C) + relu(A * X) * relu(-A * X) + X,
    relu(relu(X) - 1),
    sp.sign(X) * X,
    sp.Integer(2) ** X,
]


@pytest.mark.parametrize("f", CLOSED, ids=str)
def test_closed_forms(f):
    symbolic = closed_form(f, [(X, MU, Q)])
    assert symbolic is not None
    assert X not in symbolic.free_symbols
    numeric = f.subs(POINT)
    kinks = [-k.args[0].subs(X, 0) / k.args[0].diff(X) for k in linear_kinks(numeric)]
    kinks += [sp.S.One] if f.has(relu) else []
    reference = quadrature(function(numeric, X), POINT[MU], POINT[Q], kinks)
    assert agree(symbolic.subs(POINT), reference)
    assert agree(expectation(numeric, [(X, POINT[MU], POINT[Q])]), reference)


def linear_kinks(f):
    return [k for k in f.atoms(relu, Abs, step, sp.sign) if k.args[0].is_polynomial(X)]


SIGMAS = [
    1 + X,
    1 + erf(C + X),
    relu(X),
    exp(X),
    X**2,
    (1 + X) ** 2,
    (1 + X) ** 4,
    cos(X),
    Abs(X),
    exp(-(X**2)),
    X * exp(X),
    X * erf(X),
    relu(C + X),
    relu(X) ** 2,
    sigmoid(X),
    tanh(X),
]


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
@pytest.mark.parametrize("variance", [Q, Q - M**2, M**2], ids=str)
def test_activation_averages(sigma, variance):
    """A and B with symbolic moments hold at either sign of m."""
    for f in (sigma, sigma**2):
        found = expectation(f, [(X, M * sp.sqrt(NU), variance)])
        if sigma.has(sigmoid, tanh):
            assert found == GaussianIntegral(f, (X, M * sp.sqrt(NU), variance))
            continue
        assert not found.has(GaussianIntegral)
        for m in (sp.Rational(-4, 5),) if variance == Q else (sp.Rational(-4, 5), sp.Rational(3, 5)):
            values = {M: m, NU: sp.Rational(5, 4), C: sp.Rational(1, 3), Q: sp.Rational(7, 5)}
            mean, var = (M * sp.sqrt(NU)).subs(values), variance.subs(values)
            kinks = [0, -values[C]] if f.has(relu, Abs) else []
            reference = quadrature(function(f.subs(values), X), mean, var, kinks)
            assert agree(found.subs(values), reference)


def test_relu_mean_is_the_textbook_form():
    s = sp.sqrt(Q)
    expected = MU * normal_cdf(MU / s) + s * exp(-(MU**2) / (2 * Q)) / sp.sqrt(2 * sp.pi)
    assert sp.expand(expectation(relu(X), [(X, MU, Q)]) - expected) == 0
    assert expectation((A + X) ** 4, [(X, MU, Q)]) == 3 * Q**2 + 6 * Q * (A + MU) ** 2 + (A + MU) ** 4


@pytest.mark.parametrize(
    ("count", "value"),
    [
        (2, 1 / sp.sqrt(sp.pi)),
        (3, 3 / (2 * sp.sqrt(sp.pi))),
        (4, 6 / sp.pi ** sp.Rational(3, 2) * sp.acos(-sp.Rational(1, 3))),
        (5, 5 / (4 * sp.sqrt(sp.pi)) + 15 / (2 * sp.pi ** sp.Rational(3, 2)) * sp.asin(sp.Rational(1, 3))),
    ],
)
def test_mean_of_the_maximum(count, value):
    """The largest of L standard normals, whose moments are known up to L = 5 (Bose and Gupta 1959)."""
    found = closed_form(count * T * normal_cdf(T) ** (count - 1), [(T, 0, 1)])
    value = value / 2 if count == 4 else value
    assert agree(found, value)


@pytest.mark.parametrize("sigma", [X, X**2, relu(X), exp(X), exp(-(X**2)), X * erf(X), Abs(X)], ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_maximum_averages(sigma, count):
    f = sigma.xreplace({X: M * T}) * normal_cdf(T) ** (count - 1)
    found = closed_form(f, [(T, 0, 1)])
    for m in (sp.Rational(-4, 5), sp.Rational(3, 2)):
        assert agree(found.subs(M, m), quadrature(function(f.subs(M, m), T), 0, 1, [0] if f.has(relu, Abs) else []))


PARITY = [
    (sigmoid(A * X), sp.Rational(1, 2)),
    (tanh(X) ** 3, 0),
    (X * softplus(X), Q / 2),
    (softplus(X) - softplus(-X), 0),
    (((1 + erf(A * X)) / 2) ** 3, None),
    (tanh(X) * log(1 + X**2), 0),
    (cos(X) * erf(X), 0),
    (erf(X) ** 3 * (1 + X**2), 0),
    (X * sigmoid(X) ** 2, None),
]


@pytest.mark.parametrize(("f", "value"), PARITY, ids=lambda e: str(e))
def test_parity(f, value):
    found = closed_form(f, [(X, 0, Q)])
    if f == X * sigmoid(X) ** 2:
        assert found is None
        return
    assert value is None or sp.simplify(found - value) == 0
    values = {A: sp.Rational(4, 3), Q: sp.Rational(2, 3)}
    assert agree(found.subs(values), quadrature(function(f.subs(values), X), 0, values[Q]))
    shifted = closed_form(f.xreplace({X: X - MU}), [(X, MU, Q)])
    assert sp.simplify(shifted - found) == 0


@pytest.mark.parametrize("f", [sigmoid(X) ** 2, softplus(X) - X / 2, tanh(X) ** 2, tanh(X + 1), 1 / X, log(X**2) * X])
def test_parity_does_not_fire(f):
    """Neither where the integrand is not odd nor where its average does not exist or may not."""
    assert expectation(f, [(X, 0, Q)]).has(GaussianIntegral)


def test_known_means_need_not_be_zero():
    assert expectation(sigmoid(X - MU), [(X, MU, Q)]) == sp.Rational(1, 2)
    assert expectation(sigmoid(X), [(X, MU, Q)]).has(GaussianIntegral)


@pytest.mark.parametrize(
    "f",
    [
        exp(X**2),
        exp(X**2 / 2),
        (1 + X) * exp(X**2 - X),
        relu(X) * exp(X**2),
        exp(X**2) * (1 + erf(X)),
        exp(X**2) + sigmoid(X),
        exp(X**4),
        exp(-(X**3)),
        X * exp(X**2) * cos(X),
    ],
    ids=str,
)
def test_divergence_is_refused(f):
    with pytest.raises(Refusal, match="diverges"):
        expectation(f, [(X, MU, 1)])


@pytest.mark.parametrize(
    "f", [exp(X**2) * (1 - erf(X) ** 2), exp(X**2) * erfc(X) ** 2 * step(X), exp(X**2) * erf(A * X)]
)
def test_growing_parts_that_may_cancel_stay(f):
    found = expectation(f, [(X, 0, 1)])
    assert found.has(GaussianIntegral)


HANG_PROOF = [
    erf(X) ** 2 * X**3,
    exp(tanh(X)),
    log(1 + X**2),
    softplus(X) * erf(X),
    (1 + X + exp(X) + erf(X)) ** 20,
    (C + X) ** 20 * erf(A * X) ** 2,
    (C + X) ** 60 * relu(A + X),
    X**64 * erf(X) ** 2,
    (A + X) ** 64,
    (exp(X) + tanh(X) + erf(X) + relu(X)) ** 4,
    relu(X) ** 30 * erf(X),
    sp.Add(*[tanh(k * X) * erf(k * X) * relu(X + k) for k in range(1, 20)]),
    relu(relu(relu(relu(X) - 1) + relu(X - 2)) - 1) ** 3,
    exp(-sp.Add(*[Abs(X - k) for k in range(16)])),
    exp(exp(X)),
    X**A,
    sp.sqrt(Abs(X)),
    1 / (1 + relu(X)),
]


@pytest.mark.parametrize("f", HANG_PROOF, ids=lambda f: str(f)[:40])
def test_never_hangs(f):
    start = time.process_time()
    expectation(f, [(X, MU, Q)])
    assert time.process_time() - start < 4


def test_partly_closed():
    found = expectation((1 + sigmoid(X)) ** 2, [(X, MU, Q)])
    assert found == 1 + GaussianIntegral(2 * sigmoid(X) + sigmoid(X) ** 2, (X, MU, Q))
    assert closed_form((1 + sigmoid(X)) ** 2, [(X, MU, Q)]) is None
    assert expectation(C * tanh(X), [(X, MU, Q)]) == C * GaussianIntegral(tanh(X), (X, MU, Q))


def test_degenerate_law():
    assert expectation(tanh(X) + relu(X) * C, [(X, MU, 0)]) == tanh(MU) + relu(MU) * C
    assert GaussianIntegral(tanh(X), (X, MU, Q)).subs(Q, 0) == tanh(MU)
    assert expectation(C**2, [(X, MU, Q)]) == C**2
    assert expectation(tanh(X), [(X, MU, 0.0)]) == tanh(MU)
    assert (
        abs(expectation(X**2 * erf(X) ** 2, [(X, 0.0, 1.5)]) - expectation(X**2 * erf(X) ** 2, [(X, 0, 1.5)])) < 1e-14
    )


def test_undecided_kinks_are_left():
    found = expectation(relu(X) * relu(X + A), [(X, MU, Q)])
    assert found == GaussianIntegral(relu(X) * relu(X + A), (X, MU, Q))
    assert set(found.kinks) == {sp.S.Zero, -A}


def test_several_variables():
    z = sp.Symbol("z", real=True)
    law = [(X, MU, Q), (z, 1, sp.Rational(1, 2))]
    values = {MU: sp.Rational(1, 5), Q: sp.Rational(3, 4)}
    assert expectation(X**2 * exp(z), law) == expectation(X**2, law) * expectation(exp(z), law)
    assert expectation(tanh(X) * softplus(z), law) == expectation(tanh(X), law) * expectation(softplus(z), law)
    assert expectation(erf(X + z), law) == erf((MU + 1) / sp.sqrt(2 + 2 * Q))
    joint = closed_form(relu(X + z) * z, law)
    mean, variance, covariance = values[MU] + 1, values[Q] + sp.Rational(1, 2), sp.Rational(1, 2)
    total = closed_form(relu(T) * (1 + covariance / variance * (T - mean)), [(T, mean, variance)])
    assert agree(joint.subs(values), total)
    mixed = expectation(relu(X + z) * tanh(z), law)
    (node,) = mixed.atoms(GaussianIntegral)
    assert node.dimension == 1
    assert expectation(tanh(X * z), law).dimension == 2


def test_random_growth_is_not_integrated():
    z = sp.Symbol("z", real=True)
    assert expectation(exp(tanh(z) * X**2), [(X, 0, 1), (z, 0, 1)]).dimension == 2
    assert expectation(exp(-(tanh(z) ** 2) * X**2), [(X, 0, 1), (z, 0, 1)]).dimension == 1
    for f in (exp(X * z), exp(z * X**2)):
        with pytest.raises(Refusal, match="diverges"):
            expectation(f, [(X, 0, 1), (z, 0, 1)])
    with pytest.raises(InputError, match="law"):
        expectation(X * z, [(X, z, 1), (z, 0, 1)])


def test_addends():
    parts = addends((1 + X) * (sigmoid(X) + C) ** 2, [X])
    assert sp.expand(sp.Add(*parts) - (1 + X) * (sigmoid(X) + C) ** 2) == 0
    assert len(parts) == 3


NODE = GaussianIntegral(sigmoid(C * X), (X, MU, Q))


def test_node_binds_its_variable():
    assert NODE.free_symbols == {C, MU, Q}
    assert NODE.subs(X, 3) == NODE and NODE.xreplace({X: A}) == NODE
    assert NODE.subs(MU, A) == GaussianIntegral(sigmoid(C * X), (X, A, Q))
    captured = NODE.subs(C, X)
    assert X in captured.free_symbols
    values = {X: sp.Rational(1, 2), MU: sp.Rational(1, 3), Q: 2}
    direct = NODE.subs({C: values[X], MU: values[MU], Q: 2})
    assert agree(captured.subs(values), direct)
    replaced = NODE.xreplace({C: X}).xreplace({X: values[X], MU: values[MU], Q: sp.Integer(2)})
    assert agree(replaced, direct)
    assert GaussianIntegral(tanh(X), (X, X, Q)).free_symbols == {X, Q}
    assert GaussianIntegral(tanh(X), (X, X, Q)).subs(X, A) == GaussianIntegral(tanh(X), (X, A, Q))


def test_node_attributes():
    assert (NODE.integrand, NODE.variable, NODE.mean, NODE.variance, NODE.dimension) == (sigmoid(C * X), X, MU, Q, 1)
    assert NODE.smooth and NODE.kinks == ()
    kinked = GaussianIntegral(tanh(X) * relu(2 * X + C), (X, MU, Q))
    assert not kinked.smooth and kinked.kinks == (-C / 2,)
    assert GaussianIntegral(tanh(relu(X**2 - 1)), (X, MU, Q)).kinks is None
    for rough in (sp.sqrt(X), log(X), 1 / X, sp.Max(X, 0)):
        assert not GaussianIntegral(rough, (X, MU, Q)).smooth
    for smooth in (sp.sqrt(1 + X**2), log(2 + X**2), 1 / (1 + exp(X)), tanh(X) * Abs(C)):
        assert GaussianIntegral(smooth, (X, MU, Q)).smooth
    assert r"\mathbb{E}" in sp.latex(NODE)
    assert NODE.subs({MU: 0}).doit() == sp.Rational(1, 2)


@pytest.mark.parametrize("f", [sigmoid(X) ** 2, tanh(relu(X - 1)), sp.sqrt(1 + X**2), exp(-softplus(3 * X))], ids=str)
def test_node_value(f):
    mean, variance = sp.Rational(1, 3), sp.Rational(5, 4)
    node = GaussianIntegral(f, (X, mean, variance))
    reference = quadrature(function(f, X), mean, variance, [1] if f.has(relu) else [])
    assert agree(node.evalf(DIGITS), reference)
    assert agree((sp.N(1 + 2 * node, DIGITS + 5) - 1) / 2, reference)


def test_node_without_a_value_stays():
    node = GaussianIntegral(1 / X**2, (X, 0, 1))
    assert node.evalf(5) == node


def test_node_in_the_plane():
    plane = GaussianIntegral(sigmoid(X + T), (X, 0, 1), (T, 1, sp.Rational(1, 4)))
    assert plane.dimension == 2 and plane.free_symbols == set()
    reference = quadrature(function(sigmoid(X), X), 1, sp.Rational(5, 4))
    assert abs(plane.evalf(8) - reference) < 1e-7
    kinked = GaussianIntegral(relu(X * T), (X, 0, 1), (T, 1, sp.Rational(1, 4)))
    assert kinked.kinks is None and kinked.evalf() == kinked


@pytest.mark.parametrize(
    "f",
    [
        sigmoid(C * X + C**2),
        softplus(X) * tanh(X - C),
        tanh(X) * relu(X + C),
        tanh(X) * step(X - C**2) * (1 + C),
        sigmoid(X) * sp.sign(2 * C - 3 * X),
    ],
    ids=str,
)
@pytest.mark.parametrize("s", [C, MU, Q], ids=str)
def test_node_derivative(f, s):
    node = GaussianIntegral(f, (X, MU + C, Q))
    values = {C: sp.Rational(2, 5), MU: sp.Rational(-1, 3), Q: sp.Rational(6, 5)}
    derivative = node.diff(s)
    assert not derivative.has(sp.DiracDelta, sp.Derivative)
    found = sp.N(derivative.subs(values), 12)
    width = sp.Rational(1, 10**4)
    up, down = (sp.N(node.subs({**values, s: values[s] + k * width}), 15) for k in (1, -1))
    assert abs(found - (up - down) / (2 * width)) < 1e-7


def test_derivative_of_a_jump_at_no_known_point_is_refused():
    with pytest.raises(Refusal, match="jump"):
        GaussianIntegral(step(X**2 - C), (X, 0, 1)).diff(C)


def owens_integral(h, a):
    return mpmath.quad(lambda x: mpmath.exp(-h * h * (1 + x * x) / 2) / (1 + x * x), [0, a]) / (2 * mpmath.pi)


@pytest.mark.parametrize(("h", "a"), [("0.7", "1.5"), ("-3", "0.2"), ("0.1", "12"), ("2.5", "-0.9"), ("9", "0.99")])
def test_owens_t_values(h, a):
    with mpmath.workdps(45):
        found = number(sp.N(owens_t(sp.Rational(h), sp.Rational(a)), 35))
        assert abs(found / owens_integral(mpf(h), mpf(a)) - 1) < 1e-33


def test_owens_t_reductions():
    h, a = sp.symbols("h a", real=True)
    assert owens_t(0, a) == sp.atan(a) / (2 * sp.pi)
    assert owens_t(h, 0) == 0
    assert sp.expand(owens_t(h, 1) - normal_cdf(h) * normal_cdf(-h) / 2) == 0
    assert owens_t(-h, a) == owens_t(h, a) and owens_t(h, -a) == -owens_t(h, a)
    assert agree(owens_t(sp.Rational(2, 3), sp.oo), owens_integral(mpf(2) / 3, mpmath.inf), 12)
    assert sp.latex(owens_t(h, a) ** 2) == r"T^{2}\left(h, a\right)"


def bivariate_integral(h, k, rho):
    spread = mpmath.sqrt(1 - rho**2)
    points = [h - n for n in range(14, -1, -2)]
    return mpmath.quad(lambda x: mpmath.npdf(x) * mpmath.ncdf((k - rho * x) / spread), points)


BIVARIATE = [
    ("0.5", "-1", "1/3"),
    ("1", "2", "-0.8"),
    ("0", "0.3", "0.5"),
    ("0.4", "0.4", "0.9"),
    ("0.4", "-0.4", "0.6"),
]


@pytest.mark.parametrize("point", [*BIVARIATE, ("1", "2", "0"), ("0", "0", "-0.3")])
def test_bivariate_values(point):
    h, k, rho = map(sp.Rational, point)
    with mpmath.workdps(45):
        reference = bivariate_integral(*[number(r) for r in (h, k, rho)])
    assert agree(bivariate_normal_cdf(h, k, rho), reference)


def test_bivariate_reductions():
    h, k, r = sp.symbols("h k rho", real=True)
    assert bivariate_normal_cdf(h, k, r) == bivariate_normal_cdf(k, h, r)
    assert bivariate_normal_cdf(h, sp.oo, r) == normal_cdf(h)
    assert bivariate_normal_cdf(h, -sp.oo, r) == 0
    for reduced in (bivariate_normal_cdf(h, h, r), bivariate_normal_cdf(h, -h, r), bivariate_normal_cdf(0, k, r)):
        assert reduced.has(owens_t) and not reduced.has(bivariate_normal_cdf)
    assert r"\Phi_2" in sp.latex(bivariate_normal_cdf(h, k, r))


@pytest.mark.parametrize(
    ("f", "point"),
    [
        (owens_t, ("0.7", "1.5")),
        (owens_t, ("-1.2", "0.4")),
        (bivariate_normal_cdf, ("0.5", "-1", "1/3")),
        (bivariate_normal_cdf, ("-0.2", "1", "-0.7")),
    ],
)
def test_special_derivatives(f, point):
    symbols = sp.symbols("u v w", real=True)[: len(point)]
    values = dict(zip(symbols, map(sp.Rational, point)))
    h = sp.Rational(1, 10**6)
    for s in symbols:
        found = sp.N(f(*symbols).diff(s).subs(values), 25)
        up, down = (sp.N(f(*symbols).subs({**values, s: values[s] + k * h}), 40) for k in (1, -1))
        assert abs(found - (up - down) / (2 * h)) < 1e-11
