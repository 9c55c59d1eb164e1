"""The channel: the Moreau envelope M of the loss, with the value variables eliminated exactly.

The loss sees z only through sigma.z, so the minimiser is z = w_z + a sigma with a scalar a; what remains is a function
of the two token sums U = sigma.w_z and N = sigma.sigma, and a minimisation over the scores alone. It is the envelope of
one variable, e(y, U; tau) = min_u (u - U)^2/(2 tau) + loss(y, u), at tau = V_v N. Where the loss is a square all of it
is explicit. Else its slope s = de/dU is what it is made of: explicit, piece by piece, where the loss has pieces
(pieces.py), else that of the loss at the output u, which the run-time finds. In tau it obeys Hamilton-Jacobi,
de/dtau = -s^2/2, so that all derivatives follow from s and its own slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.derive.pieces import envelope_slopes
from replicode.theory.language.nodes import loss_prox
from replicode.theory.model import F, Model, Y
from replicode.theory.properties.loss import is_convex, is_smooth

U = sp.Symbol("U", real=True)
N = sp.Symbol("N", nonnegative=True)
AMPLITUDE = sp.Symbol("a_z", real=True)
OUTPUT = sp.Symbol("f_prox", real=True)
GAIN = sp.Symbol("gain", real=True)
STIFFNESS = sp.Symbol("stiffness", real=True)
_SLOPE = sp.Symbol("s", real=True)


@dataclass(frozen=True)
class ValueElimination:
    """min over z = w_z + a sigma of |z - w_z|^2/(2 V_v) + loss(y, sigma.z), as functions of U, N, y and V_v.

    `rate` is what a token's value is multiplied by in f, `output` is f at the minimum, and `loss` the loss there.
    Where `steps` are given, they define, in order, the symbols OUTPUT, GAIN and STIFFNESS that all else is written in.
    `searched` are the first two derivatives of the loss in F, where the output is searched for with them.
    `smooth`: the envelope has two derivatives; `convex`: the loss has one minimum in f, and so has the objective.
    """

    rate: sp.Expr
    objective: sp.Expr
    amplitude: sp.Expr
    envelope: sp.Expr
    output: sp.Expr
    loss: sp.Expr
    field_gain: sp.Expr
    v: sp.Symbol
    steps: tuple[tuple[sp.Symbol, sp.Expr], ...] = ()
    searched: tuple[sp.Expr, ...] = ()
    smooth: bool = True
    convex: bool = True

    def derivative(self, *by: sp.Symbol) -> sp.Expr:
        """The derivative of the envelope in some of U, N and the sums that it does not depend on."""
        if not self.steps:
            return sp.diff(self.envelope, *by)
        if any(s not in (U, N) for s in by):
            return sp.S.Zero
        return self._carried(by)

    def _carried(self, by: tuple[sp.Symbol, ...]) -> sp.Expr:
        """First and second derivatives by Hamilton-Jacobi: in N everything is carried along the gain."""
        along = hamilton_jacobi(_SLOPE, self.v)
        if len(by) == 1:
            return (_SLOPE if by == (U,) else along).subs(_SLOPE, -GAIN)
        carried = sp.diff(along, _SLOPE).subs(_SLOPE, -GAIN)
        return STIFFNESS * carried ** sum(s == N for s in by)


def hamilton_jacobi(slope: sp.Expr, v: sp.Symbol) -> sp.Expr:
    """de/dN in s = de/dU: it is v de/dtau, with de/dtau = -s^2/2."""
    return -v * slope**2 / 2


@cache
def eliminate_values(model: Model) -> ValueElimination:
    """Solve the stationarity in a; G_v = (z - w_z)/V_v = field_gain * sigma."""
    return _of_a_square(model) if model.square else _of_one_output(model)


def _of_a_square(model: Model) -> ValueElimination:
    rate, v = model.output_rate(), model.values.V
    objective = AMPLITUDE**2 * N / (2 * v) + model.loss.subs(F, U + AMPLITUDE * N)
    (solution,) = sp.solve(sp.cancel(sp.diff(objective, AMPLITUDE) / N), AMPLITUDE)
    envelope = sp.factor(sp.simplify(objective.subs(AMPLITUDE, solution)))
    output = sp.factor(U + solution * N)
    loss = sp.factor(model.loss.subs(F, output))
    return ValueElimination(rate, objective, solution, envelope, output, loss, sp.factor(solution / v), v)


def _of_one_output(model: Model) -> ValueElimination:
    """The same through the envelope of one variable."""
    rate, v = model.output_rate(), model.values.V
    tau, smooth, convex = v * N, is_smooth(model.loss), is_convex(model)
    loss, slopes = model.loss.subs(F, OUTPUT), tuple(sp.diff(model.loss, F, k) for k in (1, 2)) if smooth else ()
    return ValueElimination(
        rate=rate,
        objective=AMPLITUDE**2 * N / (2 * v) + model.loss.subs(F, U + AMPLITUDE * N),
        amplitude=v * GAIN,
        envelope=tau * GAIN**2 / 2 + loss,
        output=OUTPUT,
        loss=loss,
        field_gain=GAIN,
        v=v,
        steps=_found(slopes, tau) if smooth else _in_pieces(model, tau),
        searched=slopes,
        smooth=smooth and convex,
        convex=convex,
    )


Steps = tuple[tuple[sp.Symbol, sp.Expr], ...]


def _found(slopes: tuple[sp.Expr, ...], tau: sp.Expr) -> Steps:
    """The output is searched for; there the slope of the envelope is that of the loss."""
    slope, bend = (s.subs(F, OUTPUT) for s in slopes)
    return ((OUTPUT, loss_prox(Y, U, tau)), (GAIN, -slope), (STIFFNESS, bend / (1 + tau * bend)))


def _in_pieces(model: Model, tau: sp.Expr) -> Steps:
    """The slope is known piece by piece, and the output follows from it."""
    slope, stiffness = envelope_slopes(model, U, tau)
    return ((GAIN, -slope), (OUTPUT, U + tau * GAIN), (STIFFNESS, stiffness))
