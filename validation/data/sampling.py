"""Data of single-location regression: hands `Dataset`s, with the teachers that made them, to the trainer.

The teachers have exact norm sqrt(D) and are exactly orthogonal. This has the same high-dimensional limit as
i.i.d. normal teachers and removes most of the seed-to-seed scatter of the overlaps. It also makes the scores
chi* = X k*/sqrt(D) exactly standard normal and independent of all else, so that a score is set by changing the
component of its token along k*, and nothing but it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replicode.theory.errors import InputError
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.validation.data.scores import Scores
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.training.learning import learning

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Tokens = NDArray[np.floating[Any]]

CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences of one length: X (n, L, D), labels y (n,), hidden tokens eps (n,), places in the data set (n,)."""

    X: Tokens
    y: Array
    eps: Index
    places: Index

    def chunks(self) -> Iterator[slice]:
        """Slices of the sequences whose tokens are about CHUNK_BYTES, so that they stay in a cache."""
        rows = max(1, CHUNK_BYTES // max(self.X[0].nbytes, 1))
        return (slice(begin, begin + rows) for begin in range(0, self.y.size, rows))


@dataclass(frozen=True, eq=False)
class Dataset:
    """N labelled sequences, one batch for each length that occurs, the teachers (D,), and what is to be learned."""

    batches: tuple[Batch, ...]
    k_star: Array
    v_star: Array
    model: Model = DEFAULT_MODEL
    coordinates: Coordinates | None = None

    def whitened(self, weights: Array) -> Array:
        """Weights as the tokens here see them: structured tokens are kept whitened, and so are their teachers."""
        return weights if self.coordinates is None else self.coordinates.metric * weights

    @property
    def dim(self) -> int:
        """D."""
        return self.k_star.size

    @property
    def samples(self) -> int:
        """N, the number of sequences."""
        return sum(batch.y.size for batch in self.batches)

    def first(self, samples: int) -> Dataset:
        """The first sequences drawn, as views: a data set of its own law with the same teachers."""
        if not 1 <= samples <= self.samples:
            raise InputError("samples", samples, f"an integer from 1 to the {self.samples} that there are")
        ends = [int(np.searchsorted(batch.places, samples)) for batch in self.batches]
        cut = [Batch(b.X[:n], b.y[:n], b.eps[:n], b.places[:n]) for b, n in zip(self.batches, ends) if n]
        return Dataset(tuple(cut), self.k_star, self.v_star, self.model, self.coordinates)


@dataclass(frozen=True)
class Sampler:
    """The law of the data: X_l ~ N(0, I_D) with scores along k* as in `scores`, the label is the model's.

    `scores` has one law for each length. With `single` the tokens are kept in single precision, labels and
    everything else in double. Of structured tokens `coordinates` has the spectrum, and X is whitened.
    """

    lengths: Lengths
    dim: int
    samples: int
    noise: float
    scores: tuple[Scores, ...]
    single: bool = False
    model: Model = DEFAULT_MODEL
    coordinates: Coordinates | None = None

    def __post_init__(self) -> None:
        for name, least in (("dim", 2), ("samples", 1)):
            if getattr(self, name) < least:
                raise InputError(name, getattr(self, name), f"an integer of at least {least}")
        if not (isfinite(self.noise) and self.noise >= 0):
            raise InputError("noise", self.noise, "a finite number of at least 0 (a standard deviation)")
        if len(self.scores) != len(self.lengths.tokens):
            raise InputError("scores", len(self.scores), f"one law for each of {len(self.lengths.tokens)} lengths")

    def draw(self, rng: np.random.Generator, teachers: tuple[Array, Array] | None = None) -> Dataset:
        """One data set, with fresh teachers unless they are given."""
        k_star, v_star = self._teachers(rng) if teachers is None else teachers
        parts = zip(self.lengths.tokens, self.scores, self._places(rng))
        batches = [self._batch(rng, n, law, places, k_star, v_star) for n, law, places in parts if places.size]
        return Dataset(tuple(batches), k_star, v_star, self.model, self.coordinates)

    def _teachers(self, rng: np.random.Generator) -> tuple[Array, Array]:
        if self.coordinates is not None:
            return self.coordinates.teachers(rng)
        k_star, v_star = sphere_frame(rng, self.dim, 2)
        return k_star, v_star

    def _places(self, rng: np.random.Generator) -> tuple[Index, ...]:
        """Which sequences have each of the lengths; nothing is drawn where the length is fixed."""
        if self.lengths.fixed is not None:
            return (np.arange(self.samples),)
        shares = np.array(self.lengths.weights)
        drawn = rng.choice(shares.size, size=self.samples, p=shares / shares.sum())
        return tuple(np.flatnonzero(drawn == i) for i in range(shares.size))

    def _batch(
        self, rng: np.random.Generator, tokens: int, law: Scores, places: Index, k_star: Array, v_star: Array
    ) -> Batch:
        count = places.size
        dtype = np.float32 if self.single else np.float64
        X = rng.standard_normal((count, tokens, self.dim), dtype=dtype)
        rows = X.reshape(-1, self.dim)
        chi, z = (_components(rows, w).reshape(count, tokens) for w in (k_star, v_star))
        eps, hidden_scores = law.draw(rng, chi)
        hidden = np.arange(count), eps
        _shift(rows, hidden[0] * tokens + eps, hidden_scores - chi[hidden], k_star)
        y = learning(self.model).label(z[hidden], self.noise, rng)
        return Batch(X, y, eps, places)


def _components(rows: Tokens, direction: Array) -> Array:
    """rows w / sqrt(D), the product in the precision of the rows."""
    return np.asarray(rows @ direction.astype(rows.dtype), dtype=np.float64) / sqrt(direction.size)


def _shift(rows: Tokens, which: Index, changes: Array, direction: Array) -> None:
    """Change the components of some rows along a direction of norm sqrt(D), a few megabytes at a time."""
    unit = (direction / sqrt(direction.size)).astype(rows.dtype)
    moved = np.flatnonzero(changes)
    step = max(1, CHUNK_BYTES // unit.nbytes)
    for begin in range(0, moved.size, step):
        part = moved[begin : begin + step]
        rows[which[part]] += changes[part, None].astype(rows.dtype) * unit


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
