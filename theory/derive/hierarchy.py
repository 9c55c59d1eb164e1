"""Matrices of overlaps between replicas that fall into blocks, and blocks of blocks, of symbolic sizes.

A hierarchical matrix is a sum of block-diagonal matrices of ones, the blocks growing from single replicas to all of
them. All such matrices commute, so that determinants, inverses and traces are algebra of their eigenvalues, exact for
any sizes, and n -> 0 is taken afterwards. Replica symmetry has two sizes, 1 and n; one step of breaking has three.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp


@dataclass(frozen=True)
class HierarchicalMatrix:
    """sum_j parts_j J(sizes_j), J(s) having blocks of ones of size s on its diagonal; sizes go from 1 to n."""

    parts: tuple[sp.Expr, ...]
    sizes: tuple[sp.Expr, ...]

    def eigenvalues(self) -> tuple[sp.Expr, ...]:
        """One per size: on vectors that are constant on blocks of it and add up to zero on the next larger ones."""
        found = [sp.S.Zero]
        for part, size in zip(self.parts, self.sizes, strict=True):
            found.append(found[-1] + size * part)
        return tuple(found[1:])

    def blocks(self) -> tuple[sp.Expr, ...]:
        """How many blocks there are of each size."""
        return tuple(self.sizes[-1] / s for s in self.sizes)

    def _over_blocks(self, values: tuple[sp.Expr, ...]) -> sp.Expr:
        """The sum of a value over all eigenvectors: those of a size are as many as its blocks, less the next's."""
        total = self.blocks()[0] * values[0]
        for count, low, high in zip(self.blocks()[1:], values, values[1:]):
            total += count * (high - low)
        return total

    def log_det(self) -> sp.Expr:
        """The logarithm of the determinant."""
        eigenvalues = self.eigenvalues()
        total = self.blocks()[0] * sp.log(eigenvalues[0])
        for count, low, high in zip(self.blocks()[1:], eigenvalues, eigenvalues[1:]):
            total += count * sp.log(1 + sp.factor(high - low) / low)
        return total

    def inverse(self) -> HierarchicalMatrix:
        """The inverse, of the same form."""
        inverted = tuple(1 / e for e in self.eigenvalues())
        steps = zip((sp.S.Zero, *inverted), inverted, self.sizes)
        return HierarchicalMatrix(tuple(sp.factor((high - low) / size) for low, high, size in steps), self.sizes)

    def sum(self) -> sp.Expr:
        """The sum of all entries."""
        return self.sizes[-1] * self.eigenvalues()[-1]

    def trace_with(self, other: HierarchicalMatrix) -> sp.Expr:
        """The trace of a product of two matrices with the same blocks."""
        pairs = zip(self.eigenvalues(), other.eigenvalues(), strict=True)
        return self._over_blocks(tuple(a * b for a, b in pairs))

    def explicit(self, sizes: tuple[int, ...]) -> sp.Matrix:
        """The matrix itself at given sizes, for checks."""
        total = sp.zeros(sizes[-1])
        for part, size in zip(self.parts, sizes, strict=True):
            total += part * sp.Matrix(sp.kronecker_product(sp.eye(sizes[-1] // size), sp.ones(size)))
        return total
