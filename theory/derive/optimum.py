"""The population optimum in closed form: the best v always, the best k and parameters where the algebra allows.

With v = (A/B) v* the excess risk is 1 - A^2/B. A component of k across k* only adds noise to the scores; once it is
excluded (q_k = m_k^2, joint `solve` would return the wrong root otherwise) the stationary points in m_k are roots of a
polynomial, or the gain does not depend on |k| at all. Which root is the optimum, and that the noise does not pay, is
decided by the numbers that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import sympy as sp

from replicode.theory.derive.population import A, B, population_risk
from replicode.theory.errors import Refusal
from replicode.theory.gaussian.closed import ScoreOverlaps, closed_averages, hard_averages
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L
from replicode.theory.language.task import Task
from replicode.theory.model import DEFAULT_MODEL, NU, Model
from replicode.theory.properties.symbolic import bounded

Found = TypeVar("Found")

_SIZE = sp.Symbol("size", positive=True)
_ROOT_NU = sp.Symbol("root_nu", nonnegative=True)
_LARGEST = 600
_STEPS = 3_000_000
_DIGITS = 50
_LARGEST_DENOMINATOR = 64
_AT_REST = 1e-4
_AGREEMENT = sp.Float("1e-9")
_PLACE = sp.Float("1e-4")


@dataclass(frozen=True)
class BestValue:
    """The best v at given scores: m_v = A/B along v*, and the risk that is left."""

    m_v: sp.Expr
    q_v: sp.Expr
    risk: sp.Expr


def best_value(on_manifold: sp.Expr, model: Model = DEFAULT_MODEL) -> BestValue:
    """Minimise the risk on the manifold over m_v and q_v >= m_v^2."""
    m, q = model.values.m, model.values.q
    if not (sp.diff(on_manifold, q) / B).is_positive:
        raise AssertionError("the risk must grow with q_v like B >= 0, so that q_v = m_v^2 is best")
    aligned = on_manifold.subs(q, m**2)
    (best,) = sp.solve(sp.diff(aligned, m), m)
    return BestValue(best, best**2, sp.simplify(aligned.subs(m, best)))


def excess_of(on_manifold: sp.Expr, model: Model = DEFAULT_MODEL) -> sp.Expr:
    """The excess risk after the best v, in A and B."""
    return sp.expand(best_value(on_manifold, model).risk - model.noise_risk())


@dataclass(frozen=True)
class ValueOptimum:
    """What the best v leaves: its m_v in A and B, excess risk scale (1 - A^2/B), and the risk of the label's noise."""

    m_v: sp.Expr
    scale: sp.Expr
    noise: sp.Expr


@lru_cache(maxsize=64)
def value_optimum(setting: Task, model: Model = DEFAULT_MODEL) -> ValueOptimum:
    """The best v on a task."""
    best, noise = best_value(population_risk(setting, model).on_manifold, model), model.noise_risk()
    excess = sp.expand(best.risk - noise)
    scale = excess.subs(A, 0)
    if sp.expand(excess - scale * (1 - A**2 / B)) != 0:
        raise Refusal(f"risk {model.risk}: its excess after the best v, {excess}, is not a multiple of 1 - A^2/B")
    return ValueOptimum(best.m_v, scale, noise)


@dataclass(frozen=True)
class ClosedOptimum:
    """The excess risk at the optimum, where it is, and whether it holds for all L and nu or at the given values."""

    excess: sp.Expr
    m_k: sp.Expr
    general: bool
    flat: bool


def closed_optimum(
    act: Activation, setting: Task, tokens: int, nu: sp.Expr, m_k: float, excess: float
) -> ClosedOptimum | None:
    """The closed form that agrees with the numerical optimum at m_k (q_k = m_k^2), None when none is found."""
    hard = nu == sp.oo
    size = ScoreOverlaps.aligned(sp.Integer(1 if m_k >= 0 else -1) * _SIZE)
    found = hard_averages(act, setting, tokens, size) if hard else closed_averages(act, setting, size)
    gain = found.gain()
    if gain is None:
        at_rest = ClosedOptimum(1 - sp.Rational(1, tokens), sp.S.Zero, False, False)
        return at_rest if abs(m_k) < _AT_REST else None
    given = {L: sp.Integer(tokens)} if hard else {L: sp.Integer(tokens), NU: nu}
    for candidate in (*_candidates(gain, general=not hard), *_recognised(gain.subs(given), tokens, m_k)):
        numbers = [sp.N(e.subs(given), 25) for e in (candidate.excess, candidate.m_k)]
        if _close(numbers[0], excess) and (candidate.flat or _close(numbers[1], abs(m_k), _PLACE)):
            sign = 1 if m_k >= 0 else -1
            return ClosedOptimum(candidate.excess, sign * candidate.m_k, candidate.general, candidate.flat)
    return None


def _recognised(gain: sp.Expr, tokens: int, m_k: float) -> Iterator[ClosedOptimum]:
    """At the given values: an m_k whose square is a simple fraction, kept if the gain is stationary there exactly.

    At k = 0 all tokens weigh alike, sigma drops out and 1/L is gained.
    """
    if abs(m_k) < _AT_REST:
        yield ClosedOptimum(1 - sp.Rational(1, tokens), sp.S.Zero, False, False)
        return
    square = sp.Rational(Fraction(m_k**2).limit_denominator(_LARGEST_DENOMINATOR))
    if not _close(square, m_k**2, _PLACE) or sp.count_ops(gain) > _LARGEST:
        return
    root = sp.sqrt(square)
    rate = sp.diff(sp.log(gain), _SIZE).subs(_SIZE, root)
    if _vanishing(rate) and _tried(sp.simplify, rate) == 0:
        yield ClosedOptimum(_tried_or_left(sp.simplify, 1 - gain.subs(_SIZE, root)), root, False, False)


def _vanishing(number: sp.Expr) -> bool:
    """Whether the number is zero to fifty digits, which refutes nearly all that no algebra would prove."""
    value = sp.N(number, _DIGITS)
    return bool(value.is_Number and abs(value) < sp.Float(f"1e-{_DIGITS}"))


def _tried(function: Callable[[sp.Expr], Found], expr: sp.Expr) -> Found | None:
    """function(expr), or None where that takes too many steps: the numbers are known and do not wait for it."""
    return bounded(function, expr, _STEPS)


def _tried_or_left(function: Callable[[sp.Expr], sp.Expr], expr: sp.Expr) -> sp.Expr:
    found = _tried(function, expr)
    return expr if found is None else found


def _close(value: sp.Expr, wanted: float, tolerance: sp.Expr = _AGREEMENT) -> bool:
    return bool(value.is_Number and value.is_finite and abs(value - wanted) <= tolerance * (1 + abs(wanted)))


def _candidates(gain: sp.Expr, general: bool) -> Iterator[ClosedOptimum]:
    """Every stationary value of A^2/B in the size of k; a gain that does not depend on it comes alone."""
    gain = gain.subs(NU, _ROOT_NU**2)
    if sp.count_ops(gain) > _LARGEST:
        return
    if _constant(gain):
        yield ClosedOptimum(_tidy(1 - gain.subs(_SIZE, 1)), sp.S.One, general, True)
        return
    for root in _roots(gain):
        yield ClosedOptimum(_tidy(1 - gain.subs(_SIZE, root)), _tidy(root), general, False)


def _constant(gain: sp.Expr) -> bool:
    """Whether the gain does not depend on |k|, seen at points and then shown by algebra on its logarithmic rate."""
    values = {s: sp.Rational(3 + i, 2) for i, s in enumerate(sorted(gain.free_symbols - {_SIZE}, key=str))}
    sizes = (sp.Rational(1, 3), sp.Rational(7, 5), sp.Rational(19, 4))
    numbers = [sp.N(gain.subs(values).subs(_SIZE, s), 30) for s in sizes]
    return all(n.is_Number and abs(n - numbers[0]) < sp.Float("1e-22") * (1 + abs(n)) for n in numbers)


def _roots(gain: sp.Expr) -> Iterator[sp.Expr]:
    """Roots in closed form of the stationarity, factor by factor, where it is polynomial in the size."""
    numerator = _tried(lambda e: sp.numer(sp.together(sp.diff(e, _SIZE))), gain)
    if numerator is None or not numerator.is_polynomial(_SIZE):
        return
    for factor in _tried(lambda e: [f for f, _ in sp.factor_list(e)[1]], numerator) or ():
        poly = sp.Poly(factor, _SIZE) if _SIZE in factor.free_symbols else None
        if poly is None:
            continue
        biquadratic = poly.degree() == 4 and all(p % 2 == 0 for (p,) in poly.monoms())
        if poly.degree() <= 2 or biquadratic:
            yield from _tried(lambda e: sp.solve(e, _SIZE), factor) or ()


def _tidy(expr: sp.Expr) -> sp.Expr:
    """Written in nu again, and factorised where that is cheap."""
    expr = expr.subs(_ROOT_NU, sp.sqrt(NU))
    return _tried_or_left(lambda e: sp.factor(sp.simplify(e)), expr) if sp.count_ops(expr) < _LARGEST else expr


def limits(excess: sp.Expr, general: bool) -> Mapping[str, sp.Expr]:
    """Limits in nu and L of a closed form that holds for all of them, with the next order in nu if it is rational.

    What takes too many steps is left out.
    """
    if not general:
        return {}
    at_zero = excess.subs(NU, 0)
    found = {} if at_zero.is_finite is False else {"nu -> 0": _tried(sp.simplify, at_zero)}
    if excess.is_rational_function(NU, L):
        found |= _orders_in_nu(excess, found.get("nu -> 0"))
        found["L -> oo"] = _tried(lambda e: sp.limit(e, L, sp.oo), excess)
    return {name: value for name, value in found.items() if value is not None}


def _orders_in_nu(excess: sp.Expr, start: sp.Expr | None) -> dict[str, sp.Expr | None]:
    """The first two orders of a rational closed form at both ends of nu."""
    slope = _tried(lambda e: sp.factor(sp.diff(e, NU).subs(NU, 0)), excess)
    far = _tried(lambda e: sp.factor(sp.limit(e, NU, sp.oo)), excess)
    fall = None if far is None else _tried(lambda e: sp.factor(sp.limit((e - far) * NU, NU, sp.oo)), excess)
    return {
        "nu -> 0, first orders": None if start is None or slope is None else start + slope * NU,
        "nu -> oo": far,
        "nu -> oo, first orders": None if far is None or fall is None else far + fall / NU,
    }
