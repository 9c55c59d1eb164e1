"""Types that arguments and results of the verbs have, by name alone: SymPy is imported when `get_type_hints` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicode.theory.derive.bayes import BayesSystem as BayesSystem
    from replicode.theory.derive.dynamics import DynamicsSystem as DynamicsSystem
    from replicode.theory.derive.rsb import StepSystem as StepSystem
    from replicode.theory.derive.saddle import SaddleSystem as SaddleSystem
    from replicode.theory.language.activation import ActivationLike as ActivationLike
    from replicode.theory.language.task import Task as Task
    from replicode.theory.model import Model as Model
else:
    from typing import ForwardRef

    _HOMES = {
        "BayesSystem": "derive.bayes",
        "DynamicsSystem": "derive.dynamics",
        "SaddleSystem": "derive.saddle",
        "StepSystem": "derive.rsb",
        "ActivationLike": "language.activation",
        "Task": "language.task",
        "Model": "model",
    }
    for _name, _home in _HOMES.items():
        globals()[_name] = ForwardRef(f"__import__('replicode.theory.{_home}', fromlist=['{_name}']).{_name}")
