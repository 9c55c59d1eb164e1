"""`check`: its report and exit status, and a suite each of whose properties can fail."""

import json
from dataclasses import fields, replace

import mpmath
import numpy as np
import pytest
import sympy as sp
from click.testing import CliRunner

import replicode.validation.properties as suite
from replicode.cli import main
from replicode.codegen.runtime.population_solver import LocationGain
from replicode.theory.errors import Refusal
from replicode.theory.language.activation import activation
from replicode.theory.language.nodes import W, X
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.theory.properties.analysis import analysis
from replicode.theory.properties.symbolic import Claim
from replicode.validation.properties import population, solution
from replicode.validation.properties.subject import Subject, population_module
from replicode.validation.properties.verdict import above, compared, near
from replicode.verbs.check import _merged, as_text, check

KEYS = "equivariant normalised shift_invariant elementwise smooth kinks growth parity parameters nishimori properties"


def _ran(*arguments):
    done = CliRunner().invoke(main, ["check", *arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_softmax_on_the_command_line():
    done = _ran("softmax", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and done.stderr == "" and set(KEYS.split()) <= set(found)
    assert found["schema"] == "replicode/check/1"
    assert found["equivariant"] and found["normalised"] and found["shift_invariant"] and found["nishimori"]
    assert not found["elementwise"] and found["smooth"] and found["kinks"] == [] and found["parity"] == "none"
    assert found["growth"] == {"+inf": "bounded", "-inf": "bounded"} and found["row_sum"] == "1"
    absent = {n for n, outcome in found["properties"].items() if outcome == "not applicable"}
    assert absent == {"reflection", "homogeneity", "hard limit"} and "failed" not in found["properties"].values()


def test_what_is_not_meant_to_hold_is_not_applicable():
    found = check("exp(x)/sum(exp(x)) + 0.01*x")
    assert found.ok and found["normalised"] is False and found["nishimori"] is False
    for name in ("normalisation", "shift invariance", "ridge limit", "Nishimori"):
        assert found["properties"][name] == "not applicable"
    for name in ("equivariance", "gradient identity", "jacobian identity", "generated code", "energy identity"):
        assert found["properties"][name] == "passed"
    assert "the sum is" in as_text(found)


@pytest.mark.full
def test_kinks_that_depend_on_a_parameter():
    done = _ran("relu(x - c)", "--param", "c=0.5", "--tokens", "3")
    assert done.exit_code == 0 and "x = (1/2)" in done.stdout and "property suite at 3 tokens" in done.stdout
    assert check("relu(x - c)")["kinks"] == ["x = c"]


def test_kinks():
    found = check("relu")
    assert found["kinks"] == ["x = 0"] and not found["smooth"] and found["homogeneous"] == "1"
    assert found["properties"]["homogeneity"] == found["properties"]["Bayes bound"] == "passed"
    assert found["properties"]["residual is the gradient of the free energy"] == "passed"
    assert found["properties"]["stein form is the derivative form"] == "not applicable"


def test_folds_of_hardly_any_mass_are_no_failure_of_the_stein_form():
    """At the widest V the folds of tanh at one token have a mass of 4e-8, and their jumps shift Vh_k by 5e-6."""
    tanh = activation("tanh")
    assert _outcome("stein form is the derivative form", suite.subject(tanh, "spiked", 1, analysis(tanh))) == "passed"


@pytest.mark.parametrize("arguments", [["1/x"], ["softmaxx"], ["softmax", "--tokens", "0"], ["erf", "--param", "b=1"]])
def test_bad_input(arguments):
    done = _ran(*arguments)
    assert done.exit_code == 2 and done.stdout == "" and "allowed is" in done.stderr


@pytest.fixture(scope="module")
def softmax():
    act = activation("softmax")
    return suite.subject(act, "spiked", None, analysis(act))


def _outcome(name, of):
    with mpmath.workdps(suite.DIGITS):
        return {**suite.PROPERTIES, **suite.LONGER}[name](of).outcome


def _replaced(kernel, change):
    """A kernel whose output expressions are changed."""
    outputs = tuple(replace(o, value=change(o)) for o in kernel.outputs)
    return replace(kernel, outputs=outputs)


def _with(of, name, change):
    return replace(of, kernels={**of.kernels, name: _replaced(of.kernels[name], change)})


def _added(name, amount):
    """A change of one output by an amount: on the diagonal where it is a matrix."""

    def change(output):
        if output.name != name:
            return output.value
        matrix = hasattr(output.value, "diagonal")
        return replace(output.value, diagonal=output.value.diagonal + amount) if matrix else output.value + amount

    return change


TINY, SMALL, Y = sp.Rational(1, 10**12), sp.Rational(1, 10**6), sp.Symbol("y", real=True)


@pytest.mark.parametrize(
    "name, kernel, change",
    [
        ("sigma as typed", "sigma", _added("sigmas", sp.Rational(1, 10**20))),
        ("normalisation", "sigma", _added("sigmas", TINY * X)),
        ("shift invariance", "sigma", _added("sigmas", TINY * X)),
        ("pullback", "pullback", _added("slope", TINY * W)),
        ("gradient identity", "gradient", _added("slope", TINY * X)),
        ("gradient identity", "gradient", _added("gain", TINY)),
        ("gradient identity", "gradient", _added("value", TINY)),
        ("jacobian identity", "curvatures", _added("h", TINY)),
        ("jacobian identity", "curvatures", _added("c", TINY)),
        ("jacobian identity", "curvatures", _added("e", TINY)),
        ("sign symmetry", "gradient", _added("value", TINY * Y)),
        ("sign symmetry", "gradient", _added("slope", TINY * Y)),
        ("generated code", "sigma", _added("sigmas", SMALL)),
        ("generated code", "curvatures", _added("h", SMALL)),
        ("generated code", "gradient", _added("residual_loss", SMALL)),
    ],
)
def test_a_broken_kernel_fails(softmax, name, kernel, change):
    assert _outcome(name, softmax) == "passed"
    assert _outcome(name, _with(softmax, kernel, change)) == "failed"


class _LastToken(suite.Subject):
    """A subject whose sigma treats the last token differently."""

    def sigma(self, x):
        values = super().sigma(x)
        return [*values[:-1], values[-1] * (1 + mpmath.mpf("1e-20"))]


class _FirstToken(suite.Subject):
    """A subject whose loss sees the first token."""

    def run(self, name, **inputs):
        found = super().run(name, **inputs)
        return {**found, "value": found["value"] + inputs["x"][0]}


@pytest.mark.parametrize("name, broken", [("equivariance", _LastToken), ("token permutation of the loss", _FirstToken)])
def test_a_distinguished_token_fails(softmax, name, broken):
    parts = {f.name: getattr(softmax, f.name) for f in fields(softmax)}
    assert _outcome(name, softmax) == "passed"
    assert _outcome(name, broken(**parts)) == "failed"


def test_wrong_claims_of_symmetry_fail(softmax):
    wrong = replace(softmax, analysis=replace(softmax.analysis, parity="odd", homogeneous=sp.Integer(1)))
    assert _outcome("reflection", softmax) == _outcome("homogeneity", softmax) == "not applicable"
    assert _outcome("reflection", wrong) == _outcome("homogeneity", wrong) == "failed"
    off = replace(softmax.analysis.properties, row_sum=sp.Integer(2))
    assert _outcome("normalisation", replace(softmax, analysis=replace(softmax.analysis, properties=off))) == "failed"
    linear = activation("linear")
    found = replace(analysis(linear), shift_invariant=Claim(True))
    assert _outcome("shift invariance", suite.subject(linear, "spiked", None, found)) == "failed"


class _Wrapped:
    """A generated module with one function changed."""

    def __init__(self, module, **changed):
        self.__dict__.update(vars(module) | changed)


@pytest.mark.parametrize(
    "name, function, change",
    [
        ("residual is the gradient of the free energy", "free_energy_gradient", lambda v: v * np.linspace(1, 1.01, 12)),
        ("residual is the gradient of the free energy", "free_energy_value", lambda v: 1.01 * v),
        ("stein form is the derivative form", "conjugates_from_rates", lambda v: 1.01 * v),
        ("ridge limit", "free_energy", lambda v: 1.01 * v),
        ("ridge limit", "residual", lambda v: v * np.linspace(1, 1.01, 12)),
        ("ridge risk", "risk_of_overlaps", lambda v: 1.001 * v),
        ("ridge solution", "solve", lambda v: v._replace(conjugates={**v.conjugates, "mh_v": -v.conjugates["mh_v"]})),
        ("population averages", "population_averages", lambda v: v._replace(A=1.0001 * v.A)),
        ("risk from samples", "risk_of_overlaps", lambda v: 1.02 * v),
        ("scale covariance", "free_energy_value", lambda v: 1.001 * v),
        ("stationarity", "free_energy_gradient", lambda v: v + 1e-3),
        ("energy identity", "free_energy_value", lambda v: 1.001 * v),
        ("infinite data", "population_risk", lambda v: 1.01 * v),
        ("infinite penalty", "population_risk", lambda v: v + 1e-4),
        ("solver", "solve", lambda v: v._replace(test_risk=v.test_risk + 2 * v.error + 1e-4)),
        ("solver", "solve", lambda v: v._replace(energy=v.energy + 2 * v.errors["energy"] + 1e-4)),
    ],
)
def test_a_broken_solver_fails(softmax, name, function, change):
    tokens = 1 if name.startswith("ridge") else 2
    module = softmax.modules(tokens)
    kept = getattr(module, function)
    broken = _Wrapped(module, **{function: lambda *a, **k: change(kept(*a, **k))})
    assert _outcome(name, softmax) == "passed"
    assert _outcome(name, replace(softmax, modules=lambda _: broken)) == "failed"


@pytest.mark.parametrize(
    "name, channel, change",
    [
        ("prox and prox-free averages", "ProxChannel", lambda a: a._replace(rates=a.rates * np.linspace(1, 1.01, 6))),
        ("prox and prox-free averages", "ProxChannel", lambda a: a._replace(train_loss=1.01 * a.train_loss)),
        ("total weight", "ProxFreeChannel", lambda a: a._replace(mass=1.001 * a.mass)),
    ],
)
def test_broken_averages_fail(softmax, name, channel, change):
    module = softmax.modules(2)

    class Broken(getattr(module, channel)):
        def averages(self, order, search=False):
            return change(super().averages(order, search))

    assert _outcome(name, softmax) == "passed"
    assert _outcome(name, replace(softmax, modules=lambda _: _Wrapped(module, **{channel: Broken}))) == "failed"


def test_a_wrong_winner_fails(softmax, monkeypatch):
    hard = replace(softmax, task=task("max"))
    assert _outcome("hard limit", hard) == "passed" and _outcome("hard limit", softmax) == "not applicable"
    wrong = task("-nu*x - log(sum(exp(-nu*x)))")
    monkeypatch.setattr(Subject, "infinite_data", lambda of, tokens: population_module(of.settled, wrong, tokens))
    assert _outcome("hard limit", hard) == "failed"


@pytest.mark.parametrize("name", ["Bayes bound", "Nishimori", "posterior"])
def test_a_wrong_bayes_gain_fails(softmax, monkeypatch, name):
    assert _outcome(name, softmax) == "passed"
    wrong = {"gain": 0.5, "error": 1e-3} if name == "posterior" else {"gain": 0.5, "error": 0.0}
    monkeypatch.setattr(population, "best_gain", lambda *_: LocationGain(**wrong))
    assert _outcome(name, softmax) == "failed"


@pytest.mark.parametrize(
    "name, risk", [("Bayes bound at finite samples", lambda alpha: 0.9), ("Bayes risk falls with samples", np.log1p)]
)
def test_a_wrong_bayes_risk_fails(softmax, monkeypatch, name, risk):
    assert _outcome(name, softmax) == "passed"
    right = solution._bayes
    monkeypatch.setattr(solution, "_bayes", lambda *a: right(*a)._replace(test_risk=float(risk(a[-1]))))
    assert _outcome(name, softmax) == "failed"


def test_a_wrong_mixture_fails(softmax):
    assert _outcome("lengths mix", softmax) == "passed"

    def modules(tokens):
        module = softmax.modules(tokens)
        wrong = {"residual": lambda *a, **k: 1.001 * module.residual(*a, **k)} if isinstance(tokens, str) else {}
        return _Wrapped(module, **wrong)

    assert _outcome("lengths mix", replace(softmax, modules=modules)) == "failed"


def test_a_distribution_of_lengths_is_checked_at_each_and_mixed(monkeypatch):
    few, every = ("sigma as typed", "gradient identity", "homogeneity"), suite.outcomes
    monkeypatch.setattr(suite, "outcomes", lambda of, names=few: every(of, names))
    found = json.loads(_ran("softmax", "--tokens", "1:0.2,3:0.8", "--json").stdout)
    assert found["tokens"] == "1:0.2,3:0.8" and found["suite_tokens"] == [1, 3] and found["nishimori"]
    assert found["properties"] == dict.fromkeys((*few[:2], "lengths mix"), "passed") | {few[2]: "not applicable"}
    assert found["details"]["homogeneity"] == "sigma is not homogeneous"
    assert "property suite at 1, 3 tokens" in _ran("linear", "--tokens", "1:0.5,3:0.5").stdout


def test_a_property_that_fails_at_one_length_fails():
    merged = _merged((1, 2), [suite.PASSED, suite.Verdict("failed", "off by 1")])
    assert merged == suite.Verdict("failed", "2 tokens: off by 1")
    assert _merged((1, 2), [suite.Verdict("not applicable", "why"), suite.PASSED]) == suite.PASSED


def test_long_sequences_are_checked_at_few_tokens():
    law = suite.suited(lengths("2:0.5,8:0.2,16:0.3"))
    assert law.tokens == (2, 4) and law.weights == (0.5, 0.5)


def test_failures_set_the_exit_status(monkeypatch, softmax):
    verdicts = {"equivariance": suite.Verdict("failed", "off by 1"), "pullback": suite.PASSED}
    monkeypatch.setattr(suite, "subject", lambda *_: softmax)
    monkeypatch.setattr(suite, "outcomes", lambda _: verdicts)
    done, table = _ran("softmax", "--json"), _ran("softmax")
    assert done.exit_code == table.exit_code == 1
    assert "property equivariance failed: off by 1" in done.stderr and "failed  (off by 1)" in table.stdout
    assert json.loads(done.stdout)["properties"] == {"equivariance": "failed", "pullback": "passed"}


def test_without_a_module_or_points_nothing_is_claimed(softmax):
    bare = replace(softmax, modules=lambda _: None)
    absent = ("generated code", "residual is the gradient of the free energy", "ridge limit", "ridge risk", "solver")
    for name in (*absent, "scale covariance", "energy identity", "infinite data", "lengths mix", "risk from samples"):
        assert _outcome(name, bare) == "not applicable"


def test_a_task_that_couples_the_scores_keeps_the_kernels(monkeypatch):
    few = ("gradient identity", "Nishimori", "posterior", "stationarity", "energy identity")
    every = suite.outcomes
    monkeypatch.setattr(suite, "outcomes", lambda of: every(of, few))
    found = check("softmax", task="max")
    assert found["nishimori"] and set(found["properties"].values()) == {"passed"}


@pytest.mark.full
@pytest.mark.parametrize("task", ["max", "x**2/4", "x - x**4/10"])
@pytest.mark.parametrize("text", ["softmax", "linear", "sigmoid", "relu", "exp(x)/sum(exp(x)) + 0.01*x"])
def test_nothing_fails_on_other_tasks(text, task):
    found = suite.outcomes(suite.examined(text, task), (*suite.PROPERTIES, *suite.LONGER))
    assert [f"{n}: {v.detail}" for n, v in found.items() if v.outcome == "failed"] == []


def test_an_error_is_a_failure_and_a_refusal_is_not(softmax, monkeypatch):
    def raised(error):
        def run(_):
            raise error

        return {**suite.PROPERTIES, "posterior": run}

    for error, expected in ((ZeroDivisionError("by 0"), "failed"), (Refusal("beyond it"), "not applicable")):
        monkeypatch.setattr("replicode.validation.properties.suite.PROPERTIES", raised(error))
        (verdict,) = suite.outcomes(softmax, ["posterior"]).values()
        assert verdict.outcome == expected and str(error) in verdict.detail


@pytest.mark.parametrize("bad", [mpmath.nan, mpmath.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_a_number_fails(bad, place):
    one = [mpmath.mpf(1), mpmath.mpf(1)]
    off = [*one[:place], bad, *one[place + 1 :]]
    assert compared("x", one, one, mpmath.mpf(1e-9)).outcome == "passed"
    assert compared("x", off, one, mpmath.mpf(1e-9)).outcome == "failed"
    assert compared("x", one, off, mpmath.mpf(1e-9)).outcome == "failed"
    assert near("x", np.array(off, dtype=float), np.ones(2), 1e-9).outcome == "failed"
    assert above("x", float("nan"), 0.0, 1e-9).outcome == "failed"


def test_every_property_states_its_identity():
    assert all(run.__doc__ for run in (*suite.PROPERTIES.values(), *suite.LONGER.values()))


def test_given_values_are_written_in_before_anything_is_claimed(monkeypatch):
    monkeypatch.setattr(suite, "outcomes", lambda _: {})
    found = check("exp(x)/(d + sum(exp(x)))", d=0.0)
    assert found["normalised"] and found["shift_invariant"] and found["nishimori"]
    assert found["parameters"] == ["d"] and found["parameter_values"] == {"d": 0.0}
