"""Prox-free averages: at nodes in the prox point chi the field w = chi + V_k grad loss is explicit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import (
    Averages,
    Ladder,
    Response,
    SmoothBlock,
    SmoothNodes,
    _response_integrands,
    node_dimensions,
)
from replicode.codegen.runtime.fields import (
    EXCHANGED,
    FieldFactor,
    Fields,
    dimensions,
    field_factor,
    fields,
    value_rows,
)
from replicode.codegen.runtime.kernel import (
    EVEN_LOSS,
    MOMENTS,
    SHIFT_INVARIANT,
    V_K,
    V_V,
    Array,
    channel_moments,
    rates_from_moments,
)
from replicode.codegen.runtime.label import branched
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import pivots_of, product, weighted_sum
from replicode.codegen.runtime.location import FieldWeight, location_dimensions, location_of
from replicode.codegen.runtime.nodes import Flips, lattice, lattice_size, level_count
from replicode.codegen.runtime.prox import prox

ADAPTING_NODES = 300.0
BLOCK_COORDINATES = 32768  # of nodes taken at once; with half as many more the allocator trades pages on each block


class ScoreFrame(NamedTuple):
    """Coordinates tau of the score field, w = mean + factor tau, and of the prox point, chi = origin + span u.

    Where sigma is shift invariant, chi is kept orthogonal to (1, .., 1); the prox of w is that of its projection.
    `pull` takes the slopes that `expansion` has (all, or all but the first, which then is minus their sum) to tau.
    """

    law: FieldFactor
    origin: Array
    span: Array
    inverse: Array
    pull: Array
    location: FieldWeight | None

    @staticmethod
    def of(law: FieldFactor, location: FieldWeight | None) -> ScoreFrame:
        """The frame of a field law, and the weight of the hidden location where that is not in the law."""
        tokens = len(law.score_mean)
        project = np.eye(tokens) - (1.0 / tokens if SHIFT_INVARIANT else 0.0)
        span = project @ law.score_factor
        inverse = np.linalg.pinv(span)
        pull = inverse[:, 1:] - inverse[:, :1] if SHIFT_INVARIANT else inverse
        return ScoreFrame(law, project @ law.score_mean, span, inverse, pull, location)

    def point(self, u: Array) -> Array:
        """chi at the coordinates u."""
        return self.origin[:, None] + product(self.span, u)

    def coordinates(self, w: Array) -> Array:
        """tau of a field, up to what the prox does not see."""
        return product(self.inverse, w - self.origin[:, None])

    def field(self, tau: Array) -> Array:
        """w_chi at the coordinates tau."""
        return self.law.score_mean[:, None] + product(self.law.score_factor, tau)


def frame_at(order: Array, setting: Setting) -> ScoreFrame:
    """The frame at these order parameters."""
    return ScoreFrame.of(field_factor(order, setting), location_of(order, setting))


class Expansion(NamedTuple):
    """What `expansion` returns; slopes and curvatures are those of all tokens, or, shift invariant, of all but one."""

    value: Array
    slope: Sequence[Array]
    sigmas: Sequence[Array]
    gain: Array
    residual_loss: Array
    curvature: Sequence[Sequence[Array]]

    def gains(self) -> tuple[list[Array], list[Array]]:
        """G_chi = -slope and G_z = gain sigma, one row per token."""
        last = [-s for s in self.slope]
        first = [reduce(np.add, self.slope)] if SHIFT_INVARIANT else []
        return [*first, *last], [self.gain * s for s in self.sigmas]


class Explicit(NamedTuple):
    """At prox points chi: the loss expanded, the coordinates tau of the field, pivots of the Jacobian d tau / d u."""

    chi: Array
    local: Expansion
    tau: Array
    pivots: list[Array]


def explicit(order: Array, setting: Setting, frame: ScoreFrame, u: Array, values: Array) -> Explicit:
    """All that is explicit at the coordinates u of the prox point; the values' last row is the label."""
    chi = frame.point(u)
    local = Expansion(*setting.kernel.expansion(chi, values[:-1], values[-1], order[V_V], setting.params))
    tau = u + product(order[V_K] * frame.pull, local.slope)
    return Explicit(chi, local, tau, pivots_of(_jacobian(order[V_K], local.curvature)))


def jacobian_scale(setting: Setting) -> float:
    """What the product of the pivots is to be multiplied by."""
    return float(setting.tokens) if SHIFT_INVARIANT else 1.0


class ProxFreePoints(NamedTuple):
    """Prox points, w_chi less its mean, w_z and y, weights with the Jacobian in them, its lowest pivots and it."""

    chi: Array
    deviation: Array
    w_z: Array
    y: Array
    weights: Array
    lowest: Array
    determinant: Array
    local: Expansion
    slopes: tuple[Array, ...]

    def sums(self) -> Array:
        """Weighted sums: the moments of the fields, loss, loss of the residual, mass and folded mass."""
        weights, local = self.weights, self.local
        moments = channel_moments(weights, self.deviation, self.w_z, self.y, *local.gains(), *self.slopes)
        folded = 0.0 if self.lowest.min() > 0.0 else np.abs(weights[self.lowest <= 0.0]).sum()
        losses = weighted_sum(local.value, weights), weighted_sum(local.residual_loss, weights)
        return np.concatenate([moments, [*losses, weights.sum(), folded]])


def _node_blocks(dim: int, count: int) -> Iterator[slice]:
    """Nodes in parts that stay in the cache, and are many enough for Python to be out of the way."""
    size = BLOCK_COORDINATES // dim
    for begin in range(0, count, size):
        yield slice(begin, begin + size)


def _jacobian(v_k: float, curvature: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Lines, from the diagonal on, of a matrix congruent to I + V_k Hess on the scores that matter.

    Shift invariant, with D the differences to the first token and B the curvatures of the others, Hess = D^T B D, so
    that in the coordinates D chi it is (D D^T)^-1 + V_k B; det D D^T = L is left to the caller.
    """
    off = -1.0 / (len(curvature) + 1) if SHIFT_INVARIANT else 0.0
    return [[v_k * entry + (off + (j == 0)) for j, entry in enumerate(line)] for line in curvature]


def even_values(first: int, setting: Setting) -> Flips:
    """The values and the label, which are coordinates from `first` on, may change sign together."""
    return (tuple(range(first, first + dimensions(setting)[1])),) if EVEN_LOSS else ()


def symmetries(setting: Setting) -> Flips:
    """What leaves the average alone: the signs of all values, and an exchange of two idle tokens."""
    if location_dimensions(setting):
        return ()
    split = dimensions(setting)[0]
    exchange = ((0, split),) if setting.tokens >= EXCHANGED and split else ()
    return (*exchange, *(tuple(reversed(flip)) for flip in even_values(split, setting)))


def averages_of(total: Array, order: Array, setting: Setting) -> Averages:
    """The averages that sums over all nodes amount to."""
    moments, (value, train_loss, mass, folded) = total[:MOMENTS], map(float, total[MOMENTS:])
    rates = rates_from_moments(order, setting.nu, setting.noise, moments)
    envelope = value - float(order[V_K] * rates[V_K])  # |G_chi|^2 / 2 is minus the rate of V_k
    return Averages(rates, envelope, train_loss, mass, folded, 0.0)


class ProxFreeChannel(Ladder):
    """Averages at nodes in the prox point chi: w = chi + V_k grad loss is explicit, so nothing is minimised.

    E[F] = int dchi det(I + V_k Hess loss) p_w(w(chi)) F. The determinant is signed, which keeps the integrand analytic
    and cancels most of what a fold adds; the weight where it is not positive definite is the folded mass, and where
    that matters the integral is not to be trusted.
    """

    name = "prox-free"
    slack = 0.1
    cuts_folds = False

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        self.zeta, self.weights = branched(nodes, sum(dimensions(setting)))
        self.setting = setting
        self.split = dimensions(setting)[0]
        self.last = self.zeta.shape[0] - location_dimensions(setting)
        self.center = np.zeros(self.split)
        self.scale = np.ones(self.split)
        score = self.zeta[: self.split]
        self.bare = self.weights * np.exp(0.5 * np.einsum("an,an->n", score, score))  # without the scores' density

    @property
    def work(self) -> float:
        """One evaluation at every node."""
        return float(self.setting.tokens * self.weights.size)

    def _points(self, order: Array, frame: ScoreFrame, b: slice) -> ProxFreePoints:
        """The nodes of a block with all that is known at them; weights are without the constant `_volume`."""
        u = self.center[:, None] + self.scale[:, None] * self.zeta[: self.split, b]
        values, told = value_rows(frame.law, self.zeta[self.split : self.last, b])
        chi, local, tau, pivots = explicit(order, self.setting, frame, u, values)
        density = np.exp(-0.5 * reduce(np.add, tau * tau))
        determinant = reduce(np.multiply, pivots)
        weights = self.bare[b] * density * determinant
        lowest = reduce(np.minimum, pivots)
        deviation = product(frame.law.score_factor, tau)
        slopes: tuple[Array, ...] = ()
        if frame.location is not None:
            here = frame.location.at(frame.law.score_mean[:, None] + deviation, self.zeta[self.last :, b])
            weights, slopes = weights * here.value, (here.slopes,)
        if told is not None:
            weights, slopes = weights * told.weight, (*slopes, told.slopes)
        return ProxFreePoints(chi, deviation, values[:-1], values[-1], weights, lowest, determinant, local, slopes)

    def _volume(self) -> float:
        return float(np.prod(self.scale)) * jacobian_scale(self.setting)

    def _frame(self, order: Array) -> ScoreFrame:
        return frame_at(order, self.setting)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; `search` has no meaning here."""
        return averages_of(self._total(order, self._frame(order)), order, self.setting)

    def _total(self, order: Array, frame: ScoreFrame) -> Array:
        """The sums of all nodes."""
        if (compiled := self.setting.kernel.node_sums) is not None:
            return compiled(self, order, frame)
        total = np.zeros(MOMENTS + 4)
        for at in self._all_points(order, frame):
            total += at.sums()
        return total * self._volume()

    def _all_points(self, order: Array, frame: ScoreFrame) -> Iterator[ProxFreePoints]:
        for b in _node_blocks(*self.zeta.shape):
            yield self._points(order, frame, b)

    @staticmethod
    def at_level(level: int, setting: Setting) -> ProxFreeChannel:
        """On the lattice of a level."""
        dim = node_dimensions(setting)
        return ProxFreeChannel(lattice(dim, level_count(dim, level), level, symmetries(setting)), setting)

    def size(self, level: int) -> float:
        """How many nodes a level has."""
        return lattice_size(level_count(node_dimensions(self.setting), level), symmetries(self.setting))

    def refined(self, level: int) -> ProxFreeChannel:
        """The same on the lattice of another level, centre and scale handed on."""
        finer = ProxFreeChannel.at_level(level, self.setting)
        finer.center, finer.scale = self.center, self.scale
        return finer

    def adapt(self, order: Array) -> None:
        """Centre and scale the nodes on the law of the prox point, seen on a few proxes."""
        frame = self._frame(order)
        zeta, weights = branched(
            lattice(node_dimensions(self.setting), ADAPTING_NODES, 7), sum(dimensions(self.setting))
        )
        at = fields(frame.law, zeta)
        chi, _ = prox(at.w_chi, at, (float(order[V_K]), float(order[V_V])), self.setting)
        if frame.location is not None:
            weights = weights * frame.location.at(at.w_chi, zeta[self.last :]).value
            weights = weights / weights.sum()
        if (label := frame.law.label) is not None:
            weights = weights * label.at(at.w_z[0], zeta[self.split + len(at.w_z) :]).weight
            weights = weights / weights.sum()
        u = frame.coordinates(chi)
        mean = weighted_sum(u, weights)
        self.center, self.scale = mean, np.sqrt(np.maximum(weighted_sum(u * u, weights) - mean * mean, 1e-4))
        self.center[[axis for flip in symmetries(self.setting) for axis in flip if axis < self.split]] = 0.0

    def response(self, order: Array) -> Response:
        """Second derivatives of M, integrated in prox coordinates where they are bounded."""
        frame = self._frame(order)
        total = np.zeros(4)
        for at in self._all_points(order, frame):
            here = Fields(frame.law.score_mean[:, None] + at.deviation, at.w_z, at.y)
            part = _response_integrands(order, self.setting, here, at.chi)
            total += weighted_sum(part, np.where(at.lowest > 0.0, at.weights, 0.0))
        total *= self._volume()
        return Response(total[:3], float(total[3]))

    def smooth_nodes(self, order: Array) -> Sequence[SmoothNodes] | None:
        """All nodes: with the signed determinant in their weights, second derivatives are bounded through folds."""
        frame = self._frame(order)
        return [SmoothNodes(self.setting, frame.law, self._smooth_blocks(order, frame), self._volume())]

    def _smooth_blocks(self, order: Array, frame: ScoreFrame) -> Iterator[SmoothBlock]:
        for at in self._all_points(order, frame):
            here = Fields(frame.law.score_mean[:, None] + at.deviation, at.w_z, at.y)
            g_chi, g_z = (np.asarray(g) for g in at.local.gains())
            yield SmoothBlock(here, at.chi, (g_chi, g_z), at.weights)
