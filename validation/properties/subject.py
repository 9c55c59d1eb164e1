"""What the properties look at: an activation on a task, with its kernels, its generated modules and a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath import mpf

from replicode.codegen.compiler import generate
from replicode.codegen.interpret.oracle import evaluate
from replicode.codegen.ir import Kernel
from replicode.codegen.lower import lower, pullback_kernel, sigma_kernel, stable_form
from replicode.theory.calculus.numeric import Program, Undefined, random_scores
from replicode.theory.derive.population import derive_population
from replicode.theory.derive.saddle import SaddleSystem, derive, loss_derivatives
from replicode.theory.errors import Refusal
from replicode.theory.language.activation import Activation, activation
from replicode.theory.language.nodes import X
from replicode.theory.language.task import Task, task
from replicode.theory.lengths import Lengths, lengths
from replicode.theory.model import DEFAULT_MODEL, F, Model, Y
from replicode.theory.properties.analysis import Analysis, analysis, known_values
from replicode.theory.properties.domain import check_domain
from replicode.theory.properties.symbolic import properties

DIGITS = 60
SAMPLES = 3
SUITE_TOKENS = 2
MOST_TOKENS = 4
_NEWTON_STEPS = 100

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Subject:
    """An activation on a task with what was found and made of it; `kernels` lack what kinks forbid.

    `modules` generates the module of a length or a distribution of it, `variants` that of another activation at
    SUITE_TOKENS; both are None where the solver refuses.
    """

    activation: Activation
    task: Task
    tokens: int
    analysis: Analysis
    kernels: Mapping[str, Kernel]
    modules: Callable[[int | str], ModuleType | None]
    variants: Callable[[Activation], ModuleType | None]
    model: Model = DEFAULT_MODEL
    seed: int = 1
    mixture: str = "1:0.25,2:0.75"

    @cached_property
    def parameters(self) -> dict[str, float]:
        """A value for every parameter."""
        return {s.name: float(v) for s, v in known_values(self.activation).items()}

    @cached_property
    def few(self) -> int:
        """The number of tokens at which averages are taken."""
        return min(self.tokens, SUITE_TOKENS)

    @cached_property
    def several(self) -> int:
        """The number of tokens at which averages over the scores alone are taken."""
        return min(self.tokens, SUITE_TOKENS + 1)

    @cached_property
    def settled(self) -> Activation:
        """The activation with every parameter's value written in."""
        return replace(self.activation, values=self.parameters).with_values()

    @cached_property
    def direct(self) -> Program:
        """sigma as it was typed, without token algebra, rewrites or emitters."""
        return Program(self.activation.expr, known_values(self.activation))

    def infinite_data(self, tokens: int) -> ModuleType:
        """The generated module of the population level, every parameter's value written in."""
        if tokens not in self._at_infinite_data:
            self._at_infinite_data[tokens] = population_module(self.settled, self.task, tokens)
        return self._at_infinite_data[tokens]

    @cached_property
    def _at_infinite_data(self) -> dict[int, ModuleType]:
        return {}

    def values(self, module: ModuleType) -> Array:
        """The parameters in the module's order."""
        return np.array([self.parameters[p] for p in module.PARAMETERS])

    def run(self, name: str, **inputs: Any) -> dict[str, Any]:
        """The outputs of a kernel in mpmath."""
        tokens = {k: v for k, v in inputs.items() if k in ("x", "w")}
        scalars = {k: v for k, v in inputs.items() if k not in tokens}
        values = {k: mpf(v) for k, v in self.parameters.items()}
        return evaluate(self.kernels[name], tokens, scalars, values)

    def sigma(self, x: Sequence[mpf]) -> list[mpf]:
        """The lowered sigma at every token."""
        return self.vector(self.run("sigma", x=x)["sigmas"])

    def vector(self, value: Any) -> list[mpf]:
        """One number per token, also where all are alike."""
        return list(value) if isinstance(value, list) else [value] * self.tokens

    def fields(self) -> list[dict[str, Any]]:
        """Random fields (x, w, y, V_v) at which sigma has a value."""
        rng = random.Random(self.seed)
        found: list[dict[str, Any]] = []
        while len(found) < SAMPLES:
            x, w = random_scores(rng, self.tokens), random_scores(rng, self.tokens)
            fields = {"x": x, "w": w, "y": mpf(rng.uniform(-1.5, 1.5)), "V_v": mpf(rng.uniform(0.2, 1.5))}
            try:
                self.direct(x)
            except Undefined:
                continue
            found.append(fields)
        return found

    def overlaps(self, count: int) -> list[tuple[float, float]]:
        """Random (m, tau), tau^2 = q - m^2, of a student's scores."""
        rng = random.Random(self.seed + 1)
        return [(rng.uniform(0.3, 1.2), rng.uniform(0.2, 0.6)) for _ in range(count)]

    def loss(self, x: Sequence[mpf], w: Sequence[mpf], y: mpf, V_v: mpf) -> mpf:
        """min over z of |z - w|^2/(2 V_v) + loss(y, sigma.z), by Newton's method in z = w + a sigma, the direct one."""
        sigma = self.direct(x)
        along, size = mpmath.fdot(sigma, w), mpmath.fdot(sigma, sigma)
        value, slope, bend = self._losses
        a, step = mpf(0), mpf(1)
        for _ in range(_NEWTON_STEPS):
            f = along + a * size
            step = (a / V_v + slope(y, f)) / (1 / V_v + size * bend(y, f))
            a -= step
            if abs(step) <= mpf(10) ** (5 - mpmath.mp.dps) * (1 + abs(a)):
                return a**2 * size / (2 * V_v) + value(y, along + a * size)
        raise Refusal(f"loss {self.model.loss}: its minimum over the values is not found")

    @cached_property
    def _losses(self) -> list[Callable[[mpf, mpf], mpf]]:
        """The loss and its first two derivatives in f."""
        return [sp.lambdify((Y, F), sp.diff(self.model.loss, F, n), modules="mpmath") for n in range(3)]

    @cached_property
    def row_sum(self) -> float | None:
        """What sigma sums to at one token, where algebra found the sum; None also where that is zero."""
        total = self.analysis.properties.row_sum
        scale = None if total is None else float(Program(total, known_values(self.activation))([mpf(0)])[0])
        return scale or None


def population_module(act: Activation, setting: Task, tokens: int) -> ModuleType:
    """The generated module of the population level."""
    return generate(derive_population(act, setting, tokens)).load()


def examined(
    act: str | Activation, setting: str | Task = "spiked", tokens: int | None = None, **parameters: float
) -> Subject:
    """The subject of an activation as a user names it; what depends on the task alone is derived once for many."""
    settled = activation(act, parameters)
    check_domain(settled)
    fixed = settled.with_values()
    return prepared(fixed, task(setting), tokens, analysis(fixed))


def prepared(act: Activation, setting: Task, tokens: int | None, found: Analysis) -> Subject:
    """As `subject`, with the derivation of the task shared between activations."""
    count = min(tokens or SUITE_TOKENS, MOST_TOKENS)
    if not act.expr.has(X):
        return subject(act, setting, tokens, found)
    try:
        base = _shared(setting)
    except Refusal:
        return subject(act, setting, tokens, found)
    staged = loss_derivatives(act.token_form(), base.values)
    system = replace(base, activation=act, lengths=lengths(count), properties=properties(act), loss=staged)
    return subject_of(system, found)


@lru_cache(maxsize=16)
def _shared(setting: Task) -> SaddleSystem:
    return derive(Activation("score", X), setting, SUITE_TOKENS)


def suited(law: Lengths | None) -> Lengths:
    """The lengths at which the suite is run: those asked for, MOST_TOKENS at most."""
    if law is None:
        return lengths(SUITE_TOKENS)
    shares: dict[int, float] = {}
    for n, p in law.shares:
        shares[min(n, MOST_TOKENS)] = shares.get(min(n, MOST_TOKENS), 0.0) + p
    return Lengths(tuple(shares), tuple(shares.values()))


def subject(act: Activation, setting: str | Task, tokens: int | None, found: Analysis) -> Subject:
    """Derive, lower and (when asked for) generate what the properties look at."""
    count = min(tokens or SUITE_TOKENS, MOST_TOKENS)
    setting = task(setting)
    try:
        system = derive(act, setting, count)
    except Refusal:
        # The kernels do not depend on the task, and a task may be beyond what the solver knows.
        kernels = _kernels(derive(act, "spiked", count))
        return Subject(act, setting, count, found, kernels, lambda _: None, lambda _: None)
    return subject_of(system, found)


def subject_of(system: SaddleSystem, found: Analysis) -> Subject:
    """The subject of a derived system at a fixed number of tokens."""
    made: dict[Lengths, ModuleType | None] = {}

    def module(spec: int | str) -> ModuleType | None:
        law = lengths(spec)
        if law not in made:
            made[law] = _module(replace(system, lengths=law))
        return made[law]

    def variant(other: Activation) -> ModuleType | None:
        staged = loss_derivatives(other.token_form(), system.values)
        law = lengths(min(system.tokens or SUITE_TOKENS, SUITE_TOKENS))
        return _module(replace(system, activation=other, lengths=law, properties=properties(other), loss=staged))

    count = system.tokens or SUITE_TOKENS
    return Subject(system.activation, system.task, count, found, _kernels(system), module, variant, system.model)


def _kernels(system: SaddleSystem) -> dict[str, Kernel]:
    try:
        return {k.name: k for k in lower(system).kernels}
    except Refusal:
        stable = stable_form(system.activation, system.tokens or SUITE_TOKENS)
        return {k.name: k for k in (sigma_kernel(stable), pullback_kernel(stable))}


def _module(system: SaddleSystem) -> ModuleType | None:
    try:
        return generate(system).load()
    except Refusal:
        return None


def number(expr: sp.Expr, values: Mapping[sp.Symbol, float | int]) -> float:
    """The value of a closed form; not a number where it has none."""
    try:
        return float(sp.N(expr.subs(values)))
    except (TypeError, ZeroDivisionError):
        return float("nan")
