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
    "activation": "theory.activation",
    "register": "theory.activation",
    "registered": "theory.activation",
    "Activation": "theory.activation",
    "Model": "theory.model",
    "InputError": "theory.errors",
    "Refusal": "theory.errors",
    "ReplicodeError": "theory.errors",
    "derive": "replicode.api",
    "generate": "codegen.emit",
    "population": "replicode.population_level",
    "bayes": "replicode.bayes_level",
    "figure": "replicode.figures",
    "solve": "replicode.api",
    "validate": "replicode.api",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from codegen.emit import generate as generate
    from replicode.api import derive as derive
    from replicode.api import solve as solve
    from replicode.api import validate as validate
    from replicode.bayes_level import bayes as bayes
    from replicode.figures import figure as figure
    from replicode.population_level import population as population
    from theory.activation import Activation as Activation
    from theory.activation import activation as activation
    from theory.activation import register as register
    from theory.activation import registered as registered
    from theory.errors import InputError as InputError
    from theory.errors import Refusal as Refusal
    from theory.errors import ReplicodeError as ReplicodeError
    from theory.model import Model as Model


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'replicode' has no attribute {name!r}")
