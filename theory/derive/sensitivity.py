"""How the saddle point moves with the parameters of the problem, by the implicit function theorem.

At a saddle point grad f(x, theta) = 0 in all its unknowns x, so that dx/dtheta = -H^-1 d(grad f)/dtheta with the
Hessian H of f. Derived here are the explicit derivatives in alpha and in the strengths of the penalties, which need no
average that the saddle point does not have, and the slopes of the risk; codegen emits both. Parameters of the law and
of the activation enter through E[M] and its rates alone, in which f and its gradient are linear.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from replicode.theory.derive.population import A, B, PopulationRisk
from replicode.theory.derive.saddle import SaddleSystem, envelope_of, rates_of
from replicode.theory.model import ALPHA, NOISE, Model

ENVELOPE = sp.Symbol("envelope", real=True)


def explicit_slopes(system: SaddleSystem) -> sp.ImmutableMatrix:
    """d/dtheta of f and of its gradient, a row for each of alpha and the strengths, scores before values."""
    return _explicit_slopes(system.free_energy, system.model)


@cache
def _explicit_slopes(free_energy: sp.Expr, model: Model) -> sp.ImmutableMatrix:
    unknowns = (*model.order_parameters, *model.conjugates)
    functions = [free_energy, *(sp.diff(free_energy, u) for u in unknowns)]
    parameters = (ALPHA, model.scores.strength, model.values.strength)
    known, envelope = rates_of(model), {envelope_of(model): ENVELOPE}
    rows = [[sp.diff(g, p).xreplace(known).xreplace(envelope) for g in functions] for p in parameters]
    return sp.ImmutableMatrix(rows)


def risk_slopes(risk: PopulationRisk) -> tuple[sp.Expr, ...]:
    """The derivatives of the risk on the manifold in m_v, q_v, the noise, A and B."""
    m, q = risk.model.values.m, risk.model.values.q
    return tuple(sp.diff(risk.on_manifold, s) for s in (m, q, NOISE, A, B))


def noise_risk_slope(model: Model) -> sp.Expr:
    """The derivative of the label's own noise in its standard deviation."""
    return sp.diff(model.noise_risk(), NOISE)
