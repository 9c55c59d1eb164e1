"""Hessians of many tokens as a diagonal plus few outer products: solves, bounds and squares at a cost of O(L) a sample.

I + V H is D + sum_p u_p v_p^T. With K = I + v^T D^-1 u, which is small, its inverse is Woodbury's. All eigenvalues
of K are real, because the whole is symmetric: K and the whole are positive definite together, where D is positive, and
the least eigenvalue of the whole is at least that of D times that of K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import Array, Factors

SMALLEST_CORE_PIVOT = 1e-4
SHARPNESS = 2  # squarings of K^-1 by which its largest eigenvalue is told from the sum of all


class LowRank(NamedTuple):
    """diag(diagonal) + sum_p left_p right_p^T, sample by sample: rows of shape (L, n), outer products (r, L, n)."""

    diagonal: Array
    left: Array
    right: Array

    @staticmethod
    def of(factors: Factors, samples: int) -> LowRank:
        """What a kernel hands out; rows that are the same for all samples are spread over them."""
        diagonal, left, right = factors
        tokens = len(left[0]) if left else len(np.atleast_1d(diagonal))
        shape = (tokens, samples)

        def stacked(rows: Sequence[Array]) -> Array:
            return np.stack([np.broadcast_to(row, shape) for row in rows]) if rows else np.zeros((0, *shape))

        return LowRank(np.broadcast_to(diagonal, shape), stacked(left), stacked(right))

    def applied(self, columns: Array) -> Array:
        """The matrix times columns (a, L, n)."""
        inner = np.einsum("pln,aln->apn", self.right, columns)
        return np.asarray(self.diagonal * columns + np.einsum("pln,apn->aln", self.left, inner))

    def transposed(self) -> LowRank:
        """The transpose."""
        return LowRank(self.diagonal, self.right, self.left)

    def times(self, other: LowRank) -> LowRank:
        """The product of two, whose rank is the sum of theirs."""
        back = other.transposed().applied(self.right)
        return LowRank(
            self.diagonal * other.diagonal,
            np.concatenate([self.diagonal * other.left, self.left]),
            np.concatenate([other.right, back]),
        )

    def plus(self, other: LowRank, factor: Array | float = 1.0) -> LowRank:
        """This plus a multiple of another."""
        return LowRank(
            self.diagonal + factor * other.diagonal,
            np.concatenate([self.left, factor * other.left]),
            np.concatenate([self.right, other.right]),
        )

    def trace(self) -> Array:
        """The sum of the diagonal entries."""
        return np.asarray(self.diagonal.sum(axis=0) + np.einsum("pln,pln->n", self.left, self.right))

    def squares(self) -> Array:
        """The sum of the squares of all entries."""
        across = 2.0 * np.einsum("ln,pln,pln->n", self.diagonal, self.left, self.right)
        grams = (np.einsum("pln,qln->pqn", side, side) for side in (self.left, self.right))
        return np.asarray((self.diagonal * self.diagonal).sum(axis=0) + across + np.einsum("pqn,pqn->n", *grams))


class Woodbury(NamedTuple):
    """The inverse of I + V H, and a lower bound on the eigenvalues of the latter: 0 where they may be negative."""

    inverse: LowRank
    least: Array

    @staticmethod
    def of(h: LowRank, V: float) -> Woodbury:
        """Of a low-rank H."""
        inverse_diagonal = 1.0 / (1.0 + V * h.diagonal)
        left, right = (V * inverse_diagonal) * h.left, inverse_diagonal * h.right
        core = np.einsum("pln,qln->pqn", h.right, left)
        rank = len(core)
        core[range(rank), range(rank)] += 1.0
        inverse, safe = _small_inverse(core)
        lowest = _least_eigenvalue(core, inverse) / inverse_diagonal.max(axis=0)
        positive = safe & (inverse_diagonal > 0.0).all(axis=0) & (lowest > 0.0)
        turned = np.einsum("pln,pqn->qln", left, inverse)
        return Woodbury(LowRank(inverse_diagonal, -turned, right), np.where(positive, lowest, 0.0))

    def solve(self, right: Array) -> Array:
        """(I + V H)^-1 right, of shape (L, n)."""
        return np.asarray(self.inverse.applied(right[None])[0])


def _small_inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverses of small matrices (r, r, n) by Gauss and Jordan, and where no pivot was too small for it."""
    size = len(matrix)
    work = matrix.copy()
    safe = np.ones(matrix.shape[2], dtype=bool)
    for j in range(size):
        pivot = work[j, j].copy()
        safe &= np.abs(pivot) > SMALLEST_CORE_PIVOT
        work[j, j] = 1.0
        work[j] /= pivot
        for i in range(size):
            if i != j:
                ratio = work[i, j].copy()
                work[i, j] = 0.0
                work[i] -= ratio * work[j]
    return work, safe


def _least_eigenvalue(matrix: Array, inverse: Array) -> Array:
    """A lower bound on the eigenvalues of matrices with real ones; 0 where some are not positive.

    They are all positive where all coefficients of prod(1 + t eigenvalue) are. Then none is below
    (sum of eigenvalue^-2^s)^-2^-s.
    """
    coefficients, power, sums = [np.ones(matrix.shape[2])], matrix, list[Array]()
    for k in range(1, len(matrix) + 1):
        sums.append(np.einsum("iin->n", power))
        terms = [(-1.0) ** i * coefficients[k - 1 - i] * sums[i] for i in range(k)]
        coefficients.append(np.sum(terms, axis=0) / k)
        power = _product(power, matrix)
    positive = np.all([c > 0.0 for c in coefficients], axis=0)
    for _ in range(SHARPNESS - 1):
        inverse = _product(inverse, inverse)
    total = np.einsum("ijn,jin->n", inverse, inverse)
    return np.where(positive & (total > 0.0), np.maximum(total, 1e-300) ** (-(0.5**SHARPNESS)), 0.0)


def _product(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("ijn,jkn->ikn", left, right))
