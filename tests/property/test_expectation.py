"""Random products of the functions that have rules: every closed form against mpmath to 25 digits and more."""

import mpmath
import sympy as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mpmath import mpf

from replicode.theory.gaussian.expectation import closed_form, expectation
from replicode.theory.language.nodes import X, relu, step

MU, A, B, C = sp.symbols("mu a b c", real=True)
Q = sp.Symbol("q", positive=True)
DIGITS = 25

numbers = st.builds(sp.Rational, st.integers(-12, 12), st.sampled_from([5, 7, 8]))
slopes = numbers.filter(bool)
positives = st.builds(sp.Rational, st.integers(1, 15), st.sampled_from([5, 8]))
polynomials = st.lists(st.integers(-3, 3), min_size=1, max_size=4).map(
    lambda cs: sp.Add(*[c * X**k for k, c in enumerate(cs)])
)
lines = st.sampled_from([A * X + C, X + C, X, A * X, B - X])


@st.composite
def factors(draw):
    """1, or functions of lines whose averages all have a closed form together."""
    u, v = draw(lines), draw(lines)
    return draw(
        st.sampled_from(
            [
                sp.S.One,
                sp.erf(u),
                sp.erf(u) ** 2,
                sp.erfc(u) * sp.erf(v),
                relu(u),
                relu(u) ** 2 * sp.erf(v),
                step(u) * sp.erf(v),
                sp.Abs(u) * step(u),
                sp.cos(u),
                sp.cos(u) * sp.sin(v),
            ]
        )
    )


def direct(f, values):
    """E f(x) by Gauss-Legendre panels that end at the kinks."""
    kinks = [k.args[0].subs(values) for k in f.atoms(relu, step, sp.Abs)]
    roots = [-u.subs(X, 0) / u.coeff(X) for u in kinks]
    numeric = {"relu": lambda u: max(u, mpf(0)), "step": lambda u: mpf(u > 0)}
    value = sp.lambdify(X, f.subs(values), modules=[numeric, "mpmath"])
    with mpmath.workdps(DIGITS + 8):
        mean, deviation = (sp.N(e, 45)._to_mpmath(140) for e in (values[MU], sp.sqrt(values[Q])))
        cuts = {mpf(k) for k in (-32, -24, *range(-18, 19, 2), 24, 32)} | {
            (mpf(r.p) / r.q - mean) / deviation for r in roots
        }
        return mpmath.quad(
            lambda t: value(mean + deviation * t) * mpmath.npdf(t), sorted(cuts), method="gauss-legendre", maxdegree=6
        )


@settings(max_examples=25)
@given(polynomials, factors(), numbers, numbers, slopes, numbers, numbers, numbers, positives)
@example(sp.S.One, sp.erf(X) ** 2, sp.S.Zero, sp.S.Zero, sp.S.One, sp.S.Zero, sp.S.Zero, sp.S.Zero, sp.S.One)
def test_closed_forms_are_right(polynomial, factor, curvature, tilt, a, b, c, mean, variance):
    assume(1 - 2 * curvature * variance > sp.Rational(1, 2))
    f = polynomial * sp.exp(curvature * X**2 + tilt * X) * factor
    values = {A: a, B: b, C: c, MU: mean, Q: variance}
    symbolic = closed_form(f, [(X, MU, Q)])
    assert symbolic is not None
    reference = direct(f, values)
    for found in (symbolic.subs(values), expectation(f.subs(values), [(X, mean, variance)])):
        value = sp.N(found, DIGITS + 5)._to_mpmath(120)
        with mpmath.workdps(DIGITS + 8):
            assert abs(value - reference) < mpf(10) ** -DIGITS * (1 + abs(reference) + scale(f, values))


def scale(f, values):
    """The size of the integrand near the mean, against which parts of the average cancel."""
    point = f.subs(values).subs(X, values[MU] + 1)
    return abs(sp.N(point, 20)._to_mpmath(60))
