"""The prior of the Bayes-optimal level: what one coordinate of a teacher adds to the free entropy, and the mean of it.

A coordinate theta* ~ N(0, c) is seen through the field h = qh theta* + sqrt(qh) xi. Of isotropic tokens c is one in all
coordinates; of structured ones c_i = D t_i is the square of the teacher's whitened weight, its mean is one, and
the free entropy holds a function psi(qh) of each block, the mean over the coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.derive.spectrum import COORDINATE_SQUARE, mean_of_two
from replicode.theory.gaussian.expectation import closed_form
from replicode.theory.model import Block, Model

FIELD, THETA_STAR = sp.Symbol("h", real=True), sp.Symbol("theta", real=True)


@dataclass(frozen=True)
class CoordinatePrior:
    """One coordinate of variance c: the evidence of its field, what it adds to the free entropy, to q and to V."""

    variance: sp.Expr
    seen: sp.Expr
    evidence: sp.Expr
    field_variance: sp.Expr
    entropy: sp.Expr
    known: sp.Expr
    unknown: sp.Expr

    @property
    def log_evidence(self) -> sp.Expr:
        """The logarithm of the evidence, in sums."""
        return sp.expand(sp.expand_log(sp.log(self.evidence), force=True))


@cache
def coordinate_prior(model: Model, block: Block) -> CoordinatePrior:
    """The evidence is exp(h^2 c/(2 (1 + c qh)))/sqrt(1 + c qh), and E[h^2] = c qh^2 + qh."""
    variance = block.teacher_square if model.structured else sp.S.One
    strength = block.qh
    seen = sp.exp(FIELD * THETA_STAR - strength * THETA_STAR**2 / 2)
    # The law of a coordinate of variance c is that of sqrt(c) times one of variance one.
    scaled = seen.subs(THETA_STAR, sp.sqrt(variance) * THETA_STAR)
    evidence = closed_form(scaled, ((THETA_STAR, sp.S.Zero, sp.S.One),))
    if evidence is None:
        raise AssertionError("a Gaussian integral")
    log_evidence = sp.expand(sp.expand_log(sp.log(evidence), force=True))
    field_variance = strength**2 * variance + strength
    entropy = closed_form(log_evidence, ((FIELD, sp.S.Zero, field_variance),))
    if entropy is None:
        raise AssertionError("a Gaussian average of a square")
    entropy = sp.simplify(entropy)
    known = sp.factor(2 * sp.diff(entropy, strength))
    unknown = sp.factor(variance - known)
    return CoordinatePrior(variance, seen, evidence, field_variance, entropy, known, unknown)


def prior_function(block: Block) -> sp.Expr:
    """psi of a block of structured tokens: the mean over the coordinates of what they add to the free entropy."""
    return sp.Function(f"psi_{block.name}")(block.qh)


def prior_entropy(model: Model, block: Block) -> sp.Expr:
    """What a block's teacher adds to the free entropy: closed where the tokens are isotropic."""
    return prior_function(block) if model.structured else coordinate_prior(model, block).entropy


def coordinate_terms(model: Model) -> tuple[sp.Expr, ...]:
    """What a coordinate adds to psi, to q, to V and to the slope of V, in qh and c_i of any block."""
    block = model.blocks[0]
    found = coordinate_prior(model, block)
    slope = sp.factor(sp.diff(found.unknown, block.qh))
    return tuple(
        e.xreplace({block.teacher_square: COORDINATE_SQUARE})
        for e in (found.entropy, found.known, found.unknown, slope)
    )


def at_two_coordinates(expr: sp.Expr, model: Model) -> sp.Expr:
    """The expression with psi written out for two coordinates."""
    if not model.structured:
        return expr
    means = {prior_function(b): mean_of_two(coordinate_prior(model, b).entropy) for b in model.blocks}
    return expr.xreplace(means).doit()
