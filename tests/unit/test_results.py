"""Results: one protocol, pickled into other processes, saying what was asked; arguments as people type them."""

import json
import multiprocessing
import pickle
import subprocess
import sys
import typing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import pytest
import sympy as sp
from generated import module_of

import replicode as rc
from replicode.results import CheckResult, Report, Solution
from replicode.theory.errors import LanguageError

LAW = {"tokens": 1, "alpha": 4, "nu": 2, "noise": 0.3, "digits": 3}


@pytest.fixture(scope="module")
def solution():
    return rc.solve("linear", **LAW)


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("pool", ["Pool", "Executor"])
def test_solutions_come_back_from_other_processes(solution, start, pool):
    context, solve = multiprocessing.get_context(start), partial(rc.solve, **LAW)
    if pool == "Pool":
        with context.Pool(1) as workers:
            found = workers.map_async(solve, ["linear"]).get(timeout=60)
    else:
        with ProcessPoolExecutor(1, mp_context=context) as workers:
            found = list(workers.map(solve, ["linear"], timeout=60))
    assert found[0].test_risk == solution.test_risk and type(found[0]) is Solution


def test_errors_come_back_from_other_processes():
    with multiprocessing.get_context("fork").Pool(1) as workers:
        told = workers.map_async(partial(rc.solve, **LAW | {"alpha": -1.0}), ["linear"])
        with pytest.raises(rc.InputError, match=r"alpha: got -1.0, allowed is a ") as caught:
            told.get(timeout=60)
    assert (caught.value.argument, caught.value.value) == ("alpha", -1.0)
    fault = LanguageError("activation", "1 +", 3, "ends", "more")
    again = pickle.loads(pickle.dumps(fault))
    assert str(again) == str(fault) and again.column == 3


def test_a_solution_of_a_loaded_module_is_a_record_in_a_new_process(solution, tmp_path):
    """Its module is not to be imported there; here it is the same class."""
    module = module_of("linear", tokens=1)
    found = module.solve(4.0, 2.0, 0.3, tol=1e-3)
    assert pickle.loads(pickle.dumps(found)) == found and type(pickle.loads(pickle.dumps(found))) is module.Solution
    path = tmp_path / "solution.pickle"
    path.write_bytes(pickle.dumps(found))
    read = f"found = pickle.load(open({str(path)!r}, 'rb')); again = pickle.loads(pickle.dumps(found))"
    program = f"import pickle; {read}; print(again.test_risk, type(again) is type(found), type(found).__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(found.test_risk), "True", "Solution"]


def test_type_hints_of_the_front_door_are_resolved():
    for name in ("derive", "check", "population", "bayes", "solve", "validate"):
        assert typing.get_type_hints(getattr(rc, name))["return"] is not None
    assert typing.get_type_hints(rc.solve)["model"] == rc.Model | None


def test_a_pickled_solution_is_loaded_in_a_new_process(solution, tmp_path):
    path = tmp_path / "solution.pickle"
    path.write_bytes(pickle.dumps(solution))
    program = f"import pickle; print(pickle.load(open({str(path)!r}, 'rb')).test_risk)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) == solution.test_risk


def test_a_solution_says_what_was_asked(solution):
    told = solution.to_dict()
    assert json.loads(json.dumps(told)) == told and solution.version == rc.__version__ == told["version"]
    assert told["asked"] == {
        "activation": "linear",
        "expression": "1 + x",
        "parameters": {},
        "task": "spiked",
        "log_weight": "sqrt(nu)*x - nu/2",
        "tokens": 1,
        **{"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0},
        **{"digits": 3, "init": "informed", "backend": "numpy"},
    }
    others = {"norm2_k", "norm2_v", "effective_rank"}  # told with a spectrum alone
    others |= {"test_loss", "classification_error"}  # of other losses and labels
    assert set(module_of("linear", tokens=1).Solution._fields) - others < set(told) and not others & set(told)
    assert told["bayes_error"] == solution.bayes_error < 1e-3


RESULTS = {
    "solve": lambda: rc.solve("linear", **LAW),
    "bayes": lambda: rc.bayes(**LAW),
    "population": lambda: rc.population("linear", tokens=1, nu=2),
    "check": lambda: CheckResult({"activation": "1 + x", "properties": {"finite": "passed"}}),
    "validate": lambda: Report({}, {}, 40, (10, 20, 40), 2, 0, "agrees", 0.5, 0.9, None, None, warnings=("<b>",)),
}


@pytest.mark.parametrize("verb", RESULTS)
def test_every_result_has_the_protocol(verb):
    found = RESULTS[verb]()
    assert found.ok is not bool(found.warnings) and isinstance(found.warnings, tuple)
    told = found.to_dict()
    assert {"warnings", "asked", "version"} <= set(told) and json.dumps(told)
    assert not {"asked", "version"} & set(found.shown())
    assert len(repr(found)) < 200 and repr(found).startswith(type(found).__name__ + "(")
    assert found._repr_html_().startswith("<table>") and "<b>" not in found._repr_html_()
    assert pickle.loads(pickle.dumps(found)) == found


def test_numbers_of_numpy_and_sympy_and_lengths_as_a_mapping(solution):
    numbers = {"tokens": np.int64(1), "alpha": np.float32(4), "nu": sp.Integer(2), "noise": np.float64(0.3)}
    found = rc.solve("linear", **numbers, digits=np.int64(3))
    assert found.test_risk == solution.test_risk
    assert json.dumps(found.to_dict()) == json.dumps(solution.to_dict())
    assert rc.solve("linear", **LAW | {"tokens": {1: 1.0, 2: 0}}).test_risk == solution.test_risk
    given = rc.population("linear", tokens={1: 0.2, 2: np.float64(0.8)}, nu=2)
    assert given.to_dict() == rc.population("linear", tokens="1:0.2,2:0.8", nu=2).to_dict()


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda x, c, sums: 1 + sp.erf(c + x), "1 + erf(c + x)"),
        (lambda x, c, sums: sp.exp(x) / sums(sp.exp(x)), "exp(x)/sum(exp(x))"),
        (lambda x, c, sums: 0.5 * x + sp.Max(0, x), "x/2 + relu(x)"),
        (lambda x, c, sums: x / sp.Symbol("L", positive=True), "x/L"),
    ],
)
def test_expressions_of_sympy_are_activations(made, text):
    given = made(sp.Symbol("x"), sp.Symbol("c"), sp.Function("sum"))
    assert rc.activation(given).expr == rc.activation(text).expr
    assert rc.derive(given, tokens=2).activation.text == rc.activation(text).text


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"act": 3}, "activation: got 3"),
        ({"act": None}, "activation: got None"),
        ({"act": sp.gamma(sp.Symbol("x"))}, "activation: got"),
        ({"alpha": "4"}, "alpha: got '4', allowed is a"),
        ({"alpha": True}, "alpha: got True"),
        ({"nu": None}, "nu: got None"),
        ({"noise": 1j}, "noise: got 1j"),
        ({"lambda_k": [1]}, r"lambda_k: got \[1\]"),
        ({"tokens": 2.0}, "tokens: got 2.0"),
        ({"tokens": {1: 0.5}}, "tokens: got .*sum to 1"),
        ({"task": 3}, "task: got 3"),
        ({"init": 3}, "init: got 3"),
        ({"digits": "3"}, "digits: got '3'"),
        ({"parameters": {"c": "1"}}, "param c: got '1'"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(given, named):
    arguments = LAW | {"act": "linear"} | given
    with pytest.raises(rc.InputError, match=named):
        rc.solve(arguments.pop("act"), **arguments)


def test_without_digits_the_module_decides(monkeypatch):
    module, tolerances = module_of("linear", tokens=1), []
    real = module.solve(4, 2, noise=0.3, tol=1e-3)
    monkeypatch.setattr(module, "solve", lambda *_, tol, **__: tolerances.append(tol) or real)
    for digits in (None, 8):
        found = rc.solve("linear", **LAW | {"digits": digits, "bayes": False})
        assert found.asked["digits"] == digits
    assert tolerances == [None, 1e-8]


def test_a_missing_parameter_is_found_before_any_derivation(monkeypatch, tmp_path):
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path))
    monkeypatch.setattr("replicode.theory.derive.saddle.derive", lambda *_: pytest.fail("derived"))
    told = r"param: got None, allowed is a value for 'c', as in --param c=0.5: there is no default"
    for verb in (rc.solve, rc.validate):
        with pytest.raises(rc.InputError, match=told):
            verb("2 + erf(c + x)", **LAW)
    with pytest.raises(rc.InputError, match=r"param: got 'd', allowed is the parameters c"):
        rc.solve("2 + erf(c + x)", c=1, d=2, **LAW)


def test_errors_of_a_module_are_objects():
    module = module_of("linear", tokens=1)
    with pytest.raises(module.ArgumentError, match=r"init: got '1: got 2, allowed is 3', allowed is") as caught:
        module.solve(4, 2, init="1: got 2, allowed is 3")
    assert caught.value.value == "1: got 2, allowed is 3" and isinstance(caught.value, ValueError)
    with pytest.raises(rc.InputError, match=r"nu: got inf, allowed is") as ours:
        rc.solve("linear", **LAW | {"nu": float("inf")})
    assert ours.value.value == float("inf") and ours.value.argument == "nu"


def test_a_name_for_what_derive_returns_is_refused():
    with pytest.raises(rc.InputError, match=r"system: got 'softmax', allowed is what `derive` returns"):
        rc.generate("softmax")
    with pytest.raises(rc.InputError, match=r"name: got 3, allowed is text"):
        rc.Activation(3, rc.activation("linear").expr)


def test_the_package_lists_its_public_names():
    assert dir(rc) == rc.__all__ == sorted(rc.__all__)
    assert {"solve", "check", "bayes", "Solution", "__version__"} < set(dir(rc))
    assert all(not name.startswith("_") or name == "__version__" for name in dir(rc))
    for name in rc.__all__:
        assert getattr(rc, name) is not None
    assert callable(rc.check) and rc.solve.__annotations__["return"] == "Solution"


def test_reprs_are_short():
    system = rc.derive("linear", tokens=1)
    module = rc.generate(system)
    assert repr(system) == "SaddleSystem(1 + x, task -(1/2)*nu + sqrt(nu)*x, tokens 1)"
    assert len(repr(module)) < 300 and pickle.loads(pickle.dumps(module)) == module
