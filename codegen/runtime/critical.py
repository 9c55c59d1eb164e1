"""All critical points of the prox objective at many fields, where the map from prox points to fields folds.

A node at which det(I + V_k Hess loss) < 0 is a critical point of the objective at its own field: as a rule a pass, with
a minimum on either side. The degree of the map is one, so that the signs of det over all critical points at a field
add up to one: a set that does not is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.fields import Fields
from replicode.codegen.runtime.kernel import (
    SHIFT_INVARIANT,
    V_K,
    V_V,
    Array,
    residual_coefficients,
    residual_point,
)
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import add_identity, factor, solve_factored
from replicode.codegen.runtime.prox import FAR, _scan, block_size, objective, prox

AWAY = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)  # from a pass, where it falls
FAR_UP = (0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # and where it rises
BESIDE_PASS = 0.02
LONGEST_STEP = 1.0
CLOSE = 1e-7
STATIONARY = 1e-5  # slope and step that may be left
SAME_POINT = 4e-5  # between two such
NEWTON_LIMIT = 14
NEARLY_REAL = 1e-4
FOLLOWING = (-1.0, -0.3, 0.3, 1.0)  # scores over the values
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
    def degree(self) -> Array:
        """The sum of all signs: one where none is missing."""
        return np.asarray((self.there * self.signs).sum(axis=0))

    def factors(self) -> Array:
        """What E[F] gets of F at each: that at the lowest less the signed sum, over the number of negative ones."""
        negative = np.maximum((self.there & (self.signs < 0.0)).sum(axis=0), 1)
        lowest = np.argmin(np.where(self.there, self.values, np.inf), axis=0)
        return np.asarray(((np.arange(len(self.there))[:, None] == lowest) - self.there * self.signs) / negative)

    def packed(self) -> Critical:
        """In as few slots as there are points at any field."""
        turn = np.argsort(~self.there, axis=0, kind="stable")[: max(int(self.there.sum(axis=0).max(initial=0)), 1)]
        points = np.take_along_axis(self.points, turn[:, None], axis=0)
        return Critical(points, *(np.take_along_axis(part, turn, axis=0) for part in self[1:]))

    def with_points(self, which: Array, other: Critical) -> Critical:
        """With others at some of the fields."""
        extra = max(len(other.there) - len(self.there), 0)
        found = Critical(*(np.concatenate([part, np.zeros_like(part[:1]).repeat(extra, axis=0)]) for part in self))
        for mine, its in zip(found, other, strict=True):
            mine[..., which] = 0
            mine[: len(its), ..., which] = its
        return found

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

    def newton(self, start: Array, far: bool = False) -> Array:
        """Where Newton's method leads, to critical points of any kind; it may not converge.

        Steps are cut; for points far away they may be as long as these are.
        """
        x = start.copy()
        for part in self.parts():
            self.at(part)._newton(x[:, part], far)
        return x

    def _newton(self, x: Array, far: bool) -> None:
        active = np.arange(x.shape[1])
        for _ in range(NEWTON_LIMIT):
            slope, curvature = self.at(active).bent(x[:, active])
            step = -solve_factored(*factor(curvature), slope)
            size = np.abs(step).max(axis=0)
            finite = np.isfinite(size)
            longest = np.maximum(LONGEST_STEP, np.abs(x[:, active]).max(axis=0)) if far else LONGEST_STEP
            cut = np.where(finite, np.minimum(1.0, longest / np.maximum(size, CLOSE)), 0.0)
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
                size, factors = 1.0 + np.abs(x).max(axis=0), factor(curvature)
                left = np.maximum(np.abs(slope), np.abs(solve_factored(*factors, slope))).max(axis=0)
                signs[i, part] = np.sign(np.prod(factors[1], axis=0))
                values[i, part] = objective(x, here.fields, self.responses, self.setting)
                there[i, part] = left < STATIONARY * size
                for j in range(i):
                    same = np.abs(x - points[j][:, part]).max(axis=0) < SAME_POINT * size
                    there[i, part] &= ~(there[j, part] & same)
        return Critical(points, there, signs, values)

    def directions(self, x: Array) -> tuple[Array, Array]:
        """The directions in which the objective bends least, and second least, at some points."""
        vectors = np.linalg.eigh(np.moveaxis(self.bent(x)[1], 2, 0))[1]
        return np.ascontiguousarray(vectors[:, :, 0].T), np.ascontiguousarray(vectors[:, :, 1].T)


def beside_passes(land: Landscape, x: Array) -> Critical:
    """The nodes and the critical points next to them: on both sides where they fall, else one where they rise."""
    least, second = land.directions(x)
    ways = (least, -least)
    found = land.assessed(np.stack([x, *(land.newton(land.turns(x, way, 1.0, AWAY)) for way in ways)]))
    lost = np.flatnonzero(found.degree != 1.0)
    if lost.size:
        there, here = land.at(lost), x[:, lost]
        sides = [there.descend(here + BESIDE_PASS * way[:, lost]) for way in ways]
        _put(found, lost, there.assessed(np.stack([here, *sides])))
        for side, way in ((s, w) for w in (second, -second) for s in sides):
            still = np.flatnonzero(found.degree[lost] != 1.0)
            if not still.size:
                break
            there, here = land.at(lost[still]), x[:, lost[still]]
            top = there.newton(there.turns(here, way[:, lost[still]], -1.0, FAR_UP), far=True)
            _put(found, lost[still], there.assessed(np.stack([here, side[:, still], top])))
    return found


def _put(found: Critical, which: Array, other: Critical) -> None:
    """Replace what was found at some fields where it is not complete, and another is."""
    better = (found.degree[which] != 1.0) & (other.degree == 1.0)
    for mine, its in zip(found, other, strict=True):
        mine[..., which[better]] = its[..., better]


def widely(land: Landscape, x: Array, near: Critical) -> tuple[Array, Critical]:
    """At which nodes there is more than is next to them, or that is not complete, and all that is found at those.

    Looked for are all minima that the search of `global_prox` knows, what Newton's method finds from amid the tokens,
    and passes between minima.
    """
    minima = [near.points[1], near.points[2], land.descend(land.fields.w_chi), *map(land.descend, _scanned(land, x))]
    known = land.assessed(np.stack([x, *minima, *map(land.newton, _tied(land))]))
    more = np.flatnonzero(known.there[len(near.there) :].any(axis=0) | (near.degree != 1.0))
    return more, _completed(land.at(more), _with_passes(land.at(more), known.at(more)))


def _with_passes(land: Landscape, known: Critical) -> Critical:
    """With passes between any two of the minima, the slots behind the first."""
    known = known.packed()
    slots, minima = [*known.points], known.there & (known.signs > 0.0)
    for one, other in zip(*np.triu_indices(len(slots), 1)):
        both = np.flatnonzero(minima[one] & minima[other] & (one > 0))
        there, pass_to = land.at(both), known.points[other].copy()
        pass_to[:, both] = there.newton(there.highest(known.points[one][:, both], known.points[other][:, both]))
        slots.append(pass_to)
    return land.assessed(np.stack(slots))


def _completed(land: Landscape, found: Critical) -> Critical:
    """With what Newton's method finds from amid the known points, where some are missing.

    There is a minimum on either side of a pass, passes all around enclose a maximum; else what is missing is as a rule
    between two of them.
    """
    found = found.packed()
    for starts in (_either_side, _amid, _halfway):
        lost = np.flatnonzero(found.degree != 1.0)
        if lost.size:
            there, known = land.at(lost), found.at(lost).packed()
            again = np.stack([*known.points, *map(there.newton, starts(there, known))])
            found = found.with_points(lost, there.assessed(again).packed())
    return found


def _either_side(land: Landscape, known: Critical) -> list[Array]:
    """Where the objective turns up beside the passes, but the nodes themselves."""
    found = []
    for x in known.points[1:][(known.there & (known.signs < 0.0))[1:].any(axis=1)]:
        least, _ = land.directions(x)
        found += [land.turns(x, way, 1.0, AWAY) for way in (least, -least)]
    return found


def _amid(land: Landscape, known: Critical) -> list[Array]:
    """The means of the points of either sign."""
    kinds = (known.there & (known.signs < 0.0), known.there & (known.signs > 0.0))
    return [(kind[:, None] * known.points).sum(axis=0) / np.maximum(kind.sum(axis=0), 1) for kind in kinds]


def _halfway(land: Landscape, known: Critical) -> list[Array]:
    """The means of any two of the points."""
    return [0.5 * (known.points[i] + known.points[j]) for i, j in zip(*np.triu_indices(len(known.points), 1))]


def _tied(land: Landscape) -> Iterator[Array]:
    """Fields at which two tokens, or all, have the same score, and such at which scores follow the values.

    Shallow minima between tokens are not on the way from a pass, nor along one token.
    """
    w_chi, w_z = land.fields.w_chi, land.fields.w_z
    yield np.repeat(w_chi.mean(axis=0)[None], len(w_chi), axis=0)
    for pair in map(list, zip(*np.triu_indices(len(w_chi), 1), strict=True)):
        tied = w_chi.copy()
        tied[pair] = w_chi[pair].mean(axis=0)
        yield tied
    for size in FOLLOWING:
        yield w_chi.mean(axis=0) + size * (w_z - w_z.mean(axis=0))


def _scanned(land: Landscape, x: Array) -> Iterator[Array]:
    """The lowest of the points seen far along the directions of tokens, and of pairs, on either side.

    What is near is found beside the nodes, and from amid the tokens.
    """
    reach = _reach(land, x)
    for directions in (None, _pair_directions(land.setting.tokens)):
        for sign in (1.0, -1.0):
            yield _scan(land.fields, land.responses, land.setting, sign * reach, FAR, directions)


def _pair_directions(tokens: int) -> Array:
    """From one token to another, for each pair."""
    first, second = np.triu_indices(tokens, 1)
    unit = np.eye(tokens)
    return np.asarray((unit[first] - unit[second]) / np.sqrt(2.0))


def _reach(land: Landscape, x: Array) -> Array:
    """How far from w_chi a point can be that is lower than these; the loss is not negative."""
    v_k, _ = land.responses
    return np.sqrt(2.0 * v_k * objective(x, land.fields, land.responses, land.setting))


def _scanned_lowest(land: Landscape, x: Array) -> Array:
    """The lowest of all these."""
    found = np.stack(list(_scanned(land, x)))
    values = np.stack([objective(p, land.fields, land.responses, land.setting) for p in found])
    return np.asarray(found[np.argmin(values, axis=0), :, np.arange(x.shape[1])].T)


def at_residuals(land: Landscape, x: Array) -> Critical:
    """The nodes and all critical points, where these are the real roots of a polynomial in the residual."""
    at, (v_k, v_v), setting = land.fields, land.responses, land.setting
    own = setting.kernel.sigma(at.w_chi, setting.params)
    slope = setting.kernel.pullback(at.w_chi, np.ones_like(own), setting.params)
    width = v_k * float(slope.mean()) ** 2 if slope.size else v_k
    # S2, SW and W2: of products over the tokens of sigma at the field of the scores and of the values
    sums = ((own * own).sum(axis=0), (own * at.w_z).sum(axis=0), (at.w_z * at.w_z).sum(axis=0))
    roots = _roots(np.stack(np.broadcast_arrays(*residual_coefficients(width, v_v, at.y, *sums))))
    slots = [x]
    for r in roots:
        moved = at.w_chi + (residual_point(width, v_v, r.real, own, at.w_z) - own) / slope
        real = np.abs(r.imag) < NEARLY_REAL * (1.0 + np.abs(r.real))
        slots.append(land.newton(np.where(real & np.isfinite(moved), moved, x)))
    return land.assessed(np.stack(slots))


def _roots(coefficients: Array) -> Array:
    """All roots of many polynomials, highest coefficients first: eigenvalues of companion matrices."""
    degree = len(coefficients) - 1
    companion = np.zeros((coefficients.shape[1], degree, degree))
    companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1.0
    companion[:, 0] = -(coefficients[1:] / coefficients[0]).T
    return np.asarray(np.linalg.eigvals(companion).T, dtype=complex)


critical_next: Callable[[Landscape, Array], Critical] = beside_passes
