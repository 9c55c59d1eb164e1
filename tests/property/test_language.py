"""The expression language on random input: round trips, values, and text that was never meant for it."""

import os
import re
import time

import mpmath
import pytest
import sympy as sp
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from replicode.cli import main
from replicode.theory.errors import LanguageError
from replicode.theory.language import FUNCTIONS, parse, unparse
from replicode.theory.language.activation import registered
from replicode.theory.language.nodes import L, TokenSum, X

SETTINGS = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
SCORES = (0.3, -0.7, 1.1)
VALUES = {"c": 0.6, "a": -0.4, "nu": 1.7, "L": 3.0}

NUMBERS = st.one_of(
    st.integers(0, 12).map(str),
    st.decimals(0, 50, places=2).map(str),
    st.sampled_from(["1e-3", "2.5e2", ".5"]),
)
NAMES = st.sampled_from(["x", "x", "x", "c", "a", "nu", "L", "pi"])


EXPONENTS = st.sampled_from(["2", "3", "-1", "0.5", "(1/3)", "c"])
ELEMENTWISE = sorted(set(FUNCTIONS) - {"sum", "mean"})


def _expressions(functions):
    """Random texts of the language."""

    def compound(inner):
        binary = st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})")
        power = st.tuples(inner, EXPONENTS).map(lambda t: f"({t[0]})**{t[1]}")
        call = st.tuples(st.sampled_from(functions), inner).map(lambda t: f"{t[0]}({t[1]})")
        return st.one_of(binary, power, call, inner.map(lambda t: f"-({t})"))

    return st.recursive(st.one_of(NUMBERS, NAMES), compound, max_leaves=8)


EXPRESSIONS = _expressions(sorted(FUNCTIONS))
ALPHABET = st.text("xcLeE0159.+-*/() _,\t^=[]'\"\\#", max_size=40)
WORDS = st.lists(
    st.sampled_from([*FUNCTIONS, "x", "c", "(", ")", "+", "-", "*", "/", "**", "9", "0.5", "1e9", ",", "lambda"]),
    max_size=25,
).map(" ".join)
TEXTS = st.one_of(st.text(), ALPHABET, WORDS)


def _real(function):
    """The function where its argument and value are real."""

    def checked(value):
        result = function(value)
        if isinstance(value, mpmath.mpc) or isinstance(result, mpmath.mpc):
            raise ValueError("not real")
        return result

    return checked


SHARED = ("exp", "log", "sqrt", "erf", "erfc", "tanh", "cos", "sin", "sinh", "cosh", "atan")
ORACLE = {
    **{name: _real(getattr(mpmath, name)) for name in SHARED},
    "sigmoid": _real(lambda v: 1 / (1 + mpmath.exp(-v))),
    "softplus": _real(lambda v: mpmath.log(1 + mpmath.exp(v))),
    "relu": _real(lambda v: max(v, mpmath.mpf(0))),
    "abs": _real(abs),
    "mpf": mpmath.mpf,
}


def _value(text, score):
    """The value that mpmath gives a text generated here, by Python's own reading of it."""
    exact = re.sub(r"(?<![a-z\d.])[\d.]+(e-?\d+)?", lambda number: f"mpf('{number.group()}')", text)
    with mpmath.workdps(40):
        names = {name: mpmath.mpf(value) for name, value in VALUES.items()} | {"pi": +mpmath.pi}
        return eval(exact, {"__builtins__": {}}, {**ORACLE, **names, "x": mpmath.mpf(score)})


def _numeric(expr, score):
    """The value of a parsed expression at one of the SCORES."""
    names = {s: sp.Float(VALUES[s.name], 30) for s in expr.free_symbols - {X, L}}
    sums = {part: sum(_numeric(part.args[0], s) for s in SCORES) for part in expr.atoms(TokenSum)}
    value = expr.xreplace(sums).xreplace({**names, L: sp.Integer(3), X: sp.Float(score, 30)})
    return value.evalf(20)


@SETTINGS
@given(EXPRESSIONS)
def test_round_trip(text):
    try:
        expr = parse(text)
    except LanguageError:
        return
    assert parse(unparse(expr)) == expr


@SETTINGS
@given(_expressions(ELEMENTWISE), st.sampled_from(SCORES))
def test_the_value_is_kept(text, score):
    try:
        expr, expected = parse(text), _value(text, score)
    except (LanguageError, ArithmeticError, ValueError, TypeError):
        return
    if not isinstance(expected, mpmath.mpc) and 1e-6 < abs(expected) < 1e6:
        assert complex(_numeric(expr, score)) == pytest.approx(float(expected), rel=1e-6)


@SETTINGS
@given(EXPRESSIONS, st.sampled_from(SCORES))
def test_writing_keeps_the_value(text, score):
    try:
        expr = parse(text)
    except LanguageError:
        return
    again = parse(unparse(expr))
    assert str(_numeric(again, score)) == str(_numeric(expr, score))


@SETTINGS
@given(TEXTS)
def test_any_text(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "system", lambda *_: pytest.fail("user text was executed"))
        start = time.perf_counter()
        try:
            assert isinstance(parse(text), sp.Expr)
        except LanguageError as error:
            assert 0 <= error.column <= len(text)
            assert error.problem and error.allowed
        assert time.perf_counter() - start < 10


@st.composite
def mutated(draw):
    """A valid text with one of its characters dropped, doubled or replaced."""
    text = draw(EXPRESSIONS)
    at = draw(st.integers(0, len(text) - 1))
    swapped = draw(st.sampled_from(["", text[at] * 2, *"()*/^.,[]'\"_=:@0\0\N{GREEK SMALL LETTER CHI}"]))
    return text[:at] + swapped + text[at + 1 :]


@SETTINGS
@given(st.one_of(TEXTS, mutated()), st.sampled_from(["derive", "task", "param"]))
def test_any_refused_text_on_the_command_line(text, place):
    """Bad input is exit status 2 and one message, never a traceback, whatever is typed and wherever."""
    try:
        parse(text)
    except LanguageError:
        pass
    else:
        assume(place == "param" and "=" not in text)
    solve = ["solve", "x", "--tokens", "2", "--alpha", "1", "--nu", "1"]
    arguments = {
        "derive": ["derive", "--", text],
        "task": [*solve, f"--task={text}"],
        "param": [*solve, f"--param={text}"],
    }
    assume(place == "param" or text not in (*registered(), "spiked", "max"))
    done = CliRunner().invoke(main, arguments[place])
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert done.stderr and "Traceback" not in done.output


NESTED = [
    "sum(sum(x)*sum(x*sum(exp(x))))",
    "mean(mean(x)*x)**2",
    "log(1 + exp(x))/sum(log(1 + exp(x)))",
    "1/(1 + exp(-x))",
    "exp(x)/(1 + exp(x))",
    "(1 + erf(x))*erfc(-x)*log(erfc(-c - x)/2)",
    "log(sum(exp(x))) - softplus(x)*sigmoid(-x)",
    "exp(x**2)*erfc(x)",
    "abs(x)**c*sqrt(1 + x**2)",
]


@pytest.mark.parametrize("text", NESTED)
def test_round_trip_of_stable_and_nested_forms(text):
    expr = parse(text)
    assert parse(unparse(expr)) == expr
