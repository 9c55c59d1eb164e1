"""What the saddle-point equations of one step need of the channel, and the ways to it: rules, and what they lay out.

A rule says how fine; laid out for order parameters, it stays where it is while these move a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting


class TiltedAverages(NamedTuple):
    """Averages over the fields, and over the noise tilted by exp(-y M).

    `rates` are those of dE[F]/d(m, q0, V0), the last being -E|<G>|^2/2; `squares` are E<|G|^2> of scores and values,
    `envelope` is E[F], `tilted` E<M>, `train_loss` E<loss>; `lost` is the weight of what the grid does not hold.
    """

    rates: Array
    squares: Array
    envelope: float
    tilted: float
    train_loss: float
    lost: float


class TiltedResponse(NamedTuple):
    """Averages of squared responses in kk, kv, vv: within a state, where the prox is smooth, and of <G> between them.

    `trace` is that of -dG_k/dw_k on the smooth part, the derivative form of Vh_k / alpha.
    """

    within: Array
    between: Array
    trace: float


class Layout(Protocol):
    """A rule laid out for one length. `order` has q0 in the place of q, `noise` is q1 - q0 of scores and of values."""

    @property
    def resolved(self) -> bool:
        """Whether its steps are short beside the noise."""

    @property
    def text(self) -> str:
        """What it is, in words."""

    @property
    def members(self) -> Sequence[Layout]:
        """The sets of nodes that it is the mean of; none where there is one."""

    def serves(self, order: Array, noise: tuple[float, float]) -> bool:
        """Whether it need not be laid out anew for these order parameters."""

    def averages(self, order: Array, noise: tuple[float, float], y: float) -> TiltedAverages:
        """All averages."""

    def response(self, order: Array, noise: tuple[float, float], y: float) -> TiltedResponse:
        """Averages of squared responses for the stability against a further step."""


class Rule(Protocol):
    """How fine."""

    def laid(self, order: Array, noise: tuple[float, float], setting: Setting) -> Layout:
        """Laid out for these order parameters."""
