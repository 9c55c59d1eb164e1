"""No threads of BLAS are woken: with a pool of two, all processor time is the main thread's.

A ratio of processor times within one process, so that other processes do not matter.
"""

import json
import os
import subprocess
import sys

from replicode.modules import module_source

POOL = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
OTHERS = 0.1  # of the main thread's time: waking and ending the pool

SOLVED = """
import sys
sys.path.insert(0, {folder!r})
import generated
work = lambda: generated.solve({point})
"""
VALIDATED = """
import replicode as rc
work = lambda: rc.validate("softmax", tokens=2, alpha=4.0, nu=2.0, noise=0.3, digits=3, dim=320, seeds=2)
"""
TIMED = """
import json, time
import scipy.linalg, scipy.optimize, scipy.special
time.sleep(0.5)  # the pools that imports make spin for a while before they sleep
work_of_others = lambda: time.process_time() - time.thread_time()
before, main = work_of_others(), time.thread_time()
work()
print(json.dumps([work_of_others() - before, time.thread_time() - main]))
"""


def _times(script):
    """Processor time of all other threads and of the main one."""
    env = os.environ | POOL
    done = subprocess.run([sys.executable, "-c", script + TIMED], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_generated_module_wakes_no_threads(tmp_path):
    (tmp_path / "generated.py").write_text(module_source("softmax", "spiked", 2))
    others, main = _times(SOLVED.format(folder=str(tmp_path), point="4.0, 2.0, 0.3, tol=1e-10"))
    assert others < OTHERS * main


def test_training_wakes_no_threads():
    others, main = _times(VALIDATED)
    assert others < OTHERS * main
