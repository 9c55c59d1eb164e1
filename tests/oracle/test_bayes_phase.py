"""Branches and thresholds along alpha: known transitions, and the figure."""

import numpy as np
import pytest

from replicode.branches.bayes_phase import bayes_branches, shown_alphas, thresholds
from replicode.figures.branches import figure, lines
from replicode.theory.errors import InputError
from replicode.theory.model import LABEL_NOISE, NOISE, Z_STAR, Model


def test_thresholds_without_noise():
    """spiked, L = 3, nu = 2: v* can be recovered from alpha = 1 on, and is from 1.2414 on (by finer bisection)."""
    found = thresholds("spiked", 3, 2.0, 0.0, 0.94, 1.3, tolerance=0.03, digits=4, scan=3)
    assert found.information_theoretic == pytest.approx(1.0, abs=0.03)
    assert found.algorithmic == pytest.approx(1.2414, abs=0.03)


def test_no_transition_with_noise():
    found = thresholds("spiked", 2, 2.0, 0.3, 0.5, 3.0, digits=4, scan=4)
    assert shown_alphas(0.5, 3.0, found) == pytest.approx(np.linspace(0.5, 3.0, 25))
    assert (found.informed_branch, found.information_theoretic, found.algorithmic) == (None, None, None)


@pytest.mark.full
def test_thresholds_of_the_largest_score():
    """max, nu = inf, L = 3, noise = 0.05: three thresholds, in order, around alpha = 1.3."""
    found = thresholds("max", 3, np.inf, 0.05, 1.2, 1.35, tolerance=4e-3, digits=4, scan=7)
    assert found.informed_branch == pytest.approx(1.251, abs=5e-3)
    assert found.information_theoretic == pytest.approx(1.273, abs=5e-3)
    assert found.algorithmic == pytest.approx(1.300, abs=5e-3)


def test_branches_and_figure(tmp_path):
    found = bayes_branches("spiked", 3, 2.0, 0.0, (0.8, 1.2, 1.5), digits=4)
    assert [len(p) for p in found.points] == [1, 2, 1]
    assert found.hard == (False, True, False)
    rows = found.as_dict()["points"]
    assert [r["hard_phase"] for r in rows] == [False, True, False]
    drawn = lines(found, None, "q_v")
    assert {name: at for name, (at, _) in drawn.items()} == {"uninformed": [0.8, 1.2], "informed": [1.2, 1.5]}
    assert drawn["uninformed"][1][1] < 0.8 and drawn["informed"][1] == [1.0, 1.0]
    path = tmp_path / "phase.svg"
    assert figure(found, None, path) == str(path) and path.stat().st_size > 1000


def test_bad_ranges():
    with pytest.raises(InputError):
        thresholds("spiked", 2, 2.0, 0.3, 2.0, 1.0)
    with pytest.raises(InputError):
        bayes_branches("spiked", 2, 2.0, 0.3, (1.0, -1.0))


def test_another_model():
    """Twice the noise by the label is twice the noise; it is not what the cache has for the default."""
    model = Model(label=Z_STAR + 2 * NOISE * LABEL_NOISE)
    plain = bayes_branches("spiked", 2, 2.0, 0.3, (1.5,), digits=4)
    found = bayes_branches("spiked", 2, 2.0, 0.15, (1.5,), digits=4, model=model)
    assert found.points[0][0].test_risk == pytest.approx(plain.points[0][0].test_risk, abs=1e-9)
    excess = [f.as_dict()["points"][0]["excess_risk"] for f in (found, plain)]
    assert excess[0] == pytest.approx(excess[1], abs=1e-9)
    marks = thresholds("spiked", 2, 2.0, 0.15, 1.0, 2.0, digits=4, scan=2, model=model)
    assert marks == thresholds("spiked", 2, 2.0, 0.3, 1.0, 2.0, digits=4, scan=2)
