"""The compiled way: the C source of a system, and the shared library that a compiler makes of it.

codegen.native puts the library behind a loaded NumPy module.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from replicode.codegen.emit.c import c_module
from replicode.codegen.lower import lower_module
from replicode.codegen.native import FLAGS, compiler
from replicode.theory.errors import InputError
from replicode.theory.saddle import SaddleSystem


def c_source(system: SaddleSystem) -> str:
    """The C source of a derived system."""
    if system.tokens is None:
        raise InputError("backend", "fast", "numpy: one number of tokens is compiled at a time")
    if not system.properties.smooth:
        raise InputError("backend", "fast", "numpy for this activation: the prox at its kinks is not compiled")
    return c_module(lower_module(system))


def compiled(source: str) -> bytes:
    """The shared library of a C source."""
    found = compiler()
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
        text.write_text(source, encoding="utf-8")
        for last in (["-lmvec", "-lm"], ["-DNO_VECTOR_MATH", "-lm"]):
            command = [*found, *FLAGS, str(text), "-o", str(library), *last]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return library.read_bytes()
    problem = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
    raise InputError("backend", "fast", f"numpy: the C compiler failed ({problem})")
