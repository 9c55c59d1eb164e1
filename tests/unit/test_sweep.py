"""Sweeps: what a configuration asks for, what is refused before any work, rows, tables, and how a sweep ends."""

import csv
import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.cli import main
from replicode.sweeps import job, point, pool
from replicode.sweeps.config import points_of, read
from replicode.sweeps.export import columns
from replicode.sweeps.progress import Progress, _duration
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language import activation as activations
from replicode.theory.registry import ACTIVATIONS
from replicode.validation.ledger import Ledger, LedgerError
from replicode.verbs import sweep as verb

LAW = {"tokens": 1, "alpha": 4.0, "nu": 2.0, "noise": 0.3}
CHEAP = {"activation": "linear", **LAW, "digits": 3, "bayes": False}


def values(config, name):
    return [p.asked.get(name) for p in points_of(config)]


def run(*arguments):
    found = CliRunner().invoke(main, ["sweep", *(str(a) for a in arguments)])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def never(*_, **__):
    raise AssertionError("work was done")


class Stub(rc.Solution):
    """What the verb of a test gives."""

    def __init__(self, risk, warnings=()):
        for name, value in {"test_risk": risk, "error": 1e-3, "warnings": tuple(warnings)}.items():
            object.__setattr__(self, name, value)

    def to_dict(self):
        return {"test_risk": self.test_risk, "error": self.error, "warnings": list(self.warnings)}


@pytest.fixture
def solved(monkeypatch):
    """`solve` replaced by alpha as its risk, with what happens at some alphas; the alphas that it was called at."""
    called, happens = [], {}

    def solve(act, *, task="spiked", tokens, alpha, nu, noise=0.0, parameters=None):
        called.append(alpha)
        if isinstance(happens.get(alpha), BaseException):
            raise happens[alpha]
        return Stub(alpha, happens.get(alpha, ()))

    monkeypatch.setattr("replicode.verbs.solve.solve", solve)
    point.taken.cache_clear()
    yield called, happens
    point.taken.cache_clear()


# What a configuration asks for


def test_a_grid_has_every_combination_and_a_list_goes_along():
    grid = {"activation": ["softmax", "linear"], **LAW, "alpha": [1, 2, 3], "nu": [1, math.inf]}
    assert len(points_of(grid)) == 12 and values(grid, "alpha")[:3] == [1.0, 1.0, 2.0]
    lines = {"list": [{"activation": "softmax", **LAW, "alpha": [1, 2, 3], "nu": [4, 5, "inf"]}]}
    assert [(p.asked["alpha"], p.asked["nu"]) for p in points_of(lines)] == [(1, 4), (2, 5), (3, math.inf)]


def test_keys_above_the_tables_hold_for_all_of_them():
    config = {**LAW, "parameters": {"c": 1.0, "beta": 2.0}}
    config["grid"] = [{"activation": "erf"}, {"activation": "tempered", "nu": 3, "parameters": {"beta": [4.0, 5.0]}}]
    del config["parameters"]["beta"], config["parameters"]["c"]
    config["grid"][0]["parameters"] = {"c": [0.5]}
    found = [(p.asked["activation"], p.asked["nu"], p.asked["parameters"]) for p in points_of(config)]
    assert found == [("erf", 2.0, {"c": 0.5}), ("tempered", 3.0, {"beta": 4.0}), ("tempered", 3.0, {"beta": 5.0})]


def test_ranges():
    assert values({**CHEAP, "alpha": "1:2:5"}, "alpha") == [1.0, 1.25, 1.5, 1.75, 2.0]
    assert values({**CHEAP, "lambda_k": ["0.01:1:3:log", 7]}, "lambda_k") == pytest.approx([0.01, 0.1, 1.0, 7.0])
    assert values({**CHEAP, "nu": ["inf", 1]}, "nu") == [math.inf, 1.0]
    assert values({**CHEAP, "activation": "erf", "parameters": {"c": "0:1:2"}}, "parameters") == [{"c": 0}, {"c": 1}]
    found = values({**CHEAP, "alpha": "0.1:0.7:7"}, "alpha")
    assert found[0] == 0.1 and found[-1] == 0.7 and found == sorted(set(found))


def test_what_a_verb_does_not_take_makes_no_further_points():
    config = {"verb": ["solve", "bayes"], "activation": ["softmax", "erf"], **LAW, "lambda_k": [1, 2]}
    found = points_of({**config, "parameters": {"c": [0.0, 1.0]}})
    assert [p.verb for p in found].count("bayes") == 1
    assert [p.asked["activation"] for p in found if p.verb == "solve"].count("softmax") == 2
    assert [p.asked["activation"] for p in found if p.verb == "solve"].count("erf") == 4


def test_the_same_point_is_there_once_however_it_is_written():
    same = {"list": [{**CHEAP, "alpha": a, "tokens": t} for a, t in ((4, 2), (4.0, "2"), ("4", {2: 1.0}))]}
    assert len(points_of(same)) == 1
    keys = {p.key for p in points_of({**CHEAP, "lambda_k": 1}) + points_of(CHEAP)}
    assert len(keys) == 1  # a default that is written out


def test_a_default_that_is_written_out_is_no_point_of_its_own(solved, tmp_path):
    tables = [{"noise": 0.0}, {}, {"alpha": 1}]
    found = rc.sweep(
        {"activation": "linear", **LAW, "noise": 0.0, "grid": tables}, ledger=tmp_path / "a", progress=False
    )
    assert found.points == len(found.rows) == found.computed == 2


def test_a_key_above_the_tables_is_for_those_that_take_it():
    config = {**LAW, "seeds": 4, "parameters": {"c": 1.0}, "grid": [{"verb": "bayes"}, {"activation": "erf"}]}
    with pytest.raises(InputError, match=r"^seeds: got 4, allowed is one of the keys"):
        points_of(config)
    config["grid"][1]["verb"] = "validate"
    assert [p.verb for p in points_of(config)] == ["bayes", "validate"]
    with pytest.raises(InputError, match=r"^\[\[grid\]\] 1: dim: got 40"):
        points_of(config | {"grid": [{"verb": "bayes", "dim": 40}, config["grid"][1]]})


def test_the_example_is_the_one_of_the_documentation():
    path = Path(__file__).parents[2] / "examples" / "sweep.toml"
    text = (path.parents[1] / "docs" / "sweep.md").read_text()
    shown = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
    assert read(path) == shown and len(points_of(shown)) == 27


BAD = [
    ({"alpha": -1}, "alpha: got -1, allowed is a number from"),
    ({"alpha": "1:2"}, "alpha: got '1:2', allowed is a number, a range LO:HI:N"),
    ({"alpha": "2:1:5"}, "alpha: got '2:1:5', allowed is a range LO:HI:N, or LO:HI:N:log: LO below HI"),
    ({"alpha": "1:2:1"}, "N from 2"),
    ({"alpha": "1:2:3:root"}, "log is for LO above 0"),
    ({"lambda_k": "0:2:3:log"}, "log is for LO above 0"),
    ({"alpha": []}, "alpha: got [], allowed is a value, a range or a list that is not empty"),
    ({"alpha": [1, True]}, "alpha: got True"),
    ({"alpha": "1:2:2000000"}, "N from 2 to 1000000"),
    ({"alpha": "1:2:2000", "nu": "1:2:2000"}, "grid: got 4000000, allowed is at most 1000000 points"),
    ({"nu": -1}, "nu: got -1, allowed is a number from 0"),
    ({"tokens": "1:0.5"}, "tokens: got '1:0.5'"),
    ({"tokens": 0}, "tokens: got 0"),
    ({"digits": 99}, "digits: got 99, allowed is a whole number from 1 to 50"),
    ({"verb": "bayes", "digits": 13}, "digits: got 13, allowed is a whole number from 1 to 12"),
    ({"verb": "guess"}, "verb: got 'guess', allowed is solve or bayes or population or"),
    ({"verb": ["solve", "figure"]}, "verb: got 'figure'"),
    ({"init": "warm"}, "init: got 'warm', allowed is informed or random"),
    ({"activation": "sofmax"}, "activation: got 'sofmax', allowed is a registered name (erf, "),
    ({"activation": "1 + foo(x)"}, "^"),
    ({"activation": 3}, "activation: got 3, allowed is a registered name or an expression, as text"),
    ({"task": "spike"}, "task: got 'spike'"),
    ({"lambda_q": 1}, "lambda_q: got 1, allowed is one of the keys verb, activation, task, tokens, alpha, nu, noise"),
    ({"verb": "bayes"}, "activation: got 'linear', allowed is one of the keys verb, task, tokens, nu, alpha, noise"),
    ({"model": "x"}, "model: got 'x'"),
    ({"parameters": {"c": 1}}, "parameters.c: got 1, allowed is one of the keys"),
    ({"parameters": 3}, "parameters: got 3, allowed is a table of names and numbers"),
    ({"activation": "1 + erf(c + x)"}, "param: got None, allowed is a value for 'c'"),
    ({"activation": "erf", "parameters": {"c": "a"}}, "parameters.c: got 'a', allowed is a number"),
    ({"nu": None}, "nu: got None"),
    ({"bayes": {}}, "bayes: got {}"),
    ({"grid": 3}, "grid: got 3"),
    ({"grid": [{"alpha": 1}, {"alpha": -1}]}, "[[grid]] 2: alpha: got -1"),
    ({"list": [{"alpha": [1, 2], "nu": [1, 2, 3]}]}, "[[list]] 1: alpha: got [1, 2], allowed is one value, or 3 as nu"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[json.dumps(c) for c, _ in BAD])
def test_a_bad_value_is_named_before_any_work(change, message, monkeypatch, tmp_path):
    monkeypatch.setattr(verb, "outcomes", never)
    with pytest.raises(InputError) as refused:
        rc.sweep({**CHEAP, **change}, ledger=tmp_path / "a.sqlite")
    assert message in str(refused.value) and list(tmp_path.iterdir()) == []


def test_what_is_needed_is_asked_for():
    config = dict(CHEAP)
    del config["alpha"]
    with pytest.raises(InputError, match="alpha: got None, allowed is a value: solve needs one"):
        points_of(config)
    assert len(points_of({"verb": "population", "activation": "1 + erf(c + x)", "tokens": 1, "nu": 1})) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "workers: got 0"),
        (["--scheduler", "host"], "scheduler: got 'host', allowed is the address"),
        (["--export", "rows.xls"], "export: got 'rows.xls', allowed is a file whose name ends in .csv, .parquet, .nc"),
        (["--export", "/proc/rows.csv"], "export: got '/proc/rows.csv', allowed is a file"),
        (["--ledger", "/proc/a.sqlite"], "ledger: got '/proc/a.sqlite', allowed is a ledger that can be read"),
    ],
)
def test_bad_options_of_the_command(options, message, monkeypatch, tmp_path):
    monkeypatch.setattr(verb, "outcomes", never)
    path = tmp_path / "c.toml"
    path.write_text('activation = "linear"\ntokens = 1\nalpha = 4\nnu = 2\n')
    found = run(path, *options)
    assert found.exit_code == 2 and found.stderr.startswith(f"error: {message}") and found.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["c.toml"]


@pytest.mark.parametrize(
    ("text", "message"), [(None, "a file that can be read (No such"), ("a = = 1", "a file of TOML (")]
)
def test_a_file_that_is_no_configuration(text, message, tmp_path):
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    found = run(tmp_path / "c.toml")
    assert found.exit_code == 2 and found.stderr.startswith("error: config: got") and message in found.stderr


# Keys and random streams


def test_keys_are_of_the_content(monkeypatch):
    keys = set()
    for text in ("1 + x", "1 + x/2"):
        activations.register("mine", text)
        keys.add(points_of({**CHEAP, "activation": "mine"})[0].key)
    del activations._REGISTRY["mine"], ACTIVATIONS["mine"]
    for change in ({}, {"nu": 2.5}, {"digits": 4}, {"lambda_v": 2}, {"task": "max"}, {"activation": "softmax"}):
        keys.add(points_of({**CHEAP, **change})[0].key)
    before = len(keys)
    monkeypatch.setattr(point, "program", lambda verb: "another program")
    keys.add(points_of(CHEAP)[0].key)
    assert before == 8 and len(keys) == 9


def test_a_file_is_known_by_what_is_in_it(tmp_path):
    path, keys = tmp_path / "spectrum.txt", set()
    for text in ("1\n1\n2\n", "1\n1\n3\n", "1\n1\n2\n"):
        path.write_text(text)
        keys.add(points_of({**CHEAP, "spectrum": str(path)})[0].key)
    assert len(keys) == 2
    with pytest.raises(InputError, match=r"^spectrum: got 'none\.txt'"):
        points_of({**CHEAP, "spectrum": "none.txt"})


def test_random_streams_are_those_of_the_point():
    config = {"verb": "validate", "activation": "linear", **LAW}
    first, again = values({**config, "dim": 40}, "root_seed"), values({**config, "seeds": 80}, "root_seed")
    assert first == again and first != values({**config, "nu": 3.0}, "root_seed")
    assert values({**config, "root_seed": 7}, "root_seed") == [7]


def test_a_validation_is_that_of_its_root_seed(tmp_path):
    law = {**LAW, "digits": 3, "dim": 40, "seeds": 2}
    (row,) = rc.sweep({"verb": "validate", "activation": "linear", **law}, ledger=tmp_path / "a", progress=False).rows
    alone = rc.validate("linear", **law, root_seed=row["root_seed"]).to_dict()
    assert row["trained"] == alone["trained"] != rc.validate("linear", **law).to_dict()["trained"]
    assert alone["asked"]["root_seed"] == row["root_seed"]


# Rows


def test_rows_are_what_the_verbs_say_and_are_computed_once(tmp_path, monkeypatch):
    config = {**CHEAP, "verb": ["solve", "bayes"], "nu": [1.0, 2.0]}
    found = rc.sweep(config, ledger=tmp_path / "a.sqlite", progress=False)
    assert found.ok and (found.points, found.computed, found.done) == (4, 4, 4)
    alone = rc.solve("linear", **LAW, digits=3, bayes=False).to_dict()
    row = found.rows[1]
    assert {name: row[name] for name in alone if name != "asked"} == {n: v for n, v in alone.items() if n != "asked"}
    assert found.rows[3]["free_entropy"] == rc.bayes(**LAW, digits=3).free_entropy
    monkeypatch.setattr(job, "verb_of", never)
    again = rc.sweep(config, ledger=tmp_path / "a.sqlite", progress=False)
    assert again.rows == found.rows and again.computed == 0


def test_failures_and_refusals_are_rows_with_their_reason(solved, tmp_path):
    called, happens = solved
    happens |= {1.0: Refusal("not there"), 2.0: ZeroDivisionError("by zero"), 3.0: ["not converged"]}
    config = {"activation": "linear", **LAW, "alpha": [1, 2, 3, 4]}
    found = rc.sweep(config, ledger=tmp_path / "a", progress=False)
    assert [r["status"] for r in found.rows] == ["refused", "failed", "done", "done"]
    assert [r["ok"] for r in found.rows] == [False, False, False, True] and not found.ok
    assert [r.get("reason") for r in found.rows] == ["not there", "ZeroDivisionError: by zero", None, None]
    assert (found.done, found.refused, found.failed) == (2, 1, 1)
    assert [w.partition(", the first solve linear")[0] for w in found.warnings] == ["1 of 4 points"] * 3
    assert found.warnings[0].endswith(": refused: not there") and found.warnings[2].endswith(": not converged")
    happens.clear()
    assert rc.sweep(config, ledger=tmp_path / "a", progress=False).computed == 0 and len(called) == 4
    assert rc.sweep(config, ledger=tmp_path / "a", retry=True, progress=False).failed == 0 and called[4:] == [2.0]


def test_a_dry_run_counts_and_computes_nothing(solved, tmp_path):
    called, _ = solved
    config = {"activation": "linear", **LAW}
    rc.sweep(config, ledger=tmp_path / "a", progress=False)
    found = rc.sweep({**config, "alpha": [3, 4]}, ledger=tmp_path / "a", dry_run=True, export=tmp_path / "t.csv")
    assert (found.done, found.missing, found.computed, called) == (1, 1, 0, [4.0])
    with (tmp_path / "t.csv").open(newline="") as stream:
        assert [row["status"] for row in csv.DictReader(stream)] == ["missing", "done"]


def test_the_command_exports_and_leaves_with_the_status_of_its_rows(solved, tmp_path):
    _, happens = solved
    path = tmp_path / "c.toml"
    path.write_text('activation = "linear"\ntokens = 1\nalpha = "1:4:4"\nnu = 2\n')
    found = run(path, "--export", tmp_path / "t.csv", "--json")
    result = json.loads(found.stdout)
    assert found.exit_code == 0 and result["schema"] == "replicode/sweep/1" and len(result["rows"]) == 4
    assert result["ledger"] == str(tmp_path / "c.sqlite") and (tmp_path / "c.sqlite").exists()
    assert "4/4 (0 s left); test_risk 4.000(1): solve linear" in found.stderr
    happens[5.0] = Refusal("too far")
    path.write_text(path.read_text().replace("1:4:4", "1:5:5"))
    found = run(path)
    assert found.exit_code == 1 and "computed  1" in found.stdout and "refused   1" in found.stdout
    assert "warning: 1 of 5 points" in found.stderr and "refused: too far" in found.stderr


def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(solved, tmp_path):
    called, happens = solved
    happens[3.0] = KeyboardInterrupt()
    path = tmp_path / "c.toml"
    path.write_text('activation = "linear"\ntokens = 1\nalpha = "1:4:4"\nnu = 2\n')
    found = run(path)
    told = f"2 of 4 points are kept in {tmp_path / 'c.sqlite'}, and the same command goes on from there"
    assert found.exit_code == 130 and f"interrupted: {told}" in found.stderr
    happens.clear()
    assert run(path).exit_code == 0 and called == [1.0, 2.0, 3.0, 3.0, 4.0]


def test_a_ledger_that_fails_midway_keeps_what_is_there(solved, tmp_path, monkeypatch):
    put, count = Ledger.put, []

    def full(self, *args, **more):
        count.append(1)
        if len(count) == 3:
            raise LedgerError("ledger", str(self.path), "a ledger that can be written (database or disk is full)")
        return put(self, *args, **more)

    monkeypatch.setattr(Ledger, "put", full)
    config = {"activation": "linear", **LAW, "alpha": [1, 2, 3, 4]}
    with pytest.raises(InputError, match=r"disk is full\); 2 of 4 points are kept in .* goes on from there"):
        rc.sweep(config, ledger=tmp_path / "a", progress=False)
    assert rc.sweep(config, ledger=tmp_path / "a", progress=False).computed == 2


def test_a_second_sweep_of_the_same_ledger_is_told(solved, tmp_path):
    config = {"activation": "linear", **LAW}
    with Ledger(tmp_path / "a") as ledger, ledger.alone():
        with pytest.raises(LedgerError, match="that no other sweep works on"):
            rc.sweep(config, ledger=tmp_path / "a", progress=False)
        assert rc.sweep(config, ledger=tmp_path / "a", dry_run=True).missing == 1  # looking is allowed
    assert rc.sweep(config, ledger=tmp_path / "a", progress=False).computed == 1


def test_rows_of_another_version_are_left_and_told(solved, tmp_path, monkeypatch):
    config = {"activation": "linear", **LAW}
    rc.sweep(config, ledger=tmp_path / "a", progress=False)
    for place in (point, job):
        monkeypatch.setattr(place, "program", lambda verb: "new")
    found = rc.sweep(config, ledger=tmp_path / "a", progress=False)
    assert found.computed == 1 and found.older == 1 and found.ok


def test_a_worker_of_another_version_stops_the_sweep(solved, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "run", lambda given: job.run(given._replace(program="other")))
    with pytest.raises(
        rc.ReplicodeError, match="another version of Replicode, NumPy, SciPy or SymPy: install the same"
    ):
        rc.sweep({"activation": "linear", **LAW}, ledger=tmp_path / "a", progress=False)
    with Ledger(tmp_path / "a") as ledger:
        assert ledger.elsewhere({}) == 0


def test_names_are_registered_where_they_stand_for_nothing():
    made = rc.register("mine", lambda x: 1 + 2 * x)
    rc.register_task("leaning", "nu*x/2")
    try:
        sent = job.job_of(points_of({**CHEAP, "activation": "mine", "task": "leaning"})[0], None)
    finally:
        del activations._REGISTRY["mine"], ACTIVATIONS["mine"]
    assert job.run(sent).status == "done" and rc.activation("mine").expr == made.expr
    del activations._REGISTRY["mine"], ACTIVATIONS["mine"]


# Tables


def test_every_format_has_the_same_numbers(tmp_path):
    pa, xr = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("xarray")
    pytest.importorskip("h5py")
    config = {**CHEAP, "activation": ["linear", "softmax"], "nu": [1.0, 2.0]}
    for kind in ("csv", "parquet", "nc"):
        found = rc.sweep(config, ledger=tmp_path / "a", export=tmp_path / f"t.{kind}", progress=False)
    risks = [row["test_risk"] for row in found.rows]
    with (tmp_path / "t.csv").open(newline="") as stream:
        assert [float(row["test_risk"]) for row in csv.DictReader(stream)] == risks
    table = pa.read_table(tmp_path / "t.parquet")
    assert table["test_risk"].to_pylist() == risks and table["ok"].to_pylist() == [True] * 4
    assert table["order_parameters_m_k"].to_pylist() == [row["order_parameters"]["m_k"] for row in found.rows]
    with xr.open_dataset(tmp_path / "t.nc", engine="h5netcdf") as cube:
        assert dict(cube.sizes) == {"activation": 2, "nu": 2}
        assert float(cube.test_risk.sel(activation="softmax", nu=1.0)) == risks[2]
        assert cube.alpha == 4.0 and cube.status.values.tolist() == [["done"] * 2] * 2
    assert found.to_xarray().test_risk.shape == (2, 2)


def test_points_that_form_no_grid_have_one_axis(solved, tmp_path):
    pytest.importorskip("xarray")
    config = {"list": [{"activation": "linear", **LAW, "alpha": [1, 2, 3], "nu": [3, 2, 1]}]}
    found = rc.sweep(config, ledger=tmp_path / "a", progress=False).to_xarray()
    assert dict(found.sizes) == {"point": 3} and found.alpha.values.tolist() == [1.0, 2.0, 3.0]


def test_cells_that_a_row_does_not_have_are_empty():
    found = columns([{"a": 1, "b": {"c": [1, 2]}}, {"a": 2, "d": True}])
    assert found == {"a": [1, 2], "b_c": ["[1, 2]", None], "d": [None, True]}


# Progress


class Screen(list):
    def __init__(self, terminal):
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.append(text)

    def flush(self):
        pass


def test_progress_on_a_terminal_is_one_line():
    screen = Screen(True)
    shown = Progress(3, screen)
    for text in ("a" * 500, "b"):
        shown.step(text)
    shown.close()
    lines = "".join(screen).split("\r")[1:]
    assert lines[0].startswith("1/3 done; aaa") and lines[1].startswith("2/3 (") and "left); b" in lines[1]
    assert len(lines[0]) == len(lines[1].rstrip("\n")) < 200 and lines[1].endswith("\n")


def test_progress_in_a_log_is_some_twenty_lines():
    screen = Screen(False)
    shown = Progress(200, screen)
    for _ in range(200):
        shown.step("point")
    assert "".join(screen).count("\n") == 20


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "3 s"), (75, "1 min 15 s"), (3 * 3600 + 65, "3 h 1 min"), (90000, "1 d 1 h")]
)
def test_durations(seconds, text):
    assert _duration(seconds) == text


def test_importing_the_verb_needs_neither_joblib_nor_dask():
    program = "import sys, replicode.verbs.sweep; print({'joblib', 'distributed', 'pyarrow'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
