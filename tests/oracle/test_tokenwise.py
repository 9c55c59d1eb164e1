"""Population averages one token at a time: against nodes over all tokens, and closed forms at any number of tokens."""

from __future__ import annotations

import numpy as np
import pytest

import replicode.theory.derive.saddle
from replicode.codegen.compiler import generate

CASES = [
    ("softmax", "max", 3, np.inf),
    ("softmax", "max", 3, 2.0),
    ("softmax", "spiked", 3, 2.0),
    ("softmax1", "spiked", 3, 1.0),
    ("softmax", "0.3*x**3/(1 + x**2)", 3, 1.0),
    ("linear", "max", 2, np.inf),
]


def module_of(act, text, tokens):
    return generate(replicode.theory.derive.saddle.derive(act, text, tokens)).load()


def averages(module, m, q, nu, tol=1e-9):
    (setting,) = module.settings_of(nu, 0.3, np.zeros(0))
    return module.averages_of_length(m, q, setting, tol), module._doubled_averages(m, q, setting, tol)


@pytest.mark.parametrize("act, text, tokens, nu", CASES)
def test_one_token_at_a_time_is_as_on_nodes_over_all(act, text, tokens, nu):
    module = module_of(act, text, tokens)
    assert module.averages_of_length is module.tokenwise_averages
    for m, q in ((0.5, 0.5), (-1.2, 2.0)):
        found, other = averages(module, m, q, nu)
        assert found.error < 1e-8
        for name in "AB":
            assert abs(getattr(found, name) - getattr(other, name)) <= found.error + other.error


MEANS_OF_THE_LARGEST = {8: 1.4236003060469528, 32: 2.0696688279289936}


@pytest.mark.parametrize("tokens", MEANS_OF_THE_LARGEST)
def test_linear_attention_on_the_largest_of_many_scores(tokens):
    """A = 1 + m E max, B = L (1 + q)."""
    module = module_of("linear", "max", tokens)
    (setting,) = module.settings_of(np.inf, 0.3, np.zeros(0))
    found = module.averages_of_length(0.7, 0.9, setting, 1e-10)
    assert abs(found.A - 1.0 - 0.7 * MEANS_OF_THE_LARGEST[tokens]) < 1e-10
    assert abs(found.B - tokens * 1.9) < 1e-10 * tokens


def test_scores_too_large_for_the_parts_of_sigma_are_left_to_other_nodes():
    """At a norm of 1e6 exp overflows; sigma itself is then a step, and A the chance that the winner's score leads."""
    module = module_of("softmax", "max", 3)
    (setting,) = module.settings_of(np.inf, 0.3, np.zeros(0))
    assert np.isnan(module._tokenwise(500.0, 1e6, setting, 1.0)).all()
    found = module.averages_of_length(500.0, 1e6, setting, 1e-3)
    assert 0.4 < found.A < 0.7 and 0.99 < found.B < 1.01


def test_modules_of_one_dimension_have_no_such_axes():
    assert not hasattr(module_of("softmax", "max", 2), "tokenwise_averages")
    assert not hasattr(module_of("linear", "spiked", 3), "tokenwise_averages")
