"""Shared set-up: `strategies` is importable, a cache of their own for the tests, and the two profiles of hypothesis.

The processes of a run share one cache folder, empty at its start, so that a module is derived once and nothing that
an older program left in the user's cache is ever taken for a result.

`ci`, the default, draws the same examples on every run. `explore` draws new ones, ten times as many in every test, and
prints how to reproduce a failure; it is chosen by HYPOTHESIS_PROFILE=explore or --hypothesis-profile=explore.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, is_hypothesis_test, settings

sys.path.insert(0, str(Path(__file__).parent))

MORE = 10

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "explore",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=MORE * settings.get_profile("ci").max_examples,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config):
    """The processes that pytest-xdist starts inherit the folder from the one that starts them."""
    if not hasattr(config, "workerinput"):
        os.environ["REPLICODE_CACHE"] = config.replicode_cache = tempfile.mkdtemp(prefix="replicode-tests-")


def pytest_unconfigure(config):
    if folder := getattr(config, "replicode_cache", None):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config, items):
    """Under `explore`, tests that state how many examples they draw draw ten times as many too."""
    chosen = config.getoption("--hypothesis-profile", None) or os.environ.get("HYPOTHESIS_PROFILE", "ci")
    if chosen != "explore":
        return
    usual = settings.get_profile("explore").max_examples
    for test in {id(i.obj): i.obj for i in items if is_hypothesis_test(getattr(i, "obj", None))}.values():
        stated = getattr(test, "_hypothesis_internal_use_settings", None)
        if stated is not None and stated.max_examples != usual:
            test._hypothesis_internal_use_settings = settings(stated, max_examples=MORE * stated.max_examples)
