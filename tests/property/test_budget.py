"""Text of every kind goes through `derive` within its budget, and ends in a result, a refusal or an error of input."""

import gc
import time

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from strategies import costly_texts

from replicode.cli import main

# A stop that falls into a callback of the garbage collector, as hypothesis has one, is lost there and comes again.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FEW, MANY = 300, 10_000
QUICK, LONGER = 0.12, 1.0
FUZZED = settings(deadline=None, suppress_health_check=list(HealthCheck))
ENDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """Every text is derived anew, and what does not depend on the text is derived beforehand."""
    monkeypatch.setattr("replicode.verbs.derive.cached", lambda kind, key, build: build())
    CliRunner().invoke(main, ["derive", "linear", "--tokens", "2"])
    gc.collect()
    gc.freeze()  # a collection of all that other tests left takes as long as the budget
    yield
    gc.unfreeze()


def processor_time(text, seconds):
    runner = CliRunner(env={"REPLICODE_SECONDS": str(seconds)})
    started = time.thread_time()
    done = runner.invoke(main, ["derive", "--tokens", "2", "--", text])
    spent = time.thread_time() - started
    assert done.exit_code in ENDS, done.output
    return spent


def ends_in_time(text):
    """On a busy machine the budget is looked at late: what is over a short one is tried with one that dwarfs that."""
    if processor_time(text, QUICK) > 2 * QUICK:
        assert processor_time(text, LONGER) <= 2 * LONGER


@settings(FUZZED, max_examples=FEW)
@given(costly_texts)
def test_texts_end_within_twice_the_budget(text):
    ends_in_time(text)


@pytest.mark.full
@settings(FUZZED, max_examples=MANY)
@given(costly_texts)
def test_many_texts_end_within_twice_the_budget(text):
    ends_in_time(text)
