"""The generated module of the Bayes-optimal level, which message passing and the property suite ask for."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from replicode.codegen.compiler import generate
from replicode.theory.derive.bayes import derive_bayes
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, Model


@lru_cache(maxsize=32)
def bayes_module(setting: Task, tokens: int | str | Lengths, model: Model = DEFAULT_MODEL) -> ModuleType:
    """Made once for a task, its lengths and a model."""
    return generate(derive_bayes(setting, tokens, model)).load()
