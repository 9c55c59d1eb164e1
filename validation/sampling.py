"""Data of single-location regression: hands `Dataset`s, with the teachers that made them, to the trainer.

The teachers have exact norm sqrt(D) and are exactly orthogonal. This has the same high-dimensional limit as
i.i.d. normal teachers and removes most of the seed-to-seed scatter of the overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from theory.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """N labelled sequences X (N, L, D) with labels y (N,), hidden tokens eps (N,) and the teachers (D,)."""

    X: Array
    y: Array
    eps: NDArray[np.int64]
    k_star: Array
    v_star: Array


@dataclass(frozen=True)
class Sampler:
    """The law of the data: X_l ~ N(0, I_D), chi*_eps ~ N(score_mean, score_std^2), y = z*_eps + noise xi."""

    tokens: int
    dim: int
    samples: int
    noise: float
    score_mean: float
    score_std: float

    def __post_init__(self) -> None:
        for name, least in (("tokens", 1), ("dim", 2), ("samples", 1)):
            if getattr(self, name) < least:
                raise InputError(name, getattr(self, name), f"an integer of at least {least}")
        for name in ("noise", "score_std"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise InputError(name, value, "a finite number of at least 0 (a standard deviation)")
        if not isfinite(self.score_mean):
            raise InputError("score_mean", self.score_mean, "a finite number")

    def draw(self, rng: np.random.Generator) -> Dataset:
        """One data set with fresh teachers."""
        k_star, v_star = sphere_frame(rng, self.dim, 2)
        X = rng.standard_normal((self.samples, self.tokens, self.dim))
        eps = rng.integers(self.tokens, size=self.samples)
        hidden = (np.arange(self.samples), eps)
        X[hidden] += np.outer(self._score_changes(X[hidden], k_star, rng), k_star / sqrt(self.dim))
        z_star = X[hidden] @ v_star / sqrt(self.dim)
        y = z_star + self.noise * rng.standard_normal(self.samples)
        return Dataset(X, y, eps, k_star, v_star)

    def _score_changes(self, hidden: Array, k_star: Array, rng: np.random.Generator) -> Array:
        """What takes the scores chi*_eps of the hidden tokens (N, D) to draws of their law."""
        old = hidden @ k_star / sqrt(self.dim)
        return self.score_mean + self.score_std * rng.standard_normal(self.samples) - old


def sphere_frame(
    rng: np.random.Generator, dim: int, count: int, orthogonal_to: tuple[Array, ...] = ()
) -> tuple[Array, ...]:
    """`count` uniformly random vectors of norm sqrt(D), orthogonal to each other and to the given ones."""
    given = len(orthogonal_to)
    if dim < given + count:
        raise InputError("dim", dim, f"at least {given + count}, the number of orthogonal directions")
    columns = np.stack([*orthogonal_to, *rng.standard_normal((count, dim))], axis=1)
    directions, triangle = np.linalg.qr(columns)
    # QR fixes directions up to a sign; this one keeps each vector on the side of its own normal draw.
    directions *= np.sign(np.diag(triangle))
    return tuple(sqrt(dim) * directions[:, given + i] for i in range(count))
