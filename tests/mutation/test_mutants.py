"""Properties and tests notice small faults: eight in every run, all of them in the full one, nine in ten at least."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mutation import runner
from mutation.jobs import Checks
from mutation.mutants import MUTANTS

TESTS, ROOT = Path(__file__).parents[1:3]
ORDINARY = [m for m in MUTANTS if m.ordinary]
FEWEST, ENOUGH = 40, 0.9


def _caught(names):
    """What caught each of them."""
    command = [sys.executable, "-m", "mutation.runner", str(ROOT)]
    done = subprocess.run(command, input="\n".join(names), capture_output=True, text=True, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    return {found["name"]: found["caught"] for found in map(json.loads, done.stdout.splitlines())}


def test_the_texts_are_there():
    """Every fault replaces text that occurs exactly once, so that none of them rots in silence."""
    counts = {m.name: (ROOT / m.path).read_text(encoding="utf-8").count(m.old) for m in MUTANTS}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= FEWEST and len(ORDINARY) == 8
    assert all(m.old != m.new and m.path.split("/")[0] in ("theory", "codegen", "validation") for m in MUTANTS)


def test_the_named_tests_are_there():
    named = {
        (job.file, name.split("[")[0])
        for m in MUTANTS
        for job in m.jobs
        if isinstance(job, Checks)
        for name in job.names
    }
    assert len(named) >= 20
    assert [n for n in named if f"def {n[1]}(" not in (TESTS / n[0]).read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("name", ["test_of_this_name_is_nowhere", "test_verdicts"])
def test_a_job_that_does_not_run_catches_nothing(name, monkeypatch, tmp_path):
    """A test that is not there, and one that is, on sources that are not the copy."""
    job = Checks("statistical/test_statistics.py", (name,))
    status = pytest.ExitCode.OK if name == "test_verdicts" else pytest.ExitCode.USAGE_ERROR
    monkeypatch.setattr(runner.pytest, "main", lambda *_, **__: status)
    assert list(runner.told(str(tmp_path), [job], MUTANTS[0])) == ["not run"]
    assert list(runner.told(str(ROOT), [job], MUTANTS[0])) == (["found"] if status == 0 else ["not run"])


def test_eight_are_caught():
    caught = _caught([m.name for m in ORDINARY])
    assert sorted(caught) == sorted(m.name for m in ORDINARY)
    assert [name for name, why in caught.items() if not why] == []


@pytest.mark.full
def test_nine_in_ten_are_caught():
    caught = _caught([m.name for m in MUTANTS])
    unnoticed = {name for name, why in caught.items() if not why}
    assert len(unnoticed) <= (1.0 - ENOUGH) * len(MUTANTS), unnoticed
    assert unnoticed <= {m.name for m in MUTANTS if m.survives}, unnoticed


@pytest.mark.full
def test_nothing_is_caught_in_the_sources_as_they_are():
    assert _caught(["none"]) == {"none": []}
