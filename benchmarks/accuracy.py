"""This engine against the common way, at equal accuracy, softmax at two tokens."""

from __future__ import annotations

import numpy as np

from benchmarks.common_way import damped_iterations, seconds_per_prox, sobol_solve
from benchmarks.modules import POINT, modules
from benchmarks.timing import interleaved, table

FAR_START = np.array([0.5, 0.4, 0.5, 0.5, 0.4, 0.5])
SEEDS = range(5)


def smallest(module, exact, tolerance, start, reduced):
    """The first power of two of Sobol nodes at which the median error over scrambles meets the tolerance."""
    for log2_count in range(6, 18):
        found = [sobol_solve(module, log2_count, seed, POINT, start, reduced) for seed in SEEDS]
        if np.median([abs(risk - exact) for risk, _ in found]) <= tolerance:
            return log2_count, round(np.mean([count for _, count in found]))
    return 17, 0


def without_branches(module):
    """A solve that does not look for another branch of lower energy."""
    looking = module._lower_branch
    module._lower_branch = lambda *_: []
    try:
        return module.solve(**POINT, tol=1e-10)
    finally:
        module._lower_branch = looking


def run():
    plain, fast = modules("softmax", 2)
    solution = plain.solve(**POINT, tol=1e-11)
    exact, order = solution.test_risk, np.array(list(solution.order_parameters.values()))
    four, _ = smallest(plain, exact, 1e-4, FAR_START, False)
    three, iterations = smallest(plain, exact, 1e-3, FAR_START, False)
    near = order * 1.02
    warm, _ = smallest(plain, exact, 5e-5, near, True)
    sobol_solve(plain, 4, 1, POINT, FAR_START, False)
    seconds, _ = interleaved(
        {
            "ours": lambda: plain.solve(**POINT, tol=1e-10),
            "fast": lambda: fast.solve(**POINT, tol=1e-10),
            "alone": lambda: without_branches(plain),
            "fast alone": lambda: without_branches(fast),
            "unreduced": lambda: sobol_solve(plain, four, 1, POINT, FAR_START, False),
            "reduced": lambda: sobol_solve(plain, warm, 1, POINT, near, True),
        }
    )
    setting = plain.Setting(POINT["nu"], POINT["noise"], plain.parameter_values({}))
    each = min(seconds_per_prox(plain, order, setting) for _ in range(3))
    damped = damped_iterations(plain, three, POINT, FAR_START)
    print("## Equal accuracy: softmax, L = 2, alpha 4, nu 2, noise 0.3, lambda_k 2, lambda_v 0.5\n")
    print("Warm solves in one process; node sets are the smallest whose median error over five scrambles is met.\n")
    per_sample = f"Sobol 5-d 2^{three}, prox by scipy.optimize, {each * 1e3:.2g} ms each, extrapolated to"
    rows = [
        ("this engine, NumPy", "1e-10", seconds["ours"]),
        ("the same without the look for another branch", "1e-10", seconds["alone"]),
        ("this engine, compiled", "1e-10", seconds["fast"]),
        ("the same without the look for another branch", "1e-10", seconds["fast alone"]),
        (f"Sobol 5-d 2^{four}, vectorised Newton", "1e-4", seconds["unreduced"]),
        (f"Sobol 3-d 2^{warm}, reduced and warm-started", "5e-5", seconds["reduced"]),
        (f"{per_sample} {damped} iterations damped by half", "1e-3", each * 2**three * damped),
        (f"{per_sample} {iterations} accelerated iterations", "1e-3", each * 2**three * iterations),
    ]
    header = ("what", "error of the test risk", "time (s)", "over NumPy", "over compiled")
    cells = [(w, e, f"{s:.3g}", f"{s / seconds['ours']:.3g}", f"{s / seconds['fast']:.3g}") for w, e, s in rows]
    table(header, cells)
