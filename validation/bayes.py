"""The generated module of the Bayes-optimal level, which message passing and the property suite ask for."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from replicode.codegen.compiler import generate
from replicode.theory.derive.bayes import derive_bayes
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths


@lru_cache(maxsize=32)
def bayes_module(setting: Task, tokens: int | str | Lengths) -> ModuleType:
    """Made once for a task and its lengths."""
    return generate(derive_bayes(setting, tokens)).load()
