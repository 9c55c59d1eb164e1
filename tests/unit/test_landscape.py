"""Many starts on the same data: what is kept, what is measured, what pairs of minima have in common."""

import numpy as np
import pytest
from generated import module_of

import replicode as rc
from replicode.validation.landscape import FAMILIES, Landscape, Minimum, explore, minima, overlaps_of, summary
from replicode.validation.ledger import Ledger
from replicode.validation.module import GeneratedAttention
from replicode.validation.training.methods import GradientDescent

DIM, ALPHA, PENALTIES = 24, 3.0, (0.02, 0.02)


@pytest.fixture(scope="module")
def attention():
    return GeneratedAttention(module_of("softmax"), 0.5, 0.3, np.zeros(0))


@pytest.fixture(scope="module")
def found(attention, tmp_path_factory):
    kept = Ledger(tmp_path_factory.mktemp("landscape") / "minima.sqlite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minima, "HOPS", 2)
        patch.setattr(minima, "SLOW", GradientDescent(rate=0.02, steps=100))
        return explore(attention, ALPHA, PENALTIES, DIM, len(FAMILIES), 2, kept), kept.path


def test_every_family_ends_at_a_minimum(found):
    landscape, _ = found
    assert {m.family for m in landscape.minima} == set(FAMILIES) and all(m.converged for m in landscape.minima)
    for seed in landscape.seeds:
        energies = {m.family: m.energy for m in landscape.of_data(seed)}
        assert energies["hopping"] <= energies["informed"] + 1e-9
    for m in landscape.minima:
        norms = [np.square(w).sum() / DIM for w in (m.k, m.v)]
        expected = ALPHA * m.measured["train_loss"] + PENALTIES[0] * sum(norms) / 2.0
        assert m.energy == pytest.approx(expected, rel=1e-5)


def test_it_goes_on_where_it_stopped(found, attention, monkeypatch):
    landscape, path = found
    monkeypatch.setattr(minima, "_minimum", lambda *_: pytest.fail("done already"))
    again = explore(attention, ALPHA, PENALTIES, DIM, len(FAMILIES), 2, Ledger(path))
    assert again == landscape


def test_overlaps_leave_out_what_was_found_twice():
    def at(start, k):
        return Minimum(0, start, "random", True, {"energy": float(start)}, k, k)

    same = Landscape(2, (at(0, (1.0, 1.0)), at(1, (1.0, 1.0)), at(2, (1.0, -1.0))))
    assert overlaps_of(same, "k").tolist() == [0.0, 0.0]


def test_the_summary_names_the_lowest(found):
    landscape, _ = found
    numbers = summary(landscape)
    lowest = [min(m.energy for m in landscape.of_data(seed)) for seed in landscape.seeds]
    assert numbers["lowest"]["energy"]["mean"] == pytest.approx(np.mean(lowest))
    assert numbers["overlaps"]["k"]["most"] <= max(m.measured["q_k"] for m in landscape.minima) + 1e-9


def test_bad_arguments_are_named_before_any_work():
    at = {"tokens": 2, "alpha": 3, "nu": 0.5}
    for name, value in (("dim", 3), ("starts", 0), ("seeds", -1)):
        with pytest.raises(rc.InputError, match=name):
            rc.landscape("softmax", **at, **{name: value})


@pytest.mark.full
def test_one_command(tmp_path):
    picture = tmp_path / "landscape.svg"
    at = {"tokens": 2, "alpha": 3, "nu": 0.5, "noise": 0.3, "lambda_k": 0.02, "lambda_v": 0.02}
    report = rc.landscape("softmax", **at, dim=30, starts=5, seeds=1, output=picture)
    assert picture.exists() and report.theory["threshold"]["energy"] > report.theory["equilibrium"]["energy"]
    assert report.theory["equilibrium"]["energy"] > report.theory["rs"]["energy"]
