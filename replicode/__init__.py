"""The front door: everything a user needs, imported only when it is touched.

import replicode as rc
act = rc.activation("1 + erf(c + x)", c=0.5)
sol = rc.solve(act, task="spiked", tokens=2, alpha=4, nu=2, noise=0.3)

`cli` and `commands` are the command line, `verbs` its verbs in Python, `inputs` what they are given and `results` what
they return (numbers with their errors by `uncertain`, types by name in `kinds`). `modules` derives, generates, caches
(`cache`) and loads at every level (`levels`); `watching` tells how a solver gets on; `extras` imports what is optional.
`branches` and `phases` follow solutions along parameters; `derivations`, `figures` and `reports` write down what was
found; `sweeps` and `serve` run many points, and the explorer. Below stand the rooms `theory`, `codegen`, `validation`.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

__version__ = "0.1.0"

_HOMES = {
    "activation": "replicode.theory.language.activation",
    "register": "replicode.theory.language.activation",
    "registered": "replicode.theory.language.activation",
    "Activation": "replicode.theory.language.activation",
    "register_task": "replicode.theory.language.task",
    "Model": "replicode.theory.model",
    "InputError": "replicode.theory.errors",
    "Refusal": "replicode.theory.errors",
    "ReplicodeError": "replicode.theory.errors",
    "Solution": "replicode.results",
    "generate": "replicode.codegen.compiler",
    "figure": "replicode.figures",
    "validate_embeddings": "replicode.verbs.embeddings",
    **{
        verb: f"replicode.verbs.{verb}"
        for verb in (
            *("derive", "check", "population", "bayes", "solve", "optimal", "curve", "branch", "phase", "sweep"),
            *("validate", "landscape", "dynamics", "report"),
        )
    },
}
__all__ = sorted([*_HOMES, "__version__"])

if _TYPE_CHECKING:
    from replicode.codegen.compiler import generate as generate
    from replicode.figures import figure as figure
    from replicode.results import Solution as Solution
    from replicode.theory.errors import InputError as InputError
    from replicode.theory.errors import Refusal as Refusal
    from replicode.theory.errors import ReplicodeError as ReplicodeError
    from replicode.theory.language.activation import Activation as Activation
    from replicode.theory.language.activation import activation as activation
    from replicode.theory.language.activation import register as register
    from replicode.theory.language.activation import registered as registered
    from replicode.theory.language.task import register_task as register_task
    from replicode.theory.model import Model as Model
    from replicode.verbs.bayes import bayes as bayes
    from replicode.verbs.branch import branch as branch
    from replicode.verbs.check import check as check
    from replicode.verbs.curve import curve as curve
    from replicode.verbs.derive import derive as derive
    from replicode.verbs.dynamics import dynamics as dynamics
    from replicode.verbs.embeddings import validate_embeddings as validate_embeddings
    from replicode.verbs.landscape import landscape as landscape
    from replicode.verbs.optimal import optimal as optimal
    from replicode.verbs.phase import phase as phase
    from replicode.verbs.population import population as population
    from replicode.verbs.report import report as report
    from replicode.verbs.solve import solve as solve
    from replicode.verbs.sweep import sweep as sweep
    from replicode.verbs.validate import validate as validate


def __getattr__(name: str) -> _Any:
    if name in _HOMES:
        return getattr(_import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'replicode' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
