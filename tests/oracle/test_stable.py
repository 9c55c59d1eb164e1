"""Scores up to 1e4 in size: NumPy kernels against mpmath on the activation as typed, with nothing in between.

Values come from `direct_sigma`, derivatives from differences of `direct_loss`; neither knows of any rewriting.
"""

from functools import lru_cache

import mpmath
import numpy as np
import pytest
import sympy as sp
from mpmath import mpf
from strategies import direct_loss, direct_sigma, system_of

from replicode.codegen.emit.numpy import kernel_function
from replicode.codegen.interpret.oracle import evaluate
from replicode.codegen.loading import load_source
from replicode.codegen.lower import lower
from replicode.codegen.rewrite.recognise import recognised
from replicode.codegen.rewrite.scales import scaled, settled
from replicode.theory.language import parse
from replicode.theory.language.nodes import X, erfc, erfcx, held, ierfcx, log_ndtr, sigmoid, softplus

DIGITS = 80
STEP = mpf(10) ** -25  # truncation (2e4)^4 1e-50, rounding of a second difference 1e-30
PARAMETERS = {"c": 0.6, "a": -0.4}
WEIGHTS, LABEL, VARIANCE = (0.9, 0.2, -1.3), 0.75, 0.6
SMALLEST = 1e-290

RATIOS = (
    "exp(x)/sum(exp(x))",
    "exp(x)/(1 + sum(exp(x)))",
    "exp(x)/sum(exp(x) + exp(2*x))",
    "exp(-x**2)/sum(exp(-x**2))",
    "softplus(x)/sum(softplus(x))",
    "sigmoid(x)/sum(sigmoid(x))",
    "sigmoid(x)/(1 + sum(sigmoid(x)))",
    "sigmoid(-2*x)*softplus(x)/sum(sigmoid(-2*x)*softplus(x))",
    "erfc(x)/sum(erfc(x))",
    "exp(x)*erfc(x)/sum(exp(x)*erfc(x))",
    "2**x/sum(2**x)",
    "1/(exp(x) + exp(-x) + c)",
    "exp(x)/(c + exp(x) + sum(exp(x)))",
    "sum(exp(x)*x/sum(exp(x)))*sigmoid(x)",
    "sigmoid(x - log(sum(exp(x))))",
    "1/(1 + exp(-x))",
    "exp(2*x)/(1 + exp(x))**2",
    "1/(exp(x) + exp(-x))",
    "1/(1 + exp(x))/sum(1/(1 + exp(x)))",
    "sqrt(softplus(x))",
    "tanh(exp(x))",
    "exp(-exp(x))",
    "sigmoid(sum(exp(x)))*x",
)
ABSOLUTE = (
    "x - log(sum(exp(x)))",
    "log(mean(exp(x))) - mean(x)",
    "log(sigmoid(x))",
    "log(softplus(x))",
    "log(erfc(x))",
    "log(erfc(-x)/2)",
    "log(c**2 + exp(x) + exp(-x))",
    "(exp(x) - exp(-x))/(exp(x) + exp(-x))",
    "(exp(2*x) - 1)/(exp(2*x) + 1)",
    "(1 + x*erfc(x))/(1 + mean(x**2))",
)
CANCELLING = {
    "(1 + erf(x))/sum(1 + erf(x))": "erfc(-x)/sum(erfc(-x))",
    "(1 - erf(a - x))*exp(-x**2/2)/sum((1 - erf(a - x))*exp(-x**2/2))": (
        "erfc(a - x)*exp(-x**2/2)/sum(erfc(a - x)*exp(-x**2/2))"
    ),
    "1 + erf(c + x)": "erfc(-c - x)",
    "(1 + tanh(x))/sum(1 + tanh(x))": "sigmoid(2*x)/sum(sigmoid(2*x))",
    "(1 - sigmoid(x))/sum(1 - sigmoid(x))": "sigmoid(-x)/sum(sigmoid(-x))",
    "log(1 + exp(x))/sum(log(1 + exp(x)))": "softplus(x)/sum(softplus(x))",
    "log(1 + exp(x) + exp(2*x))": "softplus(x + softplus(x))",
    "1 - tanh(x)**2": "4*sigmoid(2*x)*sigmoid(-2*x)",
    "x - softplus(x)": "-softplus(-x)",
}
SCORES = (
    (0, 1, -1),
    (30, -30, 1),
    (-30, -30.5, -31),
    (800, 799.25, 801.5),
    (-800, -799.25, -801.5),
    (800, 800.001, 799.9995),
    (1e4, 9999.5, -5),
    (-1e4, 1e4, 0.5),
    (-1e4, -1e4, -1e4),
    (1e4, 1e4, 9998.5),
)
TEXTS = (*RATIOS, *ABSOLUTE, *CANCELLING)
FEWER_TOKENS = ("exp(x)/(1 + sum(exp(x)))", "softplus(x)/sum(softplus(x))", "(1 + erf(x))/sum(1 + erf(x))")
OFTEN = (*RATIOS[:10], *tuple(CANCELLING)[:3])
CASES = [
    *((t, 3) for t in TEXTS),
    *((t, tokens) for t in FEWER_TOKENS for tokens in (1, 2)),
    *(pytest.param(t, n, marks=pytest.mark.full) for t in OFTEN if t not in FEWER_TOKENS for n in (1, 2)),
]


@lru_cache
def _module(text, tokens):
    """The sigma and hessian kernels of an activation."""
    ir = lower(system_of(text, tokens))
    head = "from __future__ import annotations\nimport numpy as np\nfrom scipy import special\n\n"
    head += f"PARAMETERS = {ir.parameters!r}\n\n"
    chosen = [k for k in ir.kernels if k.name in ("sigma", "hessian")]
    return load_source(head + "\n\n".join(kernel_function(k, ir.parameters) for k in chosen), "emitted_kernels")


def _moved(point, *moves):
    shifted = list(point)
    for index, amount in moves:
        shifted[index] += amount
    return shifted


def _derivatives(loss, x):
    """Gradient and Hessian by differences."""
    gradient = [(loss(_moved(x, (i, STEP))) - loss(_moved(x, (i, -STEP)))) / (2 * STEP) for i in range(len(x))]
    hessian = [[mpf(0)] * len(x) for _ in x]
    for i in range(len(x)):
        for j in range(i + 1):
            corners = [(a * b, loss(_moved(x, (i, a * STEP), (j, b * STEP)))) for a in (1, -1) for b in (1, -1)]
            hessian[i][j] = hessian[j][i] = mpmath.fsum(s * v for s, v in corners) / (4 * STEP**2)
    return gradient, hessian


def _distances(found, expected):
    """(error, size) entry by entry."""
    entries = np.ravel(np.array(expected, dtype=object))
    assert np.all(np.isfinite(found))
    return [(abs(mpf(float(f)) - e), abs(e)) for f, e in zip(np.ravel(found), entries, strict=True)]


@pytest.mark.parametrize("text, tokens", CASES)
def test_kernels_at_large_scores(text, tokens):
    typed = CANCELLING.get(text, text)
    module = _module(text, tokens)
    params = np.array([PARAMETERS[p] for p in module.PARAMETERS])
    w, y = np.array(WEIGHTS[:tokens])[:, None], np.array([LABEL])
    for scores in SCORES:
        x = np.array(scores[:tokens], dtype=float)[:, None]
        sigmas = module.sigma(x, params)[:, 0]
        value, slope, curvature = (part[..., 0] for part in module.hessian(x, w, y, VARIANCE, params))
        with mpmath.workdps(DIGITS):
            values = {n: mpf(v) for n, v in PARAMETERS.items()}
            point = [mpf(float(e)) for e in x[:, 0]]
            fields = [mpf(e) for e in WEIGHTS[:tokens]], mpf(LABEL), mpf(VARIANCE)

            def loss(at, typed=typed, fields=fields, values=values):
                return direct_loss(typed, at, *fields, values)

            largest = max(abs(e) for e in point) + 1
            rounding = 0 if text in (*RATIOS, *CANCELLING) else 2e-15 * largest
            for error, size in _distances(sigmas, direct_sigma(typed, point, values)):
                assert error <= 1e-12 * size + rounding + SMALLEST
            gradient, hessian = _derivatives(loss, point)
            for error, size in _distances([value], [loss(point)]):
                assert error <= 1e-12 * (1 + size)
            # Gaussian tails have slopes of the order of the score itself, whose rounding is all that is left here.
            for found, expected, order in ((slope, gradient, 1), (curvature, hessian, 2)):
                pairs = _distances(found, expected)
                allowed = 1e-11 * max(1, *(size for _, size in pairs)) + 1e-14 * largest**order
                assert max(error for error, _ in pairs) <= allowed


@pytest.mark.parametrize("text, typed", CANCELLING.items())
def test_the_references_are_the_same_functions(text, typed):
    values = {n: mpf(v) for n, v in PARAMETERS.items()}
    with mpmath.workdps(DIGITS):
        scores = [mpf("-2.5"), mpf("0.3"), mpf("1.7")]
        for a, b in zip(direct_sigma(text, scores, values), direct_sigma(typed, scores, values), strict=True):
            assert abs(a - b) <= mpf(10) ** (8 - DIGITS)


RECOGNISED = {
    "log(1 + exp(x))": softplus(X),
    "1/(1 + exp(-x))": sigmoid(X),
    "exp(x)/(1 + exp(x))": sigmoid(X),
    "exp(3*x)/(1 + exp(x))**3": sigmoid(X) ** 3,
    "exp(-2*softplus(x))": sigmoid(-X) ** 2,
    "1 + erf(x)": erfc(-X),
    "x - x*erf(x)": X * erfc(X),
    "2 - erfc(x)": erfc(-X),
    "log(erfc(x)/2)": log_ndtr(-sp.sqrt(2) * X),
    "log(sigmoid(x)**3)": -3 * softplus(-X),
    "exp(x**2)*erfc(x)": erfcx(X),
    "exp(x**2 + 1)*erfc(x)": sp.E * erfcx(X),
    "(exp(x) - exp(-x))/(exp(x) + exp(-x))": sp.tanh(X),
    "1 - sigmoid(x)": sigmoid(-X),
    "1 + tanh(x)": 2 * sigmoid(2 * X),
    "softplus(x) - x": softplus(-X),
    "2 + erf(x)": 2 + sp.erf(X),
    "log(1 + x**2)": sp.log(1 + X**2),
}


@pytest.mark.parametrize("text", RECOGNISED)
def test_recognition(text):
    assert sp.simplify(recognised(parse(text)) - RECOGNISED[text]) == 0
    assert recognised(RECOGNISED[text]) == RECOGNISED[text]


@pytest.mark.parametrize("node", [log_ndtr(X), erfc(X), erfcx(X), ierfcx(X, 1), ierfcx(X, 2)])
def test_derivatives_of_nodes(node):
    """The derivative stays among the nodes and is that of the definition."""
    slope = sp.diff(node, X)
    assert not slope.atoms(sp.Derivative, sp.Subs)
    for point in (sp.Rational(-3, 2), sp.Rational(2, 5), sp.Integer(3)):
        step = sp.Rational(1, 10**20)
        difference = (node.subs(X, point + step) - node.subs(X, point - step)).evalf(60) / (2 * step)
        assert abs(slope.subs(X, point).evalf(60) - difference) < 1e-30


def test_held_scales_are_constant_and_released():
    expr, scale = scaled(1 / (1 + sp.exp(X) + sp.exp(2 * X)))
    assert expr.has(held) and scale.has(held)
    derivative = settled(sp.diff(expr, X, X))
    assert not derivative.has(held)
    expected = sp.diff(1 / (1 + sp.exp(X) + sp.exp(2 * X)), X, X)
    assert abs((derivative - expected).subs(X, sp.Rational(7, 10)).evalf(40)) < 1e-30


def test_operations_of_softmax_do_not_depend_on_the_number_of_tokens():
    counts = [lower(system_of("exp(x)/sum(exp(x))", tokens)).operations() for tokens in (2, 8)]
    assert counts[0] == counts[1]
    assert counts[1]["hessian"] <= 83 and counts[1]["gradient"] <= 37 and counts[1]["sigma"] <= 3


def test_operations_of_linear_and_erf():
    assert lower(system_of("1 + x", 3)).operations()["hessian"] <= 38
    assert lower(system_of("1 + erf(c + x)", 3)).operations()["hessian"] <= 60


def test_the_oracle_knows_the_same_nodes():
    """Stable kernels in mpmath at ordinary scores are the activation as typed."""
    text = "log(softplus(x) + c**2)*erfc(x)/sum(erfc(x)*sigmoid(x))"
    kernel = next(k for k in lower(system_of(text, 3)).kernels if k.name == "sigma")
    with mpmath.workdps(40):
        scores = [mpf("0.3"), mpf("-0.7"), mpf("11.5")]
        values = {n: mpf(v) for n, v in PARAMETERS.items()}
        found = evaluate(kernel, {"x": scores}, {}, values)["sigmas"]
        for f, e in zip(found, direct_sigma(text, scores, values), strict=True):
            assert abs(f - e) <= mpf(10) ** -35 * abs(e)
