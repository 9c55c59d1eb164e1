"""One-pass SGD on streamed tokens: a step without its draws against two reads of the tokens, and the draws.

`python -m benchmarks.stream` runs it alone.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import table
from replicode.modules import module_for
from replicode.validation.training.stream import Descent, Stream, _Stepper, start_vectors

SIZES = ((1000, 16), (4000, 16))
START = np.array([0.3, 0.8, 0.4, 0.9, 0.0, 0.0, 0.0])


class Drawn(np.random.Generator):
    """Numbers that were drawn before: what a step costs without drawing its tokens."""

    def standard_normal(self, *args, out=None, **more):
        return out if out is not None else super().standard_normal(*args, **more)


def least(function, rounds=30):
    """The least wall time of a function."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return best


def measured(module, dim, seeds):
    """Seconds of a step without draws, of two reads of its tokens, and of the draws."""
    rng = np.random.default_rng(1)
    stepper = _Stepper(Stream.of(module, 2.0, 0.3), Descent(0.1, 0.1), dim, seeds, rng)
    students = np.stack(start_vectors(START, dim, seeds), axis=1)
    stepper.step(students)
    draws = least(lambda: rng.standard_normal(out=stepper.tokens, dtype=np.float32))
    stepper.rng = Drawn(np.random.PCG64(1))
    step = least(lambda: stepper.step(students))
    return step, least(lambda: (stepper.tokens.sum(), stepper.tokens.sum())), draws


def run():
    """Print the table."""
    module, _ = module_for("softmax", "spiked", 2, given={}, level="dynamics")
    rows = []
    for dim, seeds in SIZES:
        step, reads, draws = measured(module, dim, seeds)
        times = [f"{1e3 * t:.3f}" for t in (step, reads, draws)]
        rows.append([dim, seeds, *times[:2], f"{step / reads:.1f}", times[2]])
    print("\n## One-pass SGD on streamed tokens, two tokens per sequence\n")
    table(["D", "seeds", "step without draws (ms)", "two reads (ms)", "ratio", "draws (ms)"], rows)


if __name__ == "__main__":
    run()
