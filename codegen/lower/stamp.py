"""What a module says of itself, alike at every level of an activation: signature, metadata, what it was made for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import sympy as sp

from replicode.codegen.ir import IR_VERSION, LengthIR, Provenance
from replicode.codegen.link import MAIN, parts_text
from replicode.theory.errors import InputError
from replicode.theory.language.activation import Activation
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths
from replicode.theory.model import Model
from replicode.theory.properties.symbolic import Properties

EMITTER_VERSION = "0.5"
INNER = ("KERNELS", "PARAMETERS", "LOCATION", "ArgumentError", "OutOfReach", MAIN)
OVER_SAMPLES = (
    "What is derived of this activation and task: arrays have the tokens along axis 0, the samples along axis 1."
)
VERSIONS = {"emitter": EMITTER_VERSION, "ir": IR_VERSION, "sympy": sp.__version__}


class ActivationSystem(Protocol):
    """What the systems of an activation have in common, whatever their level."""

    @property
    def activation(self) -> Activation:
        """The activation."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def lengths(self) -> Lengths | None:
        """The distribution of the number of tokens."""

    @property
    def model(self) -> Model:
        """What is learned."""

    @property
    def properties(self) -> Properties:
        """What is known of the activation."""


def told_lengths(lengths: Lengths | None) -> Lengths:
    """The numbers of tokens, without which there is no module."""
    if lengths is None:
        raise InputError("tokens", None, "a number of tokens, or a distribution such as 1:0.2,2:0.3,3:0.5")
    return lengths


def suffix(lengths: Lengths, tokens: int) -> str:
    """What tells the functions of one number of tokens from those of the others, where there are any."""
    return "" if lengths.fixed else f"_{tokens}"


def hashed(level: str, parts: Sequence[str], *content: str) -> str:
    """Hash of canonical expressions, level, versions and run-time source; names do not enter."""
    versions = f"{level} {IR_VERSION} {EMITTER_VERSION} {sp.__version__}"
    return hashlib.sha256("\0".join([*content, versions, parts_text(parts)]).encode()).hexdigest()


def signature_of(system: ActivationSystem, level: str, parts: Sequence[str]) -> str:
    """The signature of a module with an activation."""
    act, weight = system.activation, sp.srepr(system.task.log_weight)
    values = repr(sorted(act.values.items()))
    return hashed(level, parts, sp.srepr(act.expr), values, weight, repr(system.lengths), system.model.key)


def constants_of(system: ActivationSystem, level: str, signature: str) -> dict[str, Any]:
    """METADATA, the activation's parameters with their values, and what its averages ask about it."""
    act, model, lengths = system.activation, system.model, system.lengths
    metadata = {
        **({} if level == "rs" else {"level": level}),
        "activation": act.text,
        "name": act.name,
        "task": system.task.text,
        "tokens": (lengths.fixed or str(lengths)) if lengths else None,
        "parameters": list(act.parameters),
        "signature": signature,
        "versions": VERSIONS,
        "options": {"loss": str(model.loss), "penalty": str(model.penalty), **structure_of(model)},
    }
    return {
        "METADATA": metadata,
        "PARAMETERS": act.parameters,
        "DEFAULTS": {name: float(value) for name, value in sorted(act.values.items())},
        "SHIFT_INVARIANT": bool(system.properties.shift_invariant),
        "ELEMENTWISE": bool(system.properties.elementwise),
    }


def structure_of(model: Model) -> dict[str, str]:
    """What the options say of the tokens where they are not isotropic."""
    return {"covariance": str(model.covariance), "spectrum": "an argument of solve"} if model.structured else {}


def provenance_of(
    system: ActivationSystem,
    title: str,
    signature: str,
    lengths: Sequence[LengthIR],
    equations: Mapping[str, tuple[str, ...]],
) -> Provenance:
    """Title, what the module was made for, operation counts and equations."""
    return Provenance(
        title=f"{title} of {system.activation.name} attention",
        about={
            "activation": system.activation.text,
            "task": f"log-weight {system.task.text}",
            "tokens": str(system.lengths),
        },
        signature=signature,
        operations={f"{k.name}{n.suffix}": k.operations() for n in lengths for k in n.kernels},
        equations=equations,
    )
