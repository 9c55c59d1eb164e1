"""Presentation of a derivation: one `Derivation` of a system at a level, and its JSON; `pages` writes the rest.

Steps and equations keep their expressions until they are written; people are shown long ones with common parts
abbreviated, the JSON has them in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sympy as sp

from replicode.derivations import as_latex as as_latex
from replicode.derivations import as_latex_fragment as as_latex_fragment
from replicode.derivations import as_markdown as as_markdown
from replicode.derivations import as_text as as_text
from replicode.derivations.short import Abbreviations, abbreviated
from replicode.theory.calculus.tokens import Definition
from replicode.theory.chain.activation import SIGMA_SIGMA, SIGMA_W
from replicode.theory.chain.bayes import bayes_chain, bayes_equations
from replicode.theory.chain.dynamics import dynamics_chain
from replicode.theory.chain.steps import population_chain
from replicode.theory.derive.bayes import BayesSystem
from replicode.theory.derive.channel import N, U
from replicode.theory.derive.dynamics import DynamicsSystem
from replicode.theory.derive.optimum import excess_of
from replicode.theory.derive.population import PopulationSystem
from replicode.theory.derive.replica import Step
from replicode.theory.derive.rsb import StepSystem
from replicode.theory.derive.saddle import Reduction, SaddleSystem
from replicode.theory.derive.stability import StabilitySystem
from replicode.theory.language.activation import Activation
from replicode.theory.language.functions import nodes_that
from replicode.theory.language.nodes import L, TokenSum, X
from replicode.theory.language.task import Task
from replicode.theory.model import Model
from replicode.theory.typeset.arranged import arranged
from replicode.theory.typeset.notation import is_plain, meaning, parameter_symbols, text

if TYPE_CHECKING:
    from replicode.codegen.lower import System

W_CHI = sp.Symbol("w_chi", real=True)
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Jacobian:
    """diag(diagonal) + sum of outer products over the tokens, with the definitions that they use."""

    diagonal: sp.Expr
    outers: tuple[tuple[sp.Expr, sp.Expr], ...]
    where: tuple[Definition, ...]


@dataclass(frozen=True)
class StagedChannel:
    """M with the values eliminated, in token sums, and the inverse map of the prox in stages."""

    envelope: sp.Expr
    inverse: sp.Expr
    where: tuple[Definition, ...]


@dataclass(frozen=True)
class Derivation:
    """What is shown of a system at one level."""

    level: str
    activation: Activation | None
    task: Task
    model: Model
    tokens: int | str | None
    free_energy: sp.Expr
    equations: Mapping[str, sp.Expr]
    reductions: tuple[Reduction, ...]
    steps: tuple[Step, ...]
    prox: sp.Expr | None = None
    jacobian: Jacobian | None = None
    inverse_map: sp.Expr | None = None
    channel: StagedChannel | None = None

    @property
    def subject(self) -> str:
        """Whose theory it is."""
        return self.activation.text if self.activation else "any estimator"

    @property
    def task_name(self) -> str:
        """The task by its name, or by its log-weight where it has none."""
        return self.task.text if self.task.name == "expression" else self.task.name

    @cached_property
    def parts(self) -> list[tuple[str, int]]:
        """The headings of the chain, with the number of their first step."""
        firsts: dict[str, int] = {}
        for number, step in enumerate(self.steps, 1):
            firsts.setdefault(step.part, number)
        return list(firsts.items())

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the activation that are left as symbols."""
        return self.activation.parameters if self.activation else ()

    @cached_property
    def shown_steps(self) -> list[tuple[Step, Abbreviations, sp.Expr, sp.Expr]]:
        """Each step with its sides abbreviated."""
        return [(s, short, lhs, rhs) for s in self.steps for short, (lhs, rhs) in [abbreviated(s.lhs, s.rhs)]]

    def _repr_markdown_(self) -> str:
        return as_markdown(self)


def derivation(system: System | StabilitySystem) -> Derivation:
    """The derivation of a system, whatever its level."""
    of = system.system if isinstance(system, StabilitySystem | StepSystem) else system
    act = None if isinstance(of, BayesSystem) else of.activation
    return Derivation(
        activation=act,
        task=of.task,
        model=of.model,
        tokens=None if of.lengths is None else of.lengths.fixed or str(of.lengths),
        reductions=() if isinstance(of, BayesSystem) else of.reductions,
        **_of_level(system),
    )


def _of_level(system: System | StabilitySystem) -> dict[str, Any]:
    """What the levels show: potential, equations, and the steps to them."""
    match system:
        case SaddleSystem():
            derived = {f"{name}_derivative_form": e for name, e in system.derivative_equations().items()}
            more = _prox(system) if system.model.has_scores else {}
            return _shown("rs", system.free_energy, system.equations() | derived, system.steps, **more)
        case StabilitySystem():
            return _shown("stability", system.system.free_energy, system.equations(), system.steps)
        case StepSystem():
            return _shown("1rsb", system.free_energy, system.equations(), system.steps)
        case BayesSystem():
            return _shown("bayes", system.free_entropy, bayes_equations(system), bayes_chain(system))
        case DynamicsSystem():
            return _shown("dynamics", system.risk, system.all_equations(), dynamics_chain(system))
    return _population(system)


def _shown(
    level: str, potential: sp.Expr, equations: Mapping[str, sp.Expr], steps: tuple[Step, ...], **more: Any
) -> dict[str, Any]:
    return {"level": level, "free_energy": potential, "equations": equations, "steps": steps, **more}


def _prox(system: SaddleSystem) -> dict[str, Any]:
    """Stationarity of the prox, its inverse map and the Jacobian of that."""
    inverse, staged = inverse_map(system), staged_channel(system)
    return {"prox": inverse - W_CHI, "jacobian": prox_jacobian(system), "inverse_map": inverse, "channel": staged}


def _population(system: PopulationSystem) -> dict[str, Any]:
    """The risk with infinite data, and what it is made of."""
    risk, closed = system.risk, {"A": system.averages.A, "B": system.averages.B}
    equations = {
        "risk": risk.on_manifold,
        "excess_risk": excess_of(risk.on_manifold, system.model),
        **{name: expr for name, expr in closed.items() if expr is not None},
        "hidden_score_mean": risk.score_mean,
        "hidden_score_variance": risk.score_variance,
        "risk_integrand_hidden": risk.hidden,
        "risk_integrand_idle": risk.idle,
        "bias_idle": risk.bias,
    }
    return _shown("population", risk.on_manifold, equations, population_chain(system))


def inverse_map(system: SaddleSystem) -> sp.Expr:
    """w_chi = chi + V_k grad loss at one token, all sums written out as TokenSum."""
    expr = X + system.model.scores.V * system.loss.gradient_x
    for definition in reversed((*system.loss.value_definitions, *system.loss.gradient_definitions)):
        body = TokenSum(definition.expr) if definition.kind == "sum" else definition.expr
        expr = expr.xreplace({definition.symbol: body})
    return expr.xreplace({L: system.length})


def prox_jacobian(system: SaddleSystem) -> Jacobian:
    """I + V_k Hessian of the loss away from kinks, diagonal plus outer products for any number of tokens."""
    loss, v, block = system.loss, system.model.scores.V, system.loss.hessian_xx
    defined = (*loss.value_definitions, *loss.gradient_definitions, *loss.hessian_definitions)
    shown = _staged(system)
    outers = tuple((v * shown(left), shown(right)) for left, right in block.outers)
    used = set().union(block.diagonal.free_symbols, *(e.free_symbols for pair in block.outers for e in pair))
    return Jacobian(1 + v * shown(block.diagonal), outers, _where(system, used, defined))


def staged_channel(system: SaddleSystem) -> StagedChannel:
    """The loss that is left for the scores, and w_chi = x + V_k grad loss in the stages of the chain rule."""
    loss, shown = system.loss, _staged(system)
    inverse = X + system.model.scores.V * shown(loss.gradient_x)
    defined = (*loss.value_definitions, *loss.gradient_definitions)
    where = _where(system, loss.gradient_x.free_symbols, defined)
    return StagedChannel(shown(system.values.envelope), inverse, where)


def _names(system: SaddleSystem) -> dict[sp.Symbol, sp.Expr]:
    return {U: SIGMA_W, N: SIGMA_SIGMA, L: system.length}


def _staged(system: SaddleSystem) -> Callable[[sp.Expr], sp.Expr]:
    """How an expression of the stages is shown: off kinks, the token sums by their names."""
    return lambda expr: expr.replace(sp.DiracDelta, lambda *_: sp.S.Zero).xreplace(_names(system))


def _where(system: SaddleSystem, used: set[sp.Symbol], defined: tuple[Definition, ...]) -> tuple[Definition, ...]:
    """The definitions that these symbols need, in order."""
    shown, needed, where = _staged(system), set(used), []
    for definition in reversed(defined):
        if definition.symbol in needed:
            needed |= definition.expr.free_symbols
            symbol = _names(system).get(definition.symbol, definition.symbol)
            where.append(Definition(symbol, definition.kind, shown(definition.expr)))
    return tuple(reversed(where))


def as_json(found: Derivation) -> dict[str, Any]:
    """The JSON object of `derive`; expressions are in SymPy syntax, those of the steps without functions of our own."""
    shown: dict[str, Any] = {
        "level": found.level,
        "activation": found.activation.text if found.activation else None,
        "task": found.task_name,
        "log_weight": found.task.text,
        "tokens": found.tokens,
        "free_energy": str(found.free_energy),
        "equations": {name: str(arranged(e)) for name, e in found.equations.items()},
        "prox": None if found.prox is None else str(found.prox),
        "prox_jacobian": None if found.jacobian is None else _jacobian_json(found.jacobian),
        "inverse_map": None if found.inverse_map is None else str(found.inverse_map),
        "reductions": [{"name": r.name, "statement": r.statement} for r in found.reductions],
        "parts": [{"title": title, "first": first} for title, first in found.parts],
        "steps": [{"rule": s.rule, "lhs": text(s.lhs), "rhs": text(s.rhs)} for s in found.steps],
    }
    return {"symbols": symbols_of(shown, found.parameters), **shown}


def _jacobian_json(jacobian: Jacobian) -> dict[str, Any]:
    return {
        "diagonal": str(jacobian.diagonal),
        "outer": [[str(left), str(right)] for left, right in jacobian.outers],
        "where": [{"name": d.symbol.name, "kind": d.kind, "expression": str(d.expr)} for d in jacobian.where],
    }


def symbols_of(shown: Mapping[str, Any], parameters: Iterable[str]) -> dict[str, str]:
    """What every name in the expressions means: of the notation, of the activation, or SymPy's own, left out."""
    renamed = {new.name: old.name for old, new in parameter_symbols(parameters).items()}
    own = {p: "parameter of the activation" for p in parameters}
    own |= {new: f"parameter {old} of the activation, under another name in the steps" for new, old in renamed.items()}
    names = {n for written in _written(shown) for n in _NAME.findall(written)}
    found: dict[str, str] = {}
    for name in sorted(names):
        explained = own.get(name) or meaning(name)
        if explained:
            found[name] = explained
        elif is_plain(name) and name not in _FUNCTIONS:
            raise AssertionError(f"{name} has no entry in the notation")
    return found


_FUNCTIONS = tuple(node.__name__ for node in nodes_that(lambda f: f.own))


def _written(shown: Mapping[str, Any]) -> list[str]:
    """Every expression of the JSON object, as text."""
    jacobian = shown["prox_jacobian"]
    written = [shown["free_energy"], *shown["equations"].values(), shown["prox"] or "", shown["inverse_map"] or ""]
    written += [name for name in shown["equations"] if meaning(name)]
    written += [s[side] for s in shown["steps"] for side in ("lhs", "rhs")]
    if jacobian:
        written += [jacobian["diagonal"], *(e for pair in jacobian["outer"] for e in pair)]
        written += [f"{d['name']} {d['expression']}" for d in jacobian["where"]]
    return written
