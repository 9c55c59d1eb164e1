"""The channel: the Moreau envelope M of the loss, with the value variables eliminated exactly.

The loss sees z only through sigma.z, so the minimiser is z = w_z + a sigma with a scalar a; what remains is a function
of the two token sums U = sigma.w_z and N = sigma.sigma, and a minimisation over the scores alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.model import RESIDUAL, Model, V, Y

U = sp.Symbol("U", real=True)
N = sp.Symbol("N", nonnegative=True)
AMPLITUDE = sp.Symbol("a_z", real=True)


@dataclass(frozen=True)
class ValueElimination:
    """min over z = w_z + a sigma of |z - w_z|^2/(2 V_v) + loss(y - sigma.z), as functions of U, N, y and V_v."""

    objective: sp.Expr
    amplitude: sp.Expr
    envelope: sp.Expr
    residual: sp.Expr
    field_gain: sp.Expr


@cache
def eliminate_values(model: Model) -> ValueElimination:
    """Solve the stationarity in a; G_v = (z - w_z)/V_v = field_gain * sigma, and the prox residual is y - sigma.z."""
    model.loss_curvature()
    v = V["v"]
    objective = AMPLITUDE**2 * N / (2 * v) + model.loss.subs(RESIDUAL, Y - U - AMPLITUDE * N)
    (solution,) = sp.solve(sp.cancel(sp.diff(objective, AMPLITUDE) / N), AMPLITUDE)
    envelope = sp.factor(sp.simplify(objective.subs(AMPLITUDE, solution)))
    residual = sp.factor(Y - U - solution * N)
    return ValueElimination(objective, solution, envelope, residual, sp.factor(solution / v))
