"""Curves: interpolation with slopes, ranges, nodes where it bends, and numbers that solves agree with."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import replicode as rc
from replicode.branches.hermite import interpolated
from replicode.branches.tracing import Node, Traced, Tracer
from replicode.cli import main
from replicode.inputs.problem import Problem, problem
from replicode.inputs.ranges import Range, read_range
from replicode.theory.errors import InputError

PHYSICS = {"alpha": 1.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
SETTING = {"tokens": 1, "nu": 2.0, "noise": 0.3}


@given(st.lists(st.floats(-2.0, 2.0), min_size=8, max_size=8), st.floats(0.0, 3.0))
def test_a_polynomial_through_four_nodes_is_exact(coefficients, at):
    whole = np.polynomial.Polynomial(coefficients)
    places = [0.0, 1.0, 2.0, 3.0]
    values, slopes = (np.array([f(p) for p in places]) for f in (whole, whole.deriv()))
    found, _ = interpolated(places, values, slopes, at)
    assert abs(found - whole(at)) < 1e-9 * (1.0 + sum(map(abs, coefficients)) * 3.0**7)


def test_what_is_left_open_covers():
    places = list(np.linspace(0.0, 3.0, 7))
    values, slopes = np.sin(places), np.cos(places)
    for at in np.linspace(0.05, 2.95, 23):
        found, left = interpolated(places, values, slopes, at)
        assert abs(found - np.sin(at)) <= left + 1e-15


def test_ranges_are_read():
    assert read_range("alpha", "0.5:10:20") == Range("alpha", 0.5, 10.0, 20)
    assert read_range("alpha", (1, 2)) == Range("alpha", 1.0, 2.0)
    assert read_range("alpha", "4") == read_range("alpha", 4) == 4.0
    wide = read_range("alpha", "1:16:5")
    assert wide.logarithmic and np.allclose(wide.values(), [1.0, 2.0, 4.0, 8.0, 16.0])
    assert not read_range("noise", "0:1").logarithmic


@pytest.mark.parametrize("text", ["2:1", "1:2:1", "1:2:2.5", "a:b", "1:2:3:4", "1:inf", ":", "1:"])
def test_bad_ranges_are_refused(text):
    with pytest.raises(InputError, match="alpha"):
        read_range("alpha", text)


@pytest.fixture(scope="module")
def ridge():
    return rc.curve("softmax", **SETTING, alpha="1:8:10", digits=6, bayes=False, keep=False)


def test_a_curve_is_what_solves_say(ridge):
    columns = ridge.activations["softmax"]
    assert ridge.ok and len(ridge.values) == 10 and len(ridge.nodes["softmax"]) < 40
    for i in range(1, 9, 2):
        solution = rc.solve("softmax", **SETTING, alpha=ridge.values[i], digits=8, bayes=False)
        assert abs(columns["test_risk"][i] - solution.test_risk) <= columns["error"][i] + solution.error
        assert abs(columns["m_v"][i] - solution.order_parameters["m_v"]) < 1e-4
        assert columns["error"][i] < 1e-5


def test_rows_have_the_same_columns(ridge):
    rows = ridge.rows()
    assert len(rows) == 10 and len({tuple(r) for r in rows}) == 1 and rows[0]["alpha"] == 1.0


def test_pandas_opens_it(ridge):
    pandas = pytest.importorskip("pandas")
    table = ridge.to_pandas()
    assert (
        isinstance(table, pandas.DataFrame) and table.loc["softmax"].test_risk.iloc[0] == ridge.rows()[0]["test_risk"]
    )


def test_xarray_opens_it(ridge):
    pytest.importorskip("xarray")
    assert ridge.to_xarray().test_risk.sel(activation="softmax").shape == (10,)


def test_nodes_stand_where_it_bends():
    """In alpha from 1 to 64 the risk bends at small alpha."""
    posed = problem("softmax", "spiked", 1, PHYSICS)
    found = Tracer(posed, Range("alpha", 1.0, 64.0), 1e-7, False, False, lambda value, found: None).trace()
    lower = sum(n.at < found.axis.coordinate(8.0) for n in found.nodes)
    assert lower > len(found.nodes) / 2


def test_a_jump_is_seen_and_not_drawn_across():
    """Two straight pieces: nodes close in on the step, which is then noted."""

    class Steps(Tracer):
        def _plain(self, value, at, branches):
            risk = 1.0 if value < 0.37 else 0.5
            numbers = dict.fromkeys(self.traced.quantities, risk)
            return {"values": numbers, "slopes": dict.fromkeys(numbers, 0.0), "error": 1e-9, "rs_stable": True,
                    "replicon": 0.1, "converged": True, "warnings": []}  # fmt: skip

    posed = problem("softmax", "spiked", 1, PHYSICS)
    found = Steps(posed, Range("noise", 0.0, 1.0), 1e-6, False, False, lambda value, found: None).trace()
    assert len(found.jumps) == 1 and found.jumps[0][0] <= 0.37 <= found.jumps[0][1]
    assert found.row(0.2)["test_risk"] == 1.0 and found.row(0.6)["test_risk"] == 0.5


def test_edge_of_stability_lies_between_nodes():
    traced = Traced(Range("alpha", 1.0, 2.0), ("test_risk",))
    for at, stable in ((1.0, True), (1.5, True), (2.0, False)):
        traced.add(Node(at, {"values": {"test_risk": 1.0}, "slopes": {"test_risk": 0.0}, "error": 0.0,
                             "rs_stable": stable, "replicon": at, "converged": True, "warnings": []}))  # fmt: skip
    assert traced.row(1.2)["rs_stable"] and not traced.row(1.8)["rs_stable"]


def test_the_command_leaves_figure_data_and_provenance(tmp_path):
    text = "curve softmax --tokens 1 --nu 2 --noise 0.3 --alpha 1:4:5 --digits 4 --no-bayes --json -o"
    result = CliRunner().invoke(main, [*text.split(), f"{tmp_path}/risk.svg"])
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["parameter"] == "alpha" and len(found["values"]) == 5
    assert {"test_risk", "error", "rs_stable", "bayes_risk"} <= set(found["activations"]["softmax"])
    assert (tmp_path / "risk.svg").read_text().startswith("<?xml")
    with open(tmp_path / "risk.csv") as stream:
        assert len(list(csv.DictReader(stream))) == 5
    beside = json.loads((tmp_path / "risk.json").read_text())
    assert beside["version"] == rc.__version__ and beside["asked"]["activations"] == ["softmax"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("curve linear --tokens 1 --nu 2 --alpha 4", "range"),
        ("curve linear --tokens 1 --nu 1:2 --alpha 1:4", "range"),
        ("curve linear linear --tokens 1 --nu 2 --alpha 1:4", "activation"),
        ("curve linear --tokens 1 --nu 2 --alpha 1:4 --param c=0.5", "param"),
        ("curve linear --tokens 1 --nu 2 --alpha 4 --lambda-k 0.1:1 --optimal", "optimal"),
        ("curve linear --tokens 1 --nu 2 --alpha 1:4 -o risk.doc", "output"),
        ("curve linear --tokens 1 --nu 2 --alpha 1:4 --param c", "param"),
        ("curve linear --tokens 1 --nu 2 --alpha -1:4", "alpha"),
    ],
)
def test_bad_input_is_told_before_any_work(text, named):
    result = CliRunner().invoke(main, text.split())
    assert result.exit_code == 2 and f"error: {named}" in result.output, result.output


def test_a_number_is_given_once():
    with pytest.raises(InputError, match="each value once: alpha"):
        rc.curve("softmax", tokens=1, alpha="1:2", nu=1.0, parameters={"alpha": 3.0})


def test_without_digits_a_node_takes_no_more_than_a_figure_shows(monkeypatch):
    """Three digits, and no more work than a solve without digits: with digits a solve may take a minute."""
    asked = []
    monkeypatch.setattr(Problem, "solve", lambda self, *given: asked.append(given) or self.module.solve(**self.values))
    for digits in (None, 5):
        rc.curve("softmax", **SETTING, alpha="1:2:3", digits=digits, bayes=False, keep=False)
    assert {(given[0], given[-1]) for given in asked} == {(2.5e-4, True), (5e-6, False)}


def test_quick_solves_end_where_the_error_is_what_was_asked_for():
    """At this point folds are felt: three digits are had at once, and what a few seconds give has more."""
    posed = problem("softmax", "spiked", 2, {**PHYSICS, "alpha": 1.5})
    found, more = (posed.solve(tol, "informed", False, False, False, True) for tol in (1e-3, None))
    assert more.error < found.error < 1e-3 and abs(found.test_risk - more.test_risk) < found.error + more.error
    assert not any(w.startswith("error") for w in found.warnings)


@pytest.mark.parametrize("name", ["name", "module", "number", "arguments"])
def test_a_parameter_may_be_called_like_an_argument_of_ours(name):
    found = rc.solve(f"1 + x*{name}", tokens=1, alpha=2, nu=1, parameters={name: 0.5}, bayes=False)
    assert found.converged
