"""The one home of generated modules: derived, generated, cached, loaded.

Everything that needs the module of an activation asks here. A cached one is found and run without SymPy.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from replicode.arguments import BACKENDS, check_parameters, one_of
from replicode.cache import cached
from replicode.codegen.loading import call as called
from replicode.content import Content, activation_content, model_content, task_content
from replicode.kinds import ActivationLike, Model, SaddleSystem, Task
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.watching import watched

if TYPE_CHECKING:
    from replicode.codegen.lower import System


def module_for(
    act: ActivationLike,
    task: str | Task,
    tokens: Tokens,
    backend: str = "numpy",
    given: Mapping[str, float] | None = None,
    model: Model | None = None,
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module, from the cache when it is there, and the values of the activation's parameters.

    With `given`, values over the activation's own, every parameter must have one: this is found before any derivation.
    """
    one_of("backend", backend, BACKENDS)
    law = lengths(tokens)
    payload = _payload(act, task, law, given, model)
    values = {**payload["settled"], **(given or {})}
    module = _loaded(payload["source"]) if backend == "numpy" else _compiled(act, task, law, payload["source"], model)
    if given is not None:
        check_parameters(module.PARAMETERS, values)
    return module, values


def module_source(act: ActivationLike, task: str | Task, tokens: Tokens) -> str:
    """The source of the generated module, from the cache when it is there."""
    return str(_payload(act, task, lengths(tokens), None, None)["source"])


def bayes_module(task: str | Task, tokens: Tokens, model: Model | None = None) -> ModuleType:
    """The generated module of the Bayes-optimal level, from the cache when it is there."""
    law = lengths(tokens)

    def build() -> dict[str, Any]:
        from replicode.codegen.compiler import generate
        from replicode.theory.derive.bayes import derive_bayes

        system = derive_bayes(task, law, model)
        made_for = f"Bayes-optimal level, task {system.task.text}, {law} tokens"
        return {"made_for": made_for, "source": generate(system).source}

    return _loaded(cached("bayes_module", (task_content(task), repr(law), *model_content(model)), build)["source"])


def dynamics_module(
    act: ActivationLike, task: str | Task, tokens: Tokens, given: Mapping[str, float], model: Model | None = None
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module of the training dynamics, and the values of the activation's parameters."""
    law = lengths(tokens)

    def build() -> dict[str, Any]:
        from replicode.codegen.compiler import generate
        from replicode.theory.derive.dynamics import derive_dynamics
        from replicode.theory.language.activation import activation

        made = activation(act)
        known = {p: float(v) for p, v in {**made.defaults, **made.values}.items()}
        check_parameters(made.parameters, {**known, **given})
        source = generate(derive_dynamics(made, task, law, model)).source
        return {"made_for": f"dynamics of {made.text}, {law} tokens", "source": source, "settled": known}

    payload = cached("dynamics_module", _key(act, task, law, model), build)
    module, values = _loaded(payload["source"]), {**payload["settled"], **given}
    check_parameters(module.PARAMETERS, values)
    return module, values


def step_module(
    act: ActivationLike,
    task: str | Task,
    tokens: Tokens,
    given: Mapping[str, float] | None = None,
    model: Model | None = None,
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module of one step of breaking, from the cache when it is there, and the parameters' values."""
    law = lengths(tokens)

    def build() -> dict[str, Any]:
        from replicode.theory.derive.rsb import derive_step

        return _build(act, task, law, given, model, derive_step)

    payload = cached("step_module", _key(act, task, law, model), build)
    return _loaded(payload["source"]), {**payload["settled"], **(given or {})}


def _key(act: ActivationLike, task: str | Task, tokens: Lengths, model: Model | None) -> Content:
    return activation_content(act), task_content(task), repr(tokens), *model_content(model)


def _payload(
    act: ActivationLike, task: str | Task, tokens: Lengths, given: Mapping[str, float] | None, model: Model | None
) -> dict[str, Any]:
    return cached("module", _key(act, task, tokens, model), lambda: _build(act, task, tokens, given, model))


def _build(
    act: ActivationLike,
    task: str | Task,
    tokens: Lengths,
    given: Mapping[str, float] | None,
    model: Model | None,
    to_level: Callable[[SaddleSystem], System] = lambda system: system,
) -> dict[str, Any]:
    from replicode.codegen.compiler import generate
    from replicode.theory.derive.saddle import derive
    from replicode.theory.language.activation import activation

    made = activation(act)
    known = {p: float(v) for p, v in {**made.defaults, **made.values}.items()}
    if given is not None:
        check_parameters(made.parameters, {**known, **given})
    system = derive(made, task, tokens, model)
    return {
        "made_for": f"{made.text}, task {system.task.text}, {tokens} tokens",
        "source": generate(to_level(system)).source,
        "settled": known,
    }


def _compiled(act: ActivationLike, task: str | Task, tokens: Lengths, source: str, model: Model | None) -> ModuleType:
    """The module with compiled loops, cached for this compiler and processor."""
    from replicode.codegen.native import machine

    def build() -> dict[str, Any]:
        from replicode.codegen.fast import c_source, compiled
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
    from replicode.codegen.native import accelerated

    module: ModuleType = accelerated(_loaded(source, "fast"), base64.b64decode(library))
    return module


def call(module: ModuleType, name: str, **arguments: Any) -> Any:
    """What a function of a generated module returns, watched where someone asked to; its errors become ours."""
    with watched(module):
        return called(module, name, **arguments)
