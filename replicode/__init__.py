"""The front door: everything a user needs, imported only when it is touched.

import replicode as rc
act = rc.activation("1 + erf(c + x)", c=0.5)
sol = rc.solve(act, task="spiked", tokens=2, alpha=4, nu=2, noise=0.3)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "activation": "replicode.theory.activation",
    "register": "replicode.theory.activation",
    "registered": "replicode.theory.activation",
    "Activation": "replicode.theory.activation",
    "Model": "replicode.theory.model",
    "InputError": "replicode.theory.errors",
    "Refusal": "replicode.theory.errors",
    "ReplicodeError": "replicode.theory.errors",
    "derive": "replicode.api",
    "generate": "replicode.codegen.compiler",
    "population": "replicode.population_level",
    "bayes": "replicode.bayes_level",
    "figure": "replicode.figures",
    "solve": "replicode.api",
    "validate": "replicode.api",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from replicode.api import derive as derive
    from replicode.api import solve as solve
    from replicode.api import validate as validate
    from replicode.bayes_level import bayes as bayes
    from replicode.codegen.compiler import generate as generate
    from replicode.figures import figure as figure
    from replicode.population_level import population as population
    from replicode.theory.activation import Activation as Activation
    from replicode.theory.activation import activation as activation
    from replicode.theory.activation import register as register
    from replicode.theory.activation import registered as registered
    from replicode.theory.errors import InputError as InputError
    from replicode.theory.errors import Refusal as Refusal
    from replicode.theory.errors import ReplicodeError as ReplicodeError
    from replicode.theory.model import Model as Model


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'replicode' has no attribute {name!r}")
