"""The properties notice small faults: eight in every run, all of them in the full one, nine in ten at least."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mutation.mutants import MUTANTS

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
ORDINARY = [m for m in MUTANTS if m.ordinary]
FEWEST, ENOUGH = 40, 0.9


def _caught(names):
    """What caught each of them."""
    command = [sys.executable, str(HERE / "runner.py"), str(ROOT)]
    done = subprocess.run(command, input="\n".join(names), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {found["name"]: found["caught"] for found in map(json.loads, done.stdout.splitlines())}


def test_the_texts_are_there():
    """Every fault replaces text that occurs exactly once, so that none of them rots in silence."""
    counts = {m.name: (ROOT / m.path).read_text(encoding="utf-8").count(m.old) for m in MUTANTS}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= FEWEST and len(ORDINARY) == 8
    assert all(m.old != m.new and m.path.split("/")[0] in ("theory", "codegen") for m in MUTANTS)


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
