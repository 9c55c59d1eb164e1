"""The NumPy printer: printed source, run by NumPy, has the value that SymPy computes."""

import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special

from replicode.codegen.emit.printer import numpy_source
from replicode.theory.language.nodes import (
    erfc,
    erfc_mantissa,
    erfcx,
    log_ndtr,
    relu,
    sigmoid,
    softplus,
    softplus_mantissa,
    step,
    tanh,
)

A, B, C = sp.symbols("a b c", real=True)
P = sp.Symbol("p", positive=True)
POINTS = (
    {A: "0.7", B: "-1.3", C: "0.4", P: "2.6"},
    {A: "-0.45", B: "0.9", C: "-2.1", P: "0.35"},
)


def _value(expr, point):
    names = {s.name: float(v) for s, v in point.items()}
    return eval(numpy_source(expr), {"np": np, "special": special, "__builtins__": {}}, names)


def _exact(expr, point):
    return complex(expr.xreplace({s: sp.Rational(v) for s, v in point.items()}).evalf(30))


def check(expr):
    for point in POINTS:
        expected = _exact(expr, point)
        assert expected.imag == 0
        assert _value(expr, point) == pytest.approx(expected.real, rel=1e-13, abs=1e-14)


TABLE = [
    A - B - C,
    A - (B - C),
    -A * B / C,
    A / (B * C),
    A / (B / C),
    A / B / C,
    -(A**2),
    (-A) ** 2,
    -1 / A,
    -A / (2 * B),
    sp.Rational(2, 3) * A / B**2,
    sp.Rational(-5, 7),
    A**2 * B**3 / C**4,
    A**5 / B**6,
    A**-1,
    A**-3,
    P**A,
    P ** (-A),
    P ** (-2 * A),
    P ** (A - B),
    (P + 1) ** (A / B),
    2**A,
    2 ** (-A),
    (A**2) ** B,
    (A**6) ** B,
    1 / (A**2) ** B,
    P ** (P**A),
    sp.sqrt(P),
    1 / sp.sqrt(P),
    A / sp.sqrt(P * (P + 1)),
    P ** sp.Rational(3, 2),
    P ** sp.Rational(-1, 3),
    (A**2 + 1) ** -2,
    ((A + B) ** 2 + P) ** sp.Rational(-1, 2),
    sp.exp(-(A**2)),
    sp.exp(A - B) / sp.exp(C),
    1 / (1 + sp.exp(-A)),
    A * sp.exp(-B) / (1 + sp.exp(-B)) ** 2,
    sp.exp(1) * A,
    sp.pi * A / 2,
    sp.log(P) / A,
    sp.tanh(A) * sp.cos(B) - sp.sin(C),
    sp.erf(A) + sp.erfc(B),
    sp.erfc(-A, evaluate=False),
    2 * sp.exp(-(A**2)) / sp.sqrt(sp.pi),
    sigmoid(A) * sigmoid(-A),
    softplus(A - B) ** 2,
    relu(A) - relu(-A) + step(B),
    sp.Max(A, 0) - sp.Max(B, C),
    sp.Min(A, 0) * sp.Min(B, C),
    log_ndtr(A) + log_ndtr(-B) / 3,
    erfc(-A) * erfc(B) + tanh(C),
    erfcx(A) / erfcx(B - C),
    softplus_mantissa(A) ** 2 + A * softplus_mantissa(-B),
    erfc_mantissa(A, 0) / erfc_mantissa(A - B, 0),
    B * erfc_mantissa(A, 1) ** 2,
    erfc_mantissa(A - C, 2) / erfc_mantissa(B, 1),
    sp.Abs(A * B),
    A * (B + C) * (B - C),
    -(A + B) / (C - P - 5),
]


@pytest.mark.parametrize("expr", TABLE, ids=str)
def test_table(expr):
    check(expr)


def test_an_exponential_is_never_inverted():
    """exp(-u) and not 1/exp(u), which overflows first; warnings are errors here."""
    for expr in (sp.exp(-P), A * sp.exp(-P) / (1 + sp.exp(-P)), sp.exp(-2 * P) / P):
        assert _value(expr, {A: "1", P: "800"}) == 0.0


@pytest.mark.parametrize("arg", ["-1e4", "-800", "-30", "-2", "0", "2", "8.9", "9.1", "60", "800", "1e4"])
def test_mantissas_are_accurate_everywhere(arg):
    point = {A: arg}
    with mpmath.workdps(60):
        u = mpmath.mpf(arg)
        below = min(u, mpmath.mpf(0))
        exact = mpmath.log1p(mpmath.exp(u)) * mpmath.exp(-below)
        assert _value(softplus_mantissa(A), point) == pytest.approx(float(exact), rel=1e-14, abs=0)
        before, last = 2 / mpmath.sqrt(mpmath.pi), mpmath.exp(u**2) * mpmath.erfc(u)
        for order, accuracy in ((0, 1e-14), (1, 1e-13), (2, 1e-10)):
            exact = last * mpmath.exp(-(below**2))
            assert _value(erfc_mantissa(A, order), point) == pytest.approx(float(exact), rel=accuracy, abs=0)
            before, last = last, (before - 2 * u * last) / (2 * order + 2)


def test_maximum_of_three():
    check(sp.Max(A, B, C))


def test_derivative_of_a_modulus():
    check(sp.diff(sp.Abs(A), A))


def _compound(inner):
    powers = st.sampled_from([-3, -2, -1, 2, 3, 5])
    roots = st.sampled_from([sp.Rational(1, 2), sp.Rational(-1, 2), sp.Rational(2, 3), -A, B / 2])
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda t: t[0] + t[1]),
        pairs.map(lambda t: t[0] - t[1]),
        pairs.map(lambda t: t[0] * t[1]),
        pairs.map(lambda t: t[0] / t[1]),
        inner.map(lambda e: -e),
        st.tuples(inner, powers).map(lambda t: t[0] ** t[1]),
        st.tuples(inner, roots).map(lambda t: (t[0] ** 2 + 1) ** t[1]),
        st.tuples(st.sampled_from([sp.tanh, sp.erf, sigmoid, softplus, sp.cos]), inner).map(lambda t: t[0](t[1])),
        inner.map(lambda e: sp.exp(sp.tanh(e))),
    )


LEAVES = st.sampled_from([A, B, C, P, *(sp.Rational(n, d) for n, d in ((1, 1), (-2, 1), (3, 7), (-1, 2)))])
EXPRESSIONS = st.recursive(LEAVES, _compound, max_leaves=6)


@settings(max_examples=150)
@given(EXPRESSIONS)
def test_random_expressions(expr):
    assume(not expr.has(sp.zoo, sp.nan, sp.oo))
    for point in POINTS:
        expected = _exact(expr, point)
        assume(1e-3 < abs(expected) < 1e3)
        sizes = [abs(_exact(part, point)) for part in sp.preorder_traversal(expr) if isinstance(part, sp.Expr)]
        assume(all(1e-4 < s < 1e4 for s in sizes if s != 0))
        assert _value(expr, point) == pytest.approx(expected.real, rel=1e-9)
