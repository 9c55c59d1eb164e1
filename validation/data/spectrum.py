"""Structured tokens in training: eigenvalues at any multiple of their dimension, and teachers of exact weights.

Tokens are kept whitened: a token is x = metric * g with g isotropic, and x.k = g.(metric * k). So sampling, control
variates and overlaps, which are those of the whitened weights, are as of isotropic tokens; only the penalty, on k
itself, knows the metric. Hands a `Coordinates` to the sampler.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replicode.theory.errors import InputError, Refusal

Array = NDArray[np.float64]
WORST_OVERLAP = 0.02


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Eigenvalues s, penalty weights p and whitened squares of both teachers, of mean one, coordinate by coordinate.

    Each stands for `copies` equal ones: the theory is the same at any multiple of the dimension.
    """

    s: Array
    p: Array
    c_k: Array
    c_v: Array
    copies: int = 1

    @classmethod
    def of(cls, spectrum: Any) -> Coordinates:
        """From a spectrum of the run-time, the coordinates of eigenvalue zero included: they carry no weight."""
        pad = 0, spectrum.dim - spectrum.s.size
        s, c_k, c_v = (np.pad(x, pad) for x in (spectrum.s, spectrum.c_k, spectrum.c_v))
        return cls(s, np.pad(spectrum.p, pad, constant_values=1.0), c_k, c_v)

    @property
    def dim(self) -> int:
        """D, copies counted."""
        return self.copies * self.s.size

    def at(self, dim: int) -> Coordinates:
        """The same spectrum at a multiple of its dimension."""
        copies, rest = divmod(dim, self.s.size)
        if rest or not copies:
            raise InputError("dim", dim, f"a multiple of the {self.s.size} coordinates of the spectrum")
        return Coordinates(self.s, self.p, self.c_k, self.c_v, copies)

    @property
    def metric(self) -> Array:
        """sqrt(s_i) of all coordinates, copies beside each other."""
        return np.repeat(np.sqrt(self.s), self.copies)

    @property
    def variances(self) -> tuple[Array, Array]:
        """The squares of both whitened teachers, of all coordinates."""
        return np.repeat(self.c_k, self.copies), np.repeat(self.c_v, self.copies)

    @property
    def weights(self) -> Array:
        """The weights of the penalty."""
        return np.repeat(self.p, self.copies)

    def teachers(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Whitened teachers of exact weights, norm sqrt(D) and orthogonal to each other.

        Among copies both are drawn at random, orthogonal to each other. A single coordinate has only signs to draw:
        they are drawn, and turned until the products nearly cancel; the little that is left is projected out.
        """
        if self.copies > 1:
            return self._frames(rng)
        signs = rng.choice((-1.0, 1.0), size=self.s.size)
        turned = _cancelling(np.sqrt(self.c_k * self.c_v), rng)
        k, v = signs * np.sqrt(self.c_k), signs * turned * np.sqrt(self.c_v)
        left = float(k @ v) / self.dim
        if abs(left) > WORST_OVERLAP:
            raise Refusal(
                f"the teachers of this spectrum can not be orthogonal at D = {self.dim}: a few coordinates carry most "
                f"of their weight; take a multiple of D, at least {2 * self.dim}"
            )
        v = v - left * k
        return k, v * sqrt(self.dim) / float(np.linalg.norm(v))

    def _frames(self, rng: np.random.Generator) -> tuple[Array, Array]:
        first, second = rng.standard_normal((2, self.s.size, self.copies))
        first /= np.linalg.norm(first, axis=1, keepdims=True)
        second -= (first * second).sum(axis=1, keepdims=True) * first
        second /= np.linalg.norm(second, axis=1, keepdims=True)
        sizes = (np.sqrt(self.copies * c)[:, None] for c in (self.c_k, self.c_v))
        k, v = (size * frame for size, frame in zip(sizes, (first, second), strict=True))
        return k.ravel(), v.ravel()


def _cancelling(products: Array, rng: np.random.Generator) -> Array:
    """Signs with which these numbers add up to almost nothing: the largest first, each against the sum so far."""
    signs, total = np.ones(products.size), 0.0
    for i in np.argsort(-products, kind="stable"):
        signs[i] = -np.sign(total) if total else rng.choice((-1.0, 1.0))
        total += signs[i] * products[i]
    return signs
