"""The modules that are measured: NumPy and compiled, built once per run."""

from __future__ import annotations

from functools import lru_cache

from replicode.codegen.compiled.fast import c_source, compiled
from replicode.codegen.compiled.native import accelerated
from replicode.codegen.compiler import generate
from replicode.codegen.loading import load_source
from replicode.theory.derive.saddle import derive

POINT = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 2.0, "lambda_v": 0.5}
FOLDED_POINT = POINT | {"lambda_k": 1.0, "lambda_v": 1.0}
JUMPING_POINT = POINT | {"lambda_k": 0.1, "lambda_v": 0.1}


@lru_cache(maxsize=16)
def modules(text, tokens, task="spiked"):
    """The NumPy module and the compiled one."""
    system = derive(text, task, tokens)
    source = generate(system).source
    fast = load_source(source, f"benchmark_fast_{text}_{tokens}_{task}")
    return load_source(source, f"benchmark_numpy_{text}_{tokens}_{task}"), accelerated(fast, compiled(c_source(system)))
