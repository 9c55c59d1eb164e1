"""The compiled way: the C source of a system, and the shared library that a compiler makes of it.

codegen.native puts the library behind a loaded NumPy module.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replicode.codegen.compiled.native import FLAGS, compiler
from replicode.codegen.emit.c import c_module
from replicode.codegen.lower import lower_module
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import InputError, Refusal

COMPILE_SECONDS = 120.0
_CAPTURED: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}


def c_source(system: SaddleSystem) -> str:
    """The C source of a derived system."""
    if system.tokens is None:
        raise InputError("backend", "fast", "numpy: one number of tokens is compiled at a time")
    if not system.properties.smooth:
        raise InputError("backend", "fast", "numpy for this activation: the prox at its kinks is not compiled")
    if not system.model.has_scores or system.values.steps or system.label.weighted:
        raise InputError("backend", "fast", "numpy here: attention with a square loss on Gaussian labels is compiled")
    return c_module(lower_module(system))


def compiled(source: str) -> bytes:
    """The shared library of a C source."""
    found = compiler()
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
        text.write_text(source, encoding="utf-8")
        for last in (["-lmvec", "-lm"], ["-DNO_VECTOR_MATH", "-lm"]):
            said = _said([*found, *FLAGS, str(text), "-o", str(library), *last])
            if library.is_file():
                return library.read_bytes()
    lines = said.splitlines()
    problem = next((line for line in lines if "error" in line), lines[0] if lines else "no reason given")
    raise Refusal(f"backend fast: the C compiler {found[0]} failed ({problem}); the backend numpy needs none")


def _said(command: Sequence[str]) -> str:
    """What the compiler says; it and its children are stopped when they take too long, or on an interrupt."""
    try:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **_CAPTURED)
    except OSError as problem:
        return str(problem)
    with started as process:
        try:
            return "".join(process.communicate(timeout=COMPILE_SECONDS))
        except BaseException as stopped:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            return f"error: not done after {COMPILE_SECONDS:g} s"
