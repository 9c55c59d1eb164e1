"""Averages of a generated module on fixed nodes, at points that need not solve anything, and fixed points on them.

Nodes are prox-free, so that nothing is minimised and every call takes the same short time; where the prox folds, or two
sets of nodes disagree, there is nothing to compare and the properties say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import sympy as sp

from replicode.theory.language.nodes import X
from replicode.validation.properties.subject import Array, Subject
from replicode.validation.properties.verdict import Verdict, not_applicable

NODES = (10_000, 30_000)
RESOLVED = 1e-2
UNFOLDED = 1e-6
_SETTLED = 1e-9
_MOST_STEPS = 80


@dataclass(frozen=True)
class Physics:
    """The arguments of a solver."""

    alpha: float = 2.3
    nu: float = 1.4
    noise: float = 0.35
    lambda_k: float = 0.7
    lambda_v: float = 1.2

    @property
    def problem(self) -> tuple[float, float, float]:
        """What the free energy takes besides order parameters, conjugates and averages."""
        return self.alpha, self.lambda_k, self.lambda_v


PHYSICS = Physics()
ORDER = {"m_k": 0.35, "q_k": 0.6, "V_k": 0.1, "m_v": 0.5, "q_v": 0.8, "V_v": 0.1}
CONJUGATES = {"mh_k": 0.6, "qh_k": 0.5, "Vh_k": 0.8, "mh_v": -0.9, "qh_v": 1.1, "Vh_v": 1.4}


def ordered(values: Mapping[str, float], symbols: Sequence[sp.Symbol]) -> Array:
    """Named numbers as a vector in the model's order."""
    return np.array([values[s.name] for s in symbols])


def quiet(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call whose overflows are judged by what comes out."""
    with np.errstate(all="ignore"):
        return function(*arguments)


def has_scores(of: Subject, module: ModuleType) -> bool:
    """Whether sigma depends on the scores at all."""
    setting = module.Setting(PHYSICS.nu, PHYSICS.noise, of.values(module))
    return X in of.activation.expr.free_symbols and bool(module.dimensions(setting)[0])


def kinked(module: ModuleType) -> bool:
    """Whether the module is that of an activation with kinks: the prox then jumps at some weight, whatever V is."""
    return hasattr(module, "kink_points")


def channel(of: Subject, module: ModuleType, order: Array, physics: Physics, nodes: int) -> Any:
    """The module's own prox-free averages on so many nodes, adapted to these order parameters.

    With kinks, those over the fields, on fewer nodes.
    """
    setting = module.Setting(physics.nu, physics.noise, of.values(module))
    if kinked(module):
        sobol = module.sobol(module.node_dimensions(setting), int(np.log2(nodes)) - 2, 0)
        return module.KinkedChannel(sobol, setting)
    made = module.ProxFreeChannel(module.lattice(module.node_dimensions(setting), nodes, 0), setting)
    quiet(made.adapt, order)
    return made


def unfit(averages: Any, folded: float = UNFOLDED) -> bool:
    """Whether folds or a lost mass make the averages unfit for comparison."""
    return not (averages.folded_mass < folded and abs(averages.mass - 1.0) < RESOLVED)


def resolution(coarse: Any, fine: Any) -> float:
    """How far two sets of nodes agree, relative to the largest entry."""
    return float(np.abs(np.subtract(fine, coarse)).max() / (1.0 + np.abs(fine).max()))


def unresolved(found: float) -> Verdict:
    """Two sets of nodes disagree."""
    return not_applicable(f"the averages are resolved to {found:.1g} only on {NODES[1]} nodes")


@dataclass(frozen=True)
class Saddle:
    """A fixed point of the saddle equations on fixed nodes, with its risk."""

    physics: Physics
    order: Array
    conjugates: Array
    averages: Any
    risk: float

    @property
    def train_loss(self) -> float:
        """E of the loss at the prox."""
        return float(self.averages.train_loss)


def saddle(of: Subject, module: ModuleType, physics: Physics, nodes: int, start: Array) -> Saddle | Verdict:
    """The fixed point reached from `start`, or why there is none to compare."""
    problem = module.Problem(*physics.problem)
    order = start
    for tolerance in (1e-3, _SETTLED):
        here = channel(of, module, order, physics, nodes)
        found = quiet(module.iterate, here, order, problem, tolerance, _MOST_STEPS)
        if not found.converged:
            return not_applicable(f"the iteration does not settle at {physics}")
        order = found.last.order
    last = found.last
    if unfit(last.averages):
        return not_applicable(f"the prox folds at {physics}")
    overlaps = {s.name: float(last.order[of.model.index(s.name)]) for s in of.model.overlaps}
    risk = module.population_risk(**overlaps, nu=physics.nu, noise=physics.noise, **of.parameters)
    return Saddle(physics, np.asarray(last.order), np.asarray(last.conjugates), last.averages, float(risk))


def informed(of: Subject, module: ModuleType, physics: Physics) -> Array:
    """Order parameters to start from: the population optimum, and V as the penalty and the data alone would have it."""
    m_k, q_k, m_v, q_v = map(float, quiet(module.informed_overlaps, physics.nu, of.values(module)))
    fit = 0.3 * physics.alpha / (1.0 + physics.alpha)
    widths = {"V_k": 1.0 / (physics.lambda_k + fit), "V_v": 1.0 / (physics.lambda_v + fit)}
    return ordered({"m_k": m_k, "q_k": q_k, "m_v": m_v, "q_v": q_v, **widths}, of.model.order_parameters)


def saddles(of: Subject, physics: Physics) -> Sequence[Saddle] | Verdict:
    """The same fixed point on few and on more nodes, or why there is none to compare."""
    module = of.modules(of.few)
    if module is None:
        return not_applicable("no solver is generated for it")
    if not has_scores(of, module):
        return not_applicable("sigma does not depend on the scores")
    if kinked(module):
        return not_applicable("the prox jumps at kinks: on fixed nodes no iteration settles to many digits")
    start = informed(of, module, physics)
    found: list[Saddle] = []
    for nodes in NODES:
        here = saddle(of, module, physics, nodes, found[-1].order if found else start)
        if isinstance(here, Verdict):
            return here
        found.append(here)
    off = abs(found[0].risk - found[1].risk)
    return found if off < RESOLVED else unresolved(off)
