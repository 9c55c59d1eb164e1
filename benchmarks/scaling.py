"""Cost against the number of tokens, against digits, and of deriving and generating."""

from __future__ import annotations

import resource
from functools import partial

import numpy as np

from benchmarks.modules import FOLDED_POINT, JUMPING_POINT, POINT, modules
from benchmarks.timing import interleaved, once, table
from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive

TOKENS = (2, 3, 4, 8, 16, 32)
LOG2_NODES = 10


def evaluation(module):
    """Averages at a point and again beside it, the prox followed, on Sobol nodes."""
    setting = module.Setting(POINT["nu"], POINT["noise"], module.parameter_values({}))
    channel = module.ProxChannel(module.sobol(sum(module.dimensions(setting)), LOG2_NODES, 1), setting)
    order = np.array([0.5, 0.4, 0.6, 0.7, 0.6, 0.5])
    channel.chi = module.fields(module.field_factor(order, setting), channel.zeta).w_chi
    return [channel.averages(order * scale) for scale in (1.0, 1.01)]


def against_tokens():
    print(f"## Cost against L: two evaluations on 2^{LOG2_NODES} Sobol nodes, prox included, softmax\n")
    rows = []
    for tokens in TOKENS:
        plain, fast = modules("softmax", tokens)
        rounds = 2 if tokens > 8 else 3
        seconds, _ = interleaved({"numpy": lambda m=plain: evaluation(m), "fast": lambda m=fast: evaluation(m)}, rounds)
        a, b = seconds["numpy"], seconds["fast"]
        rows.append((tokens, f"{a:.3g}", f"{b:.3g}", f"{a / b:.2g}"))
    table(("L", "NumPy (s)", "compiled (s)", "ratio"), rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Largest memory of the whole run so far, SymPy included: {peak:.0f} MB.\n")


def against_digits():
    print("## Cost against digits, softmax\n")
    rows = []
    cases = [(2, POINT, d) for d in (4, 6, 8, 10, 11)] + [(2, FOLDED_POINT, d) for d in (6, 8, 10)]
    cases += [(2, JUMPING_POINT, d) for d in (6, 8)] + [(3, POINT, d) for d in (4, 5, 6, 7)]
    for tokens, point, digits in cases:
        plain, fast = modules("softmax", tokens)
        rounds = 1 if tokens > 2 or point is JUMPING_POINT else 3
        asked = {**point, "tol": 10.0**-digits}
        functions = {"numpy": partial(plain.solve, **asked), "fast": partial(fast.solve, **asked)}
        seconds, found = interleaved(functions, rounds)
        where = f"{point['lambda_k']:g}, {point['lambda_v']:g}"
        stated = found["numpy"].error
        cells = (f"{seconds['numpy']:.3g}", f"{seconds['fast']:.3g}", f"{seconds['numpy'] / seconds['fast']:.2g}")
        rows.append((tokens, where, digits, f"{stated:.1e}", found["numpy"].method, *cells))
    header = ("L", "lambda_k, lambda_v", "digits asked", "stated error", "method", "NumPy (s)", "compiled (s)", "ratio")
    table(header, rows)


def derivation():
    print("## Deriving and generating against L, softmax\n")
    rows = []
    once(lambda: derive("linear", "spiked", 2))
    for tokens in TOKENS:
        derived, system = once(lambda t=tokens: derive("softmax", "spiked", t))
        generated, module = once(lambda s=system: generate(s))
        rows.append((tokens, f"{derived:.2f}", f"{generated:.2f}", len(module.source.splitlines())))
    table(("L", "derive (s)", "generate (s)", "lines"), rows)
