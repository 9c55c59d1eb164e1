"""Whether an activation is real and finite on R^L and its Gaussian averages exist; if not, a witness point.

Poles, logarithms and roots are found by their arguments: an argument that algebra does not show to stay positive is
searched for zeros along lines, and sigma is followed into each zero that is found. A value that runs away is refused,
a 0/0 around which sigma stays bounded is not. Growth is refused where log|sigma| / |x|^2 does not go to zero along
some ray, for then the average diverges at some variance of the scores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import mpmath
import sympy as sp
from mpmath import mpf

from replicode.theory.calculus.numeric import Program, Undefined, random_scores, shown, zero_along
from replicode.theory.errors import InputError
from replicode.theory.language.activation import Activation
from replicode.theory.language.functions import nodes_that
from replicode.theory.language.nodes import L, TokenSum
from replicode.theory.language.writer import unparse

_DIGITS = 40
_TOKENS = (2, 3)
_DRAWS = ((0.7, 1.3, 0.4), (-0.6, 0.5, 2.0), (2.5, -1.5, -0.3))
_SCALES = (0.3, 1.0, 3.0, 10.0)
_APPROACH = tuple(mpf(10) ** -k for k in (4, 7, 10, 13, 16))
_RADII = tuple(mpf(r) for r in (30, 100, 300, 10**3, 10**4, 10**5, 10**6))
_GAUSSIAN = mpf("1.995")
_PARTLY_REAL = nodes_that(lambda f: f.domain != sp.S.Reals)
_SMALL = sp.Rational(1, 100)
_REAL = "an activation that is real and finite on R^L"
_AVERAGES = "an activation whose Gaussian averages exist: log|sigma| grows more slowly than x**2"

Scores = Sequence[mpf]


@dataclass(frozen=True)
class Fault:
    """What is wrong, where, and what would be allowed instead."""

    scores: tuple[mpf, ...]
    problem: str
    allowed: str


def check_domain(act: Activation, tokens: int | None = None) -> None:
    """Raise InputError with a witness where the activation is not real and finite, or grows too fast.

    Parameters count at their values or defaults; where one has none, the activation is refused only if it fails at
    every value that is tried.
    """
    lengths = _TOKENS if tokens is None else (tokens,)
    with mpmath.workdps(_DIGITS):
        found = _first_fault(act, lengths)
        mended = found and _mended(act, lengths)
    if found is None:
        return
    fault, values = found
    at = "".join(f", {s.name} = {float(v):g}" for s, v in values.items())
    instead = f"; accepted would be {mended}" if mended else ""
    where = f"at scores {shown(fault.scores)}{at}: {fault.problem}"
    raise InputError("activation", act.text, f"{fault.allowed}; {where}{instead}")


def _first_fault(act: Activation, lengths: Sequence[int]) -> tuple[Fault, Mapping[sp.Symbol, float]] | None:
    """The fault at the first parameters that are tried, if there is one at all of them."""
    faults = []
    for values in parameter_draws(act):
        fault = next((f for count in lengths for f in _faults(act.expr, values, count)), None)
        if fault is None:
            return None
        faults.append((fault, values))
    return faults[0]


def _mended(act: Activation, lengths: Sequence[int]) -> str | None:
    """The activation with a small number added to the divisors that can vanish, if that is accepted."""
    powers = [p for p in act.expr.atoms(sp.Pow) if p.exp.is_negative and not _stays_positive(p.base)]
    mended = replace(act, expr=act.expr.xreplace({p: (p.base + _SMALL) ** p.exp for p in powers}))
    return unparse(mended.expr) if powers and _first_fault(mended, lengths) is None else None


def parameter_draws(act: Activation) -> Iterator[dict[sp.Symbol, float]]:
    """The parameters' values, and several plausible ones for those that are free."""
    known = {**act.defaults, **act.values}
    free = [p for p in act.parameters if p not in known]
    for draw in _DRAWS if free else _DRAWS[:1]:
        plausible = {p: draw[i % len(draw)] for i, p in enumerate(free)}
        yield {sp.Symbol(p, real=True): {**plausible, **known}[p] for p in act.parameters}


def _faults(expr: sp.Expr, values: Mapping[sp.Symbol, float], count: int) -> Iterator[Fault]:
    """Faults at one number of tokens, the cheap ones first."""
    exact = {s: sp.Rational(str(float(v))) for s, v in values.items()}
    fixed = expr.xreplace({**exact, L: sp.Integer(count)})
    sigma = Program(expr, exact)
    rng = random.Random(41537 + count)
    yield from _undefined_at_random(sigma, rng, count)
    for argument in critical_arguments(fixed):
        yield from _singular(sigma, Program(argument), rng, count)
    yield from _diverging(sigma, rng, count)


def _undefined_at_random(sigma: Program, rng: random.Random, count: int) -> Iterator[Fault]:
    """A failure at a random point is one on an open set."""
    signs = [[mpf(sign) * (11 + mpf(i)) / 10 for i in range(count)] for sign in (-1, 1, -4, 4)]
    points = signs + [[mpf(rng.gauss(0.0, s)) for _ in range(count)] for s in _SCALES for _ in range(4)]
    for point in points:
        if problem := _problem(sigma, point):
            yield Fault(tuple(point), problem, _REAL)


def _problem(sigma: Program, point: Scores) -> str | None:
    try:
        sigma(point)
    except Undefined as fault:
        return str(fault)
    return None


def critical_arguments(expr: sp.Expr) -> list[sp.Expr]:
    """Arguments of logarithms and of negative or fractional powers that are not shown to stay positive."""
    found = {node.args[0] for node in expr.atoms(*_PARTLY_REAL)}
    found |= {p.base for p in expr.atoms(sp.Pow) if not (p.exp.is_integer and p.exp.is_nonnegative)}
    return sorted((a for a in found if not a.is_number and not _stays_positive(a)), key=sp.default_sort_key)


def _stays_positive(argument: sp.Expr) -> bool:
    return bool(argument.is_positive or (-argument).is_positive)


def _singular(sigma: Program, argument: Program, rng: random.Random, count: int) -> Iterator[Fault]:
    """Follow sigma into the zeros of an argument."""
    # Without a token sum, every token sees its own score alone: one line has all there is.
    lines = _lines(rng, count) if argument.expr.has(TokenSum) else _lines(rng, count)[:1]
    for origin, direction in lines:

        def along(t: mpf, origin: Scores = origin, direction: Scores = direction) -> mpf | None:
            return _or_none(argument, [o + t * d for o, d in zip(origin, direction)])

        t = zero_along(along)
        if t is not None:
            zero = [o + t * d for o, d in zip(origin, direction)]
            yield from _approached(sigma, zero, rng)


def _or_none(program: Program, scores: Scores) -> mpf | None:
    try:
        return program.first(scores)
    except Undefined:
        return None


def _lines(rng: random.Random, count: int) -> list[tuple[list[mpf], list[mpf]]]:
    """Equal scores, one score alone, opposite scores, and random directions through random points."""
    zero, one = mpf(0), mpf(1)
    nearby = random_scores(rng, count, 1.0)
    lines = [
        ([zero] * count, [one] * count),
        ([zero, *nearby[1:]], [one] + [zero] * (count - 1)),
        ([zero] * count, [one - 2 * (i % 2) for i in range(count)]),
    ]
    return [*lines, (random_scores(rng, count, 2.0), random_scores(rng, count, 1.0))]


def _approached(sigma: Program, zero: Scores, rng: random.Random) -> Iterator[Fault]:
    """Whether sigma runs away, or is undefined on an open set, next to a point."""
    with mpmath.workdps(3 * _DIGITS):
        yield from _approach_faults(sigma, zero, rng)


def _approach_faults(sigma: Program, zero: Scores, rng: random.Random) -> Iterator[Fault]:
    count, missing = len(zero), 0
    directions = [random_scores(rng, count, 1.0) for _ in range(4)]
    for direction in [*directions, *([-d for d in one] for one in directions)]:
        sizes = [_size(sigma, [z + step * d for z, d in zip(zero, direction)]) for step in _APPROACH]
        known = [s for s in sizes if s is not None]
        missing += len(known) < len(sizes)
        if len(known) == len(sizes) and _runs_away(known):
            near = " and ".join(mpmath.nstr(s, 3) for s in known[:2])
            problem = f"it is not finite ({near} at distances of 1e-4 and 1e-7)"
            yield Fault(_neat(zero), problem, _REAL)
        if missing > 1:
            bad = next(
                [z + step * d for z, d in zip(zero, direction)] for step, s in zip(_APPROACH, sizes) if s is None
            )
            yield Fault(tuple(bad), _problem(sigma, bad) or "it is undefined", _REAL)


def _neat(point: Scores) -> tuple[mpf, ...]:
    """Coordinates without the rounding of the search."""
    return tuple(mpf(0) if abs(z) < mpf(10) ** -20 else z for z in point)


def _size(sigma: Program, scores: Scores) -> mpf | None:
    try:
        return max(abs(v) for v in sigma(scores))
    except Undefined:
        return None


def _runs_away(sizes: Sequence[mpf]) -> bool:
    """Growth that does not slow down from decade to decade: logarithms and powers do so, bounded values do not."""
    steps = [b - a for a, b in pairwise(sizes)]
    return all(s > 0 for s in steps) and all(b > a / 2 for a, b in pairwise(steps)) and steps[-1] > mpf(10) ** -6


def _diverging(sigma: Program, rng: random.Random, count: int) -> Iterator[Fault]:
    """Rays along which log|sigma| grows like x^2 or faster."""
    zero, one = mpf(0), mpf(1)
    axis = [one] + [zero] * (count - 1)
    rays = [axis, [one] * count, [one - 2 * (i % 2) for i in range(count)], random_scores(rng, count, 1.0)]
    side = random_scores(rng, count, 0.5)
    for ray in [*rays, *([-r for r in one_ray] for one_ray in rays)]:
        logs: list[tuple[mpf, mpf]] = []
        for radius in _RADII:
            point = [radius * r + s for r, s in zip(ray, side)]
            size = _unbounded_size(sigma, point)
            if size is None:
                break
            if mpmath.isinf(size):
                yield Fault(tuple(point), "it is too large to write down", _AVERAGES)
                return
            if size > 1:
                logs.append((radius, mpmath.log(size)))
        if len(logs) >= 2 and logs[-1][1] > 50 and _exponent(logs) > _GAUSSIAN:
            radius = logs[-1][0]
            text = f"log|sigma| = {mpmath.nstr(logs[-1][1], 4)}"
            yield Fault(tuple(radius * r + s for r, s in zip(ray, side)), text, _AVERAGES)
            return


def _exponent(logs: Sequence[tuple[mpf, mpf]]) -> mpf:
    (r1, a1), (r2, a2) = logs[-2:]
    return mpmath.log(a2 / a1) / mpmath.log(r2 / r1)


def _unbounded_size(sigma: Program, point: Scores) -> mpf | None:
    """The largest |sigma|, infinite where it overflows, None where it has no value."""
    try:
        return max(abs(v) for v in sigma.raw(point))
    except (Undefined, ValueError, OverflowError):
        return None
