"""Runs mutants in a copy of the sources: `python runner.py ROOT` reads their names from standard input.

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

import mpmath
import numpy  # noqa: F401
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats.qmc  # noqa: F401
import sympy  # noqa: F401
from mutants import MUTANTS

PACKAGE = "replicode"
SECONDS = 90


def verdicts(job):
    """The outcomes of a job in the sources that are first on the path."""
    from replicode.theory.activation import activation
    from replicode.theory.analysis import analysis
    from replicode.theory.task import task
    from replicode.validation.properties import DIGITS, Subject, examined, outcomes

    if not job.bare:
        return outcomes(examined(job.text, job.task, job.tokens), job.names)
    act = activation(job.text)
    of = Subject(act, task(job.task), job.tokens, analysis(act), {}, lambda _: None, lambda _: None)
    with mpmath.workdps(DIGITS):
        return outcomes(of, job.names)


def caught(jobs):
    """What notices a fault: a property that fails, or an error."""
    for job in jobs:
        try:
            bad = [f"{n}: {v.detail}" for n, v in verdicts(job).items() if v.outcome == "failed"]
        except Exception as error:
            bad = [f"{type(error).__name__}: {error}"]
        if bad:
            return "; ".join(bad)
    return None


def wrong(jobs):
    """What is wrong with the jobs themselves: a property that fails, or none that passes."""
    told = [(job, caught([job])) for job in jobs]
    idle = [job for job in jobs if not any(v.outcome == "passed" for v in verdicts(job).values())]
    return [f"{job}: {why}" for job, why in told if why] + [f"nothing applies to {job}" for job in idle]


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
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            found = caught(jobs) if mutant else wrong(jobs)
            import replicode

            if not str(replicode.__file__).startswith(folder):
                raise ImportError(f"{replicode.__file__} was run, not the copy")
            os.write(write, json.dumps(found).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        return json.loads(text) if text else "it does not end in time, or crashes"


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
