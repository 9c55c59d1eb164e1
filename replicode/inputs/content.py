"""What a name, a text or an object stands for: the part of a cache key that says which activation and task it is for.

A registered name is looked up before it is hashed, so that a name registered differently in another process never
meets its entry. Any other text is its own content. Neither needs SymPy.
"""

from __future__ import annotations

from collections.abc import Mapping

from replicode.kinds import ActivationLike, Model, Task
from replicode.theory.registry import ACTIVATIONS, TASKS, Registered

Content = tuple[object, ...]


def activation_content(act: ActivationLike) -> Content:
    """Expression, given values and defaults of an activation."""
    if isinstance(act, str):
        return _named(act, ACTIVATIONS)
    import sympy as sp

    from replicode.theory.language.activation import activation

    made = activation(act)
    return "object", made.name, sp.srepr(made.expr), sorted(made.values.items()), sorted(made.defaults.items())


def task_content(task: str | Task) -> Content:
    """The log-weight of a task."""
    if isinstance(task, str):
        return _named(task, TASKS)
    import sympy as sp

    from replicode.theory.language.task import task as task_of

    made = task_of(task)
    return "object", made.name, sp.srepr(made.log_weight)


def model_content(model: Model | None) -> Content:
    """Everything a model says; nothing for the one that is meant without any."""
    return () if model is None else ("model", model.key)


def _named(text: str, table: Mapping[str, Registered]) -> Content:
    return ("registered", text, *table[text]) if text in table else ("text", text)


def activation_text(act: ActivationLike) -> str:
    """The expression that an activation stands for, as far as it is text."""
    if isinstance(act, str):
        return ACTIVATIONS[act].content if act in ACTIVATIONS else act
    from replicode.theory.language.activation import activation

    return activation(act).text


def task_text(task: str | Task) -> str:
    """The log-weight that a task stands for."""
    if isinstance(task, str):
        return TASKS[task].content if task in TASKS else task
    from replicode.theory.language.task import task as task_of

    return task_of(task).text
