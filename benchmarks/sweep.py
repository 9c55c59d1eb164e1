"""A sweep with two workers against one, from start to end: processes, imports and ledger included.

`python -m benchmarks.sweep` runs this alone. Elapsed time needs two quiet cores, and the share of the processor that
was to be had says whether they were. What holds on a busy machine too is the longest path in processor time: that of
the parent and of the worker that did most, as if the two never ran at once. On two free cores a sweep takes no longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.timing import table

CONFIG = """activation = "linear"
tokens = 2
alpha = "2:8:100"
nu = [1, 2]
noise = 0.3
digits = 7
bayes = false
"""
ROUNDS = 2
LOOK = 0.02


def run(rounds=ROUNDS):
    print("## A sweep with two workers against one\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sweep.toml").write_text(CONFIG)
        warm = CONFIG.replace("2:8:100", "4:5:2")
        (Path(folder) / "warm.toml").write_text(warm)
        _sweep(folder, 1, config="warm.toml")  # modules are derived here
        found = [{workers: _sweep(folder, workers) for workers in (1, 2)} for _ in range(rounds)]
    one, two = (min((r[workers] for r in found), key=lambda times: times[2]) for workers in (1, 2))
    rows = []
    for workers, times in ((1, one), (2, two)):
        gains = [f"{a / b:.2f}" for a, b in zip(one, times)]
        rows.append((workers, *(f"{t:.1f}" for t in times), f"{times[1] / times[0]:.2f}", gains[0], gains[2]))
    table(("workers", "elapsed (s)", "processor (s)", "longest path (s)", "cores had", "elapsed", "path"), rows)


def _used(processes):
    """The processor time of the processes that there are, by number."""
    found = {}
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            found[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _family(parent):
    """A process and its children."""
    with suppress(OSError):
        return [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]
    return []


def _sweep(folder, workers, *options, config="sweep.toml"):
    """Elapsed and processor time of a sweep with a ledger of its own, and its longest path."""
    with tempfile.TemporaryDirectory() as fresh:
        given = ["--workers", str(workers), "--ledger", f"{fresh}/a.sqlite", *options]
        command = [sys.executable, "-m", "replicode", "sweep", f"{folder}/{config}", *given]
        begin = time.perf_counter()
        env = os.environ | {"REPLICODE_CACHE": f"{folder}/cache"}
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        each = {}
        while process.poll() is None:
            each |= _used(_family(process.pid))
            time.sleep(LOOK)
        wall = time.perf_counter() - begin
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command} left with {process.returncode}")
    parent = each.pop(process.pid)
    return wall, parent + sum(each.values()), parent + max(each.values(), default=0.0)


if __name__ == "__main__":
    run()
