"""What belongs to one number of tokens: the physics and the parameters, and the derived kernels at that length."""

from __future__ import annotations

from typing import NamedTuple

from replicode.codegen.runtime.kernel import KERNELS, Array, LengthKernels


class Setting(NamedTuple):
    """What an average depends on besides the order parameters: signal, noise, parameters, and the length's kernels.

    `radii` are those that tokens are drawn from, where they have any.
    """

    nu: float
    noise: float
    params: Array
    kernel: LengthKernels = KERNELS[0]
    radii: Array | None = None

    @property
    def tokens(self) -> int:
        """The number of tokens of these sequences."""
        return self.kernel.tokens

    @property
    def row_sum(self) -> float | None:
        """sum_l sigma_l, or None where it depends on the scores."""
        return self.kernel.row_sum(self.params)
