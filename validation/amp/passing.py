"""Approximate message passing for the Bayes posterior of single-location regression, tracked by its overlaps.

The posterior of (k, v), both on the sphere of radius sqrt(D) as the teachers are, is proportional to
prod_mu sum_e g(e, X_mu k/sqrt(D)) N(y_mu; X_mu,e v/sqrt(D), noise^2). Message passing keeps its mean k, v with one
variance for each, and per token the fields omega; with Z the evidence of one sequence, for k and likewise for v,

    omega^t = X k^t/sqrt(D) - V^t G^(t-1),                     G^t = grad_omega log Z(y, omega^t; V^t),
    B^t = X^T G^t/sqrt(D) + (|G^t|^2/D - c) k^t,               k^(t+1) = V^(t+1) B^t with |k^(t+1)|^2/D + V^(t+1) = 1.

|G|^2/D - c is the mean curvature of -log Z (Nishimori): c = alpha E_w[sum_l chi*_l^2 - L] for k and 0 for v, because
the average of Z over y and the base law of X, which is 1 on the sphere, does not stay 1 off it where the weight moves
the scores. One number per block suffices: all coordinates are alike, and the mixed curvature of k and v is odd
under the flip (v, y) -> -(v, y), hence of order D^(-1/2) only.

Structured tokens are whitened, and the teacher's coordinates have the variances c_i, of mean one: then
k_i^(t+1) = c_i B_i/(1 + c_i a), V^(t+1) = mean_i c_i/(1 + c_i a), and a is what brings both to the sphere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np
from scipy.optimize import brentq

from replicode.codegen.threads import one_thread
from replicode.theory.errors import InputError, Refusal
from replicode.validation.data.sampling import Array, Dataset, Tokens
from replicode.validation.statistics.measure import Overlaps
from replicode.validation.training.train import Informed


class Evidence(Protocol):
    """What message passing asks of a task: sequences along axis 0, their tokens along axis 1."""

    def log_z_gradient(self, y: Array, omega_k: Array, omega_v: Array, V_k: float, V_v: float) -> tuple[Array, Array]:
        """The gradients of log Z(y, omega) in omega_k and omega_v, of their shape (N, L)."""

    def location(self, omega_k: Array, V_k: float) -> Array:
        """The posterior (N, L) of the location in sequences whose label is not known."""

    def excess(self, tokens: int) -> float:
        """E_w[sum_l chi*_l^2] - L, by which the weight moves the scores of this many tokens."""


@dataclass(frozen=True)
class Start:
    """Overlaps with the teachers before the first iteration, m = q as a posterior mean has them; 0, 0: uninformed."""

    q_k: float = 0.0
    q_v: float = 0.0

    def __post_init__(self) -> None:
        for name in ("q_k", "q_v"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise InputError(name, value, "a number from 0 (nothing known) to 1")

    def draw(self, rng: np.random.Generator, dataset: Dataset) -> Array:
        """Estimates k, v (2, D) with exactly these overlaps."""
        return np.stack(np.split(Informed(self.q_k, self.q_k, self.q_v, self.q_v).draw(rng, dataset), 2))


UNINFORMED, INFORMED = Start(), Start(0.99, 0.99)


@dataclass(frozen=True)
class PassingStep:
    """The estimates before an iteration: their overlaps, the variances they claim, and how far they then moved."""

    overlaps: Overlaps
    V_k: float
    V_v: float
    moved: float


@dataclass(frozen=True, eq=False)
class Messages:
    """The estimates after the last iteration; one `PassingStep` per iteration and a last one, whose `moved` is 0."""

    k: Array
    v: Array
    steps: tuple[PassingStep, ...]

    @property
    def last(self) -> PassingStep:
        """Where it ended."""
        return self.steps[-1]


@one_thread()
def message_passing(
    dataset: Dataset, evidence: Evidence, start: Start, rng: np.random.Generator, iterations: int = 10
) -> Messages:
    """Run a fixed number of iterations; a Refusal where they leave the finite numbers."""
    if iterations < 1:
        raise InputError("iterations", iterations, "a whole number of at least 1")
    estimates, V = start.draw(rng, dataset), np.array([1.0 - start.q_k, 1.0 - start.q_v])
    gradients = [np.zeros((2, *batch.X.shape[:2])) for batch in dataset.batches]
    c = np.array([_moved_scores(dataset, evidence), 0.0])
    variances = (None, None) if dataset.coordinates is None else dataset.coordinates.variances
    steps: list[PassingStep] = []
    for t in range(iterations):
        pull, square, along_k = np.zeros_like(estimates), np.zeros(2), 0.0
        for b, batch in enumerate(dataset.batches):
            fields = _fields(batch.X, estimates)
            omega = fields - V[:, None, None] * gradients[b]
            gradients[b] = np.stack(evidence.log_z_gradient(batch.y, *omega, *V.tolist()))
            pull += _back(batch.X, gradients[b])
            square += (gradients[b] ** 2).sum(axis=(1, 2)) / dataset.dim
            along_k += float(((gradients[b][1] * fields[0]).sum(axis=1) ** 2).sum())
        B = pull + (square - c)[:, None] * estimates
        if not np.isfinite(B).all():
            raise Refusal(f"message passing left the finite numbers at iteration {t + 1}, where V = {V.tolist()}")
        (k, V_k), (v, V_v) = (_on_sphere(row, c_i) for row, c_i in zip(B, variances))
        change, narrowed = np.stack([k, v]) - estimates, np.array([V_k, V_v])
        change[1] -= _overshoot(change[1], estimates[0], square[1], along_k)
        steps.append(_step(dataset, estimates, V, float(np.sqrt((change**2).mean()))))
        estimates, V = estimates + change, narrowed
    return Messages(estimates[0], estimates[1], (*steps, _step(dataset, estimates, V, 0.0)))


def _moved_scores(dataset: Dataset, evidence: Evidence) -> float:
    """c of k: alpha times the mean excess of the sequences."""
    return sum(batch.y.size * evidence.excess(batch.X.shape[1]) for batch in dataset.batches) / dataset.dim


def _on_sphere(B: Array, variances: Array | None) -> tuple[Array, float]:
    """The mean of a vector on the sphere, and its variance V: |mean|^2/D + V = 1, where all are one mean = V B."""
    if variances is None:
        V = 2.0 / (1.0 + sqrt(1.0 + 4.0 * float(B @ B) / B.size))
        return V * B, V

    def posterior(strength: float) -> tuple[Array, float]:
        left = variances / (1.0 + strength * variances)
        return left * B, float(left.mean())

    def beyond(strength: float) -> float:
        mean, V = posterior(strength)
        return float(mean @ mean) / B.size + V - 1.0

    high = 1.0
    while beyond(high) > 0.0:
        high *= 2.0
    return posterior(float(brentq(beyond, 0.0, high)))


def _overshoot(change: Array, k: Array, curvature: float, along_k: float) -> Array:
    """What the change of v has too much of along k, where the curvature is not |G|^2/D but along_k/|k|^2.

    Hidden tokens are longer along k*, by E_w[chi*_eps^2] - 1: a component of v along k*, an accident of order D^(-1/2),
    would come back multiplied by -q_v times that. A step that heeds the curvature leaves the fixed points, and the
    limit of large D, as they are.
    """
    square = float(k @ k)
    if square == 0.0:
        return np.zeros_like(change)
    share = 1.0 - (1.0 + curvature) / (1.0 + along_k / square)
    return np.asarray(share * float(k @ change) / square * k)


def _step(dataset: Dataset, estimates: Array, V: Array, moved: float) -> PassingStep:
    overlaps = Overlaps.of(estimates[0], estimates[1], dataset.k_star, dataset.v_star)
    return PassingStep(overlaps, float(V[0]), float(V[1]), moved)


def _fields(X: Tokens, directions: Array) -> Array:
    """X k/sqrt(D) and X v/sqrt(D), of shape (2, N, L), the products in the precision of X."""
    flat = X.reshape(-1, X.shape[2])
    found = np.stack([flat @ direction.astype(X.dtype) for direction in directions])
    return np.asarray(found.reshape(2, *X.shape[:2]) / sqrt(X.shape[2]), dtype=np.float64)


def _back(X: Tokens, gradients: Array) -> Array:
    """The adjoint of `_fields`."""
    flat = X.reshape(-1, X.shape[2])
    found = np.stack([gradient.ravel().astype(X.dtype) @ flat for gradient in gradients])
    return np.asarray(found / sqrt(X.shape[2]), dtype=np.float64)
