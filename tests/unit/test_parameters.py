"""The activation's parameters travel as a mapping: their names cannot meet those of arguments."""

import pytest

import replicode as rc
from replicode.verbs.check import check

NAMES = ("task", "tokens", "act", "spec", "backend", "dim", "bayes", "parameters")
LAW = {"tokens": 1, "alpha": 4, "nu": 2, "noise": 0.3, "digits": 3, "bayes": False}


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_named_like_an_argument(name):
    assert rc.activation(f"1 + {name}*x", {name: 0.5}).values == {name: 0.5}


def test_verbs_take_parameters_named_like_their_arguments():
    text, given = "1 + tokens*x", {"tokens": 0.5}
    assert rc.derive(text, parameters=given).activation.values == given
    assert check(text, parameters=given)["parameter_values"] == given
    assert rc.population(text, tokens=1, nu=2, parameters=given).parameters == given


def test_solve_takes_parameters_named_like_its_arguments():
    given, named = (rc.solve(f"1 + erf({n} + x)", parameters={n: 0.5}, **LAW) for n in ("bayes", "c"))
    assert given.test_risk == named.test_risk == rc.solve("1 + erf(c + x)", c=0.5, **LAW).test_risk


@pytest.mark.parametrize(
    ("parameters", "more", "named"),
    [({"c": 1.0}, {"c": 1.0}, "c"), ({"c": "1"}, {}, "param c"), (3, {}, "parameters"), ({}, {"c": True}, "param c")],
)
def test_parameters_given_twice_or_not_as_numbers_are_refused(parameters, more, named):
    with pytest.raises(rc.InputError, match=named):
        rc.activation("1 + erf(c + x)", parameters, **more)


def test_defaults_named_like_the_arguments_of_register():
    assert rc.register("named_like", "1 + name*x", {"name": 2.0}).defaults == {"name": 2.0}
