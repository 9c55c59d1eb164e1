"""The learning problem: loss, regulariser, teacher's law and label, each stated once.

Everything downstream is derived from the `Model` handed on; nothing else in the project knows that the loss is
r^2/2 or that the penalty is lambda theta^2/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from replicode.theory.errors import Refusal
from replicode.theory.gaussian import FieldLaw

RESIDUAL = sp.Symbol("r", real=True)
THETA = sp.Symbol("theta", real=True)
LAMBDA = sp.Symbol("lambda", nonnegative=True)

ALPHA = sp.Symbol("alpha", positive=True)
NU = sp.Symbol("nu", nonnegative=True)
NOISE = sp.Symbol("noise", nonnegative=True)
BLOCKS = ("k", "v")


def _block(name: str, **assumptions: bool) -> dict[str, sp.Symbol]:
    return {b: sp.Symbol(f"{name}_{b}", **assumptions) for b in BLOCKS}


M = _block("m", real=True)
Q = _block("q", positive=True)
V = _block("V", positive=True)
MH = _block("mh", real=True)
QH = _block("qh", nonnegative=True)
VH = _block("Vh", real=True)
LAMBDAS = _block("lambda", nonnegative=True)

ORDER_PARAMETERS: tuple[sp.Symbol, ...] = tuple(s[b] for b in BLOCKS for s in (M, Q, V))
CONJUGATES: tuple[sp.Symbol, ...] = tuple(s[b] for b in BLOCKS for s in (MH, QH, VH))


@dataclass(frozen=True)
class Model:
    """Training objective sum_mu loss(r_mu) + sum_i penalty(theta_i)."""

    loss: sp.Expr = RESIDUAL**2 / 2
    penalty: sp.Expr = LAMBDA * THETA**2 / 2

    def penalty_curvature(self) -> sp.Expr:
        """The c of penalty = c theta^2 / 2; the prior integral is Gaussian only for such a penalty."""
        curvature = sp.diff(self.penalty, THETA, 2)
        if THETA in curvature.free_symbols or sp.simplify(self.penalty - curvature * THETA**2 / 2) != 0:
            raise Refusal(f"penalty {self.penalty}: only a multiple of theta**2 leaves the prior integral Gaussian")
        return curvature

    def loss_curvature(self) -> sp.Expr:
        """The c of loss = c r^2 / 2; only then is the value channel eliminated in closed form."""
        curvature = sp.diff(self.loss, RESIDUAL, 2)
        if RESIDUAL in curvature.free_symbols or sp.simplify(self.loss - curvature * RESIDUAL**2 / 2) != 0:
            raise Refusal(f"loss {self.loss}: only a multiple of r**2 lets the value channel be eliminated")
        return curvature


CHI_STAR = sp.Symbol("chi_star", real=True)
Z_STAR = sp.Symbol("z_star", real=True)
Y = sp.Symbol("y", real=True)


def teacher_fields() -> dict[sp.Symbol, dict[str, sp.Expr]]:
    """Teacher scores and values of one token, with teachers ~ N(0, I), and the label y = z* + noise xi."""
    return {
        CHI_STAR: {"chi_star": sp.S.One},
        Z_STAR: {"z_star": sp.S.One},
        Y: {"z_star": sp.S.One, "label_noise": NOISE},
    }


def student_field(block: str) -> dict[str, sp.Expr]:
    """The field w of a student with overlaps m, q: m times the teacher's field plus independent noise."""
    teacher = {"k": "chi_star", "v": "z_star"}[block]
    return {teacher: M[block], f"xi_{block}": sp.sqrt(Q[block] - M[block] ** 2)}


def token_law(score: sp.Symbol, value: sp.Symbol) -> FieldLaw:
    """The base law of one token's teacher fields, label, and student fields (score, value)."""
    return FieldLaw.of({**teacher_fields(), score: student_field("k"), value: student_field("v")})
