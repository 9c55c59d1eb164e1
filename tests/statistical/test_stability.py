"""Is `rs_stable` worth its name? Trained attention, and the response at its minima, on both sides of the verdict.

Where the engine says stable, Holm-corrected tests at a family-wise false-alarm rate of 1e-3 must not contradict it;
where it says unstable at these points, training must. Seeds are fixed: a test holds or does not.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from generated import module_of

from replicode.theory.errors import InputError
from replicode.validation.experiment import streams
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import compare_grid
from replicode.validation.statistics.measure import QUANTITIES
from replicode.validation.studies import discrepancy
from replicode.validation.studies.discrepancy import RESPONSES, figure, scan
from replicode.validation.training.attention import objective
from replicode.validation.training.response import TrainedResponse, hessian, loss_curvatures, response
from replicode.validation.training.train import Trained, train

NOISE = 0.3
STABLE = {"nus": (2.0,), "lambdas": (0.5,), "alpha": 4.0}
BROKEN = {"nus": (2.0,), "lambdas": (0.02,), "alpha": 4.0}
FULL_NUS, FULL_LAMBDAS, FULL_ALPHAS = (0.5, 1.0, 2.0, 4.0), (2.0, 1.0, 0.5, 0.2, 0.1, 0.05), (3.0, 4.0)


def softmax_rows(point, dim, seeds, **options):
    return scan("softmax", "spiked", 2, noise=NOISE, dim=dim, seeds=seeds, **point, **options)


@pytest.fixture(scope="module")
def stable():
    return softmax_rows(STABLE, 200, 20)[0]


@pytest.fixture(scope="module")
def broken():
    return softmax_rows(BROKEN, 120, 12, digits=3)[0]


def compared(rows, quantities, factor=1.0):
    """All rows as one family."""
    named = {f"{r.case.alpha:g},{r.case.nu:g},{r.case.penalty:g}": r for r in rows}
    values = {p: {q: r.trained[q] for q in quantities} for p, r in named.items()}
    theory = {p: {q: factor * x for q, x in r.theory.items()} for p, r in named.items()}
    return compare_grid(values, theory, {p: r.theory_error for p, r in named.items()}, false_alarm=1e-3)


def alarms(comparison):
    return {name: round(t.z, 1) for name, t in comparison.tests.items() if t.adjusted_p < comparison.false_alarm}


def test_a_point_called_stable_agrees_with_its_trained_minima(stable):
    """Overlaps, losses, and V_b = Tr R_bb/D of the Hessian, as one family; V_k alone would see 3 %."""
    assert stable.rs_stable and not stable.failures
    found = compared([stable], (*QUANTITIES, *RESPONSES))
    assert not alarms(found)
    for factor in (0.97, 1.03):
        assert compared([stable], RESPONSES, factor).verdict == "disagrees"


def test_the_replicon_is_that_of_the_trained_minima(stable):
    """|R_bb'|_F^2/D = [(I - T)^-1 diag(V^2)]_bb' gives T back: theory's spectral radius within finite-size scatter."""
    assert stable.trained_replicon == pytest.approx(stable.replicon, abs=0.02)


def test_a_point_called_broken_is(broken):
    """Trained minima are stiffer than the theory says: their response lacks the jumps that V_k counts."""
    assert not broken.rs_stable and broken.jump_shift > 0.1 and not broken.failures
    deviation, error = broken.deviation("V_k")
    assert deviation < -0.15 and deviation < -6.0 * error
    assert broken.trained_replicon < 1.0


@pytest.mark.parametrize("activation, tokens", [("linear", 3), ("softplus", 2)])
def test_hessian_is_the_derivative_of_the_gradient(activation, tokens):
    module = module_of(activation, "spiked", tokens)
    attention = GeneratedAttention(module, 1.5, NOISE, np.array([]))
    rng, _ = streams(3, 12, 0)
    dataset = attention.setting(3.0).sampler(12, rng).draw(rng)
    params, lambdas = rng.standard_normal(24), (0.3, 0.7)
    found = hessian(dataset, Trained(*np.split(params, 2), 0.0, 0.0, True, 0), loss_curvatures(attention), lambdas)
    steps = 1e-5 * np.eye(24)
    slopes = [
        objective(params + s, dataset, attention, *lambdas)[1] - objective(params - s, dataset, attention, *lambdas)[1]
        for s in steps
    ]
    assert found == pytest.approx(np.array(slopes) / 2e-5, rel=1e-6, abs=1e-6)


def test_ridge_response_is_closed():
    """L = 1 softmax is ridge: V = 1/(lambda + alpha/(1 + V)) and T = alpha V^2/(1 + V)^2."""
    module = module_of("softmax", tokens=1)
    attention = GeneratedAttention(module, 1.0, NOISE, np.array([]))
    data_rng, start_rng = streams(0, 400, 0)
    dataset = attention.setting(2.0).sampler(400, data_rng).draw(data_rng)
    trained = train(dataset, attention, (1.0, 0.5), attention.start("informed"), start_rng)
    found = response(dataset, trained, loss_curvatures(attention), (1.0, 0.5))
    v = max(np.roots([0.5, 0.5 + 2.0 - 1.0, -1.0]).real)
    t = 2.0 * v**2 / (1.0 + v) ** 2
    assert found.V_v == pytest.approx(v, rel=0.02)
    assert found.F_vv == pytest.approx(v**2 / (1.0 - t), rel=0.05)
    assert TrainedResponse(1.0, found.V_v, 1.0, 0.0, found.F_vv).replicon == pytest.approx(t, rel=0.05)


def test_a_scan_goes_on_where_it_stopped(tmp_path, monkeypatch):
    kept = tmp_path / "scan.sqlite"
    point = {"nus": (4.0,), "lambdas": (1.0, 2.0), "alpha": 4.0}
    first = softmax_rows(point | {"lambdas": (2.0,)}, 40, 2, path=kept)
    trainings = []
    original = discrepancy._training
    monkeypatch.setattr(discrepancy, "_training", lambda *a: trainings.append(a) or original(*a))
    rows = softmax_rows(point, 40, 3, path=kept)
    assert len(trainings) == 3 * (1 + 3)
    again = {r.case: r for r in rows}[first[0].case]
    assert again.trained["energy"][40][:2].tolist() == first[0].trained["energy"][40].tolist()
    assert len(set(again.trained["energy"][40])) == 3  # the seed that is added is a new one
    trainings.clear()
    assert softmax_rows(point, 40, 3, path=kept)[0].theory == rows[0].theory
    assert not trainings
    json.dumps([r.as_dict() for r in rows])
    assert figure(rows, tmp_path / "map.png").stat().st_size > 5000


def test_the_edge_runs_between_different_verdicts():
    edges = discrepancy._edges(np.array([[False, True], [True, True]]))
    assert sorted(edges) == [((-0.5, 0.5), (0.5, 0.5)), ((0.5, -0.5), (0.5, 0.5))]


WRONG = {
    "nus": (),
    "lambdas": (1.0, 1.0),
    "alpha": 0.0,
    "noise": -0.1,
    "dim": 8,
    "seeds": 1,
    "init": "best",
    "digits": 0,
    "tokens": 0,
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_scans_are_named(name):
    given = {"tokens": 2, "nus": (1.0,), "lambdas": (1.0,), "alpha": 3.0, "noise": 0.3, "dim": 40, "seeds": 2}
    with pytest.raises(InputError, match=name.removesuffix("s") if name != "tokens" else name):
        scan("softmax", "spiked", **given | {name: WRONG[name]})


@pytest.mark.full
def test_every_point_called_stable_agrees_with_trained_attention():
    """Seven quantities at each stable point of the grid of docs/stability.md, as one family; no risk off by 2 %."""
    grid = {"nus": FULL_NUS, "lambdas": FULL_LAMBDAS}
    rows = [row for alpha in FULL_ALPHAS for row in softmax_rows(grid | {"alpha": alpha}, 400, 24)]
    stable = [row for row in rows if row.rs_stable]
    assert len(stable) >= 36
    assert not alarms(compared(stable, QUANTITIES))
    assert all(alarms(compared(stable, QUANTITIES, factor)) for factor in (0.97, 1.03))
    for row in stable:
        deviation, error = row.deviation()
        assert abs(deviation) < 0.02 + 3.0 * error, row.case
    smooth = [row for row in stable if row.jump_shift < 0.025 * (1.0 - row.replicon)]
    assert len(smooth) >= 30 and not alarms(compared(smooth, RESPONSES))


@pytest.mark.full
def test_without_jumps_the_replicon_decides():
    """Linear attention hardly jumps: its responses agree up to replicon 1 and part beyond."""
    below = scan("linear", "spiked", 2, (1.0,), (1.0, 0.5), 4.0, NOISE, 300, 24, digits=3)
    (beyond,) = scan("linear", "spiked", 2, (1.0,), (0.2,), 4.0, NOISE, 300, 48, digits=3)
    assert max(row.jump_shift for row in (*below, beyond)) < 1e-3
    assert all(row.rs_stable for row in below) and not alarms(compared(below, (*QUANTITIES, *RESPONSES)))
    assert beyond.replicon > 1.0 and not beyond.rs_stable and alarms(compared([beyond], RESPONSES))
