"""What a result was asked for, in words and numbers that JSON holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replicode.inputs.content import activation_text, task_text
from replicode.kinds import ActivationLike, Model, Task
from replicode.theory.lengths import Lengths


def asked(
    act: ActivationLike | None,
    task: str | Task,
    tokens: Lengths | None,
    parameters: Mapping[str, float] | None = None,
    model: Model | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Activation and task as they were named, and the expressions that these names stand for; then all the rest."""
    texts: dict[str, Any] = {}
    if act is not None:
        expression = activation_text(act)
        texts = {"activation": act if isinstance(act, str) else expression, "expression": expression}
        texts |= {"parameters": dict(parameters or {})}
    weight = task_text(task)
    texts |= {"task": task if isinstance(task, str) else weight, "log_weight": weight}
    texts |= {} if model is None else {"model": model.texts()}
    return texts | {"tokens": None if tokens is None else tokens.fixed or str(tokens), **options}
