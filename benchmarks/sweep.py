"""A sweep with two workers against one, from start to end: processes, imports and ledger included.

`python -m benchmarks.sweep` runs this alone. Elapsed time is what counts here, and it needs two quiet cores: the share
of the processor that was to be had says whether they were.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
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


def run(rounds=ROUNDS):
    print("## A sweep with two workers against one\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sweep.toml").write_text(CONFIG)
        warm = CONFIG.replace("2:8:100", "4:5:2")
        (Path(folder) / "warm.toml").write_text(warm)
        _sweep(folder, 1, config="warm.toml")  # modules are derived here
        found = [{workers: _sweep(folder, workers) for workers in (1, 2)} for _ in range(rounds)]
    best = {workers: min(round_[workers] for round_ in found) for workers in (1, 2)}
    ratio = best[1][0] / best[2][0]
    rows = (
        (workers, f"{wall:.1f}", f"{used:.1f}", f"{used / wall:.2f}", f"{ratio:.2f}" if workers == 2 else "")
        for workers, (wall, used) in best.items()
    )
    table(("workers", "elapsed (s)", "processor (s)", "cores had", "one over two, elapsed"), rows)


def _sweep(folder, workers, *options, config="sweep.toml"):
    """Elapsed and processor time of a sweep with a ledger of its own."""
    with tempfile.TemporaryDirectory() as fresh:
        given = ["--workers", str(workers), "--ledger", f"{fresh}/a.sqlite", *options]
        command = [sys.executable, "-m", "replicode", "sweep", f"{folder}/{config}", *given]
        begin = time.perf_counter()
        env = os.environ | {"REPLICODE_CACHE": f"{folder}/cache"}
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command} left with {process.returncode}")
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run()
