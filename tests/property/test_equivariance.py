"""Python functions of all scores: every broken one is caught, every sound one is accepted and equals its function."""

import mpmath
import pytest
import sympy as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from strategies import activations

from replicode.theory.calculus.numeric import Program
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.activation import activation
from replicode.theory.properties.analysis import equivariance
from replicode.theory.properties.symbolic import at_tokens

QUICK = [Phase.explicit, Phase.generate]  # shrinking would take minutes
SHAPES = {
    "exp": sp.exp,
    "tanh": sp.tanh,
    "square": lambda s: s**2,
    "score": lambda s: s,
    "gauss": lambda s: sp.exp(-(s**2) / 2),
    "cosine": lambda s: sp.cos(s) + 2,
}


def _sound(own, body, scale):
    """own(s) over a sum of bodies, plus a share of the mean."""

    def function(x):
        total = 1 + sum(SHAPES[body](t) ** 2 for t in x)
        return [SHAPES[own](s) / total + scale * sum(x) / len(x) for s in x]

    return function


def _index(x, values, amount):
    return [v * (1 + amount * i) for i, v in enumerate(values)]


def _neighbour(x, values, amount):
    return [v + amount * x[i - 1] for i, v in enumerate(values)]


def _first(x, values, amount):
    return [values[0] * (1 + amount), *values[1:]]


def _causal(x, values, amount):
    return [v + amount * sum(x[: i + 1]) for i, v in enumerate(values)]


def _last_sum(x, values, amount):
    return [v / (2 + amount * sp.tanh(x[-1])) for v in values]


def _fading(x, values, amount):
    return [v + amount * sum(t / 2 ** abs(i - j) for j, t in enumerate(x)) for i, v in enumerate(values)]


def _reversed(x, values, amount):
    return values[::-1]


DEFECTS = (_index, _neighbour, _first, _causal, _last_sum, _fading, _reversed)
NAMES = st.sampled_from(sorted(SHAPES))
AMOUNTS = st.sampled_from([sp.Rational(1, 3), sp.Integer(2), sp.Rational(-1, 7), sp.Rational(1, 10**9), sp.Symbol("c")])


def _evaluated(function, point, c):
    symbols = [sp.Dummy(real=True) for _ in point]
    values = {**dict(zip(symbols, point)), sp.Symbol("c"): c}
    return [mpmath.mpf(sp.N(sp.sympify(e).xreplace(values), 30)) for e in function(tuple(symbols))]


@settings(max_examples=12, phases=QUICK)
@given(NAMES, NAMES, AMOUNTS, st.integers(2, 6))
def test_sound_functions_are_accepted(own, body, scale, tokens):
    function = _sound(own, body, scale)
    act = activation(function)
    point = [sp.Rational(7 * i * i - 11 * i + 3, 13) for i in range(tokens)]
    with mpmath.workdps(30):
        expected = _evaluated(function, point, sp.Rational(2, 5))
        program = Program(act.expr, {sp.Symbol(p, real=True): sp.Rational(2, 5) for p in act.parameters})
        found = program([mpf(int(p.p)) / int(p.q) for p in point])
        assert all(abs(f - e) < mpf(10) ** -20 * (1 + abs(e)) for f, e in zip(found, expected))


@settings(max_examples=24, phases=QUICK)
@given(NAMES, NAMES, AMOUNTS, st.sampled_from(DEFECTS))
def test_broken_functions_are_caught(own, body, amount, defect):
    sound = _sound(own, body, sp.Rational(1, 5))

    def broken(x):
        return defect(x, sound(x), amount)

    with pytest.raises(InputError, match="permutation-equivariant"):
        activation(broken)


@settings(max_examples=10)
@given(activations())
def test_every_text_of_the_language_is_equivariant(text):
    assert equivariance(activation(text)).holds is True


@settings(max_examples=6, phases=QUICK)
@given(activations())
def test_a_text_and_its_function_are_the_same_activation(text):
    """The expression written out token by token as a Python function leads back to the same map, or is refused."""
    expr = activation(text).expr

    def function(x):
        return [at_tokens(expr, i, x, {}) for i in range(len(x))]

    try:
        found = activation(function)
    except Refusal:
        return
    values = {sp.Symbol(p, real=True): sp.Rational(3, 7) for p in activation(text).parameters}
    with mpmath.workdps(30):
        for tokens in (2, 3, 7):
            point = [mpf(3 * i - 4) / 5 for i in range(tokens)]
            for f, e in zip(Program(found.expr, values)(point), Program(expr, values)(point)):
                assert abs(f - e) < mpf(10) ** -20 * (1 + abs(e))
