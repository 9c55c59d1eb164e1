"""What holds of sigma itself: equivariance, and the symmetries that the algebra claims for it."""

from __future__ import annotations

import random

import mpmath
from mpmath import mpf

from replicode.theory.calculus.numeric import Program, exchanged
from replicode.theory.properties.analysis import known_values
from replicode.validation.properties.subject import Subject
from replicode.validation.properties.verdict import Verdict, compared, every, not_applicable

EXACT = mpf(10) ** -40


def equivariance(of: Subject) -> Verdict:
    """sigma(P chi) = P sigma(chi) for every exchange P of two tokens."""
    verdicts = []
    for fields in of.fields():
        plain = of.sigma(fields["x"])
        for i in range(of.tokens):
            for j in range(i):
                moved = of.sigma(exchanged(fields["x"], i, j))
                verdicts.append(compared(f"tokens {j + 1}, {i + 1}", moved, exchanged(plain, i, j), EXACT))
    return every(verdicts)


def sigma_as_typed(of: Subject) -> Verdict:
    """The lowered sigma, rewritten to be stable, equals the expression as it was typed."""
    return every([compared("sigma", of.sigma(f["x"]), of.direct(f["x"]), EXACT) for f in of.fields()])


def normalisation(of: Subject) -> Verdict:
    """sum_l sigma_l(chi) is the row sum that algebra found, at every chi."""
    total = of.analysis.properties.row_sum
    if total is None:
        return not_applicable("sigma does not sum to a constant")
    expected = Program(total, known_values(of.activation))([mpf(0)] * of.tokens)[0]
    return every([compared("row sum", [mpmath.fsum(of.sigma(f["x"]))], [expected], EXACT) for f in of.fields()])


def shift_invariance(of: Subject) -> Verdict:
    """sigma(chi + t 1) = sigma(chi)."""
    if not of.analysis.shift_invariant.holds:
        return not_applicable("sigma depends on a common shift of the scores")
    rng = random.Random(of.seed)
    shift = mpf(rng.uniform(1, 3))
    return every(
        [compared("shifted", of.sigma([x + shift for x in f["x"]]), of.sigma(f["x"]), EXACT) for f in of.fields()]
    )


def reflection(of: Subject) -> Verdict:
    """sigma(-chi) = sigma(chi) where sigma is even, -sigma(chi) where it is odd."""
    sign = {"even": 1, "odd": -1}.get(of.analysis.parity or "none")
    if sign is None:
        return not_applicable("sigma is neither even nor odd")
    return every(
        [
            compared("reflected", of.sigma([-x for x in f["x"]]), [sign * s for s in of.sigma(f["x"])], EXACT)
            for f in of.fields()
        ]
    )


def homogeneity(of: Subject) -> Verdict:
    """sigma(t chi) = t^d sigma(chi) for t > 0 where sigma is homogeneous of degree d."""
    degree = of.analysis.homogeneous
    if degree is None:
        return not_applicable("sigma is not homogeneous")
    t = mpf(random.Random(of.seed).uniform(0.3, 3))
    power = t ** (mpf(int(degree.p)) / int(degree.q))
    return every(
        [
            compared("scaled", of.sigma([t * x for x in f["x"]]), [power * s for s in of.sigma(f["x"])], EXACT)
            for f in of.fields()
        ]
    )
