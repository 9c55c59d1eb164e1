"""All critical points of the prox objective at many fields, where the map from prox points to fields folds.

A node at which det(I + V_k Hess loss) < 0 is a critical point of the objective at its own field: as a rule a pass, with
a minimum on either side. The degree of the map is one, so that the signs of det over all critical points at a field
add up to one: a set that does not is not complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import SHIFT_INVARIANT, V_K, V_V, Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import add_identity, factor, solve_factored
from replicode.codegen.runtime.prox import FAR, NEAR, _scan, block_size, objective, prox

AWAY = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)  # from a pass, where it falls
FAR_UP = (0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # and where it rises
LONGEST_STEP = 1.0
CLOSE = 1e-7
STATIONARY = 1e-5
SAME_POINT = 1e-5
NEWTON_LIMIT = 14
BETWEEN = tuple(k / 10.0 for k in range(1, 10))


class Critical(NamedTuple):
    """Points in slots, (slots, tokens, n): which of them are critical points not seen before, with sign and objective.

    The first slot is that of the nodes themselves.
    """

    points: Array
    there: Array
    signs: Array
    values: Array

    @property
    def index(self) -> Array:
        """The sum of all signs: one where none is missing."""
        return np.asarray((self.there * self.signs).sum(axis=0))

    def factors(self) -> Array:
        """What E[F] gets of F at each: that at the lowest less the signed sum, over the number of negative ones."""
        negative = np.maximum((self.there & (self.signs < 0.0)).sum(axis=0), 1)
        lowest = np.argmin(np.where(self.there, self.values, np.inf), axis=0)
        return np.asarray(((np.arange(len(self.there))[:, None] == lowest) - self.there * self.signs) / negative)

    def minima(self) -> Array:
        """How many of them are no higher than others."""
        return np.asarray((self.there & (self.signs > 0.0)).sum(axis=0))

    def at(self, which: Array) -> Critical:
        """Those at some of the fields."""
        return Critical(*(part[..., which] for part in self))


class Landscape(NamedTuple):
    """The objective |chi - w_chi|^2 / 2 V_k + loss at given fields."""

    order: Array
    setting: Setting
    fields: Fields

    @staticmethod
    def over(order: Array, setting: Setting, at: Fields) -> Landscape:
        """At these fields, less what the prox does not see."""
        w_chi = at.w_chi - at.w_chi.mean(axis=0) if SHIFT_INVARIANT else at.w_chi
        return Landscape(order, setting, at._replace(w_chi=w_chi))

    def at(self, which: Array | slice) -> Landscape:
        """That of some of the fields."""
        return self._replace(fields=self.fields.at(which))

    @property
    def responses(self) -> tuple[float, float]:
        """V_k and V_v."""
        return float(self.order[V_K]), float(self.order[V_V])

    def slope(self, x: Array) -> Array:
        """V_k times the slope of the objective."""
        at, (v_k, v_v) = self.fields, self.responses
        _, slope, *_ = self.setting.kernel.gradient(x, at.w_z, at.y, v_v, self.setting.params)
        return np.asarray(x - at.w_chi + v_k * slope)

    def bent(self, x: Array) -> tuple[Array, Array]:
        """V_k times slope and Hessian of the objective."""
        at, (v_k, v_v) = self.fields, self.responses
        _, slope, curvature = self.setting.kernel.hessian(x, at.w_z, at.y, v_v, self.setting.params)
        return x - at.w_chi + v_k * slope, add_identity(v_k * curvature)

    def parts(self) -> Iterator[slice]:
        """Fields that stay in the cache."""
        size = block_size(self.setting.tokens)
        for begin in range(0, self.fields.y.size, size):
            yield slice(begin, begin + size)

    def newton(self, start: Array) -> Array:
        """Where Newton's method leads, to critical points of any kind; steps are cut, and may not converge."""
        x = start.copy()
        for part in self.parts():
            self.at(part)._newton(x[:, part])
        return x

    def _newton(self, x: Array) -> None:
        active = np.arange(x.shape[1])
        for _ in range(NEWTON_LIMIT):
            slope, curvature = self.at(active).bent(x[:, active])
            step = -solve_factored(*factor(curvature), slope)
            size = np.abs(step).max(axis=0)
            finite = np.isfinite(size)
            cut = np.where(finite, np.minimum(1.0, LONGEST_STEP / np.maximum(size, CLOSE)), 0.0)
            x[:, active] += np.where(finite, step, 0.0) * cut
            active = active[finite & (size > CLOSE * (1.0 + np.abs(x[:, active]).max(axis=0)))]
            if not active.size:
                return

    def descend(self, start: Array) -> Array:
        """Minima below some points."""
        return prox(start, self.fields, self.responses, self.setting)[0]

    def turns(self, x: Array, way: Array, sign: float, lengths: tuple[float, ...]) -> Array:
        """Points on lines from x on at which the objective first turns up, or down where the sign is negative."""
        start, before, length = np.full(x.shape[1], np.nan), np.zeros(x.shape[1]), 0.0
        for s in lengths:
            rise = sign * (self.slope(x + s * way) * way).sum(axis=0)
            share = np.where(rise > before, -before / np.maximum(rise - before, 1e-300), 0.5)
            start = np.where(np.isnan(start) & (rise > 0.0), length + (s - length) * share, start)
            before, length = rise, s
        return np.asarray(x + np.where(np.isnan(start), lengths[-1], start) * way)

    def highest(self, one: Array, other: Array) -> Array:
        """The point of the largest objective, of some between two."""
        best, found = np.full(one.shape[1], -np.inf), one.copy()
        for share in BETWEEN:
            trial = one + share * (other - one)
            value = objective(trial, self.fields, self.responses, self.setting)
            found, best = np.where(value > best, trial, found), np.maximum(value, best)
        return found

    def assessed(self, points: Array) -> Critical:
        """What stands in the slots."""
        slots, n = len(points), points.shape[2]
        signs, values, there = np.empty((slots, n)), np.empty((slots, n)), np.empty((slots, n), dtype=bool)
        for part in self.parts():
            here = self.at(part)
            for i, x in enumerate(points[:, :, part]):
                slope, curvature = here.bent(x)
                size = 1.0 + np.abs(x).max(axis=0)
                signs[i, part] = np.sign(np.prod(factor(curvature)[1], axis=0))
                values[i, part] = objective(x, here.fields, self.responses, self.setting)
                there[i, part] = np.abs(slope).max(axis=0) < STATIONARY * size
                for j in range(i):
                    same = np.abs(x - points[j][:, part]).max(axis=0) < SAME_POINT * size
                    there[i, part] &= ~(there[j, part] & same)
        return Critical(points, there, signs, values)

    def directions(self, x: Array) -> tuple[Array, Array]:
        """The directions in which the objective bends least, and second least, at some points."""
        vectors = np.linalg.eigh(np.moveaxis(self.bent(x)[1], 2, 0))[1]
        return np.ascontiguousarray(vectors[:, :, 0].T), np.ascontiguousarray(vectors[:, :, 1].T)


def beside_passes(land: Landscape, x: Array) -> Critical:
    """The nodes and the critical points next to them: on both sides where they fall, else where they rise."""
    least, second = land.directions(x)
    found = land.assessed(np.stack([x, *(land.newton(land.turns(x, s * least, 1.0, AWAY)) for s in (1.0, -1.0))]))
    lost = np.flatnonzero(found.index != 1.0)
    if lost.size and len(x) > 1:
        there, up = land.at(lost), second[:, lost]
        tops = [there.newton(there.turns(x[:, lost], s * up, -1.0, FAR_UP)) for s in (1.0, -1.0)]
        for top in tops:
            other = there.assessed(np.stack([x[:, lost], found.points[1][:, lost], top]))
            _put(found, lost, other, other.index == 1.0)
    return found


def _put(found: Critical, which: Array, other: Critical, good: Array) -> None:
    """Replace what was found at some fields where something better is known."""
    for mine, its in zip(found, other, strict=True):
        mine[..., which[good]] = its[..., good]


def widely(land: Landscape, x: Array, near: Critical) -> Critical:
    """The critical points next to nodes, all minima that the search of `global_prox` knows, and passes to those."""
    minima = [near.points[1], near.points[2], land.descend(land.fields.w_chi), *_scanned(land, x)]
    known = land.assessed(np.stack([x, *minima]))
    slots = [*known.points]
    for i in range(3, len(known.points)):
        new = np.flatnonzero(known.there[i])
        there = land.at(new)
        for other in (1, 2):
            pass_to = known.points[i].copy()
            top = there.highest(known.points[i][:, new], known.points[other][:, new])
            pass_to[:, new] = there.newton(top)
            slots.append(pass_to)
    return _with_top(land, land.assessed(np.stack(slots)))


def _with_top(land: Landscape, found: Critical) -> Critical:
    """With the maximum that passes all around enclose, where these are too many."""
    passes = found.there & (found.signs < 0.0)
    lost = np.flatnonzero((found.index < 1.0) & (passes.sum(axis=0) > 1))
    middle = found.points[0].copy()
    if lost.size:
        share = passes[:, lost] / passes[:, lost].sum(axis=0)
        middle[:, lost] = land.at(lost).newton((share[:, None] * found.points[:, :, lost]).sum(axis=0))
    return land.assessed(np.concatenate([found.points, middle[None]]))


def _scanned(land: Landscape, x: Array) -> Iterator[Array]:
    """Minima below the lowest points that are seen along the token directions."""
    v_k, _ = land.responses
    reach = np.sqrt(2.0 * v_k * objective(x, land.fields, land.responses, land.setting))
    for sign in (1.0, -1.0):
        for part in (NEAR, FAR):
            yield land.descend(_scan(land.fields, land.responses, land.setting, sign * reach, part))
