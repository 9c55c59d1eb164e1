"""The rule table of Gaussian averages.

`gaussian_mean` reads the integrand about the mean (terms.py); exponentials tilt the law, Stein's lemma removes powers,
`SIGN_RULES` average the signs that are left, and what is odd about the mean drops out. `Open` is raised where no rule
applies, `Divergent` where the average provably does not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import sympy as sp

from replicode.theory.gaussian.special import bivariate_normal_cdf, owens_t
from replicode.theory.gaussian.terms import (
    MAX_OPERATIONS,
    MAX_TERMS,
    READINGS,
    Kind,
    Open,
    Polynomial,
    Reader,
    Sign,
    Terms,
    Wave,
    Y,
    cancelled,
    polynomials,
    scaled,
    total,
)
from replicode.theory.language.functions import nodes_that

_BOUNDED = nodes_that(lambda f: f.bounded)
_TAME: tuple[type[Any], ...] = (
    *(sp.Add, sp.Mul, sp.Pow),
    *nodes_that(lambda f: not f.bounded and not f.explosive and f.domain == sp.S.Reals),
)

MAX_COST = 1000
TIDY_OPERATIONS = 60

V = sp.Dummy("v", positive=True)
MARGIN = sp.Dummy("margin", positive=True)


class Growing(Open):
    """Parts of the integrand have no average one by one; whether they cancel is not known."""


class Divergent(Exception):
    """The integrand provably grows as fast as the Gaussian density decays, or faster."""


def no_sign(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """E[1]."""
    return None if signs else sp.S.One


def one_sign(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """E sgn(N(offset, slope^2 v + blur))."""
    if len(signs) != 1:
        return None
    return sp.erf(signs[0].offset / sp.sqrt(2) / sp.sqrt(signs[0].variance(v)))


def odd_signs(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """An odd number of signs without offset is odd in y."""
    return sp.S.Zero if len(signs) % 2 and _centred(signs) else None


def uniform_signs(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """2 Phi(y/sqrt(v)) - 1 is uniform on (-1, 1); with a sharp sign its modulus is."""
    if len(signs) % 2 or not _centred(signs) or any(s.blur and s.slope**2 * v != 1 for s in signs):
        return None
    return sp.Rational(1, 1 + sum(s.blur for s in signs))


def centred_pair(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """Two signs, one of them without offset."""
    if len(signs) != 2 or not any(_nil(s.offset) for s in signs):
        return None
    one, other = signs if _nil(signs[0].offset) else reversed(signs)
    reach = other.offset / sp.sqrt(other.variance(v))
    return 4 * owens_t(reach, one.slope * other.slope * v / _spread(one, other, v))


def proportional_pair(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """Two signs whose offsets have a ratio of known sign (Owen 1956)."""
    if len(signs) != 2:
        return None
    one, other = signs
    ratio = cancelled(other.offset / one.offset)
    if not (ratio.is_positive or ratio.is_negative):
        return None
    covariance, spread = one.slope * other.slope * v, _spread(one, other, v)
    values = [
        owens_t(sign.offset / sp.sqrt(sign.variance(v)), cancelled(r * sign.variance(v) - covariance) / spread)
        for sign, r in ((one, ratio), (other, 1 / ratio))
    ]
    return sp.Integer(1 if ratio.is_positive else -1) - 4 * sp.Add(*values)


def general_pair(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr | None:
    """Two signs, through the bivariate normal distribution function."""
    if len(signs) != 2:
        return None
    one, other = signs
    widths = [sp.sqrt(s.variance(v)) for s in signs]
    h, k = (s.offset / width for s, width in zip(signs, widths))
    joint = bivariate_normal_cdf(h, k, one.slope * other.slope * v / (widths[0] * widths[1]))
    return 4 * joint - 1 - sp.erf(h / sp.sqrt(2)) - sp.erf(k / sp.sqrt(2))


SIGN_RULES = (no_sign, one_sign, odd_signs, uniform_signs, centred_pair, proportional_pair, general_pair)


def _centred(signs: tuple[Sign, ...]) -> bool:
    return all(_nil(s.offset) for s in signs)


def _nil(expr: sp.Expr) -> bool:
    """Whether the expression is zero, exact or floating."""
    return bool(expr.is_zero if expr.is_number else expr == 0)


def _spread(one: Sign, other: Sign, v: sp.Expr) -> sp.Expr:
    """The root of the determinant of the covariance of both signs' arguments."""
    crossed = one.slope**2 * other.blur + other.slope**2 * one.blur
    return sp.sqrt(cancelled(crossed * v + one.blur * other.blur))


def sign_product_mean(signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr:
    """E of a product of signs, y ~ N(0, v), by the first rule that applies."""
    for rule in SIGN_RULES:
        value = rule(signs, v)
        if value is not None:
            return value
    raise Open(f"no rule for a product of {len(signs)} signs")


def shifted(polynomial: Polynomial, by: sp.Expr) -> Polynomial:
    """The polynomial in y - by."""
    if by == 0:
        return polynomial
    found: dict[int, list[sp.Expr]] = {}
    for n, c in polynomial.items():
        for k in range(n + 1):
            found.setdefault(k, []).append(sp.binomial(n, k) * c * by ** (n - k))
    return {k: _compact(sp.Add(*several)) for k, several in found.items()}


def _compact(expr: sp.Expr) -> sp.Expr:
    """A small sum over one denominator, common factors in front, nothing multiplied out."""
    return sp.together(expr) if expr.is_Add and sp.count_ops(expr) <= TIDY_OPERATIONS else expr


def stein(polynomial: Polynomial, v: sp.Expr) -> tuple[sp.Expr, Polynomial]:
    """(E[P], Q) with E[P g] = E[P] E[g] + v E[Q g'] for every g, y ~ N(0, v)."""
    mean = sp.S.Zero
    quotient: Polynomial = {}
    for n in sorted(polynomial, reverse=True):
        c, k = polynomial[n], n
        while k > 0:
            quotient[k - 1] = quotient.get(k - 1, sp.S.Zero) + c
            c, k = c * (k - 1) * v, k - 2
        mean += c if k == 0 else sp.S.Zero
    return _compact(mean), {n: c for n, c in quotient.items() if c != 0}


def signs_mean(polynomial: Polynomial, signs: tuple[Sign, ...], v: sp.Expr) -> sp.Expr:
    """E[P(y) signs], y ~ N(0, v): Stein's lemma turns each sign's derivative into a narrower Gaussian law."""
    if _nil(v):
        return polynomial.get(0, sp.S.Zero) * sp.Mul(*[sp.erf(s.offset / sp.sqrt(2)) for s in signs])
    mean, quotient = stein(polynomial, v)
    parts = [mean * sign_product_mean(signs, v)] if mean != 0 else []
    for sign, count in Counter(signs).items() if quotient else ():
        rest = list(signs)
        rest.remove(sign)
        spread = sign.variance(v)
        density = sp.exp(-(sign.offset**2) / 2 / spread) / sp.sqrt(2 * sp.pi) / sp.sqrt(spread)
        centre = -sign.slope * v * sign.offset / spread
        moved = tuple(_conditioned(other, sign, v) for other in rest)
        inner = signs_mean(shifted(quotient, centre), moved, v * sign.blur / spread)
        parts.append(2 * count * sign.slope * v * density * inner)
    return sp.Add(*parts)


def _conditioned(sign: Sign, on: Sign, v: sp.Expr) -> Sign:
    """The sign about the mean that y has where the argument of `on` vanishes."""
    moved = sp.expand(sign.offset * on.variance(v) - sign.slope * on.slope * v * on.offset)
    return replace(sign, offset=sp.factor_terms(moved) / on.variance(v))


def wave_mean(polynomial: Polynomial, wave: Wave, v: sp.Expr) -> sp.Expr:
    """E[P(y) wave], y ~ N(0, v): E[y^n e^(iky)] = e^(-k^2 v/2) E[(y + ikv)^n], real or imaginary part."""
    function = sp.sin if wave.sine else sp.cos
    parts = [
        sp.binomial(n, k) * c * stein({n - k: sp.S.One}, v)[0] * (wave.rate * v) ** k * _turned(function, wave.phase, k)
        for n, c in polynomial.items()
        for k in range(n % 2, n + 1, 2)
    ]
    return sp.exp(-(wave.rate**2) * v / 2) * sp.Add(*parts)


def _turned(function: Callable[[sp.Expr], sp.Expr], phase: sp.Expr, quarters: int) -> sp.Expr:
    return function(phase + sp.pi * (quarters % 4) / 2)


def kind_mean(kind: Kind, polynomial: Polynomial, v: sp.Expr) -> sp.Expr:
    """E[P(y) kind], y ~ N(0, v): first the exponential tilts the law, then signs or wave are averaged."""
    if kind.others or (kind.wave and kind.signs):
        raise Open("there is a factor without a rule")
    margin = 1 - 2 * kind.curvature * v
    tilted = v / margin
    centre = kind.tilt * tilted
    weight = sp.exp(kind.tilt * centre / 2) / sp.sqrt(margin)
    moved = shifted(polynomial, centre)
    if kind.wave:
        wave = replace(kind.wave, phase=kind.wave.phase + kind.wave.rate * centre)
        return weight * wave_mean(moved, wave, tilted)
    signs = tuple(replace(s, offset=s.offset + s.slope * centre) for s in kind.signs)
    return weight * signs_mean(moved, signs, tilted)


def terms_mean(terms: Terms, v: sp.Expr, known: sp.Expr) -> sp.Expr:
    """E of the terms, y ~ N(0, v); `known` is the variance that the symbol v stands for."""
    by_kind = polynomials(terms)
    check_convergence(by_kind, v, known)
    if sum(_cost(kind, polynomial) for kind, polynomial in by_kind.items()) > MAX_COST:
        raise Open("the closed form would be too large")
    return sp.Add(*[kind_mean(kind, polynomial, v) for kind, polynomial in by_kind.items()])


def _cost(kind: Kind, polynomial: Polynomial) -> int:
    """The number of coefficients that Stein's lemma will work through, roughly."""
    powers: int = 1 + max(polynomial)
    return powers ** (1 + len(kind.signs) + bool(kind.wave)) if kind.signs or kind.wave else powers


def check_convergence(by_kind: Mapping[Kind, Polynomial], v: sp.Expr, known: sp.Expr) -> None:
    """Divergent where a Gaussian growth provably exceeds the law's decay, Growing where growing parts may cancel."""
    growing: dict[tuple[sp.Expr, sp.Expr, Wave | None], list[tuple[Kind, Polynomial]]] = {}
    if len(by_kind) == 1 and _exceeds_every_gaussian(next(iter(by_kind))):
        raise Divergent
    for kind, polynomial in by_kind.items():
        margin = 1 - 2 * kind.curvature * v
        if margin.is_nonpositive or margin.xreplace({v: known}).is_nonpositive:
            growing.setdefault((kind.curvature, kind.tilt, kind.wave), []).append((kind, polynomial))
    if not growing:
        return
    if any(not _tame(f) for kind in by_kind for f, _ in kind.others):
        raise Growing("a growing part and a factor without a rule may cancel")
    for (curvature, tilt, _), parts in growing.items():
        balanced = (1 - 2 * curvature * v).xreplace({v: known}).is_zero
        ends = [end for end in (1, -1) if _survives(parts, end)]
        if len(ends) == 2 or any(not balanced or tilt.is_zero or (end * tilt).is_positive for end in ends):
            raise Divergent
    raise Growing("the growing parts may cancel")


def _exceeds_every_gaussian(kind: Kind) -> bool:
    """Whether the only factor without a rule is exp of a polynomial that outgrows every square at one end."""
    if len(kind.others) != 1 or not isinstance(kind.others[0][0], sp.exp):
        return False
    exponent = Reader(Y, READINGS).read(kind.others[0][0].args[0])
    degree = max(n for _, n in exponent)
    if degree <= 2 or any(k != Kind() for k, _ in exponent):
        return False
    leading = exponent[Kind(), degree]
    return bool(leading.is_nonzero if degree % 2 else leading.is_positive)


def _bounded(expr: sp.Expr) -> bool:
    """Whether the expression is provably bounded."""
    if expr.is_Add or expr.is_Mul or isinstance(expr, sp.exp):
        return all(_bounded(a) for a in expr.args)
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        return _bounded(expr.base)
    return not expr.free_symbols or isinstance(expr, _BOUNDED) or (expr.is_Symbol and expr != Y)


def _tame(expr: sp.Expr) -> bool:
    """Whether the expression is provably continuous but for jumps, and grows no faster than a power."""
    if _bounded(expr):
        return all(_tame(a) for a in expr.args)
    if expr.is_Pow and not (expr.exp.is_Integer and expr.exp > 0):
        room = expr.base.is_nonnegative if expr.exp.is_positive else _above_zero(expr.base)
        return bool(expr.exp.is_Rational and room) and _tame(expr.base)
    if isinstance(expr, sp.log):
        return _above_zero(expr.args[0]) and _tame(expr.args[0])
    return expr == Y or (isinstance(expr, _TAME) and all(_tame(a) for a in expr.args))


def _above_zero(expr: sp.Expr) -> bool:
    """Whether the expression is a positive number plus what is provably not negative."""
    number, rest = expr.as_coeff_Add()
    return bool(number.is_positive and rest.is_nonnegative)


def _survives(parts: list[tuple[Kind, Polynomial]], end: int) -> bool:
    """Whether the factor of a common exponential provably does not vanish as y -> end * infinity."""
    limit: dict[int, sp.Expr] = {}
    for kind, polynomial in parts:
        if kind.others or any(s.slope.is_positive is None for s in kind.signs):
            return False
        value = prod(end * (1 if s.slope.is_positive else -1) for s in kind.signs)
        for n, c in polynomial.items():
            limit[n] = limit.get(n, sp.S.Zero) + value * c
    return any(c.is_nonzero for c in limit.values())


def _centred_mean(
    expr: sp.Expr, x: sp.Symbol, mean: sp.Expr, variance: sp.Expr, random: frozenset[sp.Symbol]
) -> sp.Expr:
    """E over y = x - mean: as it stands, or else of the part even in y."""
    v = variance if variance.is_number else V
    reader = Reader(Y, READINGS)
    terms = reader.read(expr.xreplace({x: mean + Y}))
    if any(kind.curvature.free_symbols & random and not (1 - 2 * kind.curvature * v).is_positive for kind, _ in terms):
        raise Open("the growth of the integrand is random")
    try:
        found = terms_mean(terms, v, variance)
    except Growing:
        raise
    except Open:
        found = terms_mean(_even_part(terms, reader.read(expr.xreplace({x: mean - Y}))), v, variance)
    return found.xreplace({V: variance})


def _even_part(terms: Terms, mirrored: Terms) -> Terms:
    """Half the sum of the terms in y and in -y; Open where their averages might not exist one by one."""
    if not all(_tame(f) for kind, _ in terms for f, _ in kind.others):
        raise Open("there is a factor of unknown growth")
    even = scaled(total((terms, mirrored)), sp.Rational(1, 2))
    return {key: c for key, c in even.items() if not _vanishes(c)}


def _vanishes(expr: sp.Expr) -> bool:
    """Whether multiplying out shows that the expression is zero; a look at one point saves most of the work."""
    point = {
        s: sp.Rational(k + 17, 2 * k + 23) for k, s in enumerate(sorted(expr.free_symbols, key=sp.default_sort_key))
    }
    if sp.count_ops(expr) > MAX_OPERATIONS or abs(expr.xreplace(point).evalf(20)) > 1e-12:
        return False
    return bool(sp.expand(expr) == 0)


def gaussian_mean(
    expr: sp.Expr, x: sp.Symbol, mean: sp.Expr, variance: sp.Expr, random: frozenset[sp.Symbol] = frozenset()
) -> sp.Expr:
    """E[expr], x ~ N(mean, variance), in closed form; Open if no rule applies, Divergent if there is none.

    The result must hold for every value of the `random` symbols, where they occur.
    """
    if _nil(variance):
        return expr.xreplace({x: mean})
    outside, inside = expr.as_independent(x, as_Add=False)
    if inside.is_Add and len(inside.args) <= MAX_TERMS:
        try:
            return outside * sp.Add(*[gaussian_mean(a, x, mean, variance, random) for a in inside.args])
        except (Open, Divergent):
            return outside * _centred_mean(inside, x, mean, variance, random)
    weight, rest, law, margin = _tilted(inside, x, mean, variance, random)
    tilted = weight * (_centred_mean(rest, x, *law, random) if rest != 1 else 1)
    return outside * tilted.xreplace({MARGIN: margin})


def _tilted(
    expr: sp.Expr, x: sp.Symbol, mean: sp.Expr, variance: sp.Expr, random: frozenset[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr, tuple[sp.Expr, sp.Expr], sp.Expr]:
    """(weight, rest, law, MARGIN): a factor exp(a x^2 + b x + c) of the integrand moves the law of the rest.

    The average exists where MARGIN = 1 - 2 a variance is positive, and the roots in it are taken accordingly.
    """
    growth = sp.S.Zero
    rest: list[sp.Expr] = []
    for factor in sp.Mul.make_args(expr):
        quadratic = isinstance(factor, sp.exp) and Reader(x, READINGS).polynomial(factor.args[0], 2)
        growth, rest = (growth + factor.args[0], rest) if quadratic else (growth, [*rest, factor])
    c, b, a = Reader(x, READINGS).polynomial(growth, 2) or [sp.S.Zero] * 3
    margin = 1 - 2 * a * variance
    if margin.is_nonpositive or (margin.free_symbols & random and not margin.is_positive):
        return sp.S.One, expr, (mean, variance), margin
    symbol = margin if margin.is_positive else MARGIN
    weight = sp.exp(c + (a * mean**2 + b * mean + b**2 * variance / 2) / symbol) / sp.sqrt(symbol)
    return weight, sp.Mul(*rest), ((mean + b * variance) / symbol, variance / symbol), margin
