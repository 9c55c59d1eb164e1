"""Averages where folds are felt, in any dimension: the signed prox-free ones, and what the folds change, by a search.

E[F] = int det p_w F + int_{det < 0} |det| p_w [F(global minimiser) - sum_c sign_c F(c)] / n_-, c running over the
critical points at the field w(chi) of a node, n_- the number of those with det < 0. The first part is analytic and left
to the nodes of ProxFreeChannel. The second is as small as the folds; its nodes stand where they are, in several
scrambled sets whose scatter tells its error. At most nodes the critical points are the node and one on either side of
it; some nodes are searched widely, and stand for all in what that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response, node_dimensions
from replicode.codegen.runtime.critical import Critical, Landscape, beside_passes, widely
from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import MOMENTS, V_V, Array, channel_moments
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import weighted_sum
from replicode.codegen.runtime.nodes import lattice
from replicode.codegen.runtime.proxfree import (
    Expansion,
    ProxFreeChannel,
    ScoreFrame,
    _node_blocks,
    averages_of,
    frame_at,
    symmetries,
)
from replicode.codegen.runtime.seeking import Proposal, proposal_for

SETS = 24
AUDITED = 8  # of so many nodes one is searched widely
LOOKED_AT = 60_000.0  # nodes all over, to see where folds are
LOG2_LOOK = 13
SEARCH_WORK = 40.0
SUMS = MOMENTS + 2


class FoldedNodes(NamedTuple):
    """Nodes with det < 0: their places among all, prox points, w_chi less its mean, w_z, y, |weights|, slopes."""

    place: Array
    chi: Array
    deviation: Array
    w_z: Array
    y: Array
    masses: Array
    slopes: tuple[Array, ...]


class Share(NamedTuple):
    """Critical points at some of the folded nodes, which are in order, and how often what they change counts."""

    which: Array
    found: Critical
    times: Array


class SearchedChannel(Channel):
    """The averages of a prox-free channel, and what folds change, on 2^log2 nodes in each of SETS sets.

    `law` is where the nodes stand, fitted at the first order parameters unless given. Where minima are not searched for
    the critical points next to the nodes are followed, and what wide searches change is kept.
    """

    name = "prox-free, folds searched"

    def __init__(self, smooth: ProxFreeChannel, log2: int, law: Proposal | None = None) -> None:
        self.smooth, self.setting, self.log2, self.law = smooth, smooth.setting, log2, law
        self.nodes: tuple[Array, Array] | None = None
        self.known: tuple[Array, Array] | None = None
        self.widely = np.zeros((SETS, SUMS))
        self.doubt = 0.0
        self.members: list[Averages] = []

    @property
    def work(self) -> float:
        """That of the nodes, and of the search."""
        return self.smooth.work + float(SEARCH_WORK * self.setting.tokens * SETS * 2**self.log2)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; `unconverged` is the mass at which no complete set was found."""
        frame = frame_at(order, self.setting)
        total = self.smooth._total(order, frame)
        changes = self.changes(order, frame, search)
        self.members = [_changed(total, change, order, self) for change in changes]
        return _changed(total, changes.mean(axis=0), order, self)

    def changes(self, order: Array, frame: ScoreFrame, search: bool = False) -> Array:
        """What the folds change in the sums, set by set."""
        if self.nodes is None:
            self.law = self.law or _where_folds_are(order, frame, self.smooth)
            self.nodes = _placed(self.law, self.log2) if self.law else (np.empty((0, 0)), np.empty(0))
        if not self.nodes[1].size:
            self.doubt = np.inf
            return np.zeros((SETS, SUMS))
        folded = folded_nodes(order, frame, self.smooth, self.nodes)
        land = landscape(order, frame, folded, self.setting)
        near = beside_passes(land, folded.chi) if search or self.known is None else self._followed(land, folded)
        whole = near.index == 1.0
        if search or self.known is None:
            self._search_widely(land, folded, near)
        self.known = folded.place, near.points
        every = np.arange(whole.size)
        return self._by_set(land, folded, Share(every, near, whole.astype(float))) + self.widely

    def _search_widely(self, land: Landscape, folded: FoldedNodes, near: Critical) -> None:
        """What wide searches at some of the nodes, and at all that are not whole, change; and the masses in doubt."""
        whole = near.index == 1.0
        wide = np.flatnonzero(~whole | (folded.place % AUDITED == 0))
        audited = whole[wide]
        found = widely(land.at(wide), folded.chi[:, wide], near.at(wide))
        complete = found.index == 1.0
        times = np.where(audited, float(AUDITED), 1.0)
        self.doubt = float((folded.masses[wide] * times)[~complete].sum()) / SETS
        self.widely = self._by_set(land, folded, Share(wide, found, times * complete))
        self.widely -= self._by_set(land, folded, Share(wide, near.at(wide), times * (complete & audited)))

    def _by_set(self, land: Landscape, folded: FoldedNodes, share: Share) -> Array:
        assert self.nodes is not None
        return SETS * _sums_by_set(land, folded, share, self.nodes[1].size // SETS)

    def _followed(self, land: Landscape, folded: FoldedNodes) -> Critical:
        """The critical points next to the nodes, from where they were."""
        assert self.known is not None
        before, points = self.known
        at = np.minimum(np.searchsorted(before, folded.place), before.size - 1)
        moved = [land.newton(p[:, at]) for p in points[1:]]
        found = land.assessed(np.stack([folded.chi, *moved]))
        lost = np.flatnonzero((before[at] != folded.place) | (found.index != 1.0))
        again = beside_passes(land.at(lost), folded.chi[:, lost])
        for mine, its in zip(found, again, strict=True):
            mine[..., lost] = its
        return found

    def drawn(self) -> Sequence[Averages]:
        """With the folds as each of the sets sees them."""
        return self.members

    def less_folds(self) -> tuple[Channel, Callable[[Array], Array]] | None:
        """The nodes of the signed averages, and the negative of what folds change in the rates."""
        return self.smooth, self._taken_rates

    def _taken_rates(self, order: Array) -> Array:
        change = self.changes(order, frame_at(order, self.setting)).mean(axis=0)
        return -averages_of(np.r_[change, 0.0, 0.0], order, self.setting).rates

    def response(self, order: Array) -> Response:
        """That of the nodes."""
        return self.smooth.response(order)


def _changed(total: Array, change: Array, order: Array, channel: SearchedChannel) -> Averages:
    """The averages of the sums with what the folds change."""
    whole = np.r_[total[:SUMS] + change, total[SUMS:]]
    lost = min(channel.doubt, float(total[-1]))
    return averages_of(whole, order, channel.setting)._replace(unconverged=lost)


def landscape(order: Array, frame: ScoreFrame, folded: FoldedNodes, setting: Setting) -> Landscape:
    """The prox objective at the fields of the nodes."""
    fields = Fields(frame.law.score_mean[:, None] + folded.deviation, folded.w_z, folded.y)
    return Landscape.over(order, setting, fields)


def _where_folds_are(order: Array, frame: ScoreFrame, smooth: ProxFreeChannel) -> Proposal | None:
    """A proposal for what the folds of a channel change, which grows with how far it is to the points beside."""
    setting = smooth.setting
    flips = symmetries(setting)

    def seen(zeta: Array, weights: Array) -> tuple[Array, Array]:
        folded = folded_nodes(order, frame, smooth, (zeta, weights))
        return zeta[:, folded.place], folded.masses

    def felt(zeta: Array, weights: Array) -> tuple[Array, Array]:
        folded = folded_nodes(order, frame, smooth, (zeta, weights))
        near = beside_passes(landscape(order, frame, folded, setting), folded.chi)
        away = np.abs(near.points[1:] - near.points[0]).sum(axis=1)
        above = np.take_along_axis(away, np.argmax(near.values[1:], axis=0)[None], axis=0)[0]
        return zeta[:, folded.place], folded.masses * np.where(near.index == 1.0, above, 0.0)

    first = lattice(node_dimensions(setting), LOOKED_AT, 11, flips)
    return proposal_for((seen, seen, felt), first, flips, LOG2_LOOK)


def _placed(law: Proposal, log2: int) -> tuple[Array, Array]:
    """All sets of nodes, one after the other; the weights of all together are those of one set."""
    zeta, weights = (np.concatenate(part, axis=-1) for part in zip(*(law.nodes(log2, 100 + s) for s in range(SETS))))
    return zeta, weights / SETS


def folded_nodes(order: Array, frame: ScoreFrame, smooth: ProxFreeChannel, nodes: tuple[Array, Array]) -> FoldedNodes:
    """Those of some nodes that have det < 0."""
    inner = ProxFreeChannel(nodes, smooth.setting)
    inner.center, inner.scale = smooth.center, smooth.scale
    volume = inner._volume()
    parts: list[FoldedNodes] = []
    for b in _node_blocks(*inner.zeta.shape):
        at = inner._points(order, frame, b)
        k = np.flatnonzero(at.weights < 0.0)
        rows = (at.chi[:, k], at.deviation[:, k], at.w_z[:, k], at.y[k], -volume * at.weights[k])
        parts.append(FoldedNodes(b.start + k, *rows, tuple(s[:, k] for s in at.slopes)))
    *joined, slopes = zip(*parts, strict=True)
    rows = tuple(np.concatenate(part, axis=-1) for part in joined)
    return FoldedNodes(*rows, tuple(np.concatenate(s, axis=-1) for s in zip(*slopes, strict=True)))


def _sums_by_set(land: Landscape, folded: FoldedNodes, share: Share, size: int) -> Array:
    """Weighted sums of the moments, M's loss and the residual's over the critical points, set by set."""
    which, found, times = share
    factors = found.factors() * (times * folded.masses[which])
    slot, column = np.nonzero(factors.T)[::-1]  # nodes in order
    node, weights = which[column], factors[slot, column]
    rows = np.empty((SETS, SUMS))
    edges = np.searchsorted(folded.place[node], size * np.arange(SETS + 1))
    for row, begin, end in zip(rows, edges[:-1], edges[1:], strict=True):
        part = slice(begin, end)
        row[:] = _sums(land, folded, node[part], found.points[slot[part], :, column[part]].T, weights[part])
    return rows


def _sums(land: Landscape, folded: FoldedNodes, node: Array, chi: Array, weights: Array) -> Array:
    w_z, y, setting = folded.w_z[:, node], folded.y[node], land.setting
    local = Expansion(*setting.kernel.expansion(chi, w_z, y, land.order[V_V], setting.params))
    slopes = (s[:, node] for s in folded.slopes)
    moments = channel_moments(weights, folded.deviation[:, node], w_z, y, *local.gains(), *slopes)
    losses = weighted_sum(local.value, weights), weighted_sum(local.residual_loss, weights)
    return np.concatenate([moments, losses])
