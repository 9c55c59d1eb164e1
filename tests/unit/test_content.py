"""Caches are keyed on what a name stands for: another process that registers it differently never meets an entry."""

import subprocess
import sys

import pytest

import replicode as rc
from replicode.figures.points import Place
from replicode.inputs.content import activation_content, task_content
from replicode.modules import module_source
from replicode.theory import registry
from replicode.theory.language import activation as activations
from replicode.theory.language import task as tasks
from replicode.validation.ledger import Ledger
from replicode.validation.studies import discrepancy
from replicode.verbs.derive import derivation_of
from replicode.verbs.solve import bayes_reference

LAW = {"tokens": 1, "alpha": 4, "nu": 2, "noise": 0.3, "digits": 3, "bayes": False}
TABLES = (activations._REGISTRY, tasks._REGISTRY, registry.ACTIVATIONS, registry.TASKS)


@pytest.fixture(autouse=True)
def registered():
    """What a test registers is forgotten after it."""
    before = [dict(table) for table in TABLES]
    yield
    for table, known in zip(TABLES, before, strict=True):
        table.clear()
        table.update(known)


def forget(name):
    """As in a process that never registered the name."""
    for table in TABLES:
        table.pop(name, None)


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A cache of its own, in which an entry says what it was built from."""
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path))

    def build(theory, *_):
        made = rc.activation(theory.act)
        return {"source": f"{made.text} {sorted(made.defaults.items())} {tasks.task(theory.task).text}", "settled": {}}

    monkeypatch.setattr("replicode.modules._Theory._generated", build)
    return module_source


def test_a_name_registered_differently_is_another_entry():
    rc.register("mine", "1 + x")
    first = rc.solve("mine", **LAW)
    rc.register("mine", "1 + x/2")
    second = rc.solve("mine", **LAW)
    assert abs(second.test_risk - first.test_risk) > first.error + second.error
    assert second.asked["activation"] == "mine" and second.asked["expression"] == "1 + x/2"
    forget("mine")
    with pytest.raises(rc.InputError, match=r"activation: got 'mine'"):
        rc.solve("mine", **LAW)


def test_definition_defaults_and_task_are_the_key_of_a_module(sources):
    found = []
    for text, default, weight in (("1 + c*x", 1, "x"), ("1 + c*x", 2, "x"), ("2 + c*x", 2, "x"), ("2 + c*x", 2, "2*x")):
        rc.register("mine", text, c=default)
        rc.register_task("leaning", weight)
        found.append(sources("mine", "leaning", 2))
    assert found == [
        "1 + c*x [('c', 1.0)] x",
        "1 + c*x [('c', 2.0)] x",
        "2 + c*x [('c', 2.0)] x",
        "2 + c*x [('c', 2.0)] 2*x",
    ]
    forget("leaning")
    with pytest.raises(rc.InputError, match=r"task: got 'leaning'"):
        sources("mine", "leaning", 2)


def test_functions_of_the_same_name_are_told_apart():
    contents = []
    for scale in (2, 3):
        rc.register("mine", lambda x, sum, L, scale=scale: 1 + x / scale)
        contents.append(activation_content("mine"))
        contents.append(activation_content(lambda x, sum, L, scale=scale: 1 + x / scale))
    assert len(set(map(repr, contents))) == 4


def test_tasks_derivations_and_figures_follow_the_content():
    rc.register_task("leaning", "sqrt(nu)*x - nu/2")
    rc.register("mine", "1 + x")
    first = bayes_reference("leaning", 1, 4.0, 2.0, 0.3), derivation_of("mine", "leaning", 1, "population")["json"]
    place = Place("mine", "leaning", 2, 1.0, 0.3, 4.0)
    before = place.content, task_content("leaning")
    rc.register_task("leaning", "nu*x/3")
    rc.register("mine", "1 + x/2")
    assert place.content[0] != before[0][0] and place.content[1] != before[0][1]
    assert task_content("leaning") != before[1]
    second = derivation_of("mine", "leaning", 1, "population")["json"]
    assert first[1]["activation"] == "1 + x" and second["activation"] == "1 + (1/2)*x"
    assert first[1]["log_weight"] != second["log_weight"]
    forget("leaning")
    with pytest.raises(rc.InputError, match=r"task: got 'leaning'"):
        bayes_reference("leaning", 1, 4.0, 2.0, 0.3)


def test_a_cached_module_is_solved_without_sympy():
    rc.solve("erf", **LAW)
    program = "import sys, time; import replicode as rc; rc.solve('erf', tokens=1, alpha=4, nu=2, noise=.3, digits=3, "
    program += "bayes=False); print('sympy' in sys.modules, time.process_time())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    imported, spent = done.stdout.split()
    assert imported == "False" and float(spent) < 2.0


def test_kept_trainings_are_those_of_the_content(monkeypatch):
    case = discrepancy.Case("mine", "leaning", "2", (), 4.0, 1.0, 0.3, 1.0, "informed")
    kept, trained = Ledger(None), []
    monkeypatch.setattr(discrepancy, "_training", lambda *_: trained.append(1) or [float(len(trained))])
    for text in ("1 + x", "1 + x/2", "1 + x"):
        told = discrepancy._trainings(case, None, 40, 1, kept, {"activation": text, "task": "nu*x"})
    assert len(trained) == 2 and told == [[1.0]]
