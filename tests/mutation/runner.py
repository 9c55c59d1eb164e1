"""Runs mutants in a copy of the sources: `python -m mutation.runner ROOT` reads their names from standard input.

The libraries are imported once; every mutant is a fork of this process that imports the patched copy. For each name
one line of JSON is written: the name, and what caught it or null. The name `none` runs every job on the sources as
they are, and what fails there is named.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import hypothesis  # noqa: F401
import mpmath
import numpy  # noqa: F401
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats.qmc  # noqa: F401
import sympy  # noqa: F401
from mutation.jobs import Checks
from mutation.mutants import MUTANTS

PACKAGE = "replicode"
SECONDS = 90
TESTS = Path(__file__).parents[1]


class NotRun(Exception):
    """What a job stands for was not run at all, which must not count as a fault that was caught."""


def verdicts(job):
    """The outcomes of a job in the sources that are first on the path."""
    from replicode.theory.language.activation import activation
    from replicode.theory.language.task import task
    from replicode.theory.properties.analysis import analysis
    from replicode.validation.properties import DIGITS, Subject, examined, outcomes

    if not job.bare:
        return outcomes(examined(job.text, job.task, job.tokens), job.names)
    act = activation(job.text)
    of = Subject(act, task(job.task), job.tokens, analysis(act), {}, lambda _: None, lambda _: None)
    with mpmath.workdps(DIGITS):
        return outcomes(of, job.names)


class Watch:
    """A plugin of pytest that counts the tests that pass and notes why others fail."""

    def __init__(self):
        self.passed, self.failed = 0, []

    def pytest_runtest_logreport(self, report):
        self.passed += report.passed and report.when == "call"
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed.append(f"{report.nodeid.split('::')[-1]}: {crash.message if crash else report.longrepr}"[:300])


def tested(job):
    """How many tests of a job pass, and why others fail, by pytest on the sources that are first on the path.

    Only a test that fails counts: pytest that does not come to run it would count for any fault.
    """
    seen, names = Watch(), [f"{TESTS / job.file}::{name}" for name in job.names]
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", "-p", "no:xdist"]
    try:
        status = pytest.main(["-x", *quiet, *names], plugins=[seen])
    except Exception as error:
        raise NotRun(f"{job}: pytest ends with {type(error).__name__}: {error}") from error
    if status not in (0, 1):
        raise NotRun(f"{job}: pytest ends with {status!r}")
    return seen.passed, seen.failed


def examined_by(job):
    """How many properties of a job pass, and why others fail; an error is a failure."""
    try:
        found = verdicts(job)
    except Exception as error:
        return 0, [f"{type(error).__name__}: {error}"]
    passed = sum(v.outcome == "passed" for v in found.values())
    return passed, [f"{n}: {v.detail}" for n, v in found.items() if v.outcome == "failed"]


def outcome(job):
    """How much of a job passes, and what fails."""
    return tested(job) if isinstance(job, Checks) else examined_by(job)


def caught(jobs):
    """What notices a fault: a property or a test that fails, or an error."""
    return next(("; ".join(bad) for _, bad in map(outcome, jobs) if bad), None)


def wrong(jobs):
    """What is wrong with the jobs themselves: something that fails, or nothing that passes."""
    told = [(job, *outcome(job)) for job in jobs]
    idle = [f"nothing applies to {job}" for job, passed, bad in told if not passed and not bad]
    return [f"{job}: {'; '.join(bad)}" for job, _, bad in told if bad] + idle


def patched(root, target, mutant):
    """A copy of the package, compiled files included (but not those being written), with one text replaced."""
    shutil.copytree(root / PACKAGE, target / PACKAGE, ignore=shutil.ignore_patterns("*.pyc.*"))
    if mutant is None:
        return
    path = target / PACKAGE / mutant.path
    path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        stale.unlink()


def run(root, jobs, mutant):
    """Fork, run the jobs there, and return what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        patched(root, Path(folder), mutant)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            # Seconds of the processor: how busy the machine is must not decide what counts as caught.
            signal.setitimer(signal.ITIMER_PROF, SECONDS if mutant else 10 * SECONDS)
            sys.dont_write_bytecode = True
            sys.path.insert(0, folder)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            os.write(write, json.dumps(told(folder, jobs, mutant)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        found = json.loads(text) if text else {"found": "it does not end in time, or crashes"}
        if "not run" in found:
            raise NotRun(f"{mutant.name if mutant else 'none'}: {found['not run']}")
        return found["found"]


def told(folder, jobs, mutant):
    """What the jobs find in the copy, or why they were not run there."""
    try:
        found = caught(jobs) if mutant else wrong(jobs)
        import replicode
    except NotRun as why:
        return {"not run": str(why)}
    where = str(replicode.__file__)
    return {"found": found} if where.startswith(folder) else {"not run": f"{where} was run, not the copy"}


def main():
    """Run what is asked for."""
    root = Path(sys.argv[1])
    known = {m.name: m for m in MUTANTS}
    for name in sys.stdin.read().splitlines():
        mutant = known.get(name)
        jobs = mutant.jobs if mutant else tuple(dict.fromkeys(j for m in MUTANTS for j in m.jobs))
        print(json.dumps({"name": name, "caught": run(root, jobs, mutant)}), flush=True)


if __name__ == "__main__":
    main()
