"""The least test risk: known optima, no point of a grid is better, and what stands in the way of one is said."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.branches.minimise import Trial, minimise
from replicode.cli import main
from replicode.inputs.problem import problem

SETTING = {"alpha": 4.0, "nu": 2.0, "noise": 0.3}
OPTIMA = {  # found by BFGS of scipy on solves of nine digits
    ("softmax", 2): (0.17635, 0.51902),
    ("linear", 2): (0.89408, 5.0923),
}


def _rosenbrock(z):
    x, y = z
    value = (1.0 - x) ** 2 + 5.0 * (y - x * x) ** 2
    gradient = np.array([-2.0 * (1.0 - x) - 20.0 * x * (y - x * x), 10.0 * (y - x * x)])
    return Trial(z, value, gradient, 0.0, np.zeros(2))


def test_minimum_of_a_bent_valley():
    found = minimise(_rosenbrock, np.array([-1.0, 1.0]), np.full(2, -5.0), np.full(2, 5.0), 1e-6, 60)
    assert found.converged and np.abs(found.best.place - 1.0).max() < 1e-5


def test_minimum_at_a_bound():
    found = minimise(_rosenbrock, np.array([-1.0, 1.0]), np.full(2, -5.0), np.array([0.5, 5.0]), 1e-6, 60)
    assert found.converged and list(found.held) == [True, False]
    assert found.best.place[0] == 0.5 and abs(found.best.place[1] - 0.25) < 1e-4


def test_softmax_two_tokens_in_under_ten_solves():
    found = rc.optimal("softmax", tokens=2, **SETTING, digits=6, bayes=False)
    expected = np.array(OPTIMA["softmax", 2])
    here = np.array([found.optimum[n] for n in ("lambda_k", "lambda_v")])
    assert found.ok and found.evaluations < 10 and not found.at_bound
    assert (np.abs(here / expected - 1.0) < 1e-4).all()
    assert (np.abs(here - expected) < 1e-5 + np.array(list(found.optimum_errors.values()))).all()


def _grid(activation, tokens, centre, width, count, tol):
    """The least test risk on a grid of solves around a place, and where."""
    posed = problem(activation, "spiked", tokens, {**SETTING, "lambda_k": 1.0, "lambda_v": 1.0})
    axes = [c * np.exp(np.linspace(-width, width, count)) for c in centre]
    found, init = {}, "informed"
    for lambda_k in axes[0]:
        for lambda_v in axes[1]:
            solution = posed.with_values(lambda_k=lambda_k, lambda_v=lambda_v).solve(tol, init, False, False, False)
            found[lambda_k, lambda_v], init = solution.test_risk, solution.order_parameters
    return min(found.items(), key=lambda item: item[1])


@pytest.mark.full
@pytest.mark.parametrize(("activation", "tokens"), [("softmax", 2), ("linear", 2), ("softmax", 3)])
def test_no_point_of_a_dense_grid_is_better(activation, tokens):
    found = rc.optimal(activation, tokens=tokens, **SETTING, bayes=False)
    assert found.evaluations < 10
    centre = found.optimum["lambda_k"], found.optimum["lambda_v"]
    (lambda_k, lambda_v), least = _grid(activation, tokens, centre, 0.08, 9, 1e-6)
    assert least >= found.test_risk - found.error - 1e-6
    assert abs(np.log(lambda_k / centre[0])) < 0.021 and abs(np.log(lambda_v / centre[1])) < 0.021
    if (activation, tokens) in OPTIMA:
        assert np.allclose(centre, OPTIMA[activation, tokens], rtol=1e-4)


@pytest.mark.full
def test_over_a_temperature_nothing_is_gained():
    """A temperature only rescales k: over (lambda_k, beta) the risk has a valley, and over beta alone a minimum."""
    plain = rc.optimal("softmax", tokens=2, **SETTING, over="lambda_k", lambda_v=0.5, digits=5, bayes=False)
    tempered = rc.optimal("tempered", tokens=2, **SETTING, over="beta", lambda_v=0.5, digits=5, bayes=False, beta=1.0)
    assert abs(plain.test_risk - tempered.test_risk) < 1e-5
    assert abs(tempered.optimum["beta"] ** -2 - plain.optimum["lambda_k"]) < 1e-3


def test_without_noise_regression_has_its_optimum_at_a_bound():
    """One token is regression: without noise and with enough data no penalty is best."""
    found = rc.optimal("softmax", tokens=1, alpha=4.0, nu=1.0, over="lambda_v", digits=6, bayes=False)
    assert found.at_bound == ("lambda_v",) and not found.ok and any("range searched" in w for w in found.warnings)


TEXT = "optimal softmax --tokens 2 --alpha 4 --nu 2 --over nu"


def test_bad_names_are_refused():
    result = CliRunner().invoke(main, TEXT.split())
    assert result.exit_code == 2 and "over" in result.output and "lambda_k, lambda_v" in result.output


def test_the_command_prints_the_keys():
    text = "optimal linear --tokens 1 --alpha 4 --nu 2 --noise 0.3 --digits 4 --over lambda_v --json"
    found = json.loads(CliRunner().invoke(main, text.split()).stdout)
    assert {"optimum", "evaluations", "at_bound", "test_risk", "order_parameters"} <= set(found)
    assert set(found["optimum"]) == {"lambda_v"}
