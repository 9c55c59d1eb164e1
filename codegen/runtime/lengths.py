"""What belongs to one number of tokens: its share among the sequences, and the derived kernels at that length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from replicode.codegen.runtime.kernel import KERNELS, Array


class Kernel(NamedTuple):
    """The kernels of sequences of `tokens` tokens, which `share` of all sequences have."""

    tokens: int
    share: float
    row_sum: Callable[[Array], float | None]
    sigma: Callable[[Array, Array], Array]
    pullback: Callable[[Array, Array, Array], Array]
    loss: Callable[[Array, Array, Array, float, Array], Array]
    gradient: Callable[[Array, Array, Array, float, Array], tuple[Array, Array, Array, Array, Array]]
    hessian: Callable[[Array, Array, Array, float, Array], tuple[Array, Array, Array]]
    expansion: Callable[[Array, Array, Array, float, Array], tuple[Any, ...]]
    curvatures: Callable[[Array, Array, Array, float, Array], tuple[Array, Array, Array]]


class Setting(NamedTuple):
    """What an average depends on besides the order parameters: signal, noise, parameters, and the length's kernels."""

    nu: float
    noise: float
    params: Array
    kernel: Kernel = KERNELS[0]

    @property
    def tokens(self) -> int:
        """The number of tokens of these sequences."""
        return self.kernel.tokens

    @property
    def row_sum(self) -> float | None:
        """sum_l sigma_l, or None where it depends on the scores."""
        return self.kernel.row_sum(self.params)
