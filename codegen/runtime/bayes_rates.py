"""Overlaps and averages of the Bayes-optimal level, and the Laplace axis that all of its channels share."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from replicode.codegen.runtime.kernel import Array

LOG_STEP = 0.35  # the integrands are analytic in log s in a strip of half width pi/2
LOW, HIGH = 38.0, 35.0
TABLE_STEP = 0.04
DEGREE = 7
KEY_SCRAMBLES = 8


class TooFine(Exception):
    """These nodes would be too many: the level before has to do."""


class BayesOverlaps(NamedTuple):
    """q of both blocks, and V = 1 - q, which may be too small to be read off q."""

    q_k: float
    V_k: float
    q_v: float
    V_v: float


class Rates(NamedTuple):
    """E sum_l |grad_w log Z|^2 for k and v, E log Z, and without a label: E P_eps, and the first with eps revealed.

    `sets` are the five on each of several sets of nodes, where these are random.
    """

    k: float
    v: float
    entropy: float
    location: float
    revealed: float
    sets: tuple[Rates, ...] = ()

    @staticmethod
    def of(values: Array, sets: Array | None = None) -> Rates:
        """From the five values in order."""
        k, v, entropy, location, revealed = (float(x) for x in values)
        return Rates(k, v, entropy, location, revealed, () if sets is None else tuple(Rates.of(row) for row in sets))


class Evaluator(Protocol):
    """The averages at given overlaps; `fineness` scales the density of all nodes."""

    def rates(self, at: BayesOverlaps, fineness: float) -> Rates:
        """All averages."""

    def fresh(self, at: BayesOverlaps, fineness: float) -> Rates:
        """Only the two averages without a label."""
