"""Domains of activations: what is refused, with which witness, and what must not be refused."""

import re
import time

import pytest

from replicode.theory.errors import InputError
from replicode.theory.language.activation import activation, registered
from replicode.theory.properties.domain import check_domain

REAL, AVERAGES = "real and finite on R^L", "Gaussian averages exist"

REFUSED = {
    "1/x": (REAL, "(0.0, 0.0)"),
    "1/(1 + x)": (REAL, "(-1.0, -1.0)"),
    "1/cos(x)": (REAL, "1.5708"),
    "1/(1 + cos(x))": (REAL, "3.14159"),
    "1/(x - 5)": (REAL, "(5.0, 5.0)"),
    "1/(x - 500)**2": (REAL, "(500.0, 500.0)"),
    "1/(x**2 - x - 1)": (REAL, "0.618034"),
    "1/(x**2 - 1e-8)": (REAL, "0.0001"),
    "1/sum(x)": (REAL, "(0.0, 0.0)"),
    "x/mean(x)": (REAL, "not finite"),
    "1/sum(x**2)": (REAL, "(0.0, 0.0)"),
    "1/(x - mean(x))": (REAL, "not finite"),
    "1/(1 - sum(exp(x)))": (REAL, "-0.693147"),
    "1/(sum(x)**2 + sum(x**2 - 1)**2)": (REAL, "not finite"),
    "1/log(1 + x**2)": (REAL, "(0.0, 0.0)"),
    "1/tanh(x)": (REAL, "(0.0, 0.0)"),
    "exp(1/x)": (REAL, "(0.0, 0.0)"),
    "abs(x)**(-0.1)": (REAL, "(0.0, 0.0)"),
    "log(x**2)": (REAL, "(0.0, 0.0)"),
    "log(abs(x))": (REAL, "(0.0, 0.0)"),
    "log(x)": (REAL, "the logarithm of -1.1"),
    "log(1 + x)": (REAL, "the logarithm of -0.1"),
    "log(sum(x))": (REAL, "the logarithm of -2.3"),
    "log(cos(x))": (REAL, "the logarithm of"),
    "sqrt(x)": (REAL, "the power 0.5 of -1.1"),
    "x**0.5": (REAL, "the power 0.5 of -1.1"),
    "x**(1/3)": (REAL, "the power 0.33333 of -1.1"),
    "sqrt((x - 3)**2 - 1e-6)": (REAL, "the power 0.5 of -"),
    "relu(x)/sum(relu(x))": (REAL, "(-1.1, -1.2): a division by zero"),
    "1/relu(x)": (REAL, "a division by zero"),
    "exp(x**2)": (AVERAGES, "1.0e+6"),
    "exp(x**2/300)": (AVERAGES, "3.333e+9"),
    "exp(0.001*x*abs(x))": (AVERAGES, "1.0e+9"),
    "exp(-x**3)": (AVERAGES, "-1.0e+6"),
    "exp(x*mean(x))": (AVERAGES, "log|sigma|"),
    "exp(sum(x)**2/100)": (AVERAGES, "log|sigma|"),
    "exp(exp(x))": (AVERAGES, "too large"),
    "1/(c - x)": (REAL, "c = 0.7"),
    "sqrt(c - 10)*x": (REAL, "c = 0.7: the power 0.5 of -9.3"),
}

ALLOWED = (
    "1/(1 + x**2)",
    "log(1 + x**2)",
    "sqrt(1 + x**2)",
    "exp(-x**2)",
    "exp(-x**2)/sum(exp(-x**2))",
    "exp(x**2)/sum(exp(x**2))",
    "1/(1 + exp(-x))",
    "abs(x)",
    "relu(x)/L",
    "relu(x)/(1 + sum(relu(x)))",
    "x**2/sum(x**2)",
    "abs(x)/sum(abs(x))",
    "sin(x)/x",
    "x/(exp(x) - 1)",
    "x*log(x**2)",
    "x**2/log(1 + x**2)",
    "1/(2 + cos(x))",
    "1/(1.0001 + cos(x))",
    "1/(1 + x + x**2)",
    "exp(abs(x)**1.5)",
    "sqrt(sum(x**2))",
    "log(sum(exp(x)))",
    "(x - mean(x))/sqrt(mean((x - mean(x))**2))",
    "(1 + erf(x))/sum(1 + erf(x))",
    "exp(-exp(x))",
    "log(c)*x",
    "sqrt(c)*x",
    "log(c - 1)*x",
    "1/(c**2 + x**2)",
    "abs(x)**c",
)


def _shown(text):
    with pytest.raises(InputError) as refusal:
        check_domain(activation(text))
    return str(refusal.value)


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_a_witness(text):
    kind, detail = REFUSED[text]
    message = _shown(text)
    assert message.startswith("activation: got ") and kind in message and detail in message
    assert re.search(r"at scores \([^)]*\)", message)


@pytest.mark.parametrize("text", [*registered(), *ALLOWED])
def test_not_refused(text):
    check_domain(activation(text))


def test_parameters_count_at_their_values():
    text = "1/(x**2 + c)"
    check_domain(activation(text))
    check_domain(activation(text, c=2.0))
    with pytest.raises(InputError, match=r"c = -2: it is not finite"):
        check_domain(activation(text, c=-2.0))
    with pytest.raises(InputError, match="logarithm of -1"):
        check_domain(activation("log(c)*x", c=-1.0))


def test_the_number_of_tokens_counts_where_it_is_known():
    act = activation("x/(L - 4)")
    check_domain(act)
    check_domain(act, tokens=3)
    with pytest.raises(InputError, match="division by zero"):
        check_domain(act, tokens=4)


@pytest.mark.parametrize("text", ["poly4", "(1 + erf(x))/sum(1 + erf(x))", "sqrt(x**2 + sum(x**2 + cos(x))**2)"])
def test_bounded_time(text):
    start = time.process_time()
    check_domain(activation(text))
    assert time.process_time() - start < 1.5
