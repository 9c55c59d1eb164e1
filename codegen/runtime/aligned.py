"""Scrambled nodes for many dimensions: one normal a field, so that each belongs to one token, the most telling first.

Scrambled nets are finest in their first coordinates, and where few variables work together: the label, the hidden
token's value and score come first, then score and value of one idle token after the other. What M does not see of the
fields is replaced by its conditional mean, as on lattices, but no normal is saved by it.
"""

from __future__ import annotations

import numpy as np

from replicode.codegen.runtime.channel import Averages, ProxChannel
from replicode.codegen.runtime.fields import (
    FieldFactor,
    Fields,
    field_law,
    jittered,
    seen_part,
    unseen_directions,
)
from replicode.codegen.runtime.kernel import LABEL_NORMALS, Array
from replicode.codegen.runtime.label import label_at, label_of
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.location import location_at, location_dimensions
from replicode.codegen.runtime.nodes import sobol
from replicode.codegen.runtime.prox import objective, prox, screened_prox

LEAST_SEARCHED = 1.0 / 8.0
SEARCH_SAFETY = 4.0
LABEL_SPREAD = 1.8


def aligned_dimensions(setting: Setting) -> tuple[int, int]:
    """One normal for each score, and one for each value and for the label."""
    return setting.tokens, setting.tokens + (1 if label_at is None else LABEL_NORMALS)


def aligned_factor(order: Array, setting: Setting) -> FieldFactor:
    """The law of the fields on one normal for each; a label that is a field has the first of those of the values."""
    score_mean, score, value = field_law(order, setting)
    score, value = jittered(score), jittered(value)
    turned = np.roll(np.arange(len(value)), len(value) - setting.tokens)
    factor = np.empty_like(value)
    factor[turned] = np.linalg.cholesky(value[np.ix_(turned, turned)])
    scores, values = unseen_directions(setting)
    return FieldFactor(
        score_mean=score_mean,
        score_factor=seen_part(score, scores) @ np.linalg.cholesky(score),
        value_factor=seen_part(value, values) @ factor,
        label=label_of(order, setting),
    )


def aligned_rows(setting: Setting) -> list[int]:
    """The rows of a node that the coordinates of a net are for, in turn."""
    tokens, (scores, values) = setting.tokens, aligned_dimensions(setting)
    rows = list(range(scores, scores + values))
    own = values - tokens
    label, value = (rows[:own], rows[own:]) if label_at is None else (rows[tokens:], rows[:tokens])
    idle = [row for token in range(1, tokens) for row in (token, value[token])]
    last = range(scores + values, scores + values + location_dimensions(setting))
    return [*label, value[0], 0, *idle, *last]


def _widened_first(row: Array) -> Array:
    """Spread the normals of the label in place, and what weighs them: gains grow with the label.

    Half of the variance of the rates was measured to come from one sample in a hundred, that of the largest labels.
    """
    weights = LABEL_SPREAD * np.exp(-0.5 * (LABEL_SPREAD**2 - 1.0) * row * row)
    row *= LABEL_SPREAD
    return np.asarray(weights)


class AlignedChannel(ProxChannel):
    """A global prox on such nodes; of many, minima are searched for where that may lead anywhere.

    A better minimum than that at hand is within sqrt(2 V_k M) of the field: where M is small there is none. `searched`
    is the share of the samples, those of the largest M, that a search looks at; some others are looked at too.
    """

    searched = 1.0
    lowest = 1.0
    centred = False

    @staticmethod
    def scrambled(log2: int, seed: int, setting: Setting) -> AlignedChannel:
        """On a scrambled Sobol set."""
        rows = aligned_rows(setting)
        net, weights = sobol(len(rows), log2, seed)
        nodes = np.empty_like(net)
        nodes[rows] = net
        if label_at is None:
            weights = weights * _widened_first(nodes[rows[0]])
        return AlignedChannel((nodes, weights / weights.sum()), setting)

    @property
    def dimensions(self) -> int:
        """Those of the nodes."""
        return len(self.zeta)

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters, on nodes moved to where the first of them put the weight."""
        if not self.centred and location_at is not None:
            self._centre(order)
        return super().averages(order, search)

    def _centre(self, order: Array) -> None:
        """Move the hidden token's score to its mean under the location's weight, which then varies less."""
        at = self._fields(order)
        total, mass = 0.0, 0.0
        for b, weights, _ in self._weighted(order, at):
            total, mass = total + float(weights @ self.zeta[0, b]), mass + float(weights.sum())
        self.centred = True
        if not np.isfinite(shift := total / mass):
            return
        self.weights = self.weights * np.exp(-shift * self.zeta[0] - 0.5 * shift * shift)
        self.zeta = self.zeta.copy()
        self.zeta[0] += shift

    def _dimensions(self) -> tuple[int, int]:
        return aligned_dimensions(self.setting)

    def _law(self, order: Array) -> FieldFactor:
        return aligned_factor(order, self.setting)

    def _prox(self, at: Fields, V: tuple[float, float], search: bool) -> Array:
        if self.chi is not None and not search:
            chi, self.failed = prox(self.chi, at, V, self.setting)
            return chi
        start = at.w_chi if self.chi is None else self.chi
        chi, self.failed, left = screened_prox(start, at, V, self.setting, self.searched)
        self.jumped = int(left.sum())
        if self.jumped:
            value = objective(chi, at, V, self.setting)
            self.lowest = min(self.lowest, float((value < value[left].min()).mean()))
        return chi

    def worth_searching(self) -> float:
        """The share of the samples to be searched on other nodes, by what this search found, with a margin."""
        return float(np.clip(SEARCH_SAFETY * (1.0 - self.lowest), LEAST_SEARCHED, 1.0))
