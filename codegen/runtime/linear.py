"""Batched symmetric linear algebra on (size, size, n) arrays, one Python step per pivot, none per sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from replicode.codegen.runtime.kernel import Array

Record = TypeVar("Record")


def product(matrix: Array, rows: Sequence[Array] | Array) -> Array:
    """matrix @ rows, without waking the threads of BLAS; a single row is quicker by broadcasting."""
    return matrix * rows[0] if len(rows) == 1 else np.asarray(np.einsum("ij,jn->in", matrix, np.asarray(rows)))


def weighted_sum(values: Array, weights: Array) -> Array:
    """values @ weights over the last axis, without waking the threads of BLAS."""
    return np.asarray(np.einsum("...n,n->...", values, weights))


def weighted_record(found: Sequence[Record], shares: Array) -> Record:
    """The weighted mean of records of arrays and numbers, field by field."""
    kind: Any = type(found[0])
    means = [np.tensordot(shares, [getattr(f, name) for f in found], 1) for name in kind._fields]
    record: Record = kind(*(m if m.ndim else float(m) for m in means))
    return record


def token_rows(like: Array, hidden: Array | float, idle: Array | float) -> Array:
    """One row per token: the hidden one first."""
    out = np.empty_like(like)
    out[0], out[1:] = hidden, idle
    return out


def pivots_of(lines: Sequence[Sequence[Array]]) -> list[Array]:
    """Pivots of a symmetric matrix per sample, given as lines from the diagonal on; no pivoting."""
    pivots = []
    while lines:
        pivot, row = lines[0][0], lines[0][1:]
        pivots.append(pivot)
        if row:
            safe = np.where(pivot == 0.0, 1e-300, pivot)
            ratios = [entry / safe for entry in row]
            lines = [
                [entry - ratios[i] * row[j] for j, entry in enumerate(line, i)] for i, line in enumerate(lines[1:])
            ]
        else:
            lines = []
    return pivots


def factor(matrix: Array, floor: float = 0.0) -> tuple[Array, Array]:
    """L D L^T without pivoting; with a floor, pivots become max(|pivot|, floor), which makes Newton descend."""
    lower = matrix.copy()
    pivots = np.empty(matrix.shape[1:])
    for j in range(len(pivots)):
        pivot = lower[j, j]
        if floor:
            pivot = np.maximum(np.abs(pivot), floor)
        pivots[j] = pivot
        row = lower[j, j + 1 :].copy()
        column = row / np.where(pivot == 0.0, 1e-300, pivot)
        lower[j + 1 :, j + 1 :] -= column[:, None] * row[None, :]
        lower[j + 1 :, j] = column
    return lower, pivots


def solve_factored(lower: Array, pivots: Array, right: Array) -> Array:
    """Solve with the factors of `factor`; `right` is (size, n) or (size, columns, n)."""
    extra = (slice(None),) + (None,) * (right.ndim - 2)
    solution = right.copy()
    for j in range(len(pivots)):
        solution[j + 1 :] -= lower[j + 1 :, j][extra] * solution[j]
    solution /= pivots[extra]
    for j in reversed(range(len(pivots))):
        solution[j] -= (lower[j + 1 :, j][extra] * solution[j + 1 :]).sum(axis=0)
    return solution


def add_identity(matrix: Array) -> Array:
    """I + matrix, in place."""
    index = np.arange(len(matrix))
    matrix[index, index] += 1.0
    return matrix
