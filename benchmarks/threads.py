"""The threads of BLAS as they are by default against one, as users run, beside two processes that keep the cores busy.

`python -m benchmarks.threads` runs this alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import table
from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive

POINT = ["--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "0.3"]
ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WARM = "import sys; sys.path.insert(0, sys.argv[1]); import solver; [solver.solve(4.0, 2.0, 0.3) for _ in range(20)]"
COMMAND = [sys.executable, "-m", "replicode"]
ROUNDS = 2


def run():
    print("## Threads as installed against one thread, two busy processes beside\n")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            generate(derive("softmax", "spiked", 2)).save(Path(folder) / "solver.py")
            works = {
                "a generated module, L = 2, ten digits, 20 times": [sys.executable, "-c", WARM, folder],
                "`solve`, ten digits": [*COMMAND, "solve", "softmax", *POINT, "--digits", "10"],
                "`validate`, 20 seeds": [*COMMAND, "validate", "softmax", *POINT, "--seeds", "20"],
                "`demo`": [*COMMAND, "demo", "-o", f"{folder}/demo"],
            }
            rows = (_row(name, command) for name, command in works.items())
            table(("what", "as installed (s)", "one thread (s)", "ratio"), rows)
    finally:
        for process in busy:
            process.kill()


def _row(name, command):
    """The least processor times of interleaved rounds; a command that takes long has one."""
    free = {k: v for k, v in os.environ.items() if k not in ONE}
    found = {"default": [], "one": []}
    for _ in range(1 if name == "`demo`" else ROUNDS):
        found["default"].append(_seconds(command, free))
        found["one"].append(_seconds(command, free | ONE))
    default, one = min(found["default"]), min(found["one"])
    return name, f"{default:.2f}", f"{one:.2f}", f"{default / one:.2f}"


def _seconds(command, env):
    """Processor time of a command with a cache of its own."""
    with tempfile.TemporaryDirectory() as cache:
        process = subprocess.Popen(
            command, env=env | {"REPLICODE_CACHE": cache}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command} left with {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run()
