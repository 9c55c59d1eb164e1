"""Trainings that are done are kept, and trainings that no machine can do are refused before any is begun."""

import errno
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import replicode as rc
from replicode.theory.errors import InputError
from replicode.theory.lengths import lengths
from replicode.validation import experiment
from replicode.validation.cost import check_cost, memory
from replicode.validation.kept import Kept

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
    monkeypatch.setattr(Kept, "get", lambda *args: None)
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
    from replicode.validation.discrepancy import scan

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


def test_a_torn_line_costs_itself_alone(tmp_path):
    path = tmp_path / "kept.jsonl"
    kept = Kept(path)
    kept.put({"seed": 1}, 1.0)
    path.write_text(path.read_text() + '{"key": "{\\"seed')
    Kept(path).put({"seed": 2}, 2.0)
    again = Kept(path)
    assert again.get({"seed": 1}) == 1.0 and again.get({"seed": 2}) == 2.0


def test_the_last_line_of_a_key_counts_and_older_lines_are_read(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    for value in (1, 2):
        Kept(path).put({"seed": 1}, {"value": value})
    with path.open("a") as file:
        file.write(json.dumps({"key": json.dumps({"seed": 2}), "value": 3}) + "\n")
    assert Kept(path).get({"seed": 1}) == {"value": 2} and Kept(path).get({"seed": 2}) == {"value": 3}


def test_a_full_disk_is_told_and_what_was_kept_stays(monkeypatch, tmp_path):
    path, opened = tmp_path / "trained.jsonl", Path.open
    kept = Kept(path)
    kept.put({"seed": 1}, 1.0)

    def full(*_, **__):
        with opened(path, "a") as file:
            file.write('{"key": "cut sho')
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match=r"trained\.jsonl.*No space left on device"):
        kept.put({"seed": 2}, 2.0)
    monkeypatch.undo()
    kept.put({"seed": 3}, 3.0)
    assert [Kept(path).get({"seed": s}) for s in (1, 2, 3)] == [1.0, None, 3.0]


def test_what_cannot_be_kept_is_no_reason_to_stop(monkeypatch, tmp_path):
    monkeypatch.setattr(experiment, "run_one", lambda *args, **options: experiment.Failure(*args[5:7], 1.0, 1))
    (tmp_path / "file").write_text("in the way of a folder")
    setting = experiment.Ensemble(lengths(2), 1.0, 0.3, ())
    found = experiment.run(setting, None, (1.0, 1.0), None, None, (10,), 2, kept=Kept(tmp_path / "file" / "kept.jsonl"))
    assert len(found.failures) == 2


def test_kept_trainings_are_cleared_with_the_cache(monkeypatch, tmp_path):
    from replicode.cache import clear

    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path))
    path = tmp_path / f"trained-{'0' * 64}.jsonl"
    Kept(path).put({"seed": 1}, 1.0)
    assert clear() == 1 and not path.exists()
