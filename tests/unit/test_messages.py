"""What people are told: examples in every help, progress that can be silenced, residuals on request, what was meant."""

import io
import re
import shlex
import sys

import pytest
from click.testing import CliRunner

from replicode.cli import VERBS, main
from replicode.commands.examples import EXAMPLES
from replicode.commands.ticker import Ticker

POINT = ["--tokens", "1", "--alpha", "2", "--nu", "1", "--digits", "3"]


def run(*arguments, **more):
    return CliRunner().invoke(main, arguments, **more)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_that_are_read(verb):
    """Each example names options that the verb has."""
    page = run(verb, "--help")
    assert page.exit_code == 0 and "Examples:" in page.output
    command = main.get_command(None, verb)
    known = {o for p in command.params for o in p.opts}
    for text, words in EXAMPLES[verb]:
        first, *rest = shlex.split(text)
        assert first == verb and words and f"replicode {text}" in page.output
        assert {w for w in rest if re.match("--?[a-z]", w)} <= known
    assert {"--json", "--quiet", "--verbose", "--debug"} <= known


def test_verbose_tells_the_residual_of_every_iteration():
    plain, told = run("solve", "1 + x", *POINT), run("solve", "1 + x", *POINT, "--verbose")
    assert plain.stderr == "" and told.stdout == plain.stdout
    lines = told.stderr.splitlines()
    assert all(re.fullmatch(r"iteration \d+: residual \d\.\d{3}e[+-]\d\d(, \d+ nodes)?", line) for line in lines)
    residuals = [float(re.search(r"residual ([^, ]+)", line).group(1)) for line in lines]
    assert len(residuals) > 5 and min(residuals) < 1e-4 < residuals[0]


def test_quiet_leaves_warnings_and_no_progress():
    arguments = ["curve", "1 + x", "--tokens", "1", "--alpha", "2:2.5:2", "--nu", "1", "--no-bayes", "--digits", "3"]
    told, silent = run(*arguments), run(*arguments, "--quiet")
    assert told.exit_code == silent.exit_code == 0
    assert told.stderr != "" and silent.stderr == ""
    refused = run("solve", "abs(x - mean(x))", "--tokens", "2", "--alpha", "3", "--nu", "1", "--quiet")
    assert refused.exit_code == 1 and refused.stderr.startswith("refused: ")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["slove", "softmax"], "solve"),
        (["solve", "sofmax", *POINT], "softmax"),
        (["solve", "softmax(x)", *POINT], "softmax alone"),
        (["solve", "max(x, 0)", *POINT], r"relu\(x\)"),
        (["solve", "softmax", *POINT, "--task", "spikd"], "spiked"),
        (["solve", "softmax", *POINT, "--taks", "max"], "--task"),
        (["check", "relu(x)**2/sum(relu(x)**2)"], r"accepted would be relu\(x\)\*\*2/\(\(1/100\) \+"),
    ],
)
def test_did_you_mean(arguments, meant):
    found = run(*arguments)
    assert found.exit_code == 2 and re.search(meant, found.stderr)


def test_colours_only_where_they_are_seen(monkeypatch):
    assert "\x1b[" not in run("solve", "sofmax", *POINT).stderr
    assert "\x1b[31m" in run("solve", "sofmax", *POINT, color=True).stderr
    assert "\x1b[" not in run("solve", "sofmax", *POINT, color=True, env={"NO_COLOR": "1"}).stderr


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_ticker_tells_after_a_while_on_a_terminal_alone(monkeypatch):
    monkeypatch.setattr("replicode.commands.ticker.QUIET_FOR", 0.0)
    for screen, on, expected in ((Terminal(), True, True), (Terminal(), False, False), (io.StringIO(), True, False)):
        monkeypatch.setattr(sys, "stderr", screen)
        with Ticker("solve", on) as ticker:
            ticker._over.wait(1.3 if expected else 0.05)
        assert ("solve: 1 s" in screen.getvalue()) == expected
        assert not expected or screen.getvalue().endswith("\r\x1b[K")


def test_completion_is_offered():
    found = run("", env={"_REPLICODE_COMPLETE": "bash_source"}, prog_name="replicode")
    assert "_replicode_completion" in found.output
