"""One-pass SGD on tokens that are drawn when they are needed and never stored, over many seeds at once.

The law of the tokens does not change under rotations, so the teachers are sqrt(D) times the first two unit vectors: a
token's teacher fields are its first two coordinates. A step reads the tokens twice, for the fields and for the update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replicode.theory.errors import InputError
from replicode.theory.language.task import task
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.validation.data.scores import Scores, scores_of
from replicode.validation.training.learning import learning

Array = NDArray[np.float64]
Single = NDArray[np.float32]
Attention = Callable[[Array], tuple[Array, Array]]
OVERLAPS = ("m_k", "q_k", "m_v", "q_v", "kv_star", "vk_star", "kv")


@dataclass(frozen=True)
class Descent:
    """Step sizes, weight decays, sequences per step, and whether both students keep their norms."""

    rate_k: float
    rate_v: float
    lambda_k: float = 0.0
    lambda_v: float = 0.0
    batch: int = 1
    spherical: bool = False

    def __post_init__(self) -> None:
        for name in ("rate_k", "rate_v", "lambda_k", "lambda_v"):
            if not (isfinite(value := getattr(self, name)) and value >= 0):
                raise InputError(name, value, "a finite number of at least 0")
        if self.batch < 1:
            raise InputError("batch", self.batch, "an integer of at least 1")


@dataclass(frozen=True)
class Stream:
    """The law of fresh sequences, and sigma with its Jacobian for every length."""

    lengths: Lengths
    scores: tuple[Scores, ...]
    attentions: tuple[Attention, ...]
    noise: float
    model: Model = DEFAULT_MODEL

    @staticmethod
    def of(
        module: ModuleType, nu: float, noise: float, params: Sequence[float] = (), model: Model = DEFAULT_MODEL
    ) -> Stream:
        """The stream that a generated module of level dynamics is the theory of."""
        kernels, law = module.SEQUENCES, task(module.METADATA["task"])
        lengths = Lengths(tuple(int(k.tokens) for k in kernels), tuple(float(k.share) for k in kernels))
        values = np.array(params, dtype=float)

        def bound(kernel: Any) -> Attention:
            return lambda chi: kernel.attention(chi, values)

        scores = tuple(scores_of(law, nu, n) for n in lengths.tokens)
        return Stream(lengths, scores, tuple(bound(k) for k in kernels), noise, model)


def start_vectors(overlaps: Array, dim: int, seeds: int) -> tuple[Single, Single]:
    """Students (seeds, D) with these overlaps, within the first four coordinates."""
    m_k, q_k, m_v, q_v, kv_star, vk_star, kv = overlaps
    own = sqrt(max(q_k - m_k**2 - kv_star**2, 0.0))
    shared = (kv - m_k * vk_star - kv_star * m_v) / own if own > 0 else 0.0
    rest = sqrt(max(q_v - m_v**2 - vk_star**2 - shared**2, 0.0))
    vectors = np.zeros((2, seeds, dim), dtype=np.float32)
    vectors[0, :, :3] = m_k, kv_star, own
    vectors[1, :, :4] = vk_star, m_v, shared, rest
    return vectors[0] * np.float32(sqrt(dim)), vectors[1] * np.float32(sqrt(dim))


def measured(k: Single, v: Single) -> Array:
    """The seven overlaps of every seed, (seeds, 7), in double precision."""
    dim = k.shape[1]
    k64, v64 = k.astype(np.float64), v.astype(np.float64)
    products = [(k64 * k64).sum(1), (v64 * v64).sum(1), (k64 * v64).sum(1)]
    q_k, q_v, kv = (p / dim for p in products)
    root = sqrt(dim)
    columns = (k64[:, 0] / root, q_k, v64[:, 1] / root, q_v, k64[:, 1] / root, v64[:, 0] / root, kv)
    return np.stack(columns, axis=1)


def descend(
    stream: Stream,
    descent: Descent,
    start: Array,
    dim: int,
    seeds: int,
    times: Sequence[float],
    rng: np.random.Generator,
) -> Array:
    """The overlaps (times, seeds, 7) at rising times = steps/D, each seed on sequences of its own."""
    if dim < 4:
        raise InputError("dim", dim, "an integer of at least 4")
    if seeds < 1:
        raise InputError("seeds", seeds, "an integer of at least 1")
    stops = [round(t * dim) for t in times]
    if not stops or stops != sorted(stops) or stops[0] < 0:
        raise InputError("times", tuple(times), "rising numbers of at least 0")
    students = np.stack(start_vectors(start, dim, seeds), axis=1)
    norms = np.linalg.norm(students, axis=2, keepdims=True)
    stepper = _Stepper(stream, descent, dim, seeds, rng)
    found, done = [], 0
    for stop in stops:
        for _ in range(done, stop):
            stepper.step(students)
            if descent.spherical:
                students *= norms / np.linalg.norm(students, axis=2, keepdims=True)
        done = stop
        found.append(measured(students[:, 0], students[:, 1]))
    return np.array(found)


class _Stepper:
    """One step of all seeds, with the memory for its tokens."""

    def __init__(self, stream: Stream, descent: Descent, dim: int, seeds: int, rng: np.random.Generator) -> None:
        self.stream, self.descent, self.dim, self.seeds, self.rng = stream, descent, dim, seeds, rng
        self.tokens = np.empty((seeds * descent.batch * max(stream.lengths.tokens) * dim,), dtype=np.float32)
        self.of = learning(stream.model)
        self.rates, self.decays = (descent.rate_k, descent.rate_v), (descent.lambda_k, descent.lambda_v)
        self.shares = np.cumsum(stream.lengths.weights) / np.sum(stream.lengths.weights)

    def step(self, students: Single) -> None:
        """Move all students (seeds, 2, D), in place: the gradients are taken before any of them moves."""
        moves = [(rows, self._moves(length, rows, students)) for length, rows in self._lengths()]
        for i, (rate, decay) in enumerate(zip(self.rates, self.decays, strict=True)):
            if decay:
                w = students[:, i]
                w -= np.float32(rate / self.dim) * self.of.penalty_slope(w, np.float32(decay))
        for rows, move in moves:
            if rows is None:
                students += move
            else:
                np.add.at(students, rows // self.descent.batch, move)

    def _lengths(self) -> list[tuple[int, NDArray[np.int64] | None]]:
        """Which sequences have each length; None where all have the only one."""
        if self.stream.lengths.fixed is not None:
            return [(0, None)]
        drawn = np.searchsorted(self.shares, self.rng.random(self.seeds * self.descent.batch), side="right")
        return [(i, rows) for i in range(self.shares.size) if (rows := np.flatnonzero(drawn == i)).size]

    def _moves(self, length: int, rows: NDArray[np.int64] | None, students: Single) -> Single:
        """eta G sum_l f_l X_l of both students: (seeds, 2, D), or (sequences, 2, D) where their lengths vary."""
        d, tokens = self.descent, self.stream.lengths.tokens[length]
        count = self.seeds * d.batch if rows is None else rows.size
        X = self.tokens[: count * tokens * self.dim].reshape(count, tokens, self.dim)
        y = self._drawn(length, X)
        groups = X.reshape(self.seeds, -1, self.dim) if rows is None else X
        weights = students if rows is None else students[rows // d.batch]
        fields = np.matmul(groups, weights.transpose(0, 2, 1)).reshape(count, tokens, 2).astype(np.float64)
        pulls = self._pulls(length, fields / sqrt(self.dim), y)
        if rows is None:
            merged = pulls.reshape(self.seeds, d.batch, 2, tokens).transpose(0, 2, 1, 3)
            pulls = merged.reshape(self.seeds, 2, -1)
        moved: Single = np.matmul(pulls, groups)
        return moved

    def _drawn(self, length: int, X: Single) -> Array:
        """Fresh tokens, in place, and their labels."""
        self.rng.standard_normal(out=X, dtype=np.float32)
        eps, scores = self.stream.scores[length].draw(self.rng, X[:, :, 0].astype(np.float64))
        every = np.arange(len(X))
        X[every, eps, 0] = scores
        values = X[every, eps, 1].astype(np.float64)
        return np.asarray(self.of.label(values, self.stream.noise, self.rng))

    def _pulls(self, length: int, fields: Array, y: Array) -> Single:
        """eta G f_l/(batch sqrt(D)) of both students: (sequences, 2, L)."""
        chi, z = np.ascontiguousarray(fields.transpose(2, 1, 0))
        sigma, jacobian = self.stream.attentions[length](chi)
        gain = -self.of.loss_by_output(y, self.of.output(sigma, z).sum(axis=0))
        by_sigma = np.broadcast_to(self.of.output_by_sigma(sigma, z), sigma.shape)
        by_value = np.broadcast_to(self.of.output_by_value(sigma, z), sigma.shape)
        slopes = np.stack([np.einsum("ljn,ln->jn", jacobian, by_sigma), by_value])
        scale = np.array(self.rates)[:, None, None] / (self.descent.batch * sqrt(self.dim))
        pulls: Single = (scale * gain * slopes).transpose(2, 0, 1).astype(np.float32)
        return pulls
