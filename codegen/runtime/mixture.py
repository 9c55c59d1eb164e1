"""Averages over sequences of several lengths: those of every length, weighted by its share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Ladder, Response, SmoothNodes
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import weighted_record


class Mixture(Channel):
    """One evaluator per length as one."""

    def __init__(self, channels: Sequence[Channel], shares: Sequence[float]) -> None:
        self.channels, self.shares = channels, np.array(shares)
        self.last: list[Averages] = []
        self.name = " and ".join(sorted({c.name for c in channels}))

    @property
    def work(self) -> float:
        """That of all lengths."""
        return sum(c.work for c in self.channels)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """The mean over the lengths."""
        self.last = [c.averages(order, search) for c in self.channels]
        return weighted_record(self.last, self.shares)

    def drawn(self) -> Sequence[Averages]:
        """The mean over the lengths by the sets of the same number; lengths without sets have one value."""
        sets = [c.drawn() for c in self.channels]
        several = range(max(map(len, sets)))
        rows = ([own[i] if own else a for own, a in zip(sets, self.last, strict=True)] for i in several)
        return [weighted_record(row, self.shares) for row in rows]

    def response(self, order: Array) -> Response:
        """The mean over the lengths."""
        found = [c.response(order) for c in self.channels]
        squares, trace = (np.tensordot(self.shares, [getattr(r, f) for r in found], 1) for f in ("squares", "trace"))
        noise, scatter = ([getattr(r, f) for r in found] for f in ("noise", "scatter"))
        total = np.hypot.reduce(self.shares[:, None] * scatter, axis=0)
        sets = min(r.sets for r in found)
        return Response(squares, float(trace), float(np.hypot.reduce(self.shares * noise)), total, sets)

    def smooth_nodes(self, order: Array) -> Sequence[SmoothNodes] | None:
        """Those of every length, where all have them."""
        found: list[SmoothNodes] = []
        for share, channel in zip(self.shares, self.channels, strict=True):
            if (nodes := channel.smooth_nodes(order)) is None:
                return None
            found += [n._replace(share=share * n.share) for n in nodes]
        return found


class MixedLadder(Mixture, Ladder):
    """Evaluators that are refined together."""

    channels: Sequence[Ladder]

    def __init__(self, channels: Sequence[Ladder], shares: Sequence[float]) -> None:
        super().__init__(channels, shares)
        self.slack = max(c.slack for c in channels)
        self.cuts_folds = all(c.cuts_folds for c in channels)

    def adapt(self, order: Array) -> None:
        """Adapt every length's nodes."""
        for channel in self.channels:
            channel.adapt(order)

    def refined(self, level: int) -> MixedLadder:
        """All at another level."""
        return MixedLadder([c.refined(level) for c in self.channels], list(self.shares))

    def size(self, level: int) -> float:
        """The nodes of the largest."""
        return max(c.size(level) for c in self.channels)


Made = TypeVar("Made")


def alone(settings: Sequence[Setting], make: Callable[[Setting], Made]) -> Made:
    """The channel of the one length there is."""
    (setting,) = settings
    return make(setting)


def mixture(settings: Sequence[Setting], make: Callable[[Setting], Channel]) -> Channel:
    """The channels of several lengths as one."""
    return Mixture([make(s) for s in settings], [s.kernel.share for s in settings])


def mixture_ladder(settings: Sequence[Setting], make: Callable[[Setting], Ladder]) -> Ladder:
    """The ladders of several lengths as one."""
    return MixedLadder([make(s) for s in settings], [s.kernel.share for s in settings])


def one_part(channel: Channel) -> list[tuple[float, Channel]]:
    """The channel itself."""
    return [(1.0, channel)]


def mixture_parts(channel: Channel) -> list[tuple[float, Channel]]:
    """The channel of each length, with its share."""
    return (
        list(zip(channel.shares, channel.channels, strict=True)) if isinstance(channel, Mixture) else one_part(channel)
    )


mixed: Callable[[Sequence[Setting], Callable[[Setting], Channel]], Channel] = alone
mixed_ladder: Callable[[Sequence[Setting], Callable[[Setting], Ladder]], Ladder] = alone
parts_of: Callable[[Channel], list[tuple[float, Channel]]] = one_part
