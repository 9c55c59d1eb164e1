"""A pool of real tokens: read, centred, whitened, with what tells whether Gaussian tokens are a good model of it.

Hands on a `Pool`: whitened rows, the eigenvalues of their covariance over their mean, and radii r of x = r Sigma^1/2 g.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replicode.theory.errors import InputError

Array = NDArray[np.float64]
ALLOWED = "a .npy file with one token a row: finite numbers, more rows than columns, at least 4 columns"
LEAST_DIM = 4
SMALLEST = 1e-10  # eigenvalues relative to the largest that count as zero


@dataclass(frozen=True, eq=False)
class Pool:
    """Tokens in the eigenbasis of their covariance, each coordinate of variance one, or zero where it is degenerate."""

    rows: Array
    s: Array

    @property
    def dim(self) -> int:
        """D."""
        return self.s.size

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self.rows)

    @cached_property
    def radii(self) -> Array:
        """r of every token, of mean square one: the root of its whitened squared norm over D."""
        squares = (self.rows**2).sum(axis=1)
        return np.asarray(np.sqrt(squares / squares.mean()))

    @cached_property
    def radial_kurtosis(self) -> float:
        """E r^4/(E r^2)^2, less what Gaussian tokens of this dimension have: 0 for them, positive for mixtures."""
        rank = float((self.s > 0).sum())
        squares = self.radii**2
        return float((squares**2).mean() * rank / (rank + 2.0) - 1.0)

    @cached_property
    def neighbour_dependence(self) -> float:
        """The mean overlap of whitened tokens that stand next to each other, relative to their squares."""
        products = (self.rows[1:] * self.rows[:-1]).sum(axis=1)
        return float(products.mean() / (self.rows**2).sum(axis=1).mean())


def read_pool(path: str | Path, normalise: str | None = None) -> Pool:
    """The pool of a file."""
    file = Path(path)
    if not file.is_file():
        raise InputError("embeddings", str(path), f"{ALLOWED}: there is no such file")
    try:
        tokens = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise InputError("embeddings", str(path), f"{ALLOWED}: this file is not readable as one") from None
    return pool_of(tokens, normalise)


def pool_of(tokens: object, normalise: str | None = None) -> Pool:
    """The pool of an array, centred; with rows normalised each token then has the same norm."""
    if normalise not in (None, "rows"):
        raise InputError("normalise", normalise, "rows, or nothing")
    X = np.asarray(tokens)
    if X.dtype.kind not in "fiu" or X.ndim != 2 or X.shape[1] < LEAST_DIM or X.shape[0] <= X.shape[1]:
        raise InputError("embeddings", f"an array of shape {X.shape}", ALLOWED)
    X = X.astype(np.float64)
    if not np.isfinite(X).all():
        raise InputError("embeddings", "a number that is not finite", ALLOWED)
    X = X - X.mean(axis=0)
    if normalise:
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        if not norms.min() > 0.0:
            raise InputError("embeddings", "a token at the mean of all", "tokens with a norm, to normalise their rows")
        X = X / norms
        X = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > SMALLEST * values[0]
    if not values[0] > 0.0:
        raise InputError("embeddings", "tokens that are all the same", ALLOWED)
    rows = (X @ vectors) * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    s = np.where(kept, values, 0.0)
    return Pool(np.ascontiguousarray(rows), s / s.mean())


def effective_sample(log_weights: Array) -> float:
    """(sum w)^2 / sum w^2: as how many equal tokens these weights count."""
    w = np.exp(log_weights - log_weights.max())
    return float(w.sum() ** 2 / (w * w).sum())
