"""Trained attention against the replica theory over a grid, as one Holm family with a stated false-alarm rate.

Family-wise false alarm 1e-3 over all points x 7 quantities, after extrapolation in 1/D. The seeds are fixed, so the
test is deterministic; the rate is the chance that a right theory would have failed when the seeds were chosen.
Each grid is a family of its own: the spiked task at fixed lengths, then the max task, variable lengths and a weight of
the user's. `make test` takes a few points of each, `make test-full` all of them.
"""

from __future__ import annotations

from math import hypot, inf
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

import replicode as rc
from replicode.modules import module_for
from replicode.validation.experiment import run
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import compare_grid
from replicode.validation.statistics.controls import controls_of
from replicode.validation.statistics.measure import QUANTITIES, Overlaps
from replicode.validation.training.attention import predictions

NU, NOISE, LAMBDA = 4.0, 0.3, 2.0
DIMS = (100, 200, 400)
MIXED = "1:0.2,2:0.3,3:0.5"


def points(tokens, alphas, tasks=(("spiked", NU),)):
    return [
        (a, task, n, nu, alpha) for a in ("softmax", "linear") for task, nu in tasks for n in tokens for alpha in alphas
    ]


QUICK = (16, points((2,), (4.0,)))
FULL = (56, points((2, 3), (4.0, 6.0, 8.0)))
QUICK_TASKS = (16, [*points((2,), (4.0,), [("max", inf)]), ("softmax", "spiked", MIXED, NU, 4.0)])
FULL_TASKS = (
    56,
    [
        *points((2, 3), (4.0, 8.0), [("max", inf)]),
        *points((MIXED,), (4.0,)),
        ("softmax", "max", "2:0.5,3:0.5", inf, 4.0),
        ("softmax", "max", 2, 2.0, 4.0),
        ("softmax", "2*nu*softplus(x)", 2, 1.0, 4.0),
    ],
)


def trained_point(activation, task, tokens, nu, alpha, seeds):
    """Values of all seven quantities by dimension, the theory's values with their errors, and the control variates."""
    physics = {"alpha": alpha, "nu": nu, "noise": NOISE, "lambda_k": LAMBDA, "lambda_v": LAMBDA}
    solution = rc.solve(activation, task=task, tokens=tokens, digits=4, bayes=False, **physics)
    assert solution.converged and solution.rs_stable
    module, _ = module_for(activation, task, tokens)
    attention = GeneratedAttention(module, nu, NOISE, np.array([]))
    experiment = run(
        attention.setting(alpha),
        attention,
        (LAMBDA, LAMBDA),
        attention.start("informed"),
        attention.risk,
        DIMS,
        seeds,
        root_seed=2509,
        controls=controls_of(attention),
    )
    assert not experiment.failures
    fields = solution._asdict() | solution.order_parameters
    theory, errors = {q: fields[q] for q in QUANTITIES}, dict.fromkeys(QUANTITIES, solution.error)
    return Trained(experiment.values, theory, errors, experiment.variates)


class Trained(NamedTuple):
    """What is compared at one point."""

    values: dict
    theory: dict
    errors: dict
    variates: dict


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(QUICK, id="quick"),
        pytest.param(QUICK_TASKS, id="quick tasks"),
        pytest.param(FULL, id="full", marks=pytest.mark.full),
        pytest.param(FULL_TASKS, id="full tasks", marks=pytest.mark.full),
    ],
)
def grid(request):
    seeds, listed = request.param
    return {
        f"{a} {task} L={n} nu={nu:g} alpha={alpha:g}": trained_point(a, task, n, nu, alpha, seeds)
        for a, task, n, nu, alpha in listed
    }


def compared(grid, factor=1.0):
    values, errors, variates = ({p: getattr(t, n) for p, t in grid.items()} for n in ("values", "errors", "variates"))
    theory = {p: {q: factor * x for q, x in t.theory.items()} for p, t in grid.items()}
    return compare_grid(values, theory, errors, variates=variates, false_alarm=1e-3, shift=0.03)


def test_trained_attention_agrees_with_the_theory(grid):
    found = compared(grid)
    worst = sorted(found.tests.items(), key=lambda item: item[1].p)[:5]
    assert found.verdict == "agrees", [(name, test.z, test.adjusted_p) for name, test in worst]
    assert found.power >= 0.9


def test_the_same_test_rejects_a_theory_shifted_by_three_per_cent(grid):
    for factor in (0.97, 1.03):
        assert compared(grid, factor).verdict == "disagrees"


@pytest.mark.parametrize(
    "activation, task, tokens, nu",
    [
        ("softmax", "max", 2, inf),
        ("linear", "max", 2, inf),
        ("softmax", "spiked", MIXED, NU),
        ("linear", "max", "2:0.5,3:0.5", inf),
    ],
)
def test_the_risk_of_the_overlaps_is_that_of_fresh_samples(activation, task, tokens, nu):
    """At D = 6, where all seven overlaps are large; false-alarm rate 1e-6 each."""
    module, _ = module_for(activation, task, tokens)
    attention = GeneratedAttention(module, nu, NOISE, np.array([]))
    rng = np.random.default_rng(6)
    fresh = attention.setting(20_000.0).sampler(6, rng).draw(rng)
    k = 0.8 * fresh.k_star + 0.3 * fresh.v_star + 0.5 * rng.standard_normal(6)
    v = 0.7 * fresh.v_star + 0.4 * fresh.k_star + 0.3 * rng.standard_normal(6) + 0.3 * k
    losses = np.concatenate([(batch.y - predictions(k, v, batch, attention)) ** 2 for batch in fresh.batches])
    risk = attention.risk(Overlaps.of(k, v, fresh.k_star, fresh.v_star))
    # The part of the cross overlaps is a Sobol sum where the weight is not Gaussian, good to some 1e-3 at these sizes.
    spread = hypot(losses.std() / np.sqrt(losses.size), 1e-3 * risk)
    assert abs(losses.mean() - risk) < stats.norm.isf(0.5e-6) * spread
