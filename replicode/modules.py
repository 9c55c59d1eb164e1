"""The one home of generated modules: derived, generated, cached, loaded.

Everything that needs the module of an activation asks here. A cached one is found and run without SymPy.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from replicode.cache import cached
from replicode.codegen.loading import call as called
from replicode.inputs.arguments import BACKENDS, check_parameters, one_of
from replicode.inputs.content import Content, activation_content, model_content, task_content
from replicode.kinds import ActivationLike, Model, Task
from replicode.levels import derived
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.watching import watched


def module_for(
    act: ActivationLike | None,
    task: str | Task,
    tokens: Tokens,
    backend: str = "numpy",
    given: Mapping[str, float] | None = None,
    model: Model | None = None,
    level: str = "rs",
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module of a level, from the cache when it is there, and the values of the activation's parameters.

    With `given`, values over the activation's own, every parameter must have one: this is found before any derivation.
    """
    one_of("backend", backend, BACKENDS)
    theory = _Theory(act, task, lengths(tokens), model, level)
    payload = theory.payload(given)
    values = {**payload["settled"], **(given or {})}
    module = _loaded(payload["source"]) if backend == "numpy" else theory.compiled(payload["source"])
    if given is not None:
        check_parameters(module.PARAMETERS, values)
    return module, values


def module_source(act: ActivationLike, task: str | Task, tokens: Tokens) -> str:
    """The source of the generated module, from the cache when it is there."""
    return str(_Theory(act, task, lengths(tokens)).payload(None)["source"])


def bayes_module(task: str | Task, tokens: Tokens, model: Model | None = None) -> ModuleType:
    """The generated module of the Bayes-optimal level."""
    return module_for(None, task, tokens, model=model, level="bayes")[0]


@dataclass(frozen=True)
class _Theory:
    """What a module is made of: no activation matters to bayes, and without a model it is the default one."""

    act: ActivationLike | None
    task: str | Task
    law: Lengths
    model: Model | None = None
    level: str = "rs"

    @property
    def key(self) -> Content:
        """What names and objects stand for."""
        own = () if self.act is None else (activation_content(self.act),)
        return *own, task_content(self.task), repr(self.law), *model_content(self.model)

    def payload(self, given: Mapping[str, float] | None) -> dict[str, Any]:
        """The source, and the values that the activation's parameters have of its own."""
        kind = "module" if self.level == "rs" else f"{self.level}_module"
        return cached(kind, self.key, lambda: self._generated(given))

    def _generated(self, given: Mapping[str, float] | None) -> dict[str, Any]:
        from replicode.codegen.compiler import generate

        made, known = None, dict[str, float]()
        if self.act is not None:
            from replicode.theory.language.activation import activation

            made = activation(self.act)
            known = {p: float(v) for p, v in {**made.defaults, **made.values}.items()}
            if given is not None:
                check_parameters(made.parameters, {**known, **given})
        system = derived(self.level, made, self.task, self.law, self.model)
        of = "any estimator" if made is None else made.text
        made_for = f"{of}, task {system.task.text}, {self.law} tokens, level {self.level}"
        return {"made_for": made_for, "source": generate(system).source, "settled": known}

    def compiled(self, source: str) -> ModuleType:
        """The module with compiled loops, cached for this compiler and processor."""
        from replicode.codegen.compiled.native import machine

        return _accelerated(source, cached("fast", (*self.key, machine()), self._library)["library"])

    def _library(self) -> dict[str, Any]:
        from replicode.codegen.compiled.fast import c_source, compiled
        from replicode.theory.derive.saddle import derive
        from replicode.theory.language.activation import activation

        system = derive(activation(self.act), self.task, self.law, self.model)
        library = base64.b64encode(compiled(c_source(system))).decode()
        return {"made_for": f"compiled {system.activation.text}, {self.law} tokens", "library": library}


@lru_cache(maxsize=32)
def _loaded(source: str, name: str = "generated") -> ModuleType:
    from replicode.codegen.loading import load_source

    return load_source(source, f"replicode_{name}_{hashlib.sha256(source.encode()).hexdigest()[:16]}")


@lru_cache(maxsize=32)
def _accelerated(source: str, library: str) -> ModuleType:
    from replicode.codegen.compiled.native import accelerated

    module: ModuleType = accelerated(_loaded(source, "fast"), base64.b64decode(library))
    return module


def call(module: ModuleType, name: str, /, **arguments: Any) -> Any:
    """What a function of a generated module returns, watched where someone asked to; its errors become ours."""
    with watched(module):
        return called(module, name, **arguments)
