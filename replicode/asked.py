"""What a result was asked for, in words and numbers that JSON holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from replicode.content import activation_text, task_text
from replicode.theory.lengths import Lengths

if TYPE_CHECKING:
    from replicode.theory.activation import ActivationLike
    from replicode.theory.task import Task


def asked(
    act: ActivationLike | None,
    task: str | Task,
    tokens: Lengths | None,
    parameters: Mapping[str, float] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Activation and task as expressions, with the names they were called by; tokens, parameters and options."""
    named = {name: spec for name, spec in (("activation_name", act), ("task_name", task)) if isinstance(spec, str)}
    texts = {} if act is None else {"activation": activation_text(act)}
    texts["task"] = task_text(task)
    known = {n: s for n, s in named.items() if s != texts[n.removesuffix("_name")]}
    law = None if tokens is None else tokens.fixed or str(tokens)
    given = {} if act is None else {"parameters": dict(parameters or {})}
    return {**texts, **known, "tokens": law, **given, **options}
