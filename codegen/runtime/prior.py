"""The arguments of the saddle equations, and what the prior adds to them: closed where the tokens are isotropic.

Where they are structured, the linker puts the functions of spectrum.py in the place of the seams at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from replicode.codegen.runtime.inputs import ArgumentError
from replicode.codegen.runtime.kernel import (
    V_K,
    Array,
    free_energy_gradient,
    free_energy_hessian,
    free_energy_value,
    parameter_slopes,
    prior_update,
)


class Spectrum(NamedTuple):
    """Coordinates of positive eigenvalue s, their penalty weights p, and the squares of both teachers, of mean one.

    `dim` counts all coordinates, those of eigenvalue zero too: they add nothing to any mean.
    """

    s: Array
    p: Array
    c_k: Array
    c_v: Array
    dim: int


STRENGTHS = ("alpha", "lambda_k", "lambda_v")


class Problem(NamedTuple):
    """The arguments of the saddle equations."""

    alpha: float
    lambda_k: float
    lambda_v: float
    spectrum: Spectrum | None = None

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Those that the derived functions take."""
        return self.alpha, self.lambda_k, self.lambda_v


def no_spectrum(given: Any) -> Spectrum | None:
    """Isotropic tokens have none."""
    if given is not None:
        raise ArgumentError("spectrum", "a spectrum", "None: this module was generated for isotropic tokens")
    return None


def no_traces(conjugates: Array, problem: Problem) -> tuple[Array, ...]:
    """Nothing is averaged over coordinates."""
    return ()


def closed_image(conjugates: Array, problem: Problem) -> Array:
    """The order parameters at which f is stationary in the conjugates."""
    return prior_update(conjugates, problem.lambda_k, problem.lambda_v)


def closed_softness(order: Array, conjugates: Array, problem: Problem) -> float:
    """The relative fall of V_k with Vh_k: V_k itself, which is 1/(lambda_k + Vh_k)."""
    return float(order[V_K])


def no_norms(conjugates: Array, errors: Array, problem: Problem) -> dict[str, tuple[float, float]]:
    """Of isotropic tokens the squared norms are q."""
    return {}


def no_radii(given: Any) -> Array | None:
    """Gaussian tokens have none."""
    if given is not None:
        raise ArgumentError("radii", "radii", "None: this module was generated for Gaussian tokens")
    return None


def value_at(order: Array, conjugates: Array, problem: Problem, envelope: float) -> float:
    """The free energy, given E[M]."""
    traces = traces_at(conjugates, problem)
    return float(free_energy_value(order, conjugates, *problem.numbers, envelope, *traces))


def gradient_at(order: Array, conjugates: Array, problem: Problem, rates: Array) -> Array:
    """The gradient of the free energy in all unknowns, given that of E[M]."""
    traces = traces_at(conjugates, problem)
    return np.asarray(free_energy_gradient(order, conjugates, *problem.numbers, rates, *traces))


def hessian_at(order: Array, conjugates: Array, problem: Problem, second: Array) -> Array:
    """The Hessian of the free energy in all unknowns, given that of E[M]."""
    traces = traces_at(conjugates, problem)
    return np.asarray(free_energy_hessian(order, conjugates, *problem.numbers, second, *traces))


def slopes_at(order: Array, conjugates: Array, problem: Problem, envelope: float, rates: Array) -> Array:
    """The derivatives of the free energy and of its gradient in alpha and the strengths, a row for each."""
    traces = traces_at(conjugates, problem)
    return np.asarray(parameter_slopes(order, conjugates, *problem.numbers, envelope, rates, *traces))


spectrum_of: Callable[[Any], Spectrum | None] = no_spectrum
radii_of: Callable[[Any], Array | None] = no_radii
traces_at: Callable[[Array, Problem], tuple[Array, ...]] = no_traces
image_at: Callable[[Array, Problem], Array] = closed_image
softness_at: Callable[[Array, Array, Problem], float] = closed_softness
norms_at: Callable[[Array, Array, Problem], dict[str, tuple[float, float]]] = no_norms
