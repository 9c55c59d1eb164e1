"""The spine: derive + generate against a warm solve, and the prox-free lattice against the prox on Sobol nodes.

Times on a shared machine are noisy; the ratios are what to read. Each figure is the best of a few repetitions.
"""

from __future__ import annotations

import time

import numpy as np

from codegen.emit import generate
from theory.saddle import derive

POINT = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 2.0, "lambda_v": 0.5}


def best_time(function, repetitions=3):
    times, result = [], None
    for _ in range(repetitions):
        begin = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - begin)
    return min(times), result


def sobol_solve(module, log2_count, order):
    """The common way with our kernels: one scrambled Sobol set, prox by vectorised Newton, accelerated iteration."""
    params = module.parameter_values({})
    setting = module.Setting(POINT["nu"], POINT["noise"], params)
    problem = module.Problem(POINT["alpha"], POINT["lambda_k"], POINT["lambda_v"])
    dim = sum(module.dimensions(params))
    channel = module.ProxChannel(module.sobol(dim, log2_count, 1), setting)
    found = module.iterate(channel, order, problem, 1e-6)
    m_k, q_k, _, m_v, q_v, _ = found.last.order
    return module.population_risk(m_k, q_k, m_v, q_v, POINT["nu"], POINT["noise"])


def run():
    print("## Spine: softmax, L = 2, alpha = 4, nu = 2, noise = 0.3, lambda_k = 2, lambda_v = 0.5\n")
    build, module = best_time(lambda: generate(derive("softmax", "spiked", 2)).load(), 2)
    exact = module.solve(**POINT, tol=1e-11).test_risk
    print("| what | time (s) | error of the test risk | in units of the 8-digit solve |")
    print("|---|---|---|---|")
    unit, _ = best_time(lambda: module.solve(**POINT, tol=1e-8))
    print(f"| derive + generate + load | {build:.2f} | | {build / unit:.1f} |")
    for tol in (1e-4, 1e-6, 1e-8, 1e-10):
        seconds, found = best_time(lambda tol=tol: module.solve(**POINT, tol=tol))
        actual = abs(found.test_risk - exact)
        errors = f"{actual:.1e} (stated {found.error:.1e})"
        print(f"| warm solve, tol {tol:.0e} | {seconds:.3f} | {errors} | {seconds / unit:.2f} |")
    start = np.array([0.25, 0.12, 0.38, 0.9, 0.95, 0.48])
    for log2_count in (12, 15, 17):
        seconds, risk = best_time(lambda n=log2_count: sobol_solve(module, n, start), 2)
        label = f"Sobol 2^{log2_count}, prox by Newton, warm start"
        print(f"| {label} | {seconds:.3f} | {abs(risk - exact):.1e} | {seconds / unit:.1f} |")
