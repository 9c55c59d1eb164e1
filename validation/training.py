"""Training by L-BFGS from an informed or a random start: hands on a `Trained`, which says if it converged."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from scipy.optimize import minimize

from theory.errors import InputError
from validation.attention import TokenMap, objective
from validation.sampling import Array, Dataset, sphere_frame


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
        u_k, u_v = sphere_frame(rng, dataset.k_star.size, 2, orthogonal_to=teachers)
        k = self.m_k * dataset.k_star + sqrt(max(self.q_k - self.m_k**2, 0.0)) * u_k
        v = self.m_v * dataset.v_star + sqrt(max(self.q_v - self.m_v**2, 0.0)) * u_v
        return np.concatenate([k, v])


@dataclass(frozen=True)
class Random:
    """Start that knows nothing of the teachers: i.i.d. N(0, scale^2) entries, q_k and q_v about scale^2."""

    scale: float = 0.1

    def __post_init__(self) -> None:
        if not (isfinite(self.scale) and self.scale > 0):
            raise InputError("scale", self.scale, "a finite number above 0")

    def draw(self, rng: np.random.Generator, dataset: Dataset) -> Array:
        """The parameters (k0, v0)."""
        return self.scale * rng.standard_normal(2 * dataset.k_star.size)


Start = Informed | Random


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained (k, v); gradient_norm is the relative one of `relative_gradient_norm`."""

    k: Array
    v: Array
    objective: float
    gradient_norm: float
    converged: bool
    iterations: int


def relative_gradient_norm(params: Array, value: float, gradient: Array) -> float:
    """|gradient| sqrt(|params|^2 + D) / objective: the relative fall of the objective by a step of order one.

    Free of units and of the start. At curvatures of order one the error left in the overlaps is as small.
    """
    dim = params.size // 2
    reach = sqrt(float(params @ params) + dim)
    return float(np.linalg.norm(gradient)) * reach / max(value, np.finfo(float).tiny)


def train(
    dataset: Dataset,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    start: Start,
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-6,
    rounds: int = 6,
    iterations: int = 5000,
) -> Trained:
    """Minimise the training objective until its relative gradient norm is at most the tolerance.

    scipy stops early now and then (line search, rounding); each round starts it afresh from where it stopped.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        params, steps = start.draw(rng, dataset), 0
        value, gradient = objective(params, dataset, token_map, *lambdas)
        for _ in range(rounds):
            if _settled(params, value, gradient, tolerance) or not isfinite(value):
                break
            params, used = _round(params, value, dataset, token_map, lambdas, tolerance, iterations)
            steps += used
            value, gradient = objective(params, dataset, token_map, *lambdas)
        k, v = np.split(params, 2)
        norm = relative_gradient_norm(params, value, gradient)
    return Trained(k, v, float(value), norm, _settled(params, value, gradient, tolerance), steps)


def _settled(params: Array, value: float, gradient: Array, tolerance: float) -> bool:
    """Whether the gradient is small enough; a norm that is not a number never is."""
    return relative_gradient_norm(params, value, gradient) <= tolerance


def _round(
    params: Array,
    value: float,
    dataset: Dataset,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    tolerance: float,
    iterations: int,
) -> tuple[Array, int]:
    """The point where one run of L-BFGS from params stops, and the iterations it took."""
    # scipy's gtol is on the largest component; as a bound on all 2D of them it implies ours.
    reach = sqrt(float(params @ params) + params.size / 2)
    gtol = tolerance * value / (reach * sqrt(params.size))
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20, "ftol": 0.0, "gtol": gtol}
    found = minimize(
        objective, params, args=(dataset, token_map, *lambdas), method="L-BFGS-B", jac=True, options=options
    )
    return np.asarray(found.x, dtype=np.float64), int(found.nit)
