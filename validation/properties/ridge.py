"""One token and a constant row sum s: attention is ridge regression on s z, and everything is explicit."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from replicode.theory.calculus.numeric import Program
from replicode.theory.model import NU
from replicode.validation.properties.averages import (
    CONJUGATES,
    NODES,
    ORDER,
    PHYSICS,
    RESOLVED,
    quiet,
    resolution,
    unresolved,
)
from replicode.validation.properties.subject import Subject
from replicode.validation.properties.verdict import Verdict, every, near, not_applicable

_CROSS = (0.11, -0.17, 0.05)


def ridge_limit(of: Subject) -> Verdict:
    """E[M] = (1 + noise^2 - 2 s m_v + s^2 q_v) / (2 (1 + s^2 V_v)), and the stability that follows from it.

    The free energy and its gradient are linear in alpha, so that two values of alpha give E[M] and its derivatives in
    all six order parameters. dG_v/dw = -s^2/(1 + s^2 V_v) is the only curvature: the de Almeida-Thouless matrix has the
    entry alpha V_v^2 s^4/(1 + s^2 V_v)^2 alone, which is below one at every solution.
    """
    scale = of.row_sum
    module = of.modules(1) if scale else None
    if module is None or scale is None:
        return not_applicable("sigma is no constant at one token, or has no solver")

    order, conjugates = ({n: x for n, x in at.items() if n in names} for at, names in _points(module))

    def rates(nodes: int) -> Any:
        arguments = {**vars(PHYSICS), "nodes": nodes, **of.parameters}
        gap = [
            np.append(
                module.residual(order, conjugates, **{**arguments, "alpha": alpha})[: len(order)],
                module.free_energy(order, conjugates, **{**arguments, "alpha": alpha}),
            )
            for alpha in (PHYSICS.alpha, 2 * PHYSICS.alpha)
        ]
        return (gap[1] - gap[0]) / PHYSICS.alpha

    coarse, fine = (rates(nodes) for nodes in NODES)
    off = resolution(coarse, fine)
    if not off < RESOLVED:
        return unresolved(off)
    shrink = 1.0 + scale**2 * ORDER["V_v"]
    square = 1.0 + PHYSICS.noise**2 - 2.0 * scale * ORDER["m_v"] + scale**2 * ORDER["q_v"]
    slopes = {"m_v": -scale / shrink, "q_v": scale**2 / (2.0 * shrink), "V_v": -(scale**2) * square / (2.0 * shrink**2)}
    expected = np.array([slopes.get(name, 0.0) for name in module.ORDER_NAMES])
    allowed = max(10 * off, 1e-8) * (1.0 + float(np.abs(expected).max()))
    setting = module.Setting(PHYSICS.nu, PHYSICS.noise, of.values(module))
    squares = [0.0, 0.0, (scale**2 / shrink) ** 2]
    if "m_k" in order:
        channel = module.ProxChannel(module.lattice(module.node_dimensions(setting), NODES[0], 0), setting)
    else:
        channel, squares = module.first_values(setting), squares[2:]
    response = quiet(channel.response, np.array([order[name] for name in module.ORDER_NAMES]))
    return every(
        [
            near("E[M] and its derivatives", fine, [*expected, square / (2.0 * shrink)], allowed),
            near("squared responses", response.squares, squares, 1e-8 * (1.0 + squares[-1])),
        ]
    )


def _points(module: ModuleType) -> tuple[tuple[dict[str, float], tuple[str, ...]], ...]:
    """The point at which all is evaluated, and the names that the module has of it."""
    return (dict(ORDER), module.ORDER_NAMES), (dict(CONJUGATES), module.CONJUGATE_NAMES)


def ridge_risk(of: Subject) -> Verdict:
    """With one token the risk of any seven overlaps is 1 + noise^2 - 2 s m_v + s^2 (q_v + E[chi*^2 - 1] (v.k*/D)^2).

    The teacher's score has the law of the task there, which only v.k* can see.
    """
    scale = of.row_sum
    module = of.modules(1) if scale else None
    if module is None or scale is None or not of.task.gaussian:
        return not_applicable("sigma is no constant at one token, or the scores are not Gaussian")
    m_k, q_k, m_v, q_v = 0.7, 0.9, 0.5, 0.8
    found = module.risk_of_overlaps(np.array([m_k, q_k, m_v, q_v, *_CROSS]), PHYSICS.nu, PHYSICS.noise, **of.parameters)
    seen = (_second_moment(of) - 1.0) * _CROSS[1] ** 2
    expected = 1.0 + PHYSICS.noise**2 - 2.0 * scale * m_v + scale**2 * (q_v + seen)
    return near("risk", found, expected, 1e-8 * (1.0 + expected))


def ridge_solution(of: Subject) -> Verdict:
    """One token solved: isotropic ridge regression with features s z, whose asymptotics are closed.

    V is the positive root of lambda s^2 V^2 + (lambda + (alpha - 1) s^2) V - 1 = 0 (the trace of the resolvent of a
    Wishart matrix), m = alpha s V/(1 + s^2 V), and the risk ((1 - s m)^2 + noise^2)/(1 - alpha s^4 V^2/(1 + s^2 V)^2).
    The conjugates follow from V = 1/(lambda + Vh), m = mh V, q = (mh^2 + qh) V^2.
    """
    s = of.row_sum
    module = of.modules(1) if s else None
    if module is None or s is None:
        return not_applicable("sigma is no constant at one token, or has no solver")
    alpha, penalty = PHYSICS.alpha, PHYSICS.lambda_v
    linear = penalty + (alpha - 1.0) * s**2
    V = (np.sqrt(linear**2 + 4.0 * penalty * s**2) - linear) / (2.0 * penalty * s**2)
    m = alpha * s * V / (1.0 + s**2 * V)
    risk = ((1.0 - s * m) ** 2 + PHYSICS.noise**2) / (1.0 - alpha * (s**2 * V / (1.0 + s**2 * V)) ** 2)
    q = (risk - 1.0 - PHYSICS.noise**2 + 2.0 * s * m) / s**2
    solution = quiet(lambda: module.solve(**vars(PHYSICS), tol=1e-6, **of.parameters))
    if not solution.converged:
        return Verdict("failed", f"no solution is found: {'; '.join(solution.warnings)}")
    values = {**solution.order_parameters, **solution.conjugates}
    names = ("m_v", "q_v", "V_v", "mh_v", "qh_v", "Vh_v")
    conjugates = [m / V, (q - m**2) / V**2, 1.0 / V - penalty]
    allowed = 10.0 * max(solution.error, *(solution.errors[n] for n in names)) + 1e-9
    found, expected = [solution.test_risk, *(values[n] for n in names)], [risk, m, q, V, *conjugates]
    return near(f"risk, {', '.join(names)}", found, expected, min(allowed, 1e-3))


def _second_moment(of: Subject) -> float:
    """E[chi*^2] under exp(log g) times the normal density, integrated as it stands."""
    own = Program(of.task.own, {NU: PHYSICS.nu})

    def moment(power: int) -> mpf:
        return mpmath.quad(lambda x: x**power * mpmath.exp(own([mpf(x)])[0] - x * x / 2), [-20, 0, 20])

    with mpmath.workdps(20):
        return float(moment(2) / moment(0))
