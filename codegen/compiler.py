"""The compiler: from a derived system to a standalone module, stage by stage.

| stage | takes | gives |
| --- | --- | --- |
| theory.derive.saddle.derive | activation, task, tokens | SaddleSystem: all equations |
| theory.derive.bayes.derive_bayes | task, tokens | BayesSystem: all equations of the Bayes-optimal level |
| theory.derive.population.derive_population | activation, task, tokens | PopulationSystem: the risk of infinite data |
| theory.derive.dynamics.derive_dynamics | activation, task, tokens | DynamicsSystem: all equations of one-pass SGD |
| theory.derive.rsb.derive_step | SaddleSystem | StepSystem: all equations at one step of replica symmetry breaking |
| lower.lowered | a derived system | ModuleIR: every function with its inputs, equations and outputs, and the choices |
| link.linked | derived definitions, choices | Linked: these and the parts of runtime/ that the entry points reach |
| emit.numpy.numpy_module | ModuleIR | the source of one file; emit.c.c_module likewise, of loops in C |
| loading.load_source | source | the module |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from replicode.codegen.emit.numpy import numpy_module
from replicode.codegen.loading import load_source
from replicode.codegen.lower import System, lowered
from replicode.codegen.writing import write
from replicode.theory.budget import budget


@dataclass(frozen=True)
class GeneratedModule:
    """The source of a standalone solver, with its signature and operation counts."""

    source: str = field(repr=False)
    signature: str
    operations: Mapping[str, int]

    def save(self, path: str | Path) -> Path:
        """Write the source whole or not at all."""
        return write(path, self.source, "path")

    def load(self) -> ModuleType:
        """The module, executed from its source."""
        return load_source(self.source, f"replicode_generated_{self.signature[:16]}")


@budget("generating the module")
def generate(system: System) -> GeneratedModule:
    """Emit the module of a derived system, of any level."""
    ir = lowered(system)
    return GeneratedModule(numpy_module(ir), ir.provenance.signature, ir.provenance.operations)
