"""Squared responses over the prox points that are global minimisers, in any dimension of the scores.

In prox coordinates a squared response is at most as large as 1/det, and is largest where folds begin. Nodes are drawn
to where it is large. Those next to a fold are looked at: a point that is not as low as another at its own field does
not count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import _blocks, _response_integrands, node_dimensions
from replicode.codegen.runtime.critical import AWAY, Landscape, _scanned_lowest
from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import V_K, V_V, Array
from replicode.codegen.runtime.nodes import lattice
from replicode.codegen.runtime.prox import objective
from replicode.codegen.runtime.proxfree import ProxFreeChannel, ScoreFrame, _node_blocks, jacobian_scale, symmetries
from replicode.codegen.runtime.seeking import Proposal, proposal_for

CONTACT_SETS = 24
LOG2_CONTACT = 12
NEXT_TO_FOLD = 0.4  # of the determinant, over that of a loss that does not bend
LOWER = 1e-9
EVERYWHERE = 0.25  # the share of nodes that are not drawn to large responses
LOOKED_AT_CONTACT = 20_000.0
LOG2_LOOK_CONTACT = 14


class Contact(NamedTuple):
    """Nodes that are global minimisers as far as is seen: their places, fields, prox points and weights."""

    place: Array
    at: Fields
    chi: Array
    weights: Array

    def squares(self, order: Array, smooth: ProxFreeChannel) -> Array:
        """The squares of the blocks of d^2 M / dw^2: (3, n)."""
        found = np.empty((3, self.weights.size))
        for b in _blocks(self.weights.size, smooth.setting):
            found[:, b] = _response_integrands(order, smooth.setting, self.at.at(b), self.chi[:, b])[:3]
        return found


def contact(order: Array, frame: ScoreFrame, smooth: ProxFreeChannel, nodes: tuple[Array, Array]) -> Contact:
    """Those of some nodes."""
    inner = ProxFreeChannel(nodes, smooth.setting)
    inner.center, inner.scale = smooth.center, smooth.scale
    volume, whole = inner._volume(), jacobian_scale(smooth.setting)
    parts: list[tuple[Array, ...]] = []
    for b in _node_blocks(*inner.zeta.shape):
        points = inner._points(order, frame, b)
        k = np.flatnonzero(points.lowest > 0.0)
        parts.append(
            (
                b.start + k,
                frame.law.score_mean[:, None] + points.deviation[:, k],
                points.w_z[:, k],
                points.y[k],
                points.chi[:, k],
                volume * points.weights[k],
                whole * points.determinant[k],
            )
        )
    place, w_chi, w_z, y, chi, weights, determinant = (np.concatenate(p, axis=-1) for p in zip(*parts, strict=True))
    at = Fields(w_chi, w_z, y)
    near = np.flatnonzero(determinant < NEXT_TO_FOLD)
    kept = np.ones(y.size, dtype=bool)
    kept[near] = ~undercut(Landscape.over(order, smooth.setting, at.at(near)), chi[:, near])
    return Contact(place[kept], at.at(kept), chi[:, kept], weights[kept])


def undercut(land: Landscape, x: Array) -> Array:
    """Whether a lower point than some local minima is seen: on a line, at the end of a descent, or along the tokens."""
    own = objective(x, land.fields, land.responses, land.setting)
    own = own - LOWER * (1.0 + np.abs(own))
    least, _ = land.directions(x)
    found = np.zeros(own.size, dtype=bool)
    for s in (length * sign for length in AWAY for sign in (1.0, -1.0)):
        found |= objective(x + s * least, land.fields, land.responses, land.setting) < own
    left = np.flatnonzero(~found)
    there = land.at(left)
    for start in (there.fields.w_chi, _scanned_lowest(there, x[:, left])):
        low = objective(there.descend(start), there.fields, there.responses, there.setting)
        found[left] |= low < own[left]
    return found


def contact_squares(order: Array, frame: ScoreFrame, smooth: ProxFreeChannel) -> Array:
    """E of the squares of the blocks of d^2 M / dw^2, set by set."""
    law = _where_responses_are(order, frame, smooth)
    if law is None:
        return np.full((CONTACT_SETS, 3), np.nan)
    drawn = [law.nodes(LOG2_CONTACT, 300 + s) for s in range(CONTACT_SETS)]
    zeta, weights = (np.concatenate(part, axis=-1) for part in zip(*drawn, strict=True))
    found = contact(order, frame, smooth, (zeta, weights))
    belongs = found.place // 2**LOG2_CONTACT
    rows = found.squares(order, smooth) * found.weights
    return np.stack([np.bincount(belongs, row, CONTACT_SETS) for row in rows], axis=1)


def _where_responses_are(order: Array, frame: ScoreFrame, smooth: ProxFreeChannel) -> Proposal | None:
    """A proposal for the squares, in the sizes that they have in the stability matrix, and for all else."""
    flips, dim = symmetries(smooth.setting), node_dimensions(smooth.setting)
    sizes = np.array([order[V_K] ** 2, 2.0 * order[V_K] * order[V_V], order[V_V] ** 2])

    def seen(zeta: Array, weights: Array) -> tuple[Array, Array]:
        found = contact(order, frame, smooth, (zeta, weights))
        return zeta[:, found.place], found.weights * np.einsum("i,in->n", sizes, found.squares(order, smooth))

    first = lattice(dim, LOOKED_AT_CONTACT, 12, flips)
    law = proposal_for((seen, seen), first, flips, LOG2_LOOK_CONTACT)
    if law is None:
        return None
    return Proposal(
        np.r_[(1.0 - EVERYWHERE) * law.shares, EVERYWHERE],
        np.concatenate([law.means, np.zeros((1, dim))]),
        np.concatenate([law.factors, np.eye(dim)[None]]),
        flips,
    )
