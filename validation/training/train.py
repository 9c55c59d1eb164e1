"""Training from an informed, a random or a warm start: hands on a `Trained`, which says if it converged."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np

from replicode.theory.errors import InputError
from replicode.validation.data.sampling import Array, Dataset, sphere_frame
from replicode.validation.training.attention import Centre, TokenMap, objective
from replicode.validation.training.kinks import stages
from replicode.validation.training.learning import learning, roundings
from replicode.validation.training.methods import Lbfgs, Method, relative_gradient_norm


@dataclass(frozen=True)
class Informed:
    """Start at these overlaps: k0 = m_k k* + sqrt(q_k - m_k^2) u_k, likewise v0; the cross ones are 0."""

    m_k: float
    q_k: float
    m_v: float
    q_v: float

    def __post_init__(self) -> None:
        for block in "kv":
            m, q = getattr(self, f"m_{block}"), getattr(self, f"q_{block}")
            # A population optimum has q = m^2, which rounding may leave a hair below.
            if not (isfinite(m) and isfinite(q) and q - m * m >= -1e-12 * max(1.0, m * m)):
                raise InputError(f"q_{block}", q, f"a finite number of at least m_{block}^2 = {m * m:.6g}")

    def draw(self, rng: np.random.Generator, dataset: Dataset) -> Array:
        """The parameters (k0, v0)."""
        teachers = (dataset.k_star, dataset.v_star)
        u_k, u_v = sphere_frame(rng, dataset.dim, 2, orthogonal_to=teachers)
        k = self.m_k * dataset.k_star + sqrt(max(self.q_k - self.m_k**2, 0.0)) * u_k
        v = self.m_v * dataset.v_star + sqrt(max(self.q_v - self.m_v**2, 0.0)) * u_v
        return np.concatenate([_unwhitened(w, dataset) for w in (k, v)])


def _unwhitened(weights: Array, dataset: Dataset) -> Array:
    """The weights that the tokens see as these; coordinates in which tokens are next to nothing are left at zero."""
    if dataset.coordinates is None:
        return weights
    metric = dataset.coordinates.metric
    seen = metric > SMALLEST_SEEN * metric.max()
    return np.divide(weights, metric, out=np.zeros_like(weights), where=seen)


@dataclass(frozen=True)
class Random:
    """Start that knows nothing of the teachers: i.i.d. N(0, scale^2) entries, q_k and q_v about scale^2."""

    scale: float = 0.1

    def __post_init__(self) -> None:
        if not (isfinite(self.scale) and self.scale > 0):
            raise InputError("scale", self.scale, "a finite number above 0")

    def draw(self, rng: np.random.Generator, dataset: Dataset) -> Array:
        """The parameters (k0, v0)."""
        return self.scale * rng.standard_normal(2 * dataset.dim)


@dataclass(frozen=True, eq=False)
class Warm:
    """Start at the end of another training of the same dimension."""

    k: Array
    v: Array

    def draw(self, rng: np.random.Generator, dataset: Dataset) -> Array:
        """The parameters (k0, v0)."""
        if self.k.size != dataset.dim or self.v.size != dataset.dim:
            raise InputError("start", (self.k.size, self.v.size), f"vectors of the dimension {dataset.dim} of the data")
        return np.concatenate([self.k, self.v])


Start = Informed | Random | Warm
LBFGS = Lbfgs()

SMALLEST_SEEN = 1e-3  # of the standard deviation of tokens along a coordinate
FIRST_CENTRE = 3e-3  # of the relative gradient norm
FALL_TO_NEXT_CENTRE = 0.03


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained (k, v); gradient_norm is the relative one of `relative_gradient_norm`."""

    k: Array
    v: Array
    objective: float
    gradient_norm: float
    converged: bool
    iterations: int


class _Objective:
    """The training objective of params; for data in single precision it is centred where the gradient gets small."""

    def __init__(
        self, dataset: Dataset, token_map: TokenMap, lambdas: tuple[float, float], rounding: float | None
    ) -> None:
        self.dataset, self.token_map, self.lambdas, self.rounding = dataset, token_map, lambdas, rounding
        self.single = any(batch.X.dtype != np.float64 for batch in dataset.batches)
        self.centre: Centre | None = None
        self.next_centre = FIRST_CENTRE

    def free(self, params: Array) -> Array:
        """The coordinates in which the minimiser moves, from the weights."""
        return params

    def weights(self, params: Array) -> Array:
        """The weights, from the coordinates of the minimiser."""
        return params

    def __call__(self, params: Array) -> tuple[float, Array]:
        """Value and gradient."""
        value, gradient = objective(params, self.dataset, self.token_map, *self.lambdas, self.centre, self.rounding)
        if self.single and (norm := relative_gradient_norm(params, value, gradient)) <= self.next_centre:
            self.centre = Centre.at(params, self.dataset)
            self.next_centre = norm * FALL_TO_NEXT_CENTRE
        return value, gradient


class _StructuredObjective(_Objective):
    """The same of structured tokens: the minimiser moves in k times sqrt(lambda p + alpha s), of even curvature."""

    def __init__(
        self, dataset: Dataset, token_map: TokenMap, lambdas: tuple[float, float], rounding: float | None
    ) -> None:
        super().__init__(dataset, token_map, lambdas, rounding)
        assert dataset.coordinates is not None
        self.metric, self.penalty_weights = dataset.coordinates.metric, dataset.coordinates.weights
        alpha = dataset.samples / dataset.dim
        curvatures = [weight * self.penalty_weights + alpha * self.metric**2 for weight in lambdas]
        self.steps = np.concatenate([1.0 / np.sqrt(np.where(c > 0.0, c, 1.0)) for c in curvatures])

    def free(self, params: Array) -> Array:
        """From the weights."""
        return np.asarray(params / self.steps)

    def weights(self, params: Array) -> Array:
        """To the weights."""
        return np.asarray(params * self.steps)

    def __call__(self, params: Array) -> tuple[float, Array]:
        """Value and gradient: the loss sees whitened weights, the penalty the weights."""
        of, weights = learning(self.dataset.model), self.weights(params)
        seen = np.concatenate([self.metric, self.metric])
        value, gradient = objective(seen * weights, self.dataset, self.token_map, 0.0, 0.0, rounding=self.rounding)
        gradient = seen * gradient
        for part, strength in zip(np.split(np.arange(weights.size), 2), self.lambdas, strict=True):
            value += float((self.penalty_weights * of.penalty(weights[part], strength)).sum())
            gradient[part] += self.penalty_weights * of.penalty_slope(weights[part], strength)
        return value, gradient * self.steps


def train(
    dataset: Dataset,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    start: Start,
    rng: np.random.Generator,
    *,
    method: Method = LBFGS,
    tolerance: float | None = None,
) -> Trained:
    """Minimise the training objective until its relative gradient norm is at most the tolerance.

    The default tolerance is what the precision of the data allows: 1e-6 in double, 1e-5 in single, or where the slope
    of the loss jumps. Kinks are rounded off by stages.
    """
    kind = _Objective if dataset.coordinates is None else _StructuredObjective
    widths = roundings(dataset.model)
    objectives = [kind(dataset, stage, lambdas, tau) for stage in stages(token_map) for tau in widths]
    if tolerance is None:
        tolerance = 1e-5 if objectives[0].single or len(widths) > 1 else 1e-6
    params, steps = objectives[0].free(start.draw(rng, dataset)), 0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for function in objectives:
            params, count = method.minimise(function, params, tolerance)
            steps += count
        value, gradient = function(params)
        norm = relative_gradient_norm(params, value, gradient)
    k, v = np.split(function.weights(params), 2)
    # A norm that is not a number is not small.
    return Trained(k, v, float(value), norm, norm <= tolerance, steps)
