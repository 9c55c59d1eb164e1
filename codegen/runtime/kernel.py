"""What the emitter supplies to the run-time: the derived expressions as NumPy functions.

Arrays have the tokens along axis 0 and the samples along axis 1; the hidden token is token 0. `order` is
(m_k, q_k, V_k, m_v, q_v, V_v), `conjugates` is (mh_k, qh_k, Vh_k, mh_v, qh_v, Vh_v).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from replicode.codegen.runtime.lengths import Kernel

Array = np.ndarray[Any, np.dtype[Any]]

PARAMETERS: tuple[str, ...]
DEFAULTS: dict[str, float]
METADATA: dict[str, Any]
KERNELS: tuple[Kernel, ...]
SHIFT_INVARIANT: bool
ELEMENTWISE: bool
EVEN_LOSS: bool
MOMENTS: int
LOCATION: str
HARD_LIMIT: int
SMOOTH_PATHS: bool
own_log_weight: Callable[[Array, float], Array]
own_slope: Callable[[Array, float], Array]
ranking_slope: Callable[[float], float]
hidden_law: Callable[[Array, float, float], tuple[Array, Array]]
idle_law: Callable[[Array], tuple[Array, Array]]
channel_rates: Callable[..., tuple[Array, ...]]
channel_moments: Callable[..., Array]
rates_from_moments: Callable[[Array, float, float, Array], Array]
conjugates_from_rates: Callable[[Array, float], Array]
prior_update: Callable[[Array, float, float], Array]
free_energy_value: Callable[[Array, Array, float, float, float, float], float]
free_energy_gradient: Callable[[Array, Array, float, float, float, Array], Array]
free_energy_hessian: Callable[[Array, Array, float, float, float, Array], Array]
train_loss_slopes: Callable[[Array, Array, Array], Array]
displacements: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]]  # where SMOOTH_PATHS
bending: Callable[..., Array]  # where SMOOTH_PATHS
risk_on_manifold: Callable[[float, float, float, float, float], float]
best_value_overlap: Callable[[float, float], float]
stability_matrix: Callable[[Array, float, Array], Array]
score_law: Callable[[float, float, float], tuple[float, float, float]]
overlap_risk_terms: Callable[..., Array]
kink_points: Callable[[Array], Array]  # of activations that have them
