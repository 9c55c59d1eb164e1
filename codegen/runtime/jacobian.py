"""The Jacobian of the twelve saddle-point equations at any point: the Hessian of the free energy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from replicode.codegen.runtime.channel import RATES, ProxChannel, node_dimensions
from replicode.codegen.runtime.energy import _averages_at
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.hessian import second_rates
from replicode.codegen.runtime.inputs import (
    CONJUGATE_NAMES,
    ORDER_NAMES,
    check_physical,
    check_setting,
    parameter_values,
    unknowns,
)
from replicode.codegen.runtime.kernel import SMOOTH_PATHS, Array, free_energy_hessian
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.nodes import lattice
from replicode.codegen.runtime.population import LATTICE_DIMENSIONS, settings_of
from replicode.codegen.runtime.proxfree import ProxFreeChannel
from replicode.codegen.runtime.states import FOLD_WEIGHT, NEGLIGIBLE_FOLD

DIFFERENCE_STEP = 3e-2


def jacobian(
    order_parameters: Mapping[str, float],
    conjugates: Mapping[str, float],
    alpha: float,
    nu: float,
    noise: float,
    lambda_k: float,
    lambda_v: float,
    *,
    nodes: float = 200_000,
    **parameters: float,
) -> Array:
    """The derivatives of `residual` in the twelve unknowns, in its order: symmetric, 12 x 12."""
    check_setting(alpha, nu, noise, lambda_k, lambda_v)
    order, conj = unknowns(order_parameters, ORDER_NAMES), unknowns(conjugates, CONJUGATE_NAMES)
    check_physical(order)
    settings = settings_of(nu, noise, parameter_values(parameters))
    with np.errstate(all="ignore"):
        second = np.sum([s.kernel.share * _second_at(order, s, nodes) for s in settings], axis=0)
        return np.asarray(free_energy_hessian(order, conj, alpha, lambda_k, lambda_v, second))


def _second_at(order: Array, setting: Setting, count: float) -> Array:
    """The Hessian of E[M]: derived while the prox does not jump, else by differences of the rates."""
    derived = _derived_at(order, setting, count)
    return _differences(order, setting, count) if derived is None else derived


def _derived_at(order: Array, setting: Setting, count: float) -> Array | None:
    dim = node_dimensions(setting)
    if dim > LATTICE_DIMENSIONS or not SMOOTH_PATHS:
        return None
    if not dimensions(setting)[0]:
        return second_rates(ProxChannel(lattice(dim, min(count, 50_000.0), 0), setting), order)
    smooth = ProxFreeChannel(lattice(dim, count, 0), setting)
    smooth.adapt(order)
    found = smooth.averages(order)
    whole = FOLD_WEIGHT * (found.folded_mass + abs(found.mass - 1.0)) < NEGLIGIBLE_FOLD
    return second_rates(smooth, order) if whole else None


def _differences(order: Array, setting: Setting, count: float) -> Array:
    """Fourth-order differences of the rates, made symmetric; wide steps, for nodes at which the prox may jump."""
    columns = []
    for i in range(RATES):
        block = order[3 * (i // 3) : 3 * (i // 3) + 3]
        room = (np.sqrt(block[1]) - abs(block[0]), block[1] - block[0] ** 2, block[2])[i % 3]
        step = np.zeros(RATES)
        step[i] = DIFFERENCE_STEP * room
        near, far = (
            (
                _averages_at(order + h * step, setting, count).rates
                - _averages_at(order - h * step, setting, count).rates
            )
            / (2.0 * h * step[i])
            for h in (1.0, 2.0)
        )
        columns.append((4.0 * near - far) / 3.0)
    matrix = np.stack(columns, axis=1)
    return np.asarray(0.5 * (matrix + matrix.T))
