"""A curve of 100 points in alpha at eight digits against 100 solves of the same points, in one run."""

from __future__ import annotations

import time

import numpy as np

from replicode.branches.tracing import Tracer
from replicode.inputs.problem import problem
from replicode.inputs.ranges import Range

TOL = 1e-8
AXIS = Range("alpha", 2.0, 10.0, 100)


def run():
    print("\n## A curve against separate solves\n")
    physics = {"alpha": 2.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
    posed = problem("softmax", "spiked", 2, physics)
    posed.solve(TOL)
    begin = time.process_time()
    traced = Tracer(posed, AXIS, TOL, False, False, lambda value, found: None).trace()
    rows = [traced.row(v) for v in AXIS.values()]
    along = time.process_time() - begin
    begin = time.process_time()
    apart = [posed.with_values(alpha=v).solve(TOL) for v in AXIS.values()]
    separate = time.process_time() - begin
    gaps = [abs(s.test_risk - r["test_risk"]) for s, r in zip(apart, rows)]
    covered = all(g <= s.error + r["error"] for g, s, r in zip(gaps, apart, rows))
    print(
        f"curve: {along:.2f} s, {len(traced.nodes)} nodes; 100 solves: {separate:.2f} s; ratio {along / separate:.2f}"
    )
    stated = max(r["error"] for r in rows)
    print(f"largest error stated {stated:.1e}, largest difference {np.max(gaps):.1e}, covered: {covered}")


if __name__ == "__main__":
    run()
