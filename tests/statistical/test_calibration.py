"""Is the verdict of `replicode validate` right as often as it says? Its whole path, with the trainer replaced by draws.

A training is replaced by a draw around the theory's values with a bias of order 1/D and the covariance measured on 400
trainings (softmax, two tokens, alpha 4, nu 2, noise 0.3, penalties 1): seven quantities of which five are free, the
energy following from the others exactly and the test risk to first order. Everything after it is the program's own: the
experiment, the control variates, the extrapolation, theory errors, Holm, the verdict and the power it states.

Each check has a false-alarm rate of its own, CHECK; with the seeds fixed it either holds or does not.
"""

from __future__ import annotations

from collections import Counter
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from replicode.validation import experiment
from replicode.validation.experiment import report, run
from replicode.validation.statistics.controls import CONTROLS
from replicode.validation.statistics.measure import QUANTITIES

CHECK = 1e-4
ALPHA, RATE, DIMS = 4.0, 0.05, (50, 100, 200)
FREE = ("train_loss", "m_k", "q_k", "m_v", "q_v")
LIMIT = np.array([0.14405, 0.36311, 0.24788, 0.75924, 0.66737])
BIAS = np.array([0.1, -0.1, 0.1, -0.2, -0.2])
# sqrt(D) times the deviations: a lower triangle, its rows in the order of FREE.
SPREAD = np.array(
    [
        [0.096, 0, 0, 0, 0],
        [-0.020, 0.310, 0, 0, 0],
        [0.029, 0.203, 0.163, 0, 0],
        [-0.059, 0.173, 0.144, 0.256, 0],
        [-0.075, 0.225, 0.201, 0.362, 0.132],
    ]
)
RISK, SLOPES = 0.53993, np.array([0, -0.386, 0.157, -1.228, 0.573])


def quantities(free):
    """All seven quantities in their order; the last axis of `free` has five of them."""
    train_loss, _, q_k, _, q_v = np.moveaxis(free, -1, 0)
    found = dict(zip(FREE, np.moveaxis(free, -1, 0)))
    found["energy"] = ALPHA * train_loss + (q_k + q_v) / 2
    found["test_risk"] = RISK + (free - LIMIT) @ SLOPES
    return np.stack([found[q] for q in QUANTITIES], axis=-1)


THEORY = quantities(LIMIT)
# Small but for one quantity, where it counts more than the scatter of the seeds.
ERRORS = dict(zip(QUANTITIES, 0.003 * THEORY)) | {"m_v": 0.02 * THEORY[QUANTITIES.index("m_v")]}


def drawn(rng, seeds, factor):
    """Rows of values and of control variates by dimension: mixtures of what is behind the values, and noise."""
    mixing = np.random.default_rng(0).standard_normal((len(FREE), len(CONTROLS)))
    rows = {}
    for dim in DIMS:
        noise = rng.standard_normal((seeds, len(FREE)))
        hidden = sqrt(0.8) * noise + sqrt(0.2) * rng.standard_normal(noise.shape)
        values = factor * quantities(LIMIT + BIAS / dim + noise @ SPREAD.T / sqrt(dim))
        controls = (hidden @ mixing + 0.1 * rng.standard_normal((seeds, len(CONTROLS)))) / sqrt(dim)
        names = (*QUANTITIES, *CONTROLS)
        rows[dim] = [dict(zip(names, row)) for row in np.concatenate([values, controls], axis=1).tolist()]
    return rows


def verdicts(monkeypatch, seeds, controlled, factor, trials):
    """What `report` says of each of many experiments against a theory that has errors of its own."""
    rng, found = np.random.default_rng([2509, seeds, controlled]), []
    for _ in range(trials):
        rows = drawn(rng, seeds, factor)
        monkeypatch.setattr(experiment, "run_one", lambda *a, rows=rows, **_: rows[a[5]][a[6]])
        done = run(None, None, (1.0, 1.0), None, None, DIMS, seeds, controls=controlled or None)
        errors = np.array(list(ERRORS.values())) * rng.standard_normal(len(QUANTITIES))
        found.append(report(dict(zip(QUANTITIES, THEORY + errors)), done, ERRORS, false_alarm=RATE))
    return found


LONG = pytest.mark.full
PLAIN, CONTROLLED = (24, False), (8, True)


@pytest.mark.parametrize("how", [PLAIN, CONTROLLED])
@pytest.mark.parametrize("trials", [150, pytest.param(5000, marks=LONG)])
def test_a_right_theory_is_rejected_at_the_stated_rate(monkeypatch, how, trials):
    found = verdicts(monkeypatch, *how, 1.0, trials)
    alarms = sum(r["verdict"] == "disagrees" for r in found)
    # Holm holds under any dependence and these quantities are dependent: at most the stated rate.
    assert stats.binomtest(alarms, trials, RATE, alternative="greater").pvalue > CHECK, alarms / trials
    for quantity in QUANTITIES:
        rejected = sum(r["trained"][quantity]["p_value"] < RATE for r in found)
        assert stats.binomtest(rejected, trials, RATE).pvalue > CHECK, (quantity, rejected / trials)


@pytest.mark.parametrize(
    "how, trials, optimism",
    [
        (PLAIN, 200, 0.03),
        (CONTROLLED, 60, 0.1),
        pytest.param(PLAIN, 5000, 0.03, marks=LONG),
        pytest.param(CONTROLLED, 5000, 0.1, marks=LONG),
    ],
)
def test_a_theory_off_by_three_per_cent_is_seen_with_the_stated_power(monkeypatch, how, trials, optimism):
    found = verdicts(monkeypatch, *how, 1.03, trials)
    counts, stated = Counter(r["verdict"] for r in found), float(np.mean([r["power"] for r in found]))
    assert 0.4 < stated < 0.8
    # Stated is the power of the best quantity alone, from an estimated scatter; the others can only add to it.
    alone = max(sum(r["trained"][q]["p_value"] < RATE / len(QUANTITIES) for r in found) for q in QUANTITIES)
    for seen, least in ((counts["disagrees"], stated), (alone, stated - optimism)):
        assert stats.binomtest(seen, trials, least, alternative="less").pvalue > CHECK, (seen / trials, stated)
    # "agrees" says that such an error would have been seen nine times in ten.
    assert stats.binomtest(counts["agrees"], trials, 0.1, alternative="greater").pvalue > CHECK, counts
    assert all(r["power"] >= 0.9 for r in found if r["verdict"] == "agrees")
    assert all(r["power"] < 0.9 for r in found if r["verdict"] == "undecided")
