"""Registered activations and Python functions: three shapes of function, what is recovered, and what is refused."""

import pytest
import sympy as sp

import replicode.theory.language.activation as registry
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.activation import activation, register, registered
from replicode.theory.properties.symbolic import properties

exp, c = sp.exp, sp.Symbol("c")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def test_built_in_names():
    names = "softmax linear erf softplus sigmoid tanh relu exp softmax1 poly2 poly4 tempered"
    assert set(names.split()) <= set(registered())
    assert activation("poly4").expr == activation("(1 + x)**4/sum((1 + x)**4)").expr
    assert activation("tempered").settled() == {"beta": 1.0}
    assert properties(activation("tempered")).shift_invariant


RECOVERED = {
    "exp(x)/sum(exp(x))": [
        lambda x, sum, L: exp(x) / sum(exp(x)),
        lambda x: [exp(s) / sum(exp(t) for t in x) for s in x],
        lambda x: [1 / (1 + sum(exp(t - s) for j, t in enumerate(x) if j != i)) for i, s in enumerate(x)],
        lambda x: [exp(s) / (exp(s) + sum(exp(t) for j, t in enumerate(x) if j != i)) for i, s in enumerate(x)],
    ],
    "tanh(x)": [lambda x: sp.tanh(x), lambda x: [sp.tanh(s) for s in x]],
    "x**2": [lambda x: sp.Matrix(x).applyfunc(lambda s: s**2)],
    "relu(x)": [lambda x: sp.Max(0, x)],
    "x/2": [lambda x: 0.5 * x],
    "x/sqrt(L)": [lambda x: [s / sp.sqrt(len(x)) for s in x]],
    "1/L": [lambda x: [sp.Rational(1, len(x)) for _ in x]],
    "L*x + (L - 3)*x**2": [lambda x: [len(x) * s + (len(x) - 3) * s**2 for s in x]],
    "x - mean(x)": [lambda x: [s - sum(x) / len(x) for s in x]],
    "exp(x - mean(x))": [
        lambda x: [exp(s - sum(x) / len(x)) for s in x],
        lambda x: [exp(s) / sp.prod([exp(t / len(x)) for t in x]) for s in x],
    ],
    "x*(sum(tanh(x)) - tanh(x))/(L - 1)": [
        lambda x: [s * sum(sp.tanh(t) for j, t in enumerate(x) if j != i) / (len(x) - 1) for i, s in enumerate(x)]
    ],
    "L*x**2 - 2*x*sum(x) + sum(x**2)": [lambda x: [sum((s - t) ** 2 for t in x) for s in x]],
    "(x - mean(x))/sqrt(1 + mean((x - mean(x))**2))": [
        lambda x: [(s - sum(x) / len(x)) / sp.sqrt(1 + sum((t - sum(x) / len(x)) ** 2 for t in x) / len(x)) for s in x]
    ],
    "exp(c*x)/sum(exp(c*x)) + 0.25": [lambda x: [exp(c * s) / sum(exp(c * t) for t in x) + 0.25 for s in x]],
}


@pytest.mark.parametrize("text", RECOVERED)
def test_the_token_form_is_recovered(text):
    for function in RECOVERED[text]:
        assert sp.expand(activation(function).expr - activation(text).expr) == 0


@pytest.mark.parametrize("name", ["x", "L", "", "a b", "é", 3])
def test_names_that_mean_something_or_nothing_are_not_registered(name):
    with pytest.raises(InputError, match="name"):
        register(name, "1 + x")


def test_a_function_can_be_registered():
    made = register("mine", lambda x: [exp(c * s) / sum(exp(c * t) for t in x) for s in x], c=2.0)
    assert activation("mine") == made and made.settled() == {"c": 2.0} and made.parameters == ("c",)
    assert made.expr == activation("exp(c*x)/sum(exp(c*x))").expr
    with pytest.raises(InputError, match="parameters"):
        register("other", lambda x: x, b=1.0)
    with pytest.raises(InputError, match="identifier"):
        register("not a name", lambda x: x)


BROKEN = {
    "index": lambda x: [(i + 1) * s for i, s in enumerate(x)],
    "neighbour": lambda x: [s * x[i - 1] for i, s in enumerate(x)],
    "first": lambda x: [exp(x[0]) / sum(exp(t) for t in x), *[exp(s) for s in x[1:]]],
    "causal": lambda x: [exp(s) / sum(exp(t) for t in x[: i + 1]) for i, s in enumerate(x)],
    "faint": lambda x: [s + sp.Rational(i, 10**20) for i, s in enumerate(x)],
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_equivariance_is_shown(name):
    with pytest.raises(InputError, match=r"at scores \(.*\) exchanging tokens \d and \d must give .* it gives"):
        activation(BROKEN[name])


UNRECOVERABLE = {
    "maximum": lambda x: [exp(s - sp.Max(*x)) for s in x],
    "product": lambda x: [sp.prod(map(sp.tanh, x)) for s in x],
    "pairs": lambda x: [sum(sp.tanh(s - t) for t in x) for s in x],
    "one length": lambda x: [s * (2 if len(x) == 4 else 1) for s in x],
    "parity of the length": lambda x: [s * (-1) ** len(x) for s in x],
}


@pytest.mark.parametrize("name", UNRECOVERABLE)
def test_what_is_no_function_of_sums_is_refused(name):
    with pytest.raises(Refusal, match=r"write it with sum\(...\)"):
        activation(UNRECOVERABLE[name])


def _raises(x):
    raise KeyError("lost")


ODD = {
    "too few": (lambda x: list(x)[1:], "for 2 scores it returned 1"),
    "one number": (lambda x: sum(x), "for 2 scores it returned"),
    "text": (lambda x: "exp(x)", "'exp(x)'"),
    "nothing": (lambda x: None, "None"),
    "objects": (lambda x: [object() for _ in x], "object"),
    "nan": (lambda x: [sp.nan for _ in x], "finite real"),
    "infinite": (lambda x: sp.oo * x, "finite real"),
    "complex": (lambda x: [sp.I * s for s in x], "finite real"),
    "raises": (_raises, "KeyError"),
    "relational": (lambda x: [exp(s - max(x)) for s in x], "TypeError"),
    "two arguments": (lambda x, y: x, "takes 2 arguments"),
    "keyword": (lambda x, *, y: x, "takes"),
    "foreign function": (lambda x: sp.gamma(x), "gamma"),
    "foreign symbol": (lambda x: [s * sp.Dummy("u") for s in x], "scores it is given"),
    "reserved name": (lambda x: sp.Symbol("alpha") * x, "alpha"),
    "signal": (lambda x: sp.Symbol("nu") * x, "nu"),
    "never real": (lambda x: [sp.log(-1 - s**2) for s in x], "random scores"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_functions_are_bad_input(name):
    function, detail = ODD[name]
    with pytest.raises(InputError) as refusal:
        activation(function)
    assert detail in str(refusal.value) and str(refusal.value).startswith("activation: got ")


def test_large_expressions_are_bad_input(monkeypatch):
    monkeypatch.setattr("replicode.theory.language.vector._MOST_NODES", 100)
    with pytest.raises(InputError, match="at most 100 parts"):
        activation(lambda x: [sum(sp.sin(k * t) for k in range(20) for t in x) for _ in x])
    with pytest.raises(InputError, match=r"too large|too intricate|nested|at most"):
        activation(lambda x, sum, L: sp.Add(*[sp.cos(k * x) ** 3 for k in range(400)]))


def test_other_things_are_bad_input():
    for thing in (3, None, ["x"]):
        with pytest.raises(InputError):
            activation(thing)
