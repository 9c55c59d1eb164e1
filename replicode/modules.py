"""The one home of generated modules: derived, generated, cached, loaded.

Everything that needs the module of an activation asks here. A cached one is found and run without SymPy.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
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
    law = lengths(tokens)
    payload = _payload(act, task, law, given, model, level)
    values = {**payload["settled"], **(given or {})}
    module = _loaded(payload["source"]) if backend == "numpy" else _compiled(act, task, law, payload["source"], model)
    if given is not None:
        check_parameters(module.PARAMETERS, values)
    return module, values


def module_source(act: ActivationLike, task: str | Task, tokens: Tokens) -> str:
    """The source of the generated module, from the cache when it is there."""
    return str(_payload(act, task, lengths(tokens), None, None)["source"])


def bayes_module(task: str | Task, tokens: Tokens, model: Model | None = None) -> ModuleType:
    """The generated module of the Bayes-optimal level."""
    return module_for(None, task, tokens, model=model, level="bayes")[0]


def dynamics_module(
    act: ActivationLike, task: str | Task, tokens: Tokens, given: Mapping[str, float], model: Model | None = None
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module of the training dynamics, and the values of the activation's parameters."""
    return module_for(act, task, tokens, given=given, model=model, level="dynamics")


def step_module(
    act: ActivationLike,
    task: str | Task,
    tokens: Tokens,
    given: Mapping[str, float] | None = None,
    model: Model | None = None,
    backend: str = "numpy",
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module of one step of breaking, and the values of the activation's parameters."""
    return module_for(act, task, tokens, backend, given, model, "1rsb")


def _key(act: ActivationLike | None, task: str | Task, tokens: Lengths, model: Model | None) -> Content:
    own = () if act is None else (activation_content(act),)
    return *own, task_content(task), repr(tokens), *model_content(model)


def _payload(
    act: ActivationLike | None,
    task: str | Task,
    tokens: Lengths,
    given: Mapping[str, float] | None,
    model: Model | None,
    level: str = "rs",
) -> dict[str, Any]:
    kind = "module" if level == "rs" else f"{level}_module"
    return cached(kind, _key(act, task, tokens, model), lambda: _build(act, task, tokens, given, model, level))


def _build(
    act: ActivationLike | None,
    task: str | Task,
    tokens: Lengths,
    given: Mapping[str, float] | None,
    model: Model | None,
    level: str,
) -> dict[str, Any]:
    from replicode.codegen.compiler import generate

    made, known = None, dict[str, float]()
    if act is not None:
        from replicode.theory.language.activation import activation

        made = activation(act)
        known = {p: float(v) for p, v in {**made.defaults, **made.values}.items()}
        if given is not None:
            check_parameters(made.parameters, {**known, **given})
    system = derived(level, made, task, tokens, model)
    of = "any estimator" if made is None else made.text
    made_for = f"{of}, task {system.task.text}, {tokens} tokens, level {level}"
    return {"made_for": made_for, "source": generate(system).source, "settled": known}


def _compiled(
    act: ActivationLike | None, task: str | Task, tokens: Lengths, source: str, model: Model | None
) -> ModuleType:
    """The module with compiled loops, cached for this compiler and processor."""
    from replicode.codegen.compiled.native import machine

    def build() -> dict[str, Any]:
        from replicode.codegen.compiled.fast import c_source, compiled
        from replicode.theory.derive.saddle import derive
        from replicode.theory.language.activation import activation

        system = derive(activation(act), task, tokens, model)
        library = base64.b64encode(compiled(c_source(system))).decode()
        return {"made_for": f"compiled {system.activation.text}, {tokens} tokens", "library": library}

    return _accelerated(source, cached("fast", (*_key(act, task, tokens, model), machine()), build)["library"])


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
