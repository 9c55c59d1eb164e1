"""What a command leaves with: bad input and outputs before any work, errors of ours, interrupts, warnings."""

import json
import math
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import replicode
from replicode.cli import main
from replicode.codegen.compiled import fast
from replicode.codegen.runtime.bayes_evolution import Branch
from replicode.codegen.runtime.wording import told_apart
from replicode.modules import module_for
from replicode.results import Report
from replicode.theory import limits

POINT = ["--tokens", "1", "--alpha", "4", "--nu", "2", "--noise", "0.3"]
BAYES = ["bayes", "--tokens", "2", "--nu", "2", "--alpha", "1:2"]


def run(*arguments):
    """The command run in this process; an exception that escapes is a failure of the test."""
    found = CliRunner().invoke(main, [str(a) for a in arguments])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def never(*_, **__):
    raise AssertionError("work was done before the arguments were checked")


def raising(problem):
    def call(*_, **__):
        raise problem

    return call


@pytest.fixture
def idle(monkeypatch):
    """Nothing that takes time may be called."""
    places = (
        "branches.bayes_phase.thresholds",
        "branches.bayes_phase.bayes_branches",
        "verbs.demo.derivation_of",
        "verbs.demo.solve",
    )
    for name in (*places, "validation.studies.discrepancy.scan", "figures.population.compute", "verbs.derive.derive"):
        monkeypatch.setattr(f"replicode.{name}", never)


@pytest.mark.parametrize(
    "arguments",
    [
        [*BAYES, "-o", "b.xyz"],
        [*BAYES, "-o", "b"],
        [*BAYES, "-o", "/proc/b.svg"],
        ["study", "softmax", "--tokens", "2", "-o", "/proc"],
        ["study", "softmax", "--tokens", "2", "-o", "/proc/below"],
        ["demo", "-o", "/proc"],
        ["figure", "population", "-o", "/proc"],
        ["generate", "softmax", "--tokens", "2", "-o", "/proc/s.py"],
        ["generate", "softmax", "--tokens", "2", "-o", "/no/such/folder/s.py"],
    ],
    ids=" ".join,
)
def test_outputs_are_checked_before_any_work(idle, arguments):
    found = run(*arguments)
    assert found.exit_code == 2 and found.stdout == ""
    assert found.stderr.startswith(f"error: output: got '{arguments[-1]}', allowed is a f")
    assert found.stderr.count("\n") == 1


def test_a_module_on_standard_output_stands_alone(capfd):
    arguments = ["generate", "linear", "--tokens", "1", "-o", "/proc/self/fd/1"]
    assert run(*arguments).exit_code == 0
    printed = capfd.readouterr().out
    assert printed.startswith('"""Replica theory of linear attention.')
    compile(printed, "module", "exec")
    found = run(*arguments, "--json")
    assert found.exit_code == 2 and "standard output is for the JSON object" in found.stderr


VERBS = {
    "solve": ("verbs.solve.solve", ["solve", "softmax", *POINT]),
    "validate": ("verbs.validate.validate", ["validate", "softmax", *POINT]),
    "derive": ("verbs.derive.derivation_of", ["derive", "softmax"]),
    "check": ("verbs.check.check", ["check", "softmax"]),
    "population": ("verbs.population.population", ["population", "softmax", "--tokens", "2", "--nu", "2"]),
    "bayes": ("verbs.bayes.bayes", ["bayes", *POINT]),
    "range": ("branches.bayes_phase.thresholds", BAYES),
    "demo": ("verbs.demo.run", ["demo"]),
    "study": ("verbs.study.run", ["study", "softmax", "--tokens", "2"]),
    "figure": ("figures.figure", ["figure", "population"]),
    "cache": ("cache.entries", ["cache"]),
}


@pytest.mark.parametrize(("place", "arguments"), VERBS.values(), ids=VERBS)
def test_what_is_not_foreseen_is_one_line_and_status_three(monkeypatch, place, arguments):
    monkeypatch.setattr(f"replicode.{place}", raising(RuntimeError("two\nlines")))
    plain = run(*arguments)
    assert plain.exit_code == 3 and plain.stdout == ""
    assert plain.stderr.startswith("error of ours: RuntimeError: two lines (") and plain.stderr.count("\n") == 1
    for debug in ([*arguments, "--debug"], ["--debug", *arguments]):
        found = run(*debug)
        assert found.exit_code == 3 and "Traceback" in found.stderr and found.stderr.endswith(plain.stderr)
    found = json.loads(run(*arguments, "--json").stdout)
    assert found["schema"] == "replicode/error/1" and found["warnings"] == ["RuntimeError: two lines"]
    assert found["asked"]["command"] == arguments[0] and found["version"] == replicode.__version__


@pytest.mark.parametrize(("place", "arguments"), VERBS.values(), ids=VERBS)
def test_an_interrupt_is_status_130(monkeypatch, place, arguments):
    monkeypatch.setattr(f"replicode.{place}", raising(KeyboardInterrupt()))
    found = run(*arguments, "--json")
    assert found.exit_code == 130 and found.stdout == ""
    assert found.stderr == "interrupted: what is finished is kept, and the same command goes on from there\n"


def test_ctrl_c_in_a_terminal():
    program = "import time, replicode.cache as c, replicode.cli as m; c.entries = lambda: print(1, flush=True) or "
    program += "time.sleep(60); m.main(['cache'])"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell starts its background jobs with interrupts ignored, and the tests may be one.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen([sys.executable, "-c", program], preexec_fn=heard, **pipes) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130 and process.stderr.read().startswith(b"interrupted")


INTERRUPTED = """
import runpy, sys
class Interrupting:
    def find_spec(self, name, *rest):
        if name == "replicode.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
runpy.run_module("replicode", run_name="__main__")
"""


def test_ctrl_c_while_it_is_imported_is_quiet():
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


def test_theory_that_warned_is_not_trusted_though_training_agrees(monkeypatch):
    def report(*warnings):
        numbers = {"p_value": 0.5, "power": 0.9, "seeds_needed": None, "bayes_risk": None}
        made = Report({}, {}, 400, (100, 200, 400), 40, 0, "agrees", **numbers, warnings=warnings)
        monkeypatch.setattr("replicode.verbs.validate.validate", lambda *_, **__: made)
        return run("validate", "softmax", *POINT, "--json")

    assert report().exit_code == 0
    found = report("replica symmetry is broken")
    assert found.exit_code == 1 and json.loads(found.stdout)["verdict"] == "agrees"
    assert found.stderr == "warning: replica symmetry is broken\n"


@pytest.mark.parametrize("verb", ["solve", "validate", "population", "bayes"])
def test_without_digits_none_are_asked_for(monkeypatch, verb):
    place, arguments = VERBS[verb]
    asked = []

    def verb(*_, **given):
        asked.append(given.get("digits"))
        raise SystemExit

    monkeypatch.setattr(f"replicode.{place}", verb)
    run(*arguments)
    run(*arguments, "--digits", "5")
    assert asked == [None, 5]


@pytest.mark.parametrize("name", ["alpha", "task", "tokens", "act", "spec", "backend", "dim", "bayes", "digits"])
@pytest.mark.parametrize("verb", ["solve", "validate", "population", "check", "derive", "study"])
def test_a_parameter_may_be_named_like_an_argument(tmp_path, verb, name):
    arguments = VERBS[verb][1]
    found = run(*arguments, "--param", f"{name}=1", *(["-o", tmp_path] if verb == "study" else []))
    assert found.exit_code == 2 and name in found.stderr and found.stderr.startswith("error: param")


def test_a_parameter_given_twice_is_told():
    for verb in ("solve", "curve"):
        found = run(verb, "erf", *POINT, "--param", "c=1", "--param", "c=2")
        assert found.exit_code == 2
        assert "param: got 'c=2', allowed is one value of c: 1 was given already" in found.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "1e13"])
def test_a_parameter_that_is_not_finite_is_told(value):
    found = run("check", "1 + erf(c + x)", "--param", f"c={value}")
    assert found.exit_code == 2 and found.stderr.startswith("error: param c: got ")


@pytest.mark.parametrize("tokens", ["1:0.2,2:0.8", "3", None])
def test_check_is_told_the_lengths(monkeypatch, tokens):
    told = []
    monkeypatch.setattr(
        "replicode.verbs.check.check", lambda _, **given: told.append(given["tokens"]) or raising(SystemExit)()
    )
    run("check", "softmax", *(["--tokens", tokens] if tokens else []))
    assert told == [tokens]


def script(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


COMPILERS = {
    "says why": (["echo 'kernels.c:1: error: no such thing' >&2", "exit 1"], "error: no such thing"),
    "says nothing": (["exit 1"], "no reason given"),
    "makes nothing": (["exit 0"], "no reason given"),
    "hangs": (["sleep 60"], "not done after 0.2 s"),
    "makes rubbish": (['while [ "$1" != -o ]; do shift; done', 'echo rubbish > "$2"'], "can not be loaded"),
    "speaks no text": (["printf '\\377 error \\377' >&2", "exit 1"], "error"),
}


@pytest.mark.parametrize(("lines", "words"), COMPILERS.values(), ids=COMPILERS)
def test_a_compiler_that_fails_is_a_refusal(tmp_path, monkeypatch, lines, words):
    monkeypatch.setattr(fast, "COMPILE_SECONDS", 0.2)
    monkeypatch.setenv("CC", str(script(tmp_path / "cc", *lines)))
    found = run("solve", "linear", *POINT, "--digits", "3", "--backend", "fast", "--json")
    assert found.exit_code == 1 and found.stderr.startswith("refused: backend fast")
    (warning,) = json.loads(found.stdout)["warnings"]
    assert words in warning


def test_a_compiler_that_can_not_be_run(tmp_path, monkeypatch):
    for text, status in (("cc 'unbalanced", 2), (str(tmp_path), 2)):
        monkeypatch.setenv("CC", text)
        found = run("solve", "linear", *POINT, "--digits", "3", "--backend", "fast")
        assert found.exit_code == status and "Traceback" not in found.stderr


@pytest.mark.parametrize("text", ["1e300*x", "1e-300*x"])
def test_constants_outside_double_precision_are_refused(text):
    found = run("solve", text, *POINT, "--digits", "3", "--json")
    assert found.exit_code == 1 and json.loads(found.stdout)["schema"] == "replicode/refused/1"
    assert "outside double precision" in found.stderr


def test_every_json_says_what_was_asked_and_by_which_version(tmp_path):
    path = tmp_path / "linear.py"
    for arguments in (
        ["derive", "linear"],
        ["generate", "linear", "--tokens", "1", "-o", path],
        ["cache"],
        ["solve", "relu(x**2 - 1)", *POINT],
        ["bayes", *POINT],
        ["population", "linear", "--tokens", "1", "--nu", "2"],
        ["solve", "linear", *POINT],
    ):
        found = json.loads(run(*arguments, "--json").stdout)
        assert {"schema", "version", "asked"} <= set(found), arguments
        assert found["version"] == replicode.__version__
        if arguments[0] in ("derive", "generate"):
            assert found["asked"]["activation"] == "linear" and found["asked"]["expression"] == "1 + x"
    assert Path(json.loads(run("generate", "linear", "--tokens", "1", "-o", path, "--json").stdout)["path"]) == path


def test_the_module_is_the_command_and_help_is_quick():
    before = os.times()
    done = subprocess.run([sys.executable, "-m", "replicode", "--help"], capture_output=True, text=True, timeout=60)
    after = os.times()
    assert done.returncode == 0 and done.stdout.startswith("Usage: replicode ") and "validate" in done.stdout
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.3


BOUNDED = [("alpha", "1e308"), ("alpha", "1e-300"), ("nu", "1e308"), ("noise", "1e30"), ("noise", "1e-300")]
BOUNDED += [("lambda-k", "1e300"), ("lambda-v", "1e13")]


@pytest.mark.parametrize(("name", "value"), BOUNDED)
@pytest.mark.parametrize("verb", ["solve", "validate", "bayes", "population"])
def test_arguments_beyond_double_precision_are_told_before_any_work(monkeypatch, verb, name, value):
    for place in ("modules.cached", "verbs.population.module_for"):
        monkeypatch.setattr(f"replicode.{place}", never)
    known = {"bayes": ("alpha", "nu", "noise"), "population": ("nu", "noise")}.get(verb)
    if known and name not in known:
        pytest.skip(f"{verb} has no {name}")
    found = run(*VERBS[verb][1], f"--{name}", value)
    assert found.exit_code == 2 and found.stdout == ""
    assert found.stderr.startswith(f"error: {name.replace('-', '_')}: got {float(value)!r}, allowed is ")


def test_the_bounds_of_a_generated_module_are_those_of_the_command():
    module, _ = module_for("linear", "spiked", 1)
    for name in ("LEAST", "MOST", "MOST_NU", "MOST_NOISE"):
        assert getattr(module, name) == getattr(limits, name)
    for values in ({"alpha": 1e308}, {"nu": 1e308}, {"noise": 1e30}, {"lambda_k": 1e300}):
        with pytest.raises(ValueError, match=next(iter(values))):
            module.solve(**{"alpha": 4.0, "nu": 2.0, **values})


@pytest.mark.parametrize("value", ["-1e3", "1e300"])
def test_a_parameter_that_leaves_double_precision(value):
    found = run("solve", "erf", *POINT, "--digits", "3", "--param", f"c={value}")
    assert (found.exit_code, found.stderr.split(":")[0]) in {(1, "refused"), (2, "error")}
    assert "Traceback" not in found.stderr


def test_an_activation_that_vanishes_in_double_precision_is_refused():
    found = run("population", "erf", "--tokens", "2", "--nu", "2", "--param", "c=-1e3")
    assert found.exit_code == 1 and found.stderr.startswith("refused: the activation vanishes")


@pytest.mark.parametrize(("value", "other"), [(1.0000001e-4, 1e-4), (math.inf, 1e-4), (3e-4, 1e-4)])
def test_a_bound_and_what_was_asked_for_are_told_apart(value, other):
    shown, asked = told_apart(value, other)
    assert shown != asked and float(shown) > float(asked)
    assert float(shown) == pytest.approx(value, rel=0.05) and float(asked) == pytest.approx(other, rel=0.05)


def test_an_interrupted_range_goes_on_where_it_was(monkeypatch, tmp_path):
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path))
    computed = []

    def some(module, name, alpha, last=3, **_):
        if len(computed) == last:
            raise KeyboardInterrupt
        computed.append(alpha)
        return (Branch("uninformed", 0.1, 0.1, 0.9, -1.0, True, 0.0, 1, 1e-9, 1e-9, False),)

    monkeypatch.setattr("replicode.branches.bayes_phase.call", some)
    assert run(*BAYES).exit_code == 130 and len(computed) == 3
    monkeypatch.setattr("replicode.branches.bayes_phase.call", lambda *given, **more: some(*given, **more, last=1000))
    assert run(*BAYES).exit_code == 0
    assert len(computed) == len(set(computed)) > 30


@pytest.mark.parametrize("option", ["--seeds=1", "--dim=3", "--alpha=-1", "--noise=nan", "--nu=1,1", "--lambda=-1"])
def test_study_checks_its_grid_before_any_work(monkeypatch, tmp_path, option):
    monkeypatch.setattr("replicode.verbs.study.module_for", never)
    found = run("study", "softmax", "--tokens", "2", "-o", tmp_path / "map", option)
    assert found.exit_code == 2 and found.stderr.startswith(f"error: {option[2:].partition('=')[0]}: got")
    assert not (tmp_path / "map").exists()
