"""Trained attention against the replica theory over a grid, as one Holm family with a stated false-alarm rate.

Family-wise false alarm 1e-3 over all points x 7 quantities, after extrapolation in 1/D. The seeds are fixed, so the
test is deterministic; the rate is the chance that a right theory would have failed when the seeds were chosen.
`make test` takes four of the twelve points, `make test-full` all of them.
"""

from __future__ import annotations

import numpy as np
import pytest

import replicode as rc
from replicode.api import module_for
from validation.experiment import run
from validation.measure import QUANTITIES
from validation.module import GeneratedAttention
from validation.statistics import compare_grid

NU, NOISE, LAMBDA = 4.0, 0.3, 2.0
DIMS = (100, 200, 400)
QUICK = {"tokens": (2,), "alphas": (4.0, 8.0), "seeds": 48}
FULL = {"tokens": (2, 3), "alphas": (4.0, 6.0, 8.0), "seeds": 56}


def trained_point(activation, tokens, alpha, seeds):
    """Values of all seven quantities by dimension, and the theory's values with their errors."""
    physics = {"alpha": alpha, "nu": NU, "noise": NOISE, "lambda_k": LAMBDA, "lambda_v": LAMBDA}
    solution = rc.solve(activation, tokens=tokens, digits=4, **physics)
    assert solution.converged and solution.rs_stable
    module, _ = module_for(activation, "spiked", tokens)
    attention = GeneratedAttention(module, NU, NOISE, np.array([]))
    experiment = run(
        attention.setting(alpha),
        attention,
        (LAMBDA, LAMBDA),
        attention.start("informed"),
        attention.risk,
        DIMS,
        seeds,
        root_seed=2509,
    )
    assert not experiment.failures
    fields = solution._asdict() | solution.order_parameters
    return experiment.values, {q: fields[q] for q in QUANTITIES}, dict.fromkeys(QUANTITIES, solution.error)


@pytest.fixture(scope="module", params=[QUICK, pytest.param(FULL, marks=pytest.mark.full)], ids=["quick", "full"])
def grid(request):
    shape = request.param
    points = [(a, t, alpha) for a in ("softmax", "linear") for t in shape["tokens"] for alpha in shape["alphas"]]
    return {f"{a} L={t} alpha={alpha:g}": trained_point(a, t, alpha, shape["seeds"]) for a, t, alpha in points}


def compared(grid, factor=1.0):
    values = {p: v for p, (v, _, _) in grid.items()}
    theory = {p: {q: factor * x for q, x in t.items()} for p, (_, t, _) in grid.items()}
    return compare_grid(values, theory, {p: e for p, (_, _, e) in grid.items()}, false_alarm=1e-3, shift=0.03)


def test_trained_attention_agrees_with_the_theory(grid):
    found = compared(grid)
    worst = sorted(found.tests.items(), key=lambda item: item[1].p)[:5]
    assert found.verdict == "agrees", [(name, test.z, test.adjusted_p) for name, test in worst]
    assert found.power >= 0.9


def test_the_same_test_rejects_a_theory_shifted_by_three_per_cent(grid):
    for factor in (0.97, 1.03):
        assert compared(grid, factor).verdict == "disagrees"
