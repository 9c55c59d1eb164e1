"""Limits of processor time and memory hold in every thread, nest, and are named when they are spent."""

import json
import sys
import threading
import time

import pytest
import sympy as sp
from click.testing import CliRunner

from replicode.cli import main
from replicode.theory.budget import BudgetSpent, budget
from replicode.theory.calculus.expansion import MAX_EXPANDED, expanded, expanded_terms
from replicode.theory.errors import InputError
from replicode.theory.language import parse

SECONDS = 0.2


def spin() -> None:
    while True:
        pass


def grow() -> None:
    kept = []
    while True:
        kept.append(str(len(kept)) * 1000)


def refused_after(work, **limits: float) -> tuple[str, float]:
    started = time.thread_time()
    with pytest.raises(BudgetSpent) as refusal, budget("the step", **limits):
        work()
    return str(refusal.value), time.thread_time() - started


def test_a_stop_leaves_no_hook_behind():
    """It may come just before a hook that was set inside is taken away."""

    def work() -> None:
        sys.setprofile(lambda *_: None)
        spin()

    refused_after(work, seconds=SECONDS)
    assert sys.getprofile() is None


def watchers_end() -> None:
    for watcher in threading.enumerate():
        if watcher.name == "replicode budget":
            watcher.join()


def test_processor_time_is_bounded():
    message, spent = refused_after(spin, seconds=SECONDS)
    assert message.startswith(f"the step: the limit of {SECONDS:g} s of processor time is spent")
    assert spent < 2 * SECONDS


def test_memory_is_bounded():
    message, _ = refused_after(grow, megabytes=100)
    assert message.startswith("the step: the limit of 100 MB of memory is spent")


def test_other_threads_are_bounded():
    found = []
    worker = threading.Thread(target=lambda: found.append(refused_after(spin, seconds=SECONDS)))
    worker.start()
    worker.join()
    assert found and found[0][1] < 2 * SECONDS


def test_only_the_thread_that_works_is_stopped():
    def idle() -> None:
        with budget("the other", seconds=10 * SECONDS):
            time.sleep(2 * SECONDS)
        done.append(True)

    done: list[bool] = []
    other = threading.Thread(target=idle)
    other.start()
    refused_after(spin, seconds=SECONDS)
    other.join()
    assert done


def test_the_outermost_budget_that_is_spent_refuses():
    def nested() -> None:
        with budget("inside", seconds=100.0):
            spin()

    assert refused_after(nested, seconds=SECONDS)[0].startswith("the step")


def test_an_inner_budget_leaves_the_outer_one_standing():
    with budget("outside", seconds=5.0):
        refused_after(spin, seconds=SECONDS)
        assert sp.expand((sp.Symbol("x") + 1) ** 2).is_Add


def test_a_stop_that_is_swallowed_comes_again():
    def deaf() -> None:
        try:
            spin()
        except BaseException:
            spin()

    assert refused_after(deaf, seconds=SECONDS)[1] < 3 * SECONDS


def test_a_stop_that_is_lost_in_a_finaliser_is_not_printed():
    """Python hands an exception of __del__ to a hook, and pytest makes an error of what arrives there."""

    def work(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    class Finalised:
        def __del__(self) -> None:
            work(SECONDS)

    def deaf() -> None:
        while True:
            Finalised()
            work(SECONDS)

    watchers_end()
    before = sys.unraisablehook
    assert refused_after(deaf, seconds=SECONDS / 2)[1] < 3 * SECONDS
    watchers_end()
    assert sys.unraisablehook is before


def test_nothing_is_raised_after_the_end():
    for _ in range(50):
        try:
            with budget("short", seconds=0.005):
                end = time.thread_time() + 0.005
                while time.thread_time() < end:
                    pass
        except BudgetSpent:
            pass
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass


def test_limits_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("REPLICODE_SECONDS", "0.1")
    assert "limit of 0.1 s" in refused_after(spin)[0]
    monkeypatch.setenv("REPLICODE_SECONDS", "none")
    with pytest.raises(InputError, match="REPLICODE_SECONDS: got 'none', allowed is a positive number"), budget("x"):
        pass


@pytest.mark.parametrize(
    "text", ["(a + b)**3*(x + 1)", "(x + 1)*(x + 2)*(x + 3)", "sum(x + c)**3*(1 + x)", "erf((a + x)**5)/(1 + x**2)**2"]
)
def test_terms_are_counted_from_above(text):
    expr = parse(text)
    assert len(sp.Add.make_args(sp.expand(expr))) <= expanded_terms(expr) * (1 + 1e-9) <= 100


def test_terms_are_counted_without_expanding():
    power = parse("(a+b+c+d+f+g+h+i+j+k)**64*x")
    assert expanded_terms(power) == pytest.approx(sp.binomial(73, 9))
    assert expanded(power) is power
    assert expanded_terms(parse("*".join(f"(x + {i})" for i in range(60)))) == 61 < MAX_EXPANDED


def run(*arguments: str, seconds: str = "2"):
    return CliRunner(env={"REPLICODE_SECONDS": seconds}).invoke(main, [*arguments, "--json"])


def test_a_power_of_a_long_sum_is_derived():
    done = run("derive", "(a+b+c+d+f+g+h+i+j+k)**64*x", "--tokens", "2", seconds="20")
    assert done.exit_code == 0, done.stderr


# A stop may fall between the opening of a file in another library and its closing.
FILES_LEFT_OPEN = pytest.mark.filterwarnings("ignore:Exception ignored in.*_io:pytest.PytestUnraisableExceptionWarning")
MANY_FACTORS = "*".join(f"(x+{i})" for i in range(60))
MANY_DIVISORS = "x/(" + ")/(".join(f"x**2+{i + 1}*x+{(i + 2) ** 2}" for i in range(40)) + ")"


@FILES_LEFT_OPEN
@pytest.mark.parametrize("text", [MANY_FACTORS, MANY_DIVISORS])
def test_long_products_are_refused_in_time(text):
    started = time.process_time()
    done = run("derive", text, "--tokens", "2")
    assert done.exit_code == 1
    assert "the limit of 2 s of processor time is spent" in json.loads(done.stdout)["warnings"][0]
    assert time.process_time() - started < 4


@FILES_LEFT_OPEN
@pytest.mark.parametrize(
    "verb",
    [
        ["generate", MANY_FACTORS, "-o", "m.py"],
        ["solve", MANY_FACTORS, "--alpha", "4", "--nu", "2"],
        ["check", MANY_FACTORS],
        ["population", MANY_FACTORS, "--nu", "2"],
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_keeps_the_budget(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = time.process_time()
    done = run(*verb, "--tokens", "2", seconds="0.3")
    assert done.exit_code == 1, done.output
    assert "the limit of 0.3 s of processor time is spent" in done.stderr
    assert time.process_time() - started < 2
