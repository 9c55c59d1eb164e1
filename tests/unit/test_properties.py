"""Symbolic properties of activations: a table of what must be found, and of what must not."""

import pytest
import sympy as sp

from theory.activation import activation
from theory.nodes import L
from theory.properties import properties, vanishes

C = sp.Symbol("c", real=True)

# text: row sum (None where it depends on the scores), shift invariant, element-wise, smooth
TABLE = {
    "exp(x)/sum(exp(x))": (1, True, False, True),
    "exp(2*x)/sum(exp(2*x))": (1, True, False, True),
    "exp(-x)/sum(exp(-x))": (1, True, False, True),
    "exp(c*x)/sum(exp(c*x))": (1, True, False, True),
    "3*exp(x)/sum(exp(x))": (3, True, False, True),
    "exp(x)/mean(exp(x))": (L, True, False, True),
    "c*exp(x)/sum(exp(x)) + 1/L": (C + 1, True, False, True),
    "exp(x)/sum(exp(x)) - 1/L": (0, True, False, True),
    "exp(x - mean(x))": (None, True, False, True),
    "tanh(x - mean(x))": (None, True, False, True),
    "x - mean(x)": (0, True, False, True),
    "exp(x - mean(x))/sum(exp(x - mean(x)))": (1, True, False, True),
    "tanh(x - mean(x))/sum(exp(x - mean(x)))": (None, True, False, True),
    "tanh(x - mean(x))/sum(exp(x + mean(x)))": (None, False, False, True),
    "x*sum(x*sum(exp(x)))": (None, False, False, True),
    "exp(x)/sqrt(sum(exp(2*x)))": (None, True, False, True),
    "exp(x)/sum(exp(x)) + 0.01*x": (None, False, False, True),
    "exp(x)/(1 + sum(exp(x)))": (None, False, False, True),
    "softplus(x)/sum(softplus(x))": (1, False, False, True),
    "(1 + x)**2/sum((1 + x)**2)": (1, False, False, True),
    "relu(x)/sum(relu(x))": (1, False, False, False),
    "abs(x)/sum(abs(x))": (1, False, False, False),
    "exp(x)/sum(exp(2*x))": (None, False, False, True),
    "1 + x": (None, False, True, True),
    "1 + erf(c + x)": (None, False, True, True),
    "relu(x)/L": (None, False, True, False),
    "sigmoid(x)": (None, False, True, True),
    "1/L": (1, True, True, True),
}


@pytest.mark.parametrize("text", TABLE)
def test_table(text):
    row_sum, shift_invariant, elementwise, smooth = TABLE[text]
    found = properties(activation(text))
    if row_sum is None:
        assert found.row_sum is None
    else:
        assert found.row_sum is not None and sp.simplify(found.row_sum - row_sum) == 0
    assert (found.shift_invariant, found.elementwise, found.smooth) == (shift_invariant, elementwise, smooth)


def test_what_is_nearly_zero_does_not_vanish():
    assert vanishes(C - C)
    assert vanishes((C + 1) ** 2 - C**2 - 2 * C - 1)
    assert not vanishes(sp.Rational(1, 10**15) * C)
    assert not vanishes(sp.exp(C) - 1 - C)


def test_the_name_is_immaterial():
    assert properties(activation("softmax")) == properties(activation("exp(x)/sum(exp(x))"))
