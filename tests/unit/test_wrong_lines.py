"""Command lines that are wrong: each is told what is wrong with it, before any work and without leaving anything."""

import re
import shlex

import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.cli import main
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.losses import model_of

POINT = "--tokens 2 --alpha 4 --nu 2"
PLANE = "--tokens 2 --alpha 1:2 --nu 1:3"

LINES = {
    f"solve 0 {POINT}": "activation: got '0', allowed is an expression other than 0",
    f"solve x-x {POINT}": "activation: got '0', allowed is an expression other than 0",
    f"solve softmax {POINT} --param =1": "param: got '=1', allowed is NAME=NUMBER",
    f"solve softmax {POINT} --loss y": "loss: got 'y', allowed is an expression that depends on the label y",
    f"solve softmax {POINT} --loss f**2": "loss: got 'f**2', allowed is an expression that depends on the label y and",
    f"solve softmax {POINT} --loss logistc": "an expression in y, f; did you mean logistic?",
    f"solve softmax {POINT} --labels z": "labels: got 'z', allowed is one with noise, as in z + noise*xi",
    f"solve softmax {POINT} --labels xi": "labels: got 'xi', allowed is an expression that depends on z",
    f"solve softmax {POINT} --labels sgn": "an expression in z, xi, noise; did you mean sign?",
    "bayes --tokens 2 --nu 2 --alpha 1:2:3": "alpha: got '1:2:3', allowed is a number, or a range LO:HI of two numbers",
    "bayes --tokens 2 --nu 2 --alpha 1:": "alpha: got '1:', allowed is a number, or a range LO:HI of two numbers",
    f"phase {PLANE} --points 1000000": "points: got 1000000, allowed is a whole number from 27 to 10000",
    f"phase softmax {PLANE} --level bayes --param c=1": "param: got 'c', allowed is no parameter",
    f"phase {PLANE} --lambda-k 2": "lambda_k: got 2.0, allowed is nothing at level bayes",
    "phase linear --tokens 2 --alpha 1:2 --nu 1 --param nu=1:2": "param: got 'nu', allowed is each value once",
    "curve linear --tokens 2 --alpha 1:2 --nu 1 --param nu=1:2": "param: got 'nu', allowed is each value once",
    "derive --level bayes --param c=1": "param: got 'c', allowed is no parameter",
    "generate --level bayes --tokens 2 --param c=1 -o x.py": "param: got 'c', allowed is no parameter",
    "report linear -o x.pdf": "output: got 'x.pdf', allowed is a file whose name ends in .html, .htm",
    "landscape softmax --tokens 2 --alpha 4": "nu: got None, allowed is a number of at least 0",
    f"landscape softmax {POINT} --starts 1000000000": "starts times seeds: got 2000000000, allowed is at most",
    "dynamics softmax --tokens 2 --nu 2 --rate 1 --time 1 --flow --batch 3": "batch: got 3, allowed is 1 with flow",
    f"solve softmax {POINT} --loss 1/(y-f)": "loss: got '1/(y-f)', allowed is a real and finite expression",
    f"solve softmax {POINT} --loss exp(exp(y-f))": "it grows too fast in y",
    "report linear -o x": "output: got 'x', allowed is a file whose name ends in .html, .htm",
}


def never(*_, **__):
    raise AssertionError("work was done before the arguments were checked")


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_is_told(line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for place in ("codegen.compiler.generate", "theory.derive.saddle.derive", "branches.bayes_phase.thresholds"):
        monkeypatch.setattr(f"replicode.{place}", never)
    found = CliRunner().invoke(main, [*shlex.split(line), "--json"])
    assert found.exit_code == 2 and found.stdout == "", found.stderr
    assert found.stderr.startswith("error: ") and LINES[line] in found.stderr
    assert not list(tmp_path.iterdir())


CALLS = {
    "solve": [
        (("softmax",), {"model": "x"}, "model: got 'x', allowed is an object of rc.Model"),
        (("erf",), {"parameters": {1: 1}}, "parameters: got 1, allowed is names as text"),
        (("erf",), {"parameters": {1: 1, "d": 2}}, "parameters: got 1, allowed is names as text"),
    ],
    "curve": [
        (("softmax",), {"alpha": "1:2", "output": 3}, "output: got 3, allowed is a path"),
        (("erf",), {"alpha": "1:2", "parameters": ["c"]}, "parameters: got ['c'], allowed is a mapping"),
    ],
    "dynamics": [
        (("softmax",), {"rate": 1, "time": 1, "start": [1]}, "start: got [1], allowed is numbers by the names"),
        (("softmax",), {"rate": 1, "time": 1, "start": "m_k=1"}, "start: got 'm_k=1', allowed is numbers by"),
        (("softmax",), {"rate": 1, "time": 1, "compare": "linear"}, "compare: got 'linear', allowed is a list"),
    ],
    "report": [(("softmax",), {"output": None}, "output: got None, allowed is a path")],
    "sweep": [((None,), {}, "config: got None, allowed is a path"), (("a\0.toml",), {}, "allowed is a path")],
    "register": [(("nothing", "0"), {}, "activation: got '0', allowed is an expression other than 0")],
}


@pytest.mark.parametrize(
    ("verb", "act", "wrong", "words"), [(verb, *call) for verb, calls in CALLS.items() for call in calls]
)
def test_a_wrong_call_is_told(verb, act, wrong, words, monkeypatch):
    monkeypatch.setattr("replicode.codegen.compiler.generate", never)
    usual = {"solve": {"alpha": 4}, "curve": {}, "dynamics": {}, "report": {}}
    law = {"tokens": 2, "nu": 2, **usual[verb]} if verb in usual else {}
    with pytest.raises(rc.ReplicodeError, match=re.escape(words)):
        getattr(rc, verb)(*act, **(law | wrong))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("2*xi", "depends on z"),
        ("2*z", "with noise"),
        ("noise*z + xi", "factor of xi alone"),
        ("log(z)", "real and finite expression, which it is not at z = -3"),
        ("1/z", "not at z = 0"),
        ("exp(z**2/4)", "too fast in z"),
        ("exp(exp(z))", "too fast in z"),
        ("z + exp(xi**2)", "too fast in xi"),
    ],
)
def test_a_label_without_a_law_is_refused(labels, words):
    with pytest.raises(InputError, match=words):
        model_of("quadratic", labels)


@pytest.mark.parametrize("labels", ["z + 1", "2*z + noise*xi", "z**3", "exp(z**2/5)", "z*xi", "sign(z)*abs(xi)"])
def test_a_label_with_a_law_is_taken(labels):
    assert model_of("quadratic", labels).label.free_symbols


def test_an_expression_that_looks_like_an_option():
    found = CliRunner().invoke(main, ["derive", "-x"])
    assert found.exit_code == 2 and "is written in brackets, as in '(-x)'" in found.stderr
    assert "brackets" not in CliRunner().invoke(main, ["derive", "x", "--stepz"]).stderr


def test_one_step_of_another_loss_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("replicode.inputs.problem.Problem.solve", never)
    with pytest.raises(Refusal, match="lets the value channel be eliminated"):
        rc.solve("softmax", tokens=2, alpha=4, nu=2, loss="huber:1", rsb=1)
