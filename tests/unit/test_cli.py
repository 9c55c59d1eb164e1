"""The command line: results, bad input, the cache, and generated files that stand alone."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from replicode.cache import cache_folder
from replicode.cli import main

POINT = ["--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "0.3", "--lambda-k", "2", "--lambda-v", "0.5"]


@pytest.fixture(scope="module")
def store():
    """The cache that all tests share."""
    return cache_folder()


class Done:
    """What a command left behind."""

    def __init__(self, returncode, stdout, stderr):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


def replicode(store, *arguments):
    """The command run in this process, which spares an import of SymPy per case."""
    found = CliRunner().invoke(main, arguments, env={"REPLICODE_CACHE": str(store)})
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Done(found.exit_code, found.stdout, found.stderr)


def solved(store, *arguments):
    done = replicode(store, "solve", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_reference_point(store):
    found = solved(store, "softmax", "--task", "spiked", *POINT, "--digits", "9")
    assert found["test_risk"] == pytest.approx(0.5532884048, abs=1e-8)
    assert found["schema"] == "replicode/solve/1"
    assert found["error"] <= 1e-9 and found["converged"] and found["rs_stable"] and found["warnings"] == []
    keys = "test_risk excess_risk train_loss energy order_parameters conjugates converged iterations residual error"
    assert set(keys.split()) <= set(found)
    assert set(found["order_parameters"]) == {"m_k", "q_k", "V_k", "m_v", "q_v", "V_v"}
    assert found["excess_risk"] == pytest.approx(found["test_risk"] - 0.09, abs=1e-14)


def test_the_installed_command_is_the_same():
    command = [sys.executable, "-m", "replicode.cli", "solve", "softmax", "--tokens", "0", "--alpha", "4", "--nu", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("error: tokens: got 0, allowed is")


def test_a_task_typed_as_its_log_weight_is_the_registered_one(store):
    typed = solved(store, "softmax", "--task", "sqrt(nu)*x + 7", *POINT, "--digits", "6")
    assert typed["test_risk"] == pytest.approx(0.5532884048, abs=1e-6)


BAD = [
    (["solve", "softmax", "--tokens", "2", "--alpha", "0", "--nu", "2"], "alpha", "0.0"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "-1", "--nu", "2"], "alpha", "-1"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "nan", "--nu", "2"], "alpha", "nan"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "four", "--nu", "2"], "alpha", "four"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "-2"], "nu", "-2"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "-1"], "noise", "-1"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--lambda-k", "-1"], "lambda_k", "-1"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--lambda-v", "inf"], "lambda_v", "inf"),
    (["solve", "softmax", "--tokens", "0", "--alpha", "4", "--nu", "2"], "tokens", "0"),
    (["solve", "softmax", "--tokens", "two", "--alpha", "4", "--nu", "2"], "tokens", "two"),
    (["solve", "softmaxx", "--tokens", "2", "--alpha", "4", "--nu", "2"], "activation", "softmaxx"),
    (["solve", "1 + foo(x)", "--tokens", "2", "--alpha", "4", "--nu", "2"], "foo", "^"),
    (["solve", "1 + erf(c + x)", "--tokens", "2", "--alpha", "4", "--nu", "2"], "param", "'c'"),
    (["solve", "log(x)", "--tokens", "2", "--alpha", "4", "--nu", "2"], "activation", "log(x)"),
    (["solve", "1/x", "--tokens", "2", "--alpha", "4", "--nu", "2"], "activation", "real and finite"),
    (["solve", "exp(x**2)", "--tokens", "2", "--alpha", "4", "--nu", "2"], "activation", "averages"),
    (["solve", "softmax", "--task", "spikes", "--tokens", "2", "--alpha", "4", "--nu", "2"], "task", "spikes"),
    (["solve", "softmax", "--task", "x**4", "--tokens", "2", "--alpha", "4", "--nu", "2"], "task", "x**4"),
    (["solve", "softmax", "--task", "x**2", "--tokens", "2", "--alpha", "4", "--nu", "2"], "task", "finite"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--digits", "0"], "digits", "0"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--init", "warm"], "init", "warm"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--param", "c=1"], "param", "'c'"),
    (["solve", "softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--param", "c"], "param", "NAME=NUMBER"),
    (["derive", "softmax", "--level", "deep"], "level", "deep"),
    (["derive", "softmax", "--format", "pdf"], "format", "pdf"),
    (["validate", "softmax", *POINT, "--dim", "3"], "dim", "3"),
    (["validate", "softmax", *POINT, "--seeds", "1"], "seeds", "1"),
    (["generate", "softmax", "--tokens", "2", "-o", "/no/such/folder/a.py"], "output", "/no/such/folder/a.py"),
]


@pytest.mark.parametrize(("arguments", "name", "value"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_bad_input_names_the_argument_and_the_value(store, arguments, name, value):
    done = replicode(store, *arguments, *(["--json"] if arguments[0] != "generate" else []))
    assert done.returncode == 2
    assert done.stdout == ""
    assert name in done.stderr and value in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["abs(x - mean(x))"], ["relu(x**2 - 1)"], ["relu(x)", "--digits", "30"]])
def test_kinks_that_are_not_solved_for_are_refused(store, arguments):
    done = replicode(store, "solve", *arguments[:1], *POINT, *arguments[1:], "--json")
    assert done.returncode == 1
    assert "kinks" in json.loads(done.stdout)["warnings"][0]


def test_an_untrusted_result_says_why_and_exits_with_one(store):
    low = ["--tokens", "2", "--alpha", "3", "--nu", "0.5", "--noise", "0.3", "--lambda-k", "0.05", "--lambda-v", "0.05"]
    done = replicode(store, "solve", "softmax", *low, "--digits", "3", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["rs_stable"] is False
    assert any("replica symmetry" in w for w in found["warnings"])


def test_the_cache_is_used_and_a_damaged_entry_is_rebuilt(tmp_path, monkeypatch):
    """What is built anew is remembered here: the cache is tried, not the derivation."""
    first = solved(tmp_path, "linear", *POINT, "--digits", "3")
    (entry,) = tmp_path.glob("module-*.json")
    intact = entry.read_text()
    stored, built = json.loads(intact), []
    again = json.loads(intact)["payload"]
    monkeypatch.setattr("replicode.modules._Theory._generated", lambda *asked: built.append(asked) or again)
    assert solved(tmp_path, "linear", *POINT, "--digits", "3") == first and not built
    stored["payload"]["source"] = stored["payload"]["source"].replace("0.5*", "0.7*")
    for damage in (intact[: len(intact) // 2], "", "[]", json.dumps(stored)):
        entry.write_text(damage)
        listed = json.loads(replicode(tmp_path, "cache", "--json").stdout)["entries"]
        assert {e["file"].partition("-")[0]: e["intact"] for e in listed} == {
            "bayes": True,
            "bayes_module": True,
            "module": False,
        }
        assert solved(tmp_path, "linear", *POINT, "--digits", "3") == first
        assert entry.read_text() == intact
    assert len(built) == 4
    cleared = json.loads(replicode(tmp_path, "cache", "--clear", "--json").stdout)
    assert cleared["removed"] == 3 and not list(tmp_path.iterdir())


def test_an_unwritable_cache_is_no_reason_to_fail(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    found = replicode(blocked / "below", "solve", "softmax", *POINT, "--digits", "3", "--json")
    assert found.returncode == 0 and "cache not written" in found.stderr


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("REPLICODE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "replicode"


def bare_environment(folder):
    """A virtual environment that holds only NumPy and SciPy, linked from this one."""
    venv.create(folder, with_pip=False)
    here = Path(sysconfig.get_paths()["purelib"])
    (target,) = folder.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs", "scipy", "scipy.libs"):
        if (here / name).exists():
            (target / name).symlink_to(here / name)
    return folder / "bin" / "python"


def test_a_generated_module_runs_where_only_numpy_and_scipy_are(store, tmp_path):
    path = tmp_path / "softmax2.py"
    done = replicode(store, "generate", "softmax", "--tokens", "2", "-o", str(path), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["path"] == str(path) and report["tokens"] == 2 and report["operations"]["hessian"] > 0
    python = bare_environment(tmp_path / "bare")
    setting = ["--alpha", "4", "--nu", "2", "--noise", "0.3", "--lambda-k", "2", "--lambda-v", "0.5", "--json"]
    run = subprocess.run([python, "-I", path, *setting], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["test_risk"] == pytest.approx(0.5532884048, abs=1e-8)
    bad = subprocess.run([python, "-I", path, "--alpha", "-4", "--nu", "2"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2 and "alpha" in bad.stderr and "Traceback" not in bad.stderr


def test_the_bayes_level_runs_where_only_numpy_and_scipy_are(store, tmp_path):
    """No activation is needed, and one that is given makes no difference."""
    path, other = tmp_path / "bayes2.py", tmp_path / "other.py"
    level = ["--level", "bayes", "--task", "spiked", "--tokens", "2"]
    done = replicode(store, "generate", *level, "-o", str(path), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["activation"] is None and report["tokens"] == 2 and report["operations"]["label_slope"] > 0
    assert replicode(store, "generate", "softmax", *level, "-o", str(other)).returncode == 0
    assert other.read_bytes() == path.read_bytes()
    python = bare_environment(tmp_path / "bare")
    setting = ["--alpha", "4", "--nu", "2", "--noise", "0.3", "--json"]
    run = subprocess.run([python, "-I", path, *setting], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["test_risk"] == pytest.approx(0.3620336056, abs=1e-9)
    keys = "test_risk excess_risk order_parameters free_entropy hard_phase branches converged error warnings"
    assert set(keys.split()) <= set(found) and set(found["order_parameters"]) == {"q_k", "q_v"}
    bad = subprocess.run(
        [python, "-I", path, "--alpha", "4", "--nu", "inf"], capture_output=True, text=True, timeout=60
    )
    assert bad.returncode == 2 and bad.stderr.startswith("nu: got inf") and "Traceback" not in bad.stderr
    missing = replicode(store, "generate", "--tokens", "2", "-o", str(other))
    assert missing.returncode == 2 and "activation" in missing.stderr


def test_generate_leaves_no_partial_file(store, tmp_path):
    folder = tmp_path / "a.py"
    folder.mkdir()
    done = replicode(store, "generate", "softmax", "--tokens", "2", "-o", str(folder))
    assert done.returncode == 2 and "output" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"] and not list(folder.iterdir())


@pytest.mark.parametrize("style", ["text", "markdown", "latex", "json"])
def test_derive_in_every_format(store, style):
    done = replicode(store, "derive", "softmax", "--format", style)
    assert done.returncode == 0, done.stderr
    assert {"text": "mh_k", "markdown": r"\hat m_{k}", "latex": r"\begin{document}", "json": '"mh_k"'}[
        style
    ] in done.stdout


def test_derive_json_keys(store):
    found = json.loads(replicode(store, "derive", "softmax", "--json").stdout)
    assert {"level", "symbols", "free_energy", "equations", "prox", "inverse_map", "reductions", "steps"} <= set(found)
    assert {"rule", "lhs", "rhs"} == set(found["steps"][0])
    names = {r["name"] for r in found["reductions"]}
    assert {"shift invariant", "constant row sum"} <= names


def test_help_does_not_import_the_heavy_libraries():
    code = "import sys, replicode.cli; print([m for m in ('sympy', 'numpy', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_validate_reports_all_seven_quantities(store):
    done = replicode(store, "validate", "softmax", *POINT, "--dim", "120", "--seeds", "3", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["verdict"] == "agrees" and not found["warnings"] else 1)
    assert set(found["trained"]) == {"test_risk", "train_loss", "energy", "m_k", "q_k", "m_v", "q_v"}
    assert {"mean", "sem", "z"} <= set(found["trained"]["test_risk"])
    assert found["dim"] == 120 and found["seeds"] == 3 and found["verdict"] in ("agrees", "disagrees", "undecided")


def test_every_task_and_length_law(store):
    common = ["--alpha", "4", "--noise", "0.3", "--digits", "4"]
    largest = solved(store, "softmax", "--task", "max", "--nu", "inf", "--tokens", "2", *common)
    assert largest["test_risk"] == pytest.approx(0.5551313, abs=1e-4) and largest["bayes_risk"] < largest["test_risk"]
    mixed = solved(store, "softmax", "--tokens", "1:0.25,2:0.75", "--nu", "2", *common)
    alone = solved(store, "softmax", "--tokens", "2", "--nu", "2", *common)
    assert mixed["test_risk"] < alone["test_risk"]
    assert solved(store, "softmax", "--tokens", "2:1.0", "--nu", "2", *common) == alone
    done = replicode(store, "solve", "softmax", "--tokens", "2", "--nu", "inf", *common)
    assert done.returncode == 2 and "nu: got inf" in done.stderr


def test_bayes_over_a_range(store):
    setting = ["bayes", "--tokens", "2", "--nu", "2", "--noise", "0.3"]
    for text, words in (("2:1", "lower end is below"), ("1:x", "of two numbers"), ("x", "a range LO:HI")):
        done = replicode(store, *setting, "--alpha", text)
        assert done.returncode == 2 and words in done.stderr
    done = replicode(store, *setting, "--alpha", "4", "-o", "branches.svg")
    assert done.returncode == 2 and "LO:HI" in done.stderr


@pytest.mark.parametrize("level", ["stability", "rs"])
def test_derive_of_a_coupled_task(store, level):
    done = replicode(store, "derive", "softmax", "--task", "max", "--tokens", "1:0.5,2:0.5", "--level", level, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["level"] == level and found["tokens"] == "1:0.5,2:0.5"
    assert found["equations"] and found["steps"]


def test_study_names_what_is_wrong(store, tmp_path):
    setting = ["study", "softmax", "--tokens", "2", "-o", str(tmp_path / "map")]
    for extra, words in (
        (["--lambda", "0.1,x"], "lambda: got 'x'"),
        (["--nu", ""], "nu: got ''"),
        (["--seeds", "1"], "seeds: got 1"),
        (["--alpha", "-1"], "alpha: got -1"),
    ):
        done = replicode(store, *setting, *extra)
        assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.full
def test_study_sees_where_theory_and_training_part(store, tmp_path):
    done = replicode(store, "study", "softmax", "--tokens", "2", "--quick", "-o", str(tmp_path), "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and (tmp_path / "map.svg").exists() and (tmp_path / "rows.csv").exists()
    verdicts = {(row["nu"], row["penalty"]): (row["verdict"], row["rs_stable"]) for row in found["rows"]}
    assert verdicts[0.5, 0.02] == ("disagrees", False)
    assert all(stable for (_, penalty), (_, stable) in verdicts.items() if penalty >= 0.2)
