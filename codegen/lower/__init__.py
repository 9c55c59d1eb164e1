"""Lowering: from a derived system to the ModuleIR that the emitters print, one file a level.

Of the replica-symmetric level `kernels` has the per-sample programs, `equations` the functions of order parameters,
fields and overlaps, `module` puts them together and says which parts of the run-time a system needs; `bayes` does all
of that for the Bayes-optimal one, `rsb` for one step of replica symmetry breaking, `dynamics` for training,
`population` for infinite data, with the tables of `products`. `stamp` is what a module of any level says of itself.
`lowered` knows which file a system belongs to.
"""

from replicode.codegen.ir import ModuleIR
from replicode.codegen.lower.bayes import lower_bayes
from replicode.codegen.lower.dynamics import lower_dynamics
from replicode.codegen.lower.kernels import (
    KernelIR,
    lower,
    parameter_symbol,
    pullback_kernel,
    sigma_kernel,
    stable_form,
)
from replicode.codegen.lower.module import lower_length, lower_module
from replicode.codegen.lower.population import lower_population
from replicode.codegen.lower.rsb import lower_step
from replicode.theory.derive.bayes import BayesSystem
from replicode.theory.derive.dynamics import DynamicsSystem
from replicode.theory.derive.population import PopulationSystem
from replicode.theory.derive.rsb import StepSystem
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import InputError

__all__ = [
    "KernelIR",
    "System",
    "lower",
    "lower_bayes",
    "lower_dynamics",
    "lower_length",
    "lower_module",
    "lower_population",
    "lower_step",
    "lowered",
    "parameter_symbol",
    "pullback_kernel",
    "sigma_kernel",
    "stable_form",
]

System = SaddleSystem | BayesSystem | DynamicsSystem | PopulationSystem | StepSystem


def lowered(system: System) -> ModuleIR:
    """The ModuleIR of a derived system, by its level."""
    if not isinstance(system, System):
        raise InputError("system", system, "what `derive` returns")
    match system:
        case BayesSystem():
            return lower_bayes(system)
        case DynamicsSystem():
            return lower_dynamics(system)
        case PopulationSystem():
            return lower_population(system)
        case StepSystem():
            return lower_step(system)
    return lower_module(system)
