"""Averages where folds are felt, in any dimension: the signed prox-free ones, and what the folds change, by a search.

E[F] = int det p_w F + int_{det < 0} |det| p_w [F(global minimiser) - sum_c sign_c F(c)] / n_-, c running over the
critical points at the field w(chi) of a node, n_- the number of those with det < 0. The first part is analytic and left
to the nodes of SignedChannel. The second is as small as the folds; its nodes stand where they are, in several scrambled
sets whose scatter, less what controls explain, tells its error. At most nodes the critical points are the node and one
on either side of it; some nodes are searched widely, and stand for all in what that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response, _response_integrands, node_dimensions
from replicode.codegen.runtime.contact import contact_squares
from replicode.codegen.runtime.controls import controlled, controls_of, off_zero
from replicode.codegen.runtime.critical import Critical, Landscape, critical_next, widely
from replicode.codegen.runtime.fields import FieldFactor, Fields
from replicode.codegen.runtime.kernel import MOMENTS, V_K, V_V, VH_K, Array, channel_moments, conjugates_from_rates
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
from replicode.codegen.runtime.refinement import standard_error
from replicode.codegen.runtime.seeking import Proposal, proposal_for
from replicode.codegen.runtime.signed import SignedChannel

SETS = 24
AUDITED: int = 2  # of so many nodes one is searched widely; none where all critical points are known
LOOKED_AT = 60_000.0  # nodes all over, to see where folds are
LOG2_LOOK = 15
SEARCH_WORK = 40.0
FARTHEST = 4.0  # a point beside, that draws more nodes
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


Summed = Callable[[Array, Array, Array], Array]  # nodes, prox points, weights -> sums


class SearchedChannel(Channel):
    """The averages of a prox-free channel, and what folds change, on 2^log2 nodes in each of SETS sets.

    `law` is where the nodes stand, fitted at the first order parameters unless given. Where minima are not searched for
    the critical points next to the nodes are followed, and what wide searches change is kept.
    """

    name = "prox-free, folds searched"

    def __init__(self, smooth: SignedChannel, log2: int, law: Proposal | None = None) -> None:
        self.smooth, self.setting, self.log2, self.law = smooth, smooth.setting, log2, law
        self.nodes: tuple[Array, Array] | None = None
        self.known: tuple[Array, Array] | None = None
        self.widely: Array = np.zeros((SETS, 1))
        self.doubt = self.apart = 0.0
        self.members: list[Averages] = []

    @property
    def work(self) -> float:
        """That of the nodes, and of the search."""
        return self.smooth.work + float(SEARCH_WORK * self.setting.tokens * SETS * 2**self.log2)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; `unconverged` is the mass at which no complete set was found.

        What controls that are not zero are off is counted with it.
        """
        frame = frame_at(order, self.setting)
        total = self.smooth._total(order, frame)
        changes = self.changes(order, frame, search)
        self.members = [_changed(total, change, order, self) for change in changes]
        return _changed(total, changes.mean(axis=0), order, self)

    def changes(self, order: Array, frame: ScoreFrame, search: bool = False) -> Array:
        """What the folds change in the sums, set by set."""
        if not self._foldable(order, frame):
            self.doubt = np.inf
            return np.zeros((SETS, SUMS))
        folded, land = self._folded(order, frame)
        summed = _sums(land, folded, frame.law)
        if search or self.known is None or not self.known[0].size:
            near, wide = self._searched(land, folded)
            self.widely = np.sum([self._by_set(folded, share, summed) for share in wide], axis=0)
        else:
            near = self._followed(land, folded)
        self.known = folded.place, near.found.points
        found = self._by_set(folded, near, summed) + self.widely
        self.apart = off_zero(found[:, SUMS:])
        return found[:, :SUMS] if self.apart else controlled(found[:, :SUMS], found[:, SUMS:])

    def _foldable(self, order: Array, frame: ScoreFrame) -> bool:
        """Whether there are nodes, which are placed here where they were not."""
        if self.nodes is None:
            self.law = self.law or _where_folds_are(order, frame, self.smooth)
            self.nodes = _placed(self.law, self.log2) if self.law else (np.empty((0, 0)), np.empty(0))
        return self.nodes[1].size > 0

    def _folded(self, order: Array, frame: ScoreFrame) -> tuple[FoldedNodes, Landscape]:
        """The folded nodes, and the objective there."""
        assert self.nodes is not None
        folded = folded_nodes(order, frame, self.smooth, self.nodes)
        return folded, landscape(order, frame, folded, self.setting)

    def _searched(self, land: Landscape, folded: FoldedNodes) -> tuple[Share, tuple[Share, Share]]:
        """What is next to all nodes, and what wide searches at some, and at all that are not whole, make of it."""
        found = critical_next(land, folded.chi)
        near = _next_to_all(found)
        whole = near.times == 1.0
        looked = np.flatnonzero(~whole | (AUDITED > 0) & (folded.place % max(AUDITED, 1) == 0))
        more, wide = widely(land.at(looked), folded.chi[:, looked], found.at(looked))
        chosen = looked[more]
        complete, audited = wide.degree == 1.0, whole[chosen]
        times = np.where(audited, float(AUDITED), 1.0)
        self.doubt = float((folded.masses[chosen] * times)[~complete].sum())
        instead = Share(chosen, found.at(chosen), -times * (complete & audited))
        return near, (Share(chosen, wide, times * complete), instead)

    def _by_set(self, folded: FoldedNodes, share: Share, summed: Summed) -> Array:
        """Sums over the critical points, each of the sets as if it were alone."""
        assert self.nodes is not None
        which, found, times = share
        factors = found.factors() * (times * folded.masses[which])
        column, slot = np.nonzero(factors.T)  # nodes in order
        node, weights = which[column], SETS * factors[slot, column]
        edges = np.searchsorted(folded.place[node], self.nodes[1].size // SETS * np.arange(SETS + 1))
        parts = (slice(*ends) for ends in pairwise(edges))
        return np.stack([summed(node[p], found.points[slot[p], :, column[p]].T, weights[p]) for p in parts])

    def _followed(self, land: Landscape, folded: FoldedNodes) -> Share:
        """What is next to the nodes, from where it was."""
        assert self.known is not None
        before, points = self.known
        at = np.minimum(np.searchsorted(before, folded.place), before.size - 1)
        found = land.assessed(np.stack([folded.chi, *(land.newton(p[:, at]) for p in points[1:])]))
        lost = np.flatnonzero((before[at] != folded.place) | (found.degree != 1.0))
        again = critical_next(land.at(lost), folded.chi[:, lost])
        for mine, its in zip(found, again, strict=True):
            mine[..., lost] = its
        return _next_to_all(found)

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
        """Second derivatives of M over the global minimisers; their trace, which is not singular, by the same search.

        Both forms of Vh_k agree in the signed averages, so that their gap is in what the folds change.
        """
        frame = frame_at(order, self.setting)
        if not self._foldable(order, frame):
            return self.smooth.response(order)
        signed = averages_of(self.smooth._total(order, frame), order, self.setting)
        folded, land = self._folded(order, frame)
        near, wide = self._searched(land, folded)
        changes, traces = (
            np.sum([self._by_set(folded, share, summed) for share in (near, *wide)], axis=0)
            for summed in (_sums(land, folded, frame.law), _traces(order, frame, folded, self.setting))
        )
        rates = (averages_of(np.r_[c[:SUMS], 0.0, 0.0], order, self.setting).rates for c in changes)
        gaps = np.array([conjugates_from_rates(r, 1.0)[VH_K] for r in rates]) - traces[:, 0]
        squares = contact_squares(order, frame, self.smooth)
        trace = conjugates_from_rates(signed.rates, 1.0)[VH_K] + traces.mean()
        return Response(
            squares.mean(axis=0), float(trace), float(standard_error(gaps)), standard_error(squares), len(squares)
        )


def _next_to_all(found: Critical) -> Share:
    """At all nodes, once where it is complete."""
    return Share(np.arange(found.degree.size), found, (found.degree == 1.0).astype(float))


def _changed(total: Array, change: Array, order: Array, channel: SearchedChannel) -> Averages:
    """The averages of the sums with what the folds change."""
    whole = np.r_[total[:SUMS] + change, total[SUMS:]]
    lost = min(channel.doubt + channel.apart, float(total[-1]))
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
        near = critical_next(landscape(order, frame, folded, setting), folded.chi)
        away = np.where(near.there, np.abs(near.points - near.points[0]).sum(axis=1), 0.0).max(axis=0)
        return zeta[:, folded.place], folded.masses * np.where(near.degree == 1.0, np.minimum(away, FARTHEST), 0.0)

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
    parts: list[tuple[Array, ...]] = []
    for b in _node_blocks(*inner.zeta.shape):
        at = inner._points(order, frame, b)
        k = np.flatnonzero(at.weights < 0.0)
        rows = at.chi[:, k], at.deviation[:, k], at.w_z[:, k], at.y[k], -volume * at.weights[k]
        parts.append((b.start + k, *rows, *(s[:, k] for s in at.slopes)))
    place, chi, deviation, w_z, y, masses, *slopes = (np.concatenate(p, axis=-1) for p in zip(*parts, strict=True))
    return FoldedNodes(place, chi, deviation, w_z, y, masses, tuple(slopes))


def _sums(land: Landscape, folded: FoldedNodes, law: FieldFactor) -> Summed:
    """Weighted sums of the moments, M's loss and the residual's at prox points of some nodes, and of controls."""
    setting, v_k = land.setting, float(land.order[V_K])
    controls = None if folded.slopes else controls_of(land.order, setting, law)  # of Gaussian fields

    def sums(node: Array, chi: Array, weights: Array) -> Array:
        deviation, w_z, y = folded.deviation[:, node], folded.w_z[:, node], folded.y[node]
        local = Expansion(*setting.kernel.expansion(chi, w_z, y, land.order[V_V], setting.params))
        slopes = (s[:, node] for s in folded.slopes)
        gains = local.gains()
        moments = channel_moments(weights, deviation, w_z, y, *gains, *slopes)
        losses = weighted_sum(local.value, weights), weighted_sum(local.residual_loss, weights)
        if controls is None:
            return np.concatenate([moments, losses])
        g_chi, g_z = (np.asarray(g) for g in gains)
        envelope = 0.5 * v_k * (g_chi * g_chi).sum(axis=0) + local.value
        zero = controls.integrands((deviation, np.vstack([w_z, y])), (g_chi, g_z), envelope)
        return np.concatenate([moments, losses, weighted_sum(zero, weights)])

    return sums


def _traces(order: Array, frame: ScoreFrame, folded: FoldedNodes, setting: Setting) -> Summed:
    """Weighted sums of the trace of the score block of d^2 M / dw^2."""

    def traces(node: Array, chi: Array, weights: Array) -> Array:
        at = Fields(frame.law.score_mean[:, None] + folded.deviation[:, node], folded.w_z[:, node], folded.y[node])
        return weighted_sum(_response_integrands(order, setting, at, chi)[3:], weights)

    return traces
