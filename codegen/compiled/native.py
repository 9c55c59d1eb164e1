"""Compiled kernels behind a loaded NumPy module: the same functions and the same contract, looped over samples in C.

`accelerated` puts compiled kernels, Newton's method of the prox and the sums of the prox-free route into a module's
table of kernels; all that decides what is computed stays the module's own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from replicode.theory.errors import InputError, Refusal

Array = np.ndarray[Any, np.dtype[Any]]
_POINTER = ctypes.POINTER(ctypes.c_double)
_ARRAYS = ["zeta", "weights", "center", "scale", "origin", "span", "value_factor", "pull", "score_factor", "params"]
_OUTPUTS: dict[str, tuple[int, ...]] = {
    "loss": (0,),
    "gradient": (0, 1, 1, 0, 0),
    "hessian": (0, 1, 2),
    "curvatures": (2, 2, 2),
}


FLAGS = (
    *("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-freciprocal-math"),
    *("-fno-signed-zeros", "-fopenmp-simd", "-fPIC", "-shared"),
)


def compiler() -> list[str]:
    """The C compiler: CC, or the first of cc, gcc and clang that is there."""
    try:
        chosen = shlex.split(os.environ.get("CC", ""))
    except ValueError as problem:
        raise InputError("CC", os.environ["CC"], f"the command of a C compiler ({problem})") from None
    names = [chosen] if chosen else [["cc"], ["gcc"], ["clang"]]
    for name, *options in names:
        if found := shutil.which(name):
            return [found, *options]
    raise InputError("backend", "fast", "numpy: fast needs a C compiler (install cc, gcc or clang, or set CC)")


def machine() -> str:
    """What a compiled library depends on besides its source: compiler, flags and processor."""
    found = compiler()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        processor = sorted({line for line in text.splitlines() if line.startswith(("flags", "model name"))})
    except OSError:
        processor = [platform.processor()]
    program = Path(found[0]).resolve()
    return repr((found, str(program), program.stat().st_mtime, FLAGS, platform.platform(), processor))


class _ProxFree(ctypes.Structure):
    _fields_ = (
        ("n", ctypes.c_long),
        ("stride", ctypes.c_long),
        *((name, _POINTER) for name in _ARRAYS),
        ("v_k", ctypes.c_double),
        ("v_v", ctypes.c_double),
        ("volume", ctypes.c_double),
        ("score", ctypes.c_int),
        ("value", ctypes.c_int),
    )


class _Newton(ctypes.Structure):
    _fields_ = (
        ("steps", ctypes.c_int),
        *(
            (name, ctypes.c_double)
            for name in ("step_tolerance", "newton_tolerance", "trusted_step", "trusted_pivot", "smallest_pivot")
        ),
    )


def accelerated(module: Any, library: bytes) -> Any:
    """The module with its inner loops replaced by those of the library."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(library)
        try:
            loops = ctypes.CDLL(str(path))
        except OSError as problem:
            raise Refusal(f"backend fast: the compiled loops can not be loaded ({problem})") from None
    (kernel,) = module.KERNELS
    replaced = {
        name: _kernel(getattr(loops, name), getattr(kernel, name), kernel.tokens, ranks)
        for name, ranks in _OUTPUTS.items()
    }
    sums = _node_sums(loops.prox_free, module) if module.LOCATION == "gaussian" else None
    module.KERNELS = (kernel._replace(**replaced, newton=_newton(loops.prox_block, module), node_sums=sums),)
    return module


def _plain(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype=float)


def _pointers(arrays: Sequence[Array]) -> list[Any]:
    return [a.ctypes.data_as(_POINTER) for a in arrays]


def _kernel(loop: Any, original: Callable[..., Any], tokens: int, ranks: tuple[int, ...]) -> Callable[..., Any]:
    """A kernel of the fields on (tokens, n) arrays; other shapes are left to NumPy."""
    loop.restype = None

    def kernel(x: Array, w: Array, y: Array, v_v: float, params: Array) -> Any:
        if np.shape(x) != np.shape(w) or np.ndim(x) != 2 or np.shape(y) != np.shape(x)[1:]:
            return original(x, w, y, v_v, params)
        inputs = [_plain(a) for a in (x, w, y)]
        outputs = [np.empty((*[tokens] * rank, inputs[2].size)) for rank in ranks]
        settled = _plain(params)
        loop(
            ctypes.c_long(inputs[2].size),
            *_pointers(inputs),
            ctypes.c_double(v_v),
            *_pointers([settled, *outputs]),
        )
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return kernel


def _newton(loop: Any, module: ModuleType) -> Callable[..., int]:
    loop.restype = ctypes.c_long
    how = _Newton(
        module.NEWTON_STEPS,
        module.STEP_TOLERANCE,
        module.NEWTON_TOLERANCE,
        module.TRUSTED_STEP,
        module.TRUSTED_PIVOT,
        module.SMALLEST_PIVOT,
    )

    def prox_block(chi: Array, at: Any, v: tuple[float, float], setting: Any) -> int:
        """Newton in place on one block; returns the number left unconverged."""
        arrays = [chi.copy(), *(_plain(a) for a in at)]
        settled = _plain(setting.params)
        variances = [ctypes.c_double(e) for e in v]
        failed = loop(
            ctypes.c_long(chi.shape[1]), *_pointers(arrays), *variances, *_pointers([settled]), ctypes.byref(how)
        )
        chi[...] = arrays[0]
        return int(failed)

    return prox_block


def _node_sums(loop: Any, module: ModuleType) -> Callable[..., Array]:
    loop.restype = None

    def total(channel: Any, order: Array, frame: Any) -> Array:
        """The sums of `ProxFreeChannel` over all its nodes."""
        law, params = frame.law, channel.setting.params
        given = channel.zeta, channel.bare, channel.center, channel.scale, frame.origin, frame.span
        arrays = [_plain(a) for a in (*given, law.value_factor, frame.pull, law.score_factor, params)]
        score, value = module.dimensions(channel.setting)
        size = channel.weights.size
        V = order[module.V_K], order[module.V_V]
        what = _ProxFree(size, size, *_pointers(arrays), *V, channel._volume(), score, value)
        sums = np.empty(module.MOMENTS + 4)
        loop(ctypes.byref(what), *_pointers([sums]))
        return sums

    return total
