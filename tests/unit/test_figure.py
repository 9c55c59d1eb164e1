"""The paper's figures: rows with errors, files, resumption, and what is not to be trusted said so."""

from __future__ import annotations

import builtins
import csv
import json
import math
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import replicode.figures as figures
from replicode.cli import main
from replicode.figures import finite_sample, points, population
from replicode.figures.drawing import LINEAR, SOFTMAX, pyplot, tokens_label
from replicode.theory.errors import InputError, ReplicodeError

TINY = finite_sample.Effort((3.0, 4.0), (4.0,), (40, 80), 3, 1e-2)
PANEL = population.Panel("spiked", 3, (1.0, 2.0), (2.0,), True)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path / "cache"))


def silent(_):
    pass


def columns(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def small_population(monkeypatch):
    panels = (PANEL, PANEL._replace(task="max", nus=(1.0, math.inf), quick=(1.0, math.inf), log=False))
    monkeypatch.setattr(population, "PANELS", panels)
    monkeypatch.setattr(population, "CURVES", (SOFTMAX, LINEAR))
    compute = population.compute
    monkeypatch.setattr(population, "compute", lambda quick, say: compute(quick, say, panels))


def test_population_rows_are_the_known_values_are_drawn_and_kept(small_population, tmp_path, monkeypatch):
    found = figures.figure("population", tmp_path, quick=True)
    assert [f.rpartition(".")[2] for f in found.files] == ["svg", "pdf", "csv"] and found.warnings == ()
    rows = {(r["task"], r["nu"], r["activation"]): r for r in columns(found.files[2])}
    assert len(rows) == len(found.points) == 6
    linear = rows["spiked", "2.0", "linear"]
    assert float(linear["excess_risk"]) == pytest.approx(6 / 13, abs=1e-12)
    assert linear["closed_form"] == "L*(L - 1)/(L**2 + L*nu - nu)"
    for row in rows.values():
        assert 0.0 <= float(row["error"]) < 1e-10
        assert float(row["excess_risk"]) >= float(row["bayes_excess_risk"]) - 1e-12
        if row["activation"] == "softmax":
            assert float(row["excess_risk"]) == pytest.approx(float(row["bayes_excess_risk"]), abs=1e-12)
    drawing = (tmp_path / "population.svg").read_text()
    assert drawing.startswith("<?xml") and "<dc:date>" not in drawing
    assert (tmp_path / "population.pdf").read_bytes().startswith(b"%PDF")

    monkeypatch.setattr(population, "population", lambda *_, **__: pytest.fail("computed again"))
    again = figures.figure("population", tmp_path / "again", quick=True)
    assert again.points == found.points
    for path in found.files:
        name = path.rpartition("/")[2]
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()


def stub(excess, error, m_k=1.0, warnings=(), bayes=0.3):
    order = {"m_k": m_k, "q_k": m_k**2, "m_v": 1.0, "q_v": 1.0}
    fields = {"excess_risk": excess, "error": error, "bayes_risk": bayes, "order_parameters": order}
    rest = {"parameters": {}, "closed_form": None, "method": "stub", "warnings": warnings, "nishimori": False}
    return SimpleNamespace(**fields, **rest)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (stub(0.4, 1e-9), None),
        (stub(0.4, 0.02), "the error 2.0e-02 is above 0.01"),
        (stub(0.4, math.nan), "is above 0.01"),
        (stub(0.2, 1e-9, warnings=("below the Bayes value",)), "below the Bayes value"),
        (stub(0.4, 0.005, math.inf, ("still falls",)), None),
        (stub(0.2, 0.005, math.inf), "below the Bayes value"),
    ],
)
def test_what_is_not_to_be_trusted_is_named(answer, named, monkeypatch):
    monkeypatch.setattr(population, "population", lambda *_, **__: answer)
    rows, notes, warnings = population.compute(True, silent, (PANEL,))
    assert len(rows) == 4 and bool(notes) == math.isinf(answer.order_parameters["m_k"])
    assert not warnings if named is None else len(warnings) == 4 and all(named in w for w in warnings)
    assert all("spiked, tokens 3, nu = 2" in text for text in (*notes, *warnings))


@pytest.fixture(scope="module")
def finite(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPLICODE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(finite_sample, "TOKENS", 2)
        panels = (finite_sample.Panel("spiked", 2.0),)
        return finite_sample.compute(True, False, silent, panels, TINY)


def test_finite_sample_rows(finite):
    rows, notes, warnings = finite
    kinds = [r["kind"] for r in rows]
    assert (kinds.count("bayes"), kinds.count("theory"), kinds.count("trained")) == (2, 4, 2) and warnings == []
    assert len({tuple(r) for r in rows}) == 1
    risk = {(r["kind"], r["activation"], r["alpha"]): r for r in rows}
    assert risk["theory", "softmax", 4.0]["test_risk"] == pytest.approx(0.5399319, abs=1e-2)
    assert risk["theory", "linear", 4.0]["test_risk"] == pytest.approx(0.6520538, abs=1e-2)
    assert risk["bayes", "", 4.0]["test_risk"] == pytest.approx(0.3620336, abs=1e-3)
    for row in rows:
        assert row["kind"] == "trained" or 0.0 < row["error"] <= TINY.tolerance
        if row["kind"] == "trained":
            assert row["standard_error"] > 0.0 and abs(row["z"]) < 5.0 and set(row["means_by_dim"]) == {"D40", "D80"}
            assert (row["seeds"], row["root_seed"], row["failures"]) == (3, finite_sample.ROOT_SEED, 0)
    assert "2 trained points" in notes[-1]


def altered(rows, kind, **changes):
    changed = next(r for r in rows if r["kind"] == kind)
    return [r | changes if r is changed else r for r in rows]


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("theory", {"error": 0.5}, "the error 5.0e-01 is above 0.01"),
        ("theory", {"warnings": ["replica symmetry is broken"]}, "replica symmetry is broken"),
        ("theory", {"test_risk": 0.1}, "below the Bayes-optimal risk"),
        ("trained", {"failures": 2}, "more than a tenth"),
        ("trained", {"adjusted_p": 1e-6}, "training and theory disagree"),
    ],
)
def test_finite_sample_warnings(finite, kind, changes, named):
    told = finite_sample._warnings(altered(finite[0], kind, **changes), SimpleNamespace(), TINY.tolerance)
    assert len(told) == 1 and named in told[0] and told[0].startswith(f"{kind}, softmax, spiked, nu = 2")


def test_a_theory_that_is_off_is_told_from_the_training(finite):
    rows = [dict(r) for r in finite[0]]
    values = {
        finite_sample._named(r): {"test_risk": {40: [0.9, 0.901, 0.902], 80: [0.9, 0.901, 0.9]}}
        for r in rows
        if r["kind"] == "trained"
    }
    comparison = finite_sample._compared(rows, values)
    assert comparison.verdict == "disagrees"
    trained = next(r for r in rows if r["kind"] == "trained" and r["activation"] == "softmax")
    assert trained["z"] > 5.0 and trained["adjusted_p"] < 1e-3


def test_broken_replica_symmetry_is_drawn_open_and_dashed(finite):
    plt = pyplot()

    def drawn(rows):
        figure = finite_sample.draw(plt, rows)
        lines = figure.axes[0].lines
        texts = [text.get_text() for text in figure.legends[0].get_texts()]
        open_marks = [x for line in lines if line.get_markerfacecolor() == "white" for x in line.get_xdata()]
        plt.close(figure)
        return texts, open_marks

    texts, marks = drawn(finite[0])
    assert marks == [] and "replica symmetry broken" not in texts
    texts, marks = drawn(altered(finite[0], "theory", rs_stable=False))
    assert marks == [3.0] and texts[-1] == "replica symmetry broken"


def test_optimal_lambdas_are_used_from_one_alpha_to_the_next(monkeypatch):
    starts = []

    def searched(place, start, tolerance):
        starts.append((place.alpha, *start))
        found = {"test_risk": 1.0, "error": 1e-4, "converged": True, "lambda_k": 0.4, "lambda_v": 3.0001}
        return points._row("theory", place, found)

    monkeypatch.setattr(finite_sample, "optimal_point", searched)
    work = finite_sample.Effort((2.0, 4.0), (), (40, 80), 2, 1e-2)
    rows = finite_sample._theory(SOFTMAX, finite_sample.PANELS[0], work, True, silent)
    assert [r["alpha"] for r in rows] == [2.0, 4.0] and rows[0]["lambda_k"] == 0.4
    assert starts == [(2.0, 1.0, 1.0), (4.0, 0.4, 3.0)]


@pytest.mark.full
def test_a_point_at_its_best_lambdas_is_that_of_optimal():
    place = points.Place("softmax", "spiked", 2, 2.0, 0.3, 4.0)
    row = points.optimal_point(place, points.Ridge(0.2, 0.5), 1e-6)
    best = {"lambda_k": 0.17635, "lambda_v": 0.51902}  # of `optimal`, to four digits; the figure's search stops at two
    assert all(row[name] == pytest.approx(value, rel=points.RESOLUTION) for name, value in best.items())
    assert row["test_risk"] == pytest.approx(0.4801178, abs=1e-5)
    assert row["converged"] and row["evaluations"] < 10 and not row["at_bound"]


def test_bad_input_is_named(tmp_path):
    run = CliRunner()
    found = run.invoke(main, ["figure", "three"])
    assert found.exit_code == 2 and "figure: got 'three', allowed is population or finite-sample" in found.stderr
    found = run.invoke(main, ["figure", "population", "--optimal"])
    assert found.exit_code == 2 and found.stderr.startswith("error: optimal: got True")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"output: got .*a folder that can be written"):
        figures.figure("population", tmp_path / "file" / "below")


def test_without_matplotlib_there_is_a_message_before_any_work(tmp_path, monkeypatch):
    load = builtins.__import__

    def refused(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.raises(ReplicodeError, match=r"pip install 'replicode\[plot\]'"):
        figures.figure("population", tmp_path)
    found = CliRunner().invoke(main, ["figure", "population", "-o", str(tmp_path)])
    assert found.exit_code == 2 and "replicode[plot]" in found.stderr and list(tmp_path.glob("*.csv")) == []


def test_the_command_prints_one_object_and_its_status(small_population, tmp_path, monkeypatch):
    arguments = ["figure", "population", "--quick", "-o", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr(population, "population", lambda *_, **__: stub(0.4, 1e-9))
    found = CliRunner().invoke(main, arguments)
    result = json.loads(found.stdout)
    assert found.exit_code == 0 and result["schema"] == "replicode/figure/1" and result["warnings"] == []
    assert len(result["points"]) == 6 and result["points"][0]["excess_risk"] == 0.4 and "excess risk" in found.stderr


def test_lengths_in_mathematics():
    assert tokens_label(3) == "$L = 3$"
    assert tokens_label("1:0.25,2:0.75") == r"$L \in \{1, 2\}$ with $P(L) = 0.25,\,0.75$"


@pytest.mark.full
@pytest.mark.parametrize("name", figures.NAMES)
def test_the_quick_figures_can_be_trusted(name, tmp_path):
    found = figures.figure(name, tmp_path, quick=True)
    assert found.warnings == () and len(found.files) == 3
