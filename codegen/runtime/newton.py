"""What the fixed points of every level need of their map: its derivatives by differences, and its spectral radius."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replicode.codegen.runtime.kernel import Array


def forward_slopes(function: Callable[[Array], Array], point: Array, base: Array, step: float) -> Array:
    """The derivatives of a map by forward differences from its value at a point, a column for each coordinate."""
    return np.stack([(function(point + move) - base) / step for move in step * np.eye(point.size)], axis=1)


def spectral_radius(matrix: Array) -> float:
    """The largest modulus of the eigenvalues; infinite where an entry is."""
    return float(np.abs(np.linalg.eigvals(matrix)).max()) if np.isfinite(matrix).all() else np.inf
