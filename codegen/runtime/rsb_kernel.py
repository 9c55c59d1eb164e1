"""The seam of one step of breaking: what is derived stands in the place of these functions.

`order` has m, q0, q1, V of every block, named by STEP_NAMES, `conjugates` those of STEP_CONJUGATES; `rates` are those
of the replica-symmetric channel at q0 and <G>, named by ORDER_NAMES; `squares` are E<|G|^2> of scores and of values.
"""

from __future__ import annotations

import numpy as np

from replicode.codegen.runtime.kernel import Array

STEP_NAMES: tuple[str, ...] = ("m_k", "q0_k", "q1_k", "V_k", "m_v", "q0_v", "q1_v", "V_v")
STEP_CONJUGATES: tuple[str, ...] = ("mh_k", "qh0_k", "qh1_k", "Vh_k", "mh_v", "qh0_v", "qh1_v", "Vh_v")


def step_conjugates(y_P: float, alpha: float, rates: Array, squares: Array) -> Array:
    """The conjugates at which f is stationary in the order parameters."""
    return np.zeros(len(STEP_CONJUGATES))


def step_update(conjugates: Array, y_P: float, lambda_k: float, lambda_v: float) -> Array:
    """The order parameters at which f is stationary in the conjugates."""
    return np.zeros(len(STEP_NAMES))


def step_free_energy(
    order: Array, conjugates: Array, y_P: float, alpha: float, lambda_k: float, lambda_v: float, envelope: float
) -> float:
    """The free energy f, given E[F]."""
    return 0.0


def step_gradient(
    order: Array,
    conjugates: Array,
    y_P: float,
    alpha: float,
    lambda_k: float,
    lambda_v: float,
    rates: Array,
    squares: Array,
) -> Array:
    """The gradient of f in the order parameters and the conjugates."""
    return np.zeros(len(STEP_NAMES) + len(STEP_CONJUGATES))


def step_slope(
    order: Array,
    conjugates: Array,
    y_P: float,
    alpha: float,
    lambda_k: float,
    lambda_v: float,
    envelope: float,
    tilted: float,
) -> float:
    """df/dy, given E[F] and E<M>."""
    return 0.0


def step_stability(order: Array, y_P: float, alpha: float, within: Array, between: Array) -> tuple[Array, Array]:
    """The de Almeida-Thouless matrices against a further step, within states and between them."""
    return np.zeros((2, 2)), np.zeros((2, 2))
