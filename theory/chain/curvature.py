"""The Jacobian of the equations: what moves the gradient of M, where averages and envelopes are closed."""

from __future__ import annotations

import sympy as sp

from replicode.theory.chain.saddle import ExponentialTest
from replicode.theory.derive.curvature import Curvature, Pair, derive_curvature, transport
from replicode.theory.derive.replica import Step
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.gaussian.laws import FieldLaw


def jacobian(system: SaddleSystem) -> list[Step]:
    """Hamilton-Jacobi on the Gaussian channel, and the second derivatives in the law's parameters on exp(t.w)."""
    found = derive_curvature(system)
    test = ExponentialTest(system.joint_laws, system.model)
    same_block = [p for p in found.bending if found.displacements[p[0]].block == found.displacements[p[1]].block]
    return [*_hamilton_jacobi(system), *[_second(test, found, pair) for pair in same_block]]


def _hamilton_jacobi(system: SaddleSystem) -> list[Step]:
    """The envelope of c w^2/2 and its derivatives in V, by those in w alone."""
    block, fields, c = system.model.values, system.model.hidden, system.model.square_curvature()
    w, v = fields.w[block.name], block.V
    envelope = c * w**2 / (2 * (1 + c * v))
    slope, bend = sp.diff(envelope, w), sp.diff(envelope, w, 2)
    carried = transport(block, fields).subs(fields.g[block.name], -slope)
    return [
        Step(
            "in V the envelope obeys Hamilton-Jacobi, dM/dV = -(dM/dw)^2/2: here M = c w^2/(2 (1 + c V))",
            sp.Derivative(envelope, v),
            -(slope**2) / 2,
        ),
        Step(
            "so that its gradient is carried along G = -dM/dw: d^2M/dV dw = (d^2M/dw^2) G",
            sp.Derivative(envelope, v, w),
            bend * carried,
        ),
        Step("and d^2M/dV^2 = G (d^2M/dw^2) G", sp.Derivative(envelope, (v, 2)), carried * bend * carried),
    ]


def _second(test: ExponentialTest, found: Curvature, pair: Pair) -> Step:
    """The rule on exp(t.w): d^2 M is t t^T exp(t.w), and averages with exp(t.w) are those under the tilted law."""
    a, b = pair
    total = sp.S.Zero
    works = [sp.S.Zero, sp.S.Zero]
    for law, fields, side in zip(test.laws, test.tokens, ("hidden", "idle"), strict=True):
        gains = {fields.g[c]: -test.exponent(w) for c, w in fields.w.items()}
        moves = [found.displacements[s] for s in pair]
        work = [getattr(m, side) * test.exponent(fields.w[m.block]) for m in moves]
        means = test.tilted(law)
        works = [known + w.xreplace(means) for known, w in zip(works, work, strict=True)]
        total += _covariance(law, *work) + getattr(found.bending[pair], side).xreplace({**means, **gains})
    return Step(
        f"fields moved along paths at fixed noise: d^2/d{a.name} d{b.name} of the average of exp(t.w) is that of "
        "t_a (d^2F) t_b + (grad F) d^2w",
        sp.Derivative(test.average, a, b),
        (total + works[0] * works[1]) * test.average,
    )


def _covariance(law: FieldLaw, one: sp.Expr, two: sp.Expr) -> sp.Expr:
    """The covariance of two expressions linear in the fields."""
    left, right = (sp.Matrix([sp.diff(e, f) for f in law.fields]) for e in (one, two))
    return (left.T * law.covariance * right)[0]
