"""The lines of a phase diagram: found between neighbouring looks, then followed.

Spinodals begin at folds of the branch that is followed from one look to its neighbour; transitions, where two solutions
have the same potential, and the edge of stability at a root between neighbours that differ. A place from which a line
was followed already is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from replicode.branches.arclength import MOST_NEWTON, Steps, follow
from replicode.phases.contour import Contour, contour, root
from replicode.phases.plane import INFORMED, ONE, UNINFORMED, Array, Linear, Look, PlaneLevel, inside
from replicode.phases.sampling import edges
from replicode.phases.spinodal import spinodal
from replicode.theory.errors import ReplicodeError

SPINODAL, TRANSITION, EDGE = "spinodal", "transition", "edge of stability"
KNOWN = 0.015  # from a line that was followed, in unit coordinates
PARTED = 0.5  # of the unknowns of two neighbours
MOST_TRIES, MOST_SINGLE = 40, 6
ALONG = Steps(first=0.05, least=1e-5, most=0.4, tolerance=1e-8)
EXACT, EDGE_TOLERANCE = 1e-7, 1e-3
SETTLED, LONGEST = 1e-6, 1.0
MERGED, AT_CUSP = 3e-2, 0.1
MOST_BEGINS = 8
REMEMBERED = 60
Say = Callable[[str], None]


@dataclass(frozen=True)
class Line:
    """A line of one kind: places in unit coordinates, in order, cusps among them, and whether it ends at the border."""

    kind: str
    places: tuple[tuple[float, float], ...]
    cusps: tuple[tuple[float, float], ...]
    complete: bool

    def distance(self, place: Sequence[float] | Array) -> float:
        """How far a place is from it."""
        points, here = np.array(self.places), np.array(place, dtype=float)
        if len(points) == 1:
            return float(np.linalg.norm(points[0] - here))
        begin, step = points[:-1], np.diff(points, axis=0)
        length = np.maximum((step**2).sum(axis=1), 1e-300)
        share = np.clip(((here - begin) * step).sum(axis=1) / length, 0.0, 1.0)
        return float(np.linalg.norm(begin + share[:, None] * step - here, axis=1).min())


class Segment:
    """F(u, t) on the straight way from one place to another."""

    def __init__(self, level: PlaneLevel, begin: Array, end: Array) -> None:
        self.level, self.begin, self.step = level, begin, end - begin

    def place(self, t: float) -> Array:
        """The place at a share of the way."""
        return np.asarray(self.begin + t * self.step)

    def __call__(self, u: Array, t: float) -> tuple[Array, Array, Array]:
        """F, F_u and F_t."""
        at = self.level.linear(u, self.place(t))
        return at.value, at.by_u, at.by_plane @ self.step


def settled(level: PlaneLevel, u: Array, place: Array) -> tuple[Array, Linear] | None:
    """The solution next to u at a place; the potential is stationary there, so that it has twice the digits."""
    for _ in range(MOST_NEWTON):
        at = level.linear(u, place, slopes=False)
        if not (np.isfinite(at.value).all() and np.isfinite(at.by_u).all()):
            return None
        if np.abs(at.value).max() < SETTLED:
            return u, at
        try:
            step = -np.linalg.solve(at.by_u, at.value)
        except np.linalg.LinAlgError:
            return None
        if np.abs(step).max() > LONGEST:
            return None
        u = u + step
    return None


class Lines:
    """Finds lines of a level from its looks."""

    def __init__(self, level: PlaneLevel, looks: Sequence[Look], say: Say) -> None:
        self.level, self.looks, self.say = level, [look for look in looks if look.solutions], say
        self.found: list[Line] = []
        self.edges = edges(self.looks) if len(self.looks) > 3 else []
        self.missed: list[str] = []

    def _known(self, kind: str, place: Sequence[float] | Array) -> bool:
        return any(line.kind == kind and line.distance(place) < KNOWN for line in self.found)

    def _told(self, kind: str) -> Callable[[Array], None]:
        count = [0]

        def tell(place: Array) -> None:
            count[0] += 1
            self.say(f"{kind}: point {count[0]}")

        return tell

    def all(self, stability: bool) -> list[Line]:
        """Spinodals, transitions, and the edge of stability where that is asked for."""
        tries = {SPINODAL: self._spinodals, TRANSITION: self._transitions}
        for kind, search in {**tries, **({EDGE: self._stability} if stability else {})}.items():
            try:
                search()
            except ReplicodeError as problem:
                self.missed.append(f"{kind}: lines are not followed: {problem}")
        return self.found

    def _spinodals(self) -> None:
        """Folds of branches on the way between looks of which one alone has several, or that are far apart."""
        pairs, begins = self._neighbours()
        single = [p for p in pairs if p[0].phase == p[1].phase == ONE and _apart(*p) > PARTED]
        steepest = sorted(single, key=lambda p: -_apart(*p) / float(np.hypot(*np.subtract(p[0].place, p[1].place))))
        for one, two in [*begins[:MOST_TRIES], *steepest[:MOST_SINGLE]]:
            if self._crossed(SPINODAL, one, two):
                continue
            for u, place in self._folds(*((one, two) if one.phase != ONE else (two, one))):
                if not self._known(SPINODAL, place):
                    self._follow_spinodal(u, place)

    def _crossed(self, kind: str, one: Look, two: Look) -> bool:
        """Whether a line that is known passes between two looks."""
        a, b = np.array(one.place), np.array(two.place)
        return any(line.kind == kind and crosses(a, b, np.array(line.places)).any() for line in self.found)

    def _folds(self, begin: Look, end: Look) -> list[tuple[Array, Array]]:
        segment = Segment(self.level, np.array(begin.place), np.array(end.place))
        found = []
        for solution in begin.solutions:
            branch = follow(segment, np.array(solution["u"]), 0.0, 1.0, (-1e-9, 1.0), ALONG)
            found += [(fold.u, segment.place(fold.p)) for fold in branch.folds]
        return found

    def _follow_spinodal(self, u: Array, place: Array) -> None:
        found = spinodal(self.level, u, place, self._told(SPINODAL))
        if found is None or len(found.points) < 3:
            return
        self.found.append(Line(SPINODAL, found.points, found.cusps, found.complete))

    def _transitions(self) -> None:
        """Equal potential of the outer two solutions, between looks that different ones win; else where two begin."""
        pairs, begins = self._neighbours()
        for one, two in pairs:
            if {one.phase, two.phase} == {INFORMED, UNINFORMED}:
                self._transition(one, two)
        if not any(line.kind == TRANSITION for line in self.found):
            for one, two in begins[:: max(1, len(begins) // MOST_BEGINS)]:
                self._transition(one, two)

    def _neighbours(self) -> tuple[list[tuple[Look, Look]], list[tuple[Look, Look]]]:
        """All pairs of neighbouring looks, and those of which one alone has several solutions."""
        pairs = [(self.looks[i], self.looks[j]) for i, j in self.edges]
        return pairs, [(one, two) for one, two in pairs if (one.phase == ONE) != (two.phase == ONE)]

    def _transition(self, one: Look, two: Look) -> None:
        if self._crossed(TRANSITION, one, two):
            return
        for look, other in ((one, two), (two, one)):
            seed = self._equal(look, other)
            if seed is None or self._known(TRANSITION, seed[1]):
                continue
            followed = contour(*seed, EXACT, self._told(TRANSITION))
            if len(followed.points) > 2:
                self.found.append(self._to_cusps(followed))
            return

    def _to_cusps(self, followed: Contour) -> Line:
        """The line with the cusps that its two solutions merge at as its ends."""
        places, ends = list(followed.points), 0
        for cusp in (c for line in self.found for c in line.cusps):
            for at, there in ((0, places[0]), (len(places), places[-1])):
                if inside(cusp) and np.linalg.norm(np.subtract(cusp, there)) < AT_CUSP:
                    places.insert(at, cusp)
                    ends += 1
        border = sum(min(*p, 1.0 - p[0], 1.0 - p[1]) < 1e-6 for p in (places[0], places[-1]))
        return Line(TRANSITION, tuple(places), (), followed.complete or ends + border >= 2)

    def _equal(self, look: Look, other: Look) -> tuple[Gap, Array] | None:
        """Where the potentials of a look's outer two solutions are equal, on the way to its neighbour."""
        if len(look.solutions) < 2:
            return None
        rows = sorted(look.solutions, key=lambda s: float(s["test_risk"]))
        gap = Gap(self.level, np.array(rows[0]["u"]), np.array(rows[-1]["u"]))
        if not np.isfinite(gap(np.array(look.place))):
            return None
        place = _between(gap, look, other, EXACT)
        return None if place is None or not inside(place) else (gap, place)

    def _stability(self) -> None:
        for i, j in self.edges:
            one, two = self.looks[i], self.looks[j]
            if one.stable == two.stable or one.phase != two.phase or self._crossed(EDGE, one, two):
                continue
            if not (np.isfinite(one.margin) and np.isfinite(two.margin)):
                continue
            stable, broken = (one, two) if one.stable else (two, one)
            beyond = Margin(self.level, stable.u)
            place = _between(beyond, stable, broken, EDGE_TOLERANCE)
            if place is None or self._known(EDGE, place):
                continue
            followed = contour(beyond, place, EDGE_TOLERANCE, self._told(EDGE))
            if len(followed.points) > 2:
                self.found.append(Line(EDGE, followed.points, (), followed.complete))


def _between(g: Callable[[Array], float], one: Look, two: Look, tolerance: float) -> Array | None:
    """Where g = 0 on the straight way from one look to another."""
    begin, end = np.array(one.place), np.array(two.place)
    length = float(np.linalg.norm(end - begin))
    return root(g, begin, (end - begin) / length, length, tolerance)


def _apart(one: Look, two: Look) -> float:
    return float(np.abs(one.u - two.u).max())


class Nearby:
    """Solutions by the places they were found at, to begin with from the nearest; those given serve until there are."""

    def __init__(self, level: PlaneLevel, *begin: Array) -> None:
        self.level, self.begin = level, begin
        self.known: list[tuple[Array, tuple[Array, ...]]] = []

    def nearest(self, place: Array) -> tuple[Array, ...]:
        """The solutions next to a place."""
        if not self.known:
            return self.begin
        return min(self.known, key=lambda known: float(np.linalg.norm(known[0] - place)))[1]

    def note(self, place: Array, *found: Array) -> None:
        """Keep what was found at a place."""
        self.known = [*self.known[-REMEMBERED:], (place.copy(), found)]


class Gap(Nearby):
    """The difference of two solutions' potentials; none where they merge."""

    def __call__(self, place: Array) -> float:
        """The difference, or not a number."""
        one, two = (settled(self.level, u, place) for u in self.nearest(place))
        if one is None or two is None or np.abs(one[0] - two[0]).max() < MERGED:
            return float("nan")
        self.note(place, one[0], two[0])
        return one[1].potential - two[1].potential


class Margin(Nearby):
    """How far beyond the edge of stability a solution is."""

    def __call__(self, place: Array) -> float:
        """The margin, or not a number."""
        (begin,) = self.nearest(place)
        beyond, u = self.level.margin(begin, place)
        if np.isfinite(beyond):
            self.note(place, u)
        return beyond


def crosses(a: Array, b: Array, line: Array) -> Array:
    """Of every piece of a line, whether it and the way from a to b cross."""
    c, d = line[:-1], line[1:]

    def side(p: Array, q: Array, r: Array) -> Array:
        return np.asarray(
            (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])
        )

    return np.asarray((side(a, b, c) * side(a, b, d) <= 0.0) & (side(c, d, a) * side(c, d, b) <= 0.0))
