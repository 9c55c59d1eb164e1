"""Lowering: from a derived SaddleSystem to the ModuleIR that the emitters print.

`kernels` has the per-sample programs, `equations` the functions of order parameters, fields and overlaps, `module` puts
them together and says which parts of the run-time a system needs.
"""

from replicode.codegen.lower.kernels import (
    KernelIR,
    lower,
    parameter_symbol,
    pullback_kernel,
    sigma_kernel,
    stable_form,
)
from replicode.codegen.lower.module import lower_length, lower_module

__all__ = [
    "KernelIR",
    "lower",
    "lower_length",
    "lower_module",
    "parameter_symbol",
    "pullback_kernel",
    "sigma_kernel",
    "stable_form",
]
