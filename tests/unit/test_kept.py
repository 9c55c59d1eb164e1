"""Trainings that are done are kept, and trainings that no machine can do are refused before any is begun."""

import tracemalloc

import numpy as np
import pytest

import replicode as rc
from replicode.theory.errors import InputError
from replicode.theory.lengths import lengths
from replicode.validation import experiment
from replicode.validation.ledger import Ledger, LedgerError
from replicode.validation.studies.cost import check_cost, memory

POINT = {"tokens": 2, "alpha": 1.0, "nu": 2.0, "noise": 0.31, "digits": 3, "dim": 40}  # of no other test


class Interrupted:
    """`run_one`, with a Ctrl-C after some trainings; it counts how many it did."""

    def __init__(self, after):
        self.after, self.done = after, []

    def __call__(self, *args, **options):
        if len(self.done) == self.after:
            raise KeyboardInterrupt
        self.done.append(args[5:7])
        return RUN_ONE(*args, **options)


RUN_ONE = experiment.run_one


def test_an_interrupted_validation_goes_on_where_it_stopped(monkeypatch):
    stopped = Interrupted(after=4)
    monkeypatch.setattr(experiment, "run_one", stopped)
    with pytest.raises(KeyboardInterrupt):
        rc.validate("softmax", seeds=3, **POINT)
    rest = Interrupted(after=5)
    monkeypatch.setattr(experiment, "run_one", rest)
    resumed = rc.validate("softmax", seeds=3, **POINT)
    assert set(stopped.done).isdisjoint(rest.done) and len(rest.done) == 5
    monkeypatch.setattr(experiment, "run_one", RUN_ONE)
    monkeypatch.setattr(Ledger, "get", lambda *args: None)
    assert rc.validate("softmax", seeds=3, **POINT) == resumed


def test_what_was_kept_is_of_the_same_point_only(monkeypatch):
    counted = Interrupted(after=100)
    monkeypatch.setattr(experiment, "run_one", counted)
    for changed in ({}, {"lambda_k": 2.0}, {"init": "random"}, {"seeds": 3}):
        rc.validate("softmax", **{"seeds": 2, **POINT, "nu": 2.1, **changed})
    assert len(counted.done) == 3 * 6 + 3  # a third seed is added to the two that there are


@pytest.mark.parametrize(("asked", "figure"), [({"seeds": 10**9}, r"GB and \d+ days"), ({"dim": 10**9}, "GB of")])
def test_what_no_machine_can_do_is_refused_with_the_figure(asked, figure):
    tracemalloc.start()
    with pytest.raises(InputError, match=figure) as refused:
        rc.validate("softmax", **{**POINT, **asked})
    assert tracemalloc.get_traced_memory()[1] < 10**8
    tracemalloc.stop()
    assert str(refused.value).startswith(next(iter(asked)))


def test_the_refusal_names_what_would_do():
    with pytest.raises(InputError, match=r"at most \d+") as refused:
        check_cost(lengths(2), 4.0, (100, 200, 400), 10**9)
    most = int(str(refused.value).split("at most ")[1].split()[0])
    check_cost(lengths(2), 4.0, (100, 200, 400), most)
    side = int(np.sqrt(memory() / 8.0 / 4.0 / 2.0))
    with pytest.raises(InputError, match="dim"):
        check_cost(lengths(2), 4.0, (side,), 2)


def test_the_study_has_the_same_bounds(tmp_path):
    from replicode.validation.studies.discrepancy import scan

    with pytest.raises(InputError, match="seeds"):
        scan("softmax", "spiked", 2, [1.0], [1.0], 1.0, 0.3, seeds=10**9)


def test_jobs_are_made_one_at_a_time(monkeypatch):
    monkeypatch.setattr(experiment, "run_one", Interrupted(after=0))
    tracemalloc.start()
    with pytest.raises(KeyboardInterrupt):
        setting = experiment.Ensemble(lengths(2), 1.0, 0.3, ())
        experiment.run(setting, None, (1.0, 1.0), None, None, (10, 20), 10**7)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


def test_what_cannot_be_kept_is_no_reason_to_stop(monkeypatch):
    monkeypatch.setattr(experiment, "run_one", lambda *args, **options: experiment.Failure(*args[5:7], 1.0, 1))
    kept = Ledger(None)
    monkeypatch.setattr(kept, "put", lambda *_: (_ for _ in ()).throw(LedgerError("ledger", "a", "not full")))
    setting = experiment.Ensemble(lengths(2), 1.0, 0.3, ())
    assert len(experiment.run(setting, None, (1.0, 1.0), None, None, (10,), 2, kept=kept).failures) == 2
