"""What holds of the free energy and its gradient at points that solve nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import sympy as sp
from mpmath import mpf

from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import X
from replicode.theory.lengths import lengths
from replicode.theory.model import Block
from replicode.validation.properties.averages import (
    CONJUGATES,
    NODES,
    ORDER,
    PHYSICS,
    RESOLVED,
    UNFOLDED,
    channel,
    has_scores,
    kinked,
    ordered,
    quiet,
    resolution,
    unfit,
    unresolved,
)
from replicode.validation.properties.subject import Array, Subject
from replicode.validation.properties.verdict import Verdict, compared, every, near, not_applicable

WIDTHS = (0.1, 0.03, 0.01, 0.003)
MOVE = 2e-3
PROX_NODES = (2_000, 6_000)
SCORE_SCALE, VALUE_SCALE = sp.Rational(3, 2), sp.Rational(4, 5)
COVARIANT = 1e-8
NO_JUMPS = 1e-12


class _Point:
    """Averages of the generated module on two sets of nodes, at V = `width` in both blocks."""

    def __init__(self, of: Subject, module: ModuleType, width: float) -> None:
        self.module = module
        self.order = ordered({**ORDER, "V_k": width, "V_v": width}, of.model.order_parameters)
        self.conjugates = ordered(CONJUGATES, of.model.conjugates)
        self.channels = [channel(of, module, self.order, PHYSICS, nodes) for nodes in NODES]
        self.averages = [quiet(c.averages, self.order) for c in self.channels]

    def energy(self, order: Any, conjugates: Any, averages: Any) -> float:
        """The free energy, given the averages."""
        return float(self.module.free_energy_value(order, conjugates, *PHYSICS.problem, averages.envelope))

    def residual(self, averages: Any) -> Array:
        """The gradient of the free energy in twelve unknowns."""
        gradient = self.module.free_energy_gradient(self.order, self.conjugates, *PHYSICS.problem, averages.rates)
        return np.asarray(gradient)


def _point(of: Subject, folded: float = UNFOLDED) -> _Point | Verdict:
    """The averages of the module at few tokens, at the widest V without folds, or why there are none."""
    module = of.modules(of.few)
    if module is None:
        return not_applicable("no solver is generated for it")
    if not has_scores(of, module):
        return not_applicable("sigma does not depend on the scores")
    for width in WIDTHS:
        made = _Point(of, module, width)
        if not unfit(made.averages[-1], folded):
            return made
    return not_applicable("no point without folds was found")


def residual_is_gradient(of: Subject) -> Verdict:
    """The residual is the gradient of the free energy in all twelve unknowns, at a point that solves nothing.

    E[M] comes from the envelope alone, the residual from Price and Stein: fourth-order differences compare the two.
    """
    made = _point(of)
    if isinstance(made, Verdict):
        return made
    coarse, fine = (made.residual(a) for a in made.averages)
    off = resolution(coarse, fine)
    if not off < RESOLVED:
        return unresolved(off)
    point = np.concatenate([made.order, made.conjugates])

    def energy(moved: Array) -> Array:
        order, conjugates = np.split(moved, 2)
        same = np.array_equal(order, made.order)
        averages = made.averages[-1] if same else quiet(made.channels[-1].averages, order)
        return np.asarray(made.energy(order, conjugates, averages))

    expected = [mpf(float(d)) for d in _differences(energy, point)]
    return compared("residual", [mpf(float(r)) for r in fine], expected, mpf(max(10 * off, 1e-6)))


def jacobian_is_derivative(of: Subject) -> Verdict:
    """The derived second derivatives of E[M] are those of its first ones, at a point that solves nothing.

    Paths of the fields and Hamilton-Jacobi in V on one side, fourth-order differences of Price and Stein on the other.
    """
    made = _point(of)
    if isinstance(made, Verdict):
        return made
    if not hasattr(made.module, "second_rates"):
        return not_applicable("it is not derived: kinks, or a location with a weight of its own")
    coarse, fine = (quiet(made.module.second_rates, c, made.order) for c in made.channels)
    off = resolution(coarse, fine)
    if not off < RESOLVED:
        return unresolved(off)
    expected = _differences(lambda order: np.asarray(quiet(made.channels[-1].averages, order).rates), made.order)
    found, wanted = ([mpf(float(x)) for x in np.ravel(part)] for part in (fine, expected))
    return compared("Jacobian", found, wanted, mpf(max(10 * off, 1e-6)))


def _differences(function: Callable[[Array], Array], point: Array) -> list[Array]:
    """The derivative of a function in every coordinate, by differences of fourth order."""

    def slope(index: int, step: float) -> Array:
        move = step * (np.arange(point.size) == index)
        return np.asarray((function(point + move) - function(point - move)) / (2.0 * step))

    steps = MOVE * np.maximum(np.abs(point), 0.01)
    return [(4.0 * slope(i, step) - slope(i, 2.0 * step)) / 3.0 for i, step in enumerate(steps)]


def stein_is_derivative(of: Subject) -> Verdict:
    """Stein's and the derivative form of Vh_k agree where the prox does not jump: -E sum_l dG_l/dw_l either way.

    A jump weighs in it with its height over V_k, far more than the mass it folds.
    """
    made = _point(of, NO_JUMPS)
    if isinstance(made, Verdict):
        return made
    if kinked(made.module):
        return not_applicable("the prox jumps at kinks")
    stein = [float(made.module.conjugates_from_rates(a.rates, 1.0)[2]) for a in made.averages]
    trace = [float(quiet(c.response, made.order).trace) for c in made.channels]
    off = resolution([stein[0], trace[0]], [stein[1], trace[1]])
    if not off < RESOLVED:
        return unresolved(off)
    return compared("Vh_k", [mpf(stein[1])], [mpf(trace[1])], mpf(max(10 * off, 1e-8)))


def prox_is_prox_free(of: Subject) -> Verdict:
    """Averages over w with the prox found by minimisation equal those over the prox point, where nothing folds.

    E[F] = int dchi det(I + V_k Hess loss) p_w(w(chi)) F: all six rates, E[M] and E[loss], by two sets of functions.
    """
    made = _point(of)
    if isinstance(made, Verdict):
        return made
    if kinked(made.module):
        return not_applicable("a prox point at a kink has a whole interval of fields")
    setting = made.channels[-1].setting
    dim = made.module.node_dimensions(setting)
    sets = [made.module.ProxChannel(made.module.lattice(dim, nodes, 1), setting) for nodes in PROX_NODES]
    coarse, fine = (_numbers(quiet(s.averages, made.order)) for s in sets)
    off = resolution(coarse, fine) + resolution(*(_numbers(a) for a in made.averages))
    if not off < RESOLVED:
        return unresolved(off)
    expected = _numbers(made.averages[-1])
    return near("rates, E[M], E[loss]", fine, expected, max(10 * off, 1e-7) * (1.0 + float(np.abs(expected).max())))


def _numbers(averages: Any) -> Array:
    return np.asarray(np.r_[averages.rates, averages.envelope, averages.train_loss])


def total_weight(of: Subject) -> Verdict:
    """E[gbar(w)] = 1: as V -> 0 the prox is the field itself, nothing folds, and the weights must add up to one."""
    module = of.modules(of.several)
    if module is None or not has_scores(of, module):
        return not_applicable("no solver is generated for it, or sigma does not depend on the scores")
    if kinked(module):
        return not_applicable("with kinks the nodes are in the fields, and their weights are normalised")
    made = _Point(of, module, WIDTHS[-1])
    coarse, fine = (float(a.mass) for a in made.averages)
    if not abs(fine - coarse) < RESOLVED or made.averages[-1].folded_mass > UNFOLDED:
        return not_applicable("the prox folds, or the nodes do not resolve the weight")
    return near("E[gbar]", fine, 1.0, 10.0 * abs(fine - coarse) + 1e-6)


def scale_covariance(of: Subject) -> Verdict:
    """a sigma(c chi) with penalties c^2 lambda_k, a^2 lambda_v is the same problem in the variables c k, a v.

    So E[M] and f stay, with m/c, q/c^2, V/c^2 for k (and a for v), conjugates growing as the overlaps shrink, and
    every rate times the scale of its order parameter. The nodes scale along, so that this holds on any of them.
    """
    module = of.modules(of.few)
    if module is None or not has_scores(of, module):
        return not_applicable("no solver is generated for it, or sigma does not depend on the scores")
    other = of.variants(Activation("scaled", VALUE_SCALE * of.settled.expr.xreplace({X: SCORE_SCALE * X})))
    if other is None:
        return not_applicable("no solver is generated for the scaled activation")
    c, a = float(SCORE_SCALE), float(VALUE_SCALE)
    scales = {s: 1 / size**power for b, size in ((of.model.scores, c), (of.model.values, a)) for s, power in _powers(b)}
    shrink = np.array([scales[s] for s in of.model.order_parameters])
    order, conjugates = ordered(ORDER, of.model.order_parameters), ordered(CONJUGATES, of.model.conjugates)
    penalties = PHYSICS.alpha, PHYSICS.lambda_k * c**2, PHYSICS.lambda_v * a**2
    settings = [
        m.Setting(PHYSICS.nu, PHYSICS.noise, of.values(m) if m is module else np.empty(0)) for m in (module, other)
    ]
    points = order, order * shrink
    found = [_averages(m, s, p) for m, s, p in zip((module, other), settings, points, strict=True)]
    size = 1.0 + float(np.abs(found[0].rates).max())
    if not np.isfinite(size):
        return not_applicable("the averages are not finite at the point that is looked at")
    energies = [
        m.free_energy_value(p, h, *g, e.envelope)
        for m, p, h, g, e in zip(
            (module, other),
            points,
            (conjugates, conjugates / shrink),
            (PHYSICS.problem, penalties),
            found,
            strict=True,
        )
    ]
    return every(
        [
            near("E[M]", found[1].envelope, found[0].envelope, COVARIANT * size),
            near("rates", found[1].rates * shrink, found[0].rates, COVARIANT * size),
            near("free energy", energies[1], energies[0], COVARIANT * size),
        ]
    )


def _powers(block: Block) -> Sequence[tuple[sp.Symbol, int]]:
    """How m, q and V go with the size of a block's weights."""
    return (block.m, 1), (block.q, 2), (block.V, 2)


def _averages(module: ModuleType, setting: Any, order: Array) -> Any:
    """The averages on unadapted nodes, which scale with the fields."""
    nodes = module.lattice(module.node_dimensions(setting), NODES[0], 0)
    made = module.KinkedChannel if kinked(module) else module.ProxFreeChannel
    return quiet(made(nodes, setting).averages, order)


def lengths_mix(of: Subject) -> Verdict:
    """With L drawn from P(L) every average is the mean over L of that at fixed L: E[F] = sum_L P(L) E_L[F]."""
    shares = lengths(of.mixture).shares
    mixture = of.modules(of.mixture)
    modules = [of.modules(n) for n, _ in shares]
    if mixture is None or any(m is None for m in modules) or X not in of.activation.expr.free_symbols:
        return not_applicable("no solver is generated for it, or sigma does not depend on the scores")
    arguments = {**vars(PHYSICS), "nodes": NODES[0], **of.parameters}

    def both(module: Any) -> Array:
        gradient = module.residual(ORDER, CONJUGATES, **arguments)
        return np.append(gradient, module.free_energy(ORDER, CONJUGATES, **arguments))

    found = quiet(both, mixture)
    expected = sum(p * quiet(both, m) for m, (_, p) in zip(modules, shares, strict=True))
    risks = [
        m.population_risk(0.7, 0.6, 0.5, 0.8, PHYSICS.nu, PHYSICS.noise, **of.parameters) if m else np.nan
        for m in (mixture, *modules)
    ]
    mixed = sum(p * r for r, (_, p) in zip(risks[1:], shares, strict=True))
    size = 1.0 + float(np.abs(expected).max())
    return every([near("residual", found, expected, 1e-9 * size), near("population risk", risks[0], mixed, 1e-9)])
