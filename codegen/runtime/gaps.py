"""What folds add to the signed prox-free averages, subtracted, where the scores have one dimension.

Along a row (see rows.py) the signed integral is that over the contact set plus that over its gaps. The whole is
analytic and left to the nodes of ProxFreeChannel; the gaps are integrated by Gauss rules. What is subtracted is
as small as the folded mass, so that few rows know it well enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Response
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.kernel import MOMENTS, Array
from replicode.codegen.runtime.linear import product
from replicode.codegen.runtime.nodes import ball_lattice
from replicode.codegen.runtime.proxfree import (
    ProxFreeChannel,
    ProxFreePoints,
    ScoreFrame,
    _node_blocks,
    averages_of,
    even_values,
    frame_at,
    jacobian_scale,
)
from replicode.codegen.runtime.rows import Gaps, _normal, _Rows, row_blocks

GAP_RADIUS = 8.5  # of the rows: what folds beyond weighs less than rounding
GAP_SPACING = 0.8
GAP_COLUMNS = 60
GAP_NODES, GAP_WEIGHTS = np.polynomial.legendre.leggauss(40)
GAP_DRIFT = 1e-7  # of order parameters, that moves what is subtracted by 1e-5 of itself
SAME_MASS = 2.0


class GapChannel(Channel):
    """The averages of a prox-free channel less those over the gaps of rows of its own, which follow slow moves only."""

    name = "prox-free, folds subtracted"

    def __init__(self, smooth: ProxFreeChannel, fineness: int) -> None:
        self.smooth, self.setting = smooth, smooth.setting
        dim = dimensions(self.setting)[1]
        spacing = GAP_SPACING * 3.0 ** (-fineness / dim)
        self.zeta, self.weights = ball_lattice(dim, spacing, GAP_RADIUS, 700 + fineness, even_values(0, self.setting))
        self.count = int(GAP_COLUMNS * 1.25**fineness)
        self.taken, self.lost = np.zeros(MOMENTS + 4), 0.0
        self.taken_at: Array | None = None

    @property
    def work(self) -> float:
        """That of the nodes, and a grid along each row."""
        return self.smooth.work + float(self.setting.tokens * self.weights.size * self.count)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; folded masses seen by nodes and by rows should be much the same."""
        frame = frame_at(order, self.setting)
        total = self.smooth._total(order, frame)
        self._follow(order, frame)
        by_nodes, by_rows = float(total[-1]), float(self.taken[-1])
        unlike = max(by_rows - SAME_MASS * by_nodes, by_nodes - SAME_MASS * by_rows, 0.0)
        total[: MOMENTS + 2] -= self.taken[: MOMENTS + 2]
        return averages_of(total, order, self.setting)._replace(unconverged=self.lost + unlike)

    def less_folds(self) -> tuple[Channel, Callable[[Array], Array]] | None:
        """The nodes, and the gaps."""
        return self.smooth, self.gap_rates

    def gap_rates(self, order: Array) -> Array:
        """The part of the rates that is subtracted."""
        self._follow(order, frame_at(order, self.setting))
        return averages_of(self.taken, order, self.setting).rates

    def _follow(self, order: Array, frame: ScoreFrame) -> None:
        """Take the sums over all gaps anew, unless the order parameters are where these were taken."""
        before = self.taken_at
        if before is None or (np.abs(order - before) > GAP_DRIFT * (0.1 + np.abs(order))).any():
            self._take(order, frame)

    def _take(self, order: Array, frame: ScoreFrame) -> None:
        """The sums over all gaps, and how much mass ends that do not meet leave over."""
        self.taken, self.lost, self.taken_at = np.zeros(MOMENTS + 4), 0.0, order
        for part in row_blocks(self.weights.size):
            rows = _Rows(order, self.setting, frame, product(frame.law.value_factor, self.zeta[:, part]))
            sums, left_over = _gap_sums(rows, rows.gaps_within(self.count), self.weights[part])
            self.taken += sums
            self.lost += left_over

    def response(self, order: Array) -> Response:
        """That of the nodes."""
        return self.smooth.response(order)


def _gap_sums(rows: _Rows, gaps: Gaps, weights: Array) -> tuple[Array, float]:
    """The signed sums over gaps as ProxFreePoints has them; a gap with tangents in common has no signed mass."""
    half = 0.5 * (gaps.end - gaps.begin)[:, None]
    u = (0.5 * (gaps.begin + gaps.end)[:, None] + half * GAP_NODES).ravel()
    which, length = np.repeat(gaps.row, GAP_NODES.size), (half * GAP_WEIGHTS).ravel()
    total, masses = np.zeros(MOMENTS + 4), [np.zeros(0)]
    for b in _node_blocks(1 + len(rows.values), u.size):
        at = _gap_points(rows, which[b], u[b], weights[which[b]] * length[b])
        total += at.sums()
        masses.append(at.weights)
    left_over = np.concatenate(masses).reshape(-1, GAP_NODES.size).sum(axis=1)
    return total, float(np.abs(left_over).sum())


def _gap_points(rows: _Rows, which: Array, u: Array, weights: Array) -> ProxFreePoints:
    """All that is known at some points of the rows."""
    frame = rows.frame
    chi, local, tau, pivots = rows.explicit(which, u)
    deviation = frame.law.score_factor * tau
    weights = weights * jacobian_scale(rows.setting) * pivots[0] * _normal(tau[0])
    slopes: tuple[Array, ...] = ()
    if frame.location is not None:
        here = frame.location.at(frame.law.score_mean[:, None] + deviation, np.empty((0, u.size)))
        weights, slopes = weights * here.value, (here.slopes,)
    values = rows.values[:, which]
    return ProxFreePoints(chi, deviation, values[:-1], values[-1], weights, pivots[0], pivots[0], local, slopes)
