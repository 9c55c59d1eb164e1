"""Further solutions at one point: a gate on one token has three, which starts and deflation find."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.branches.further import deflated_newton, free, same, starts
from replicode.cli import main
from replicode.inputs.problem import problem

GATE = "sigmoid(2*x - 3)"
POINT = {"tokens": 1, "alpha": 2.0, "nu": 16.0, "noise": 0.3, "lambda_v": 0.5}
SPINODALS = 8.8871039, 10.7836534  # of lambda_k


@pytest.fixture(scope="module")
def gate():
    return rc.solve(GATE, **POINT, lambda_k=9.5, branches=True, bayes=False, init="random")


def test_three_solutions(gate):
    """The lowest is not the one from the start that was asked for: that is said, and so is what was tried."""
    risks = [b["test_risk"] for b in gate.branches]
    assert np.allclose(risks, (0.770936, 1.055102, 1.008925), atol=1e-5)
    assert [b["energy"] for b in gate.branches] == sorted(b["energy"] for b in gate.branches)
    assert any("another branch" in w and "0.770936" in w for w in gate.warnings) and not gate.ok
    assert len(gate.tried) == 8 and gate.tried[-1].startswith("deflation")


def test_solve_warns_of_a_lower_branch_that_neither_start_finds():
    """Informed and random starts both end on the branch of the higher energy."""
    found = rc.solve(GATE, **POINT, lambda_k=9.5, bayes=False, digits=6)
    assert abs(found.test_risk - 1.055102) < 1e-5
    assert any("another branch" in w and "deflation" in w for w in found.warnings)


def test_no_branch_is_claimed_where_there_is_one():
    found = rc.solve("softmax", tokens=2, alpha=4, nu=2, noise=0.3, bayes=False, branches=True)
    assert found.ok and len(found.branches) == 1


def test_deflation_leaves_what_is_known(gate):
    posed = problem(GATE, "spiked", 1, {n: v for n, v in POINT.items() if n != "tokens"} | {"lambda_k": 9.5})
    known = [free(b["order_parameters"]) for b in gate.branches]
    begin = free(starts(posed)["k found, v not"])
    for left_out in range(3):
        others = [k for i, k in enumerate(known) if i != left_out]
        found = deflated_newton(posed, begin, others)
        assert found is None or same(found, known[left_out])
    assert same(deflated_newton(posed, begin, known[1:]), known[0])


def test_both_folds_from_both_ends():
    """A bistable solution of trained attention: the same spinodals from either end, each met once."""
    ends = {s: rc.branch(GATE, **POINT, lambda_k="8:12", start=s) for s in ("low", "high")}
    for found in ends.values():
        assert found.ok and found.complete and np.allclose(sorted(found.spinodals), SPINODALS, atol=1e-6)
    up, down = (np.array([f.columns["lambda_k"], f.columns["energy"], f.columns["m_k"]]) for f in ends.values())
    for lambda_k, energy, m_k in up.T[1:-1]:
        near = down[:, np.argsort(np.abs(np.log(down[0] / lambda_k)) + np.abs(down[2] - m_k))[:2]]
        assert np.abs(near[1] - energy).min() < 1e-2 and np.abs(near[2] - m_k).min() < 0.03


def test_the_command_prints_branches():
    text = f"solve|{GATE}|--tokens|1|--alpha|2|--nu|16|--noise|0.3|--lambda-k|9.5|--lambda-v|0.5|--branches|--json"
    result = CliRunner().invoke(main, text.split("|"))
    found = json.loads(result.stdout)
    assert result.exit_code == 1 or found["test_risk"] < 1.0
    assert len(found["branches"]) == 3 and found["tried"]


@pytest.mark.full
def test_folds_against_an_independent_continuation():
    """pycont-lite follows F(u, log lambda_k) = 0 with slopes of its own: the same spinodals."""
    pycont = pytest.importorskip("pycont")
    from replicode.verbs.branch import Along, Range

    posed = problem(GATE, "spiked", 1, {n: v for n, v in POINT.items() if n != "tokens"} | {"lambda_k": 8.0})
    system = Along(posed, Range("lambda_k", 8.0, 12.0))
    first = rc.branch(GATE, **POINT, lambda_k="8:8.1")
    u = free({n: first.columns[n][0] for n in ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")})
    wanted = {
        **{"initial_directions": "increase_p", "param_max": np.log(12.0), "rdiff": 1e-5, "tolerance": 1e-7},
        **{"bifurcation_detection": False, "analyze_stability": False},
    }
    found = pycont.arclengthContinuation(
        lambda u, p: system(u, float(np.exp(p)))[0], u, np.log(8.0), 1e-5, 0.1, 0.02, 120, wanted, "off"
    )
    path = np.concatenate([b.p_path[: b._index] for b in found.branches])
    path = path[np.r_[True, np.diff(path) != 0.0]]  # its pieces share their ends
    turns = [b for a, b, c in zip(path, path[1:], path[2:]) if (b - a) * (c - b) < 0.0]
    assert np.allclose(np.exp(sorted(turns)), SPINODALS, rtol=5e-5)  # the points of its path that are next to the folds
