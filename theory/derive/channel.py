"""The channel: the Moreau envelope M of the loss, with the value variables eliminated exactly.

The loss sees z only through sigma.z, so the minimiser is z = w_z + a sigma with a scalar a; what remains is a function
of the two token sums U = sigma.w_z and N = sigma.sigma, and a minimisation over the scores alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.model import F, Model

U = sp.Symbol("U", real=True)
N = sp.Symbol("N", nonnegative=True)
AMPLITUDE = sp.Symbol("a_z", real=True)


@dataclass(frozen=True)
class ValueElimination:
    """min over z = w_z + a sigma of |z - w_z|^2/(2 V_v) + loss(y, sigma.z), as functions of U, N, y and V_v.

    `rate` is what a token's value is multiplied by in f, `output` is f at the minimum, and `loss` the loss there.
    """

    rate: sp.Expr
    objective: sp.Expr
    amplitude: sp.Expr
    envelope: sp.Expr
    output: sp.Expr
    loss: sp.Expr
    field_gain: sp.Expr


@cache
def eliminate_values(model: Model) -> ValueElimination:
    """Solve the stationarity in a; G_v = (z - w_z)/V_v = field_gain * sigma."""
    model.loss_curvature()
    rate, v = model.output_rate(), model.values.V
    objective = AMPLITUDE**2 * N / (2 * v) + model.loss.subs(F, U + AMPLITUDE * N)
    (solution,) = sp.solve(sp.cancel(sp.diff(objective, AMPLITUDE) / N), AMPLITUDE)
    envelope = sp.factor(sp.simplify(objective.subs(AMPLITUDE, solution)))
    output = sp.factor(U + solution * N)
    loss = sp.factor(model.loss.subs(F, output))
    return ValueElimination(rate, objective, solution, envelope, output, loss, sp.factor(solution / v))
