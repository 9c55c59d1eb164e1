"""Channel averages dE[M]/d(order parameters), by the prox at nodes in w; what every evaluator shares stands here too.

All evaluators have one interface: `averages(order)` for the saddle equations and `response(order)` for stability.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from replicode.codegen.runtime.fields import FieldFactor, Fields, dimensions, field_factor, fields
from replicode.codegen.runtime.kernel import (
    SHIFT_INVARIANT,
    V_K,
    V_V,
    VH_K,
    Array,
    channel_rates,
    conjugates_from_rates,
)
from replicode.codegen.runtime.label import branched, label_of
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import add_identity, factor, solve_factored, weighted_sum
from replicode.codegen.runtime.location import location_dimensions, location_of
from replicode.codegen.runtime.lowrank import LowRank, Woodbury
from replicode.codegen.runtime.nodes import lattice, level_count
from replicode.codegen.runtime.places import RATES
from replicode.codegen.runtime.prox import block_size, global_prox, prox
from replicode.codegen.runtime.refinement import standard_error

NOT_STATIONARY = 1e-4
PROX_WORK = 8.0
SEARCHES = 6  # proxes of a search for minima
FEWEST_SETS = 8


class Averages(NamedTuple):
    """dE[M]/d(m_k, q_k, V_k, m_v, q_v, V_v), E[M], E[loss], and what went wrong on the way.

    `jumped` is the share of samples for which the last search found a better minimum than that followed.
    """

    rates: Array
    envelope: float
    train_loss: float
    mass: float
    folded_mass: float
    unconverged: float
    jumped: float = 0.0


class Response(NamedTuple):
    """E sum of squares of dG_kk, dG_kv, dG_vv, and E of the trace of -dG_kk (the derivative form of Vh_k / alpha).

    Where nodes are random, `noise` is the standard error of the gap between the two forms of Vh_k / alpha, and
    `scatter` that of the squares, by so many sets.
    """

    squares: Array
    trace: float
    noise: float = 0.0
    scatter: Array = np.zeros(3)
    sets: int = FEWEST_SETS


class SmoothBlock(NamedTuple):
    """Some nodes at which M has second derivatives: their fields, proxes, gains G of both blocks, and weights."""

    at: Fields
    chi: Array
    gains: tuple[Array, Array]
    weights: Array


class SmoothNodes(NamedTuple):
    """All such nodes of one length; sums over them are to be multiplied by `scale`, and by the length's share."""

    setting: Setting
    law: FieldFactor
    blocks: Iterable[SmoothBlock]
    scale: float
    share: float = 1.0


class Channel(Protocol):
    """What the fixed point needs of an evaluator."""

    name: str

    @property
    def work(self) -> float:
        """What the averages cost, in evaluations of the loss at one node, times the tokens."""

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; `search` looks for global minima afresh."""

    def response(self, order: Array) -> Response:
        """Second derivatives of M on the smooth part of the prox."""

    def smooth_nodes(self, order: Array) -> Sequence[SmoothNodes] | None:
        """Where its second rates are averaged, length by length; None, unless a channel says otherwise: it has none."""
        return None

    def less_folds(self) -> tuple[Channel, Callable[[Array], Array]] | None:
        """A channel that has second rates, and what is subtracted from its rates here; None unless it is so made."""
        return None

    def drawn(self) -> Sequence[Averages]:
        """The last averages by each of several random sets of nodes; none unless a channel has such."""
        return ()


class Ladder(Channel, Protocol):
    """An evaluator that can be refined; `slack` is how slowly its error may fall from one level to the next."""

    slack: float
    cuts_folds: bool

    def adapt(self, order: Array) -> None:
        """Move the nodes to where these order parameters put the weight."""

    def refined(self, level: int) -> Ladder:
        """The same evaluator with the nodes of another level."""

    def size(self, level: int) -> float:
        """How many nodes a level has."""


def node_dimensions(setting: Setting) -> int:
    """Number of normals of a node: scores, values with the label, and chi* where its weight is sampled."""
    return sum(dimensions(setting)) + location_dimensions(setting)


def _integrands(order: Array, setting: Setting, at: Fields, chi: Array, slopes: tuple[Array, ...] = ()) -> Array:
    """The six rates, M and the residual's loss, sample by sample: (8, n); slopes are those of the location's weight.

    G = (prox - w)/V_k is minus the slope there, to more digits where V_k is small; but not at a minimum on a point
    where sigma is 0/0 and has no slope.
    """
    point = chi, at.w_z, at.y, order[V_V], setting.params, *at.radii
    value, slope, sigmas, gain, residual_loss = setting.kernel.gradient(*point)
    moved = chi - at.w_chi
    moved = moved - moved.mean(axis=0) if SHIFT_INVARIANT else moved  # G has nothing along the shift
    still = np.abs(moved + order[V_K] * slope) <= NOT_STATIONARY * (1.0 + np.abs(moved))
    g_chi, g_z = np.where(still, -slope, moved / order[V_K]), gain * sigmas
    rates = channel_rates(order, setting.nu, setting.noise, *at, g_chi, g_z, *slopes)
    envelope = 0.5 * order[V_K] * (g_chi * g_chi).sum(axis=0) + value
    return np.stack([np.broadcast_to(r, at.y.shape) for r in (*rates, envelope, residual_loss)])


def _response_integrands(order: Array, setting: Setting, at: Fields, chi: Array) -> Array:
    """Squares of the blocks of d^2 M / dw^2 at a prox point, and the trace of the score block: (4, n).

    With A = (I + V_k H)^-1: kk = H A, kv = A C, vv = E - V_k C^T A C.
    """
    if setting.kernel.curvature_factors is not None:
        return _low_rank_responses(order, setting, at, chi)
    h, c, e = setting.kernel.curvatures(chi, at.w_z, at.y, order[V_V], setting.params, *at.radii)
    lower, pivots = factor(add_identity(order[V_K] * h))
    score = solve_factored(lower, pivots, h)
    mixed = solve_factored(lower, pivots, c)
    value = e - order[V_K] * np.einsum("lin,ljn->ijn", c, mixed)
    squares = [(block * block).sum(axis=(0, 1)) for block in (score, mixed, value)]
    return np.stack([*squares, np.einsum("iin->n", score)])


def _low_rank_responses(order: Array, setting: Setting, at: Fields, chi: Array) -> Array:
    """The same of many tokens; the few samples whose inverse is not safe that way are left to the whole matrices."""
    assert setting.kernel.curvature_factors is not None
    parts = setting.kernel.curvature_factors(chi, at.w_z, at.y, order[V_V], setting.params, *at.radii)
    h, c, e = (LowRank.of(part, at.y.size) for part in parts)
    inverse, least = Woodbury.of(h, float(order[V_K]))
    mixed = inverse.times(c)
    value = e.plus(c.transposed().times(mixed), -order[V_K])
    score = h.times(inverse)
    found = np.stack([score.squares(), mixed.squares(), value.squares(), score.trace()])
    if (doubtful := np.flatnonzero(~(least > 0.0))).size:
        whole = setting._replace(kernel=setting.kernel._replace(curvature_factors=None))
        found[:, doubtful] = _response_integrands(order, whole, at.at(doubtful), chi[:, doubtful])
    return found


def _blocks(count: int, setting: Setting) -> Iterator[slice]:
    size = block_size(setting.tokens)
    for begin in range(0, count, size):
        yield slice(begin, begin + size)


class NodeChannel(Channel, ABC):
    """Averages at nodes in w; how the prox is found, and what it gives there, is left to those that follow."""

    name = "prox"

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        self.setting = setting
        self.zeta, self.weights = branched(nodes, sum(self._dimensions()))
        self.chi: Array | None = None
        self.failed = 0
        self.jumped = 0

    def _dimensions(self) -> tuple[int, int]:
        """Number of normals of the scores, and of the values with the label."""
        return dimensions(self.setting)

    def _law(self, order: Array) -> FieldFactor:
        """The fields as functions of the nodes."""
        return field_factor(order, self.setting, held=True)

    @property
    def work(self) -> float:
        """Steps of Newton's method at every node."""
        return float(PROX_WORK * self.setting.tokens * self.weights.size)

    @abstractmethod
    def _prox(self, at: Fields, V: tuple[float, float], search: bool) -> Array:
        """Where the objective is least; `search` looks for global minima afresh."""

    @abstractmethod
    def _integrands(self, order: Array, at: Fields, chi: Array, slopes: tuple[Array, ...]) -> Array:
        """The six rates, M and the residual's loss, sample by sample: (8, n)."""

    @abstractmethod
    def _responses(self, order: Array, at: Fields, chi: Array) -> Array:
        """Squares of the blocks of d^2 M / dw^2 and the trace of the score block: (4, n)."""

    def _fields(self, order: Array) -> Fields:
        """The fields at all nodes."""
        return fields(self._law(order), self.zeta)

    def prox_points(self, order: Array, search: bool) -> tuple[Fields, Array]:
        """The fields at all nodes, and their prox."""
        at = self._fields(order)
        self.chi = self._prox(at, (float(order[V_K]), float(order[V_V])), search)
        return at, self.chi

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters."""
        at, chi = self.prox_points(order, search)
        total, mass = np.zeros(RATES + 2), 0.0
        for b, weights, slopes in self._weighted(order, at):
            total += weighted_sum(self._integrands(order, at.at(b), chi[:, b], slopes), weights)
            mass += float(weights.sum())
        failed, jumped = (count / self.weights.size for count in (self.failed, self.jumped))
        total /= mass
        return Averages(total[:RATES], float(total[RATES]), float(total[RATES + 1]), 1.0, 0.0, failed, jumped)

    def _weighted(self, order: Array, at: Fields) -> Iterator[tuple[slice, Array, tuple[Array, ...]]]:
        """Blocks with their weights, those of location and label included, and the slopes of their logarithms."""
        location, label = location_of(order, self.setting), label_of(order, self.setting)
        first = self.zeta.shape[0] - location_dimensions(self.setting)
        own = slice(self._dimensions()[0] + self.setting.tokens, first)
        for b in _blocks(self.weights.size, self.setting):
            weights = self.weights[b]
            slopes: tuple[Array, ...] = ()
            if location is not None:
                here = location.at(at.w_chi[:, b], self.zeta[first:, b])
                weights, slopes = weights * here.value, (here.slopes,)
            if label is not None:
                told = label.at(at.w_z[0, b], self.zeta[own, b])
                weights, slopes = weights * told.weight, (*slopes, told.slopes)
            yield b, weights, slopes

    def response(self, order: Array) -> Response:
        """Second derivatives of M on the smooth part of the prox."""
        at, chi = self.prox_points(order, False)
        total, mass = np.zeros(4), 0.0
        for b, weights, _ in self._weighted(order, at):
            total += weighted_sum(self._responses(order, at.at(b), chi[:, b]), weights)
            mass += float(weights.sum())
        total /= mass
        return Response(total[:3], float(total[3]))


class ProxChannel(NodeChannel, Ladder):
    """The prox of a smooth loss, followed from one call to the next."""

    slack = 0.1
    cuts_folds = True

    @staticmethod
    def at_level(level: int, setting: Setting) -> ProxChannel:
        """On the lattice of a level."""
        dim = node_dimensions(setting)
        return ProxChannel(lattice(dim, level_count(dim, level), level), setting)

    def refined(self, level: int) -> ProxChannel:
        """The same on the lattice of another level."""
        return ProxChannel.at_level(level, self.setting)

    def size(self, level: int) -> float:
        """How many nodes a level has."""
        return level_count(node_dimensions(self.setting), level)

    def adapt(self, order: Array) -> None:
        """Nodes in w need no adapting."""

    def _prox(self, at: Fields, V: tuple[float, float], search: bool) -> Array:
        if self.chi is None or search:
            start = at.w_chi if self.chi is None else self.chi
            chi, self.failed, self.jumped = global_prox(start, at, V, self.setting)
        else:
            chi, self.failed = prox(self.chi, at, V, self.setting)
        return chi

    def _integrands(self, order: Array, at: Fields, chi: Array, slopes: tuple[Array, ...]) -> Array:
        return _integrands(order, self.setting, at, chi, slopes)

    def _responses(self, order: Array, at: Fields, chi: Array) -> Array:
        return _response_integrands(order, self.setting, at, chi)

    def smooth_nodes(self, order: Array) -> Sequence[SmoothNodes] | None:
        """All nodes where M does not see the scores: the prox does not jump, and nodes in w do."""
        if dimensions(self.setting)[0]:
            return None
        law = self._law(order)
        return [SmoothNodes(self.setting, law, self._smooth_blocks(order), 1.0 / float(self.weights.sum()))]

    def _smooth_blocks(self, order: Array) -> Iterator[SmoothBlock]:
        at, chi = self.prox_points(order, False)
        for b in _blocks(self.weights.size, self.setting):
            here = at.at(b)
            point = (chi[:, b], here.w_z, here.y, order[V_V], self.setting.params)
            _, slope, sigmas, gain, _ = self.setting.kernel.gradient(*point)
            yield SmoothBlock(here, chi[:, b], (-slope, gain * sigmas), self.weights[b])


def mean_of(members: Sequence[Averages]) -> Averages:
    """The mean of several averages."""
    means = [np.mean([getattr(m, f) for m in members], axis=0) for f in Averages._fields]
    return Averages(means[0], *(float(m) for m in means[1:]))


class Ensemble(Channel):
    """Several independently shifted sets of nodes as one channel; `members` keeps the last averages of each."""

    name = "prox"

    def __init__(self, channels: list[Channel]) -> None:
        self.channels = channels
        self.members: list[Averages] = []

    @property
    def work(self) -> float:
        """That of all members."""
        return sum(c.work for c in self.channels)

    def apart(self) -> list[Channel]:
        """Every member."""
        return self.channels

    def averages(self, order: Array, search: bool = False) -> Averages:
        """The mean over the members."""
        self.members = [c.averages(order, search) for c in self.channels]
        return mean_of(self.members)

    def response(self, order: Array) -> Response:
        """The mean over the members; where the averages were not asked for they have no scatter."""
        found = [c.response(order) for c in self.channels]
        stein = [conjugates_from_rates(m.rates, 1.0)[VH_K] for m in self.members] or [0.0] * len(found)
        gaps = [s - r.trace for s, r in zip(stein, found)]
        squares, trace = [r.squares for r in found], np.mean([r.trace for r in found])
        noise, scatter = float(standard_error(gaps)), standard_error(squares)
        return Response(np.mean(squares, axis=0), float(trace), noise, scatter, len(found))


class Afresh(Ensemble):
    """One on which global minima are searched for at every evaluation: the map with all its jumps.

    Where minima are followed instead, the map is another, of other slopes and maybe another fixed point.
    """

    def __init__(self, channels: list[Channel], searched: float) -> None:
        super().__init__(channels)
        self.searched = searched

    @property
    def work(self) -> float:
        """That of all members, with a search at every evaluation."""
        return super().work * (1.0 + SEARCHES * self.searched)

    def averages(self, order: Array, search: bool = True) -> Averages:
        """The mean over the members, at global minima."""
        return super().averages(order, search=True)

    def apart(self) -> list[Channel]:
        """Every member, searched likewise."""
        return [Afresh([c], self.searched) for c in self.channels]
