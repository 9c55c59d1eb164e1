"""Types that arguments and results of the verbs have, by name alone: SymPy is imported when `get_type_hints` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicode.codegen.lower import System as System
    from replicode.theory.derive.saddle import SaddleSystem as SaddleSystem
    from replicode.theory.language.activation import ActivationLike as ActivationLike
    from replicode.theory.language.task import Task as Task
    from replicode.theory.model import Model as Model
else:
    from typing import ForwardRef

    _HOMES = {
        "System": "codegen.lower",
        "SaddleSystem": "theory.derive.saddle",
        "ActivationLike": "theory.language.activation",
        "Task": "theory.language.task",
        "Model": "theory.model",
    }
    for _name, _home in _HOMES.items():
        globals()[_name] = ForwardRef(f"__import__('replicode.{_home}', fromlist=['{_name}']).{_name}")
