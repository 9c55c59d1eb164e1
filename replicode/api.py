"""The Python interface: derive, solve and validate, with the cache behind them."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from replicode.cache import cached
from replicode.theory.budget import budget
from replicode.theory.errors import InputError, Refusal
from replicode.theory.lengths import Lengths, lengths
from replicode.theory.limits import given_parameters

if TYPE_CHECKING:
    from replicode.theory.activation import Activation
    from replicode.theory.model import Model
    from replicode.theory.saddle import SaddleSystem
    from replicode.theory.task import Task
    from replicode.validation.report import Report

BACKENDS = ("numpy", "fast")
DOUBLE_DIGITS = 12
BAYES_DIGITS = 6
BAYES_WORST = 1e-3
BAYES_TOKENS = 4
FLOAT_DIGITS = 15
MOST_DIGITS = 50


def derive(
    act: str | Activation,
    task: str | Task = "spiked",
    tokens: int | str | Lengths | None = None,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> SaddleSystem:
    """The saddle-point system of an activation; `tokens=None` keeps L symbolic, '1:0.2,2:0.8' is a distribution."""
    from replicode.theory.activation import activation
    from replicode.theory.saddle import derive as derive_system

    return derive_system(activation(act, given_parameters(parameters, more)), task, tokens, model)


def module_for(
    act: str | Activation, task: str | Task, tokens: int | str | Lengths, backend: str = "numpy"
) -> tuple[ModuleType, dict[str, float]]:
    """The generated module, from the cache when it is there, and the activation's settled parameters.

    Text is looked up as typed, so that a cached module is found without SymPy being imported.
    """
    if backend not in BACKENDS:
        raise InputError("backend", backend, " or ".join(BACKENDS))
    law = lengths(tokens)
    payload = _module_payload(act, task, law)
    module = _loaded(payload["source"]) if backend == "numpy" else _compiled(act, task, law, payload["source"])
    return module, dict(payload["settled"])


def _compiled(act: str | Activation, task: str | Task, tokens: Lengths, source: str) -> ModuleType:
    """The module with compiled loops, cached for this compiler and processor."""
    from replicode.codegen.native import machine

    def build() -> dict[str, Any]:
        from replicode.codegen.fast import c_source, compiled

        system = derive(act, task, tokens)
        library = base64.b64encode(compiled(c_source(system))).decode()
        return {"made_for": f"compiled {system.activation.text}, {tokens} tokens", "library": library}

    payload = cached("fast", (_described(act), _described(task), repr(tokens), machine()), build)
    return _accelerated(source, payload["library"])


def module_source(act: str | Activation, task: str | Task, tokens: int | str | Lengths) -> str:
    """The source of the generated module, from the cache when it is there."""
    return str(_module_payload(act, task, lengths(tokens))["source"])


def _module_payload(act: str | Activation, task: str | Task, tokens: Lengths) -> dict[str, Any]:
    return cached("module", (_described(act), _described(task), repr(tokens)), lambda: _build(act, task, tokens))


def _described(thing: object) -> object:
    if isinstance(thing, str):
        return thing
    import sympy as sp

    if callable(thing):
        from replicode.theory.activation import activation

        thing = activation(thing)

    described = [type(thing).__name__]
    for key, value in vars(thing).items():
        described.append(f"{key}={sp.srepr(value) if isinstance(value, sp.Basic) else value!r}")
    return described


def _build(act: str | Activation, task: str | Task, tokens: Lengths) -> dict[str, Any]:
    from replicode.codegen.emit import generate

    system = derive(act, task, tokens)
    module = generate(system)
    known = {**system.activation.defaults, **system.activation.values}
    return {
        "made_for": f"{system.activation.text}, task {system.task.text}, {tokens} tokens",
        "source": module.source,
        "settled": {p: float(known[p]) for p in system.activation.parameters if p in known},
    }


@lru_cache(maxsize=32)
def _loaded(source: str, name: str = "generated") -> ModuleType:
    from replicode.codegen.loading import load_source

    return load_source(source, f"replicode_{name}_{hashlib.sha256(source.encode()).hexdigest()[:16]}")


@lru_cache(maxsize=32)
def _accelerated(source: str, library: str) -> ModuleType:
    from replicode.codegen.native import accelerated

    module: ModuleType = accelerated(_loaded(source, "fast"), base64.b64decode(library))
    return module


def check_digits(digits: int, most: int = DOUBLE_DIGITS) -> float:
    """The tolerance that a number of digits asks for."""
    if not isinstance(digits, int) or isinstance(digits, bool) or not 1 <= digits <= most:
        raise InputError("digits", digits, f"a whole number from 1 to {most}")
    return 10.0**-digits


def solve(
    act: str | Activation,
    *,
    task: str | Task = "spiked",
    tokens: int | str | Lengths,
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    digits: int = 8,
    init: str = "informed",
    backend: str = "numpy",
    bayes: bool = True,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Any:
    """Solve the saddle-point equations; the Solution carries its error, its warnings and the Bayes-optimal risk.

    `backend` is numpy, or fast for compiled loops, which need a C compiler; `bayes=False` leaves bayes_risk out.
    The activation's parameters are given in `parameters`, or as keywords where their names are no argument's.
    """
    tol = check_digits(digits, MOST_DIGITS)
    given = given_parameters(parameters, more)
    module, settled = module_for(act, task, tokens, backend)
    values = {**settled, **given}
    check_parameters(module, values)
    setting = {"alpha": alpha, "nu": nu, "noise": noise, "lambda_k": lambda_k, "lambda_v": lambda_v}
    if digits > DOUBLE_DIGITS:
        from replicode.precise import precise_solution

        solution = precise_solution((act, task, lengths(tokens)), module, setting, init, values, digits)
    else:
        solution = call(module.solve, **setting, init=init, tol=tol, **values)
    if not bayes or _slow_bayes(module):
        return solution
    return _beside_bayes(solution, bayes_reference(task, tokens, alpha, nu, noise))


def _slow_bayes(module: ModuleType) -> bool:
    """Whether the Bayes-optimal risk takes minutes: weights that couple the scores of many tokens."""
    return module.LOCATION in ("ranked", "normalised") and max(k.tokens for k in module.KERNELS) > BAYES_TOKENS


def bayes_reference(
    task: str | Task, tokens: int | str | Lengths, alpha: float, nu: float, noise: float
) -> tuple[float, float] | None:
    """The Bayes-optimal test risk and its error, from the cache when it is there; None where it is refused."""

    def build() -> dict[str, Any]:
        from replicode.bayes_level import bayes

        try:
            found = bayes(task=task, tokens=tokens, nu=nu, alpha=alpha, noise=noise, digits=BAYES_DIGITS)
        except Refusal as refusal:
            return {"made_for": f"Bayes-optimal risk, refused: {refusal}", "risk": None, "error": None}
        trusted = found.converged and math.isfinite(found.test_risk) and found.error < BAYES_WORST
        return {
            "made_for": f"Bayes-optimal risk, {tokens} tokens, alpha = {alpha:g}, nu = {nu:g}",
            "risk": found.test_risk if trusted else None,
            "error": found.error,
        }

    key = _described(task), repr(lengths(tokens)), float(alpha), float(nu), float(noise), BAYES_DIGITS
    found = cached("bayes", key, build)
    return None if found["risk"] is None else (float(found["risk"]), float(found["error"]))


def _beside_bayes(solution: Any, reference: tuple[float, float] | None) -> Any:
    """The solution with the Bayes-optimal risk, and a warning where it claims to beat it."""
    if reference is None:
        return solution
    risk, error = reference
    warnings = solution.warnings
    if float(solution.test_risk) + float(solution.error) < risk - error:
        warnings = (*warnings, f"below the Bayes-optimal risk {risk:.6g}: no estimator is, the solution is spurious")
    return solution._replace(bayes_risk=risk, warnings=warnings)


def check_parameters(module: ModuleType, values: Mapping[str, float]) -> None:
    """Every parameter of the activation has a finite value, and nothing else is given."""
    names = list(module.PARAMETERS)
    if unknown := sorted(set(values) - set(names)):
        raise InputError("param", unknown, f"the parameters {names}" if names else "no parameter: there is none")
    if missing := [n for n in names if n not in values]:
        raise InputError("param", missing, f"a value for each of {missing}, as in --param {missing[0]}=0.5")
    for name in names:
        if not math.isfinite(values[name]):
            raise InputError(f"param {name}", values[name], "a finite number")


def call(function: Any, **arguments: Any) -> Any:
    """A generated function, its ValueErrors turned into ours."""
    try:
        return function(**arguments)
    except ValueError as problem:
        name, _, rest = str(problem).partition(": got ")
        value, _, allowed = rest.partition(", allowed is ")
        if not allowed:
            raise
        raise InputError(name, _Shown(value), allowed) from None


class _Shown(str):
    """Text that is already the representation of a value."""

    def __repr__(self) -> str:
        return str(self)


def derivation_of(
    act: str, task: str, tokens: int | str | None, level: str, parameters: Mapping[str, float]
) -> dict[str, Any]:
    """The derivation of an activation in every format, from the cache when it is there."""
    law = None if tokens is None else lengths(tokens)

    @budget(f"deriving level {level}")
    def build() -> dict[str, Any]:
        from replicode.present import (
            as_json,
            as_latex,
            as_markdown,
            as_text,
            bayes_derivation,
            derivation,
            population_derivation,
            stability_derivation,
        )
        from replicode.theory.activation import activation
        from replicode.theory.bayes import derive_bayes
        from replicode.theory.population import derive_population
        from replicode.theory.stability import derive_stability
        from replicode.theory.task import task as task_of

        settled = activation(act, parameters)
        if level == "bayes":
            shown = (law.fixed or str(law)) if law else None
            found = bayes_derivation(settled, derive_bayes(task_of(task).at(law)), shown)
        elif level == "stability":
            found = stability_derivation(derive_stability(derive(settled, task, law)))
        elif level == "population":
            found = population_derivation(derive_population(settled, task, law))
        else:
            found = derivation(derive(settled, task, law))
        return {
            "made_for": f"derivation of {found.activation}, task {found.task}, level {level}",
            "json": as_json(found),
            "text": as_text(found),
            "markdown": as_markdown(found),
            "latex": as_latex(found),
        }

    return cached("derive", (act, task, repr(law), level, sorted(parameters.items()), "2"), build)


def validate(
    act: str | Activation,
    *,
    task: str | Task = "spiked",
    tokens: int | str | Lengths,
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    digits: int = 5,
    init: str = "informed",
    dim: int = 400,
    seeds: int = 40,
    progress: Callable[[int, int, str], None] | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Report:
    """Train attention at D/4, D/2 and D, extrapolate in 1/D and compare all seven quantities with the theory."""
    import numpy as np

    from replicode.validation.controls import controls_of
    from replicode.validation.experiment import report, run
    from replicode.validation.measure import QUANTITIES
    from replicode.validation.module import GeneratedAttention
    from replicode.validation.report import Report

    if not isinstance(dim, int) or dim < 40:
        raise InputError("dim", dim, "a whole number of at least 40")
    if not isinstance(seeds, int) or seeds < 2:
        raise InputError("seeds", seeds, "a whole number of at least 2")
    physics: dict[str, Any] = {"alpha": alpha, "nu": nu, "noise": noise, "lambda_k": lambda_k, "lambda_v": lambda_v}
    given = given_parameters(parameters, more)
    solution = solve(act, task=task, tokens=tokens, digits=digits, init=init, parameters=given, **physics)
    module, settled = module_for(act, task, tokens)
    values = {**settled, **given}
    attention = GeneratedAttention(module, nu, noise, np.array([values[p] for p in module.PARAMETERS]))
    experiment = run(
        attention.setting(alpha),
        attention,
        (lambda_k, lambda_v),
        attention.start(init),
        attention.risk,
        (dim // 4, dim // 2, dim),
        seeds,
        progress=progress,
        controls=controls_of(attention),
    )
    fields = solution._asdict() | solution.order_parameters
    theory = {q: float(fields[q]) for q in QUANTITIES}
    errors = {**solution.errors, "test_risk": solution.error}
    found: dict[str, Any] = report(theory, experiment, {q: errors[q] for q in QUANTITIES})
    found["dims"] = tuple(found["dims"])
    found["warnings"] = (*solution.warnings, *found["warnings"])
    found["bayes_risk"] = solution.bayes_risk
    return Report(**found)
