"""The table at the paper's size: resumed, shared out, and readable, at a small size."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import replicode.validation.studies.paper as paper
from replicode.modules import module_for
from replicode.validation.ledger import Ledger
from replicode.validation.studies.paper import PAPER, Data, Point, table, trained

MORE, FEWER = Data("spiked", 2, 4.0, 4.0, 0.3), Data("spiked", 2, 4.0, 3.0, 0.3)
POINTS = (Point("softmax", MORE, 2.0, 2.0), Point("linear", MORE, 2.0, 2.0), Point("softmax", FEWER, 2.0, 2.0))


@pytest.fixture(autouse=True)
def cached(monkeypatch):
    """Modules from the cache that other tests share."""
    monkeypatch.setattr(paper, "_module", lambda *which: module_for(*which)[0])


@pytest.fixture
def counted(monkeypatch):
    """How many data sets were drawn and how many trainings were run."""
    counts = {"drawn": 0, "trained": 0}
    draw, one = paper._drawn, paper._one

    def drawn(*args):
        counts["drawn"] += 1
        return draw(*args)

    def once(*args):
        counts["trained"] += 1
        return one(*args)

    monkeypatch.setattr(paper, "_drawn", drawn)
    monkeypatch.setattr(paper, "_one", once)
    return counts


def test_the_papers_points():
    assert len(PAPER) == 18 == len({point.name for point in PAPER})
    assert {(p.data.task, p.data.nu) for p in PAPER} == {("spiked", 1.0), ("spiked", 2.0), ("max", inf)}
    for point in PAPER:
        dim = point.data.dim(1e4)
        assert np.sqrt(dim * dim * point.data.alpha) == pytest.approx(1e4, rel=1e-3)


def test_trainings_are_resumed_enlarged_and_shared_out(tmp_path, counted):
    first = trained(POINTS, tmp_path, 120, 2, (1, 2))
    # Two laws and two seeds are four data sets, of which every second is drawn: those of the first law.
    assert counted == {"drawn": 2, "trained": 4}
    assert [len(lines) for lines in first.values()] == [2, 2, 0]
    whole = trained(POINTS, tmp_path, 120, 2)
    assert counted == {"drawn": 4, "trained": 6}
    assert [len(lines) for lines in whole.values()] == [2, 2, 2]
    assert trained(POINTS, tmp_path, 120, 2) == whole and counted["trained"] == 6
    trained(POINTS, tmp_path, 120, 3)
    assert counted == {"drawn": 6, "trained": 9}


def test_a_training_depends_on_its_own_seed_only(tmp_path):
    both = trained(POINTS, tmp_path / "both", 120, 2)
    alone = trained(POINTS[1:2], tmp_path / "alone", 120, 2)
    name = POINTS[1].name
    assert [e["values"] for e in both[name]] == [e["values"] for e in alone[name]]
    assert both[name][0]["values"] != both[name][1]["values"]


def test_every_seed_has_its_own_data():
    first, second = (paper._drawn(POINTS[0], 20, seed).batches[0] for seed in (0, 1))
    assert first.X.dtype == np.float32 and first.X.shape == (80, 2, 20)
    assert not np.isin(first.y, second.y).any()


def test_the_table_names_every_point_and_the_verdict(tmp_path, counted):
    text = table(POINTS[:2], tmp_path, 160, 3)
    again = table(POINTS[:2], tmp_path, 160, 3)
    assert text == again and counted["trained"] == 6
    lines = text.splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[4:6]] == [p.name for p in POINTS[:2]]
    assert lines[-1].startswith("Verdict: ") and "14 tests" in lines[-1]
    with Ledger(tmp_path / "paper.sqlite") as ledger:
        for point in POINTS[:2]:
            key = point.key(
                signature=paper._module(point.activation, "spiked", 2).METADATA["signature"], tolerance=1e-4
            )
            ledger.put(key, ledger.get(key) | {"test_risk": 9.0})
    assert "Verdict: disagrees" in table(POINTS[:2], tmp_path, 160, 3)
