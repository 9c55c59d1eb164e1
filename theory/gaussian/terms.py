"""Integrands of Gaussian averages read as sums of products that the rules know.

`Reader` reads an expression in y as `Terms`: sums of y^n exp(A y^2 + B y) times signs, a wave and what has no rule. A
sign is E_z sgn(slope y + offset + blur z) with z standard normal: erf has blur 1, the step 0, and one formula serves
both. `Open` is raised where that fails or grows beyond bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import sympy as sp

from replicode.theory.language.functions import BY_NODE, KINKED, Function, branch, nodes_that
from replicode.theory.language.nodes import relu, step

MAX_TERMS = 400
MAX_WORK = 4_000
MAX_OPERATIONS = 400

Y = sp.Dummy("y", real=True)

_OWN_KINKED = nodes_that(lambda f: f.own and f.kink is not None)


class Open(Exception):
    """No rule integrates this."""


@dataclass(frozen=True)
class Sign:
    """E_z sgn(slope y + offset + blur z), z ~ N(0, 1): erf((slope y + offset)/sqrt(2)) at blur 1, sgn at blur 0."""

    slope: sp.Expr
    offset: sp.Expr
    blur: int

    def variance(self, v: sp.Expr) -> sp.Expr:
        """The variance of the argument when y ~ N(0, v)."""
        return cancelled(self.slope**2 * v + self.blur)


@dataclass(frozen=True)
class Wave:
    """cos or sin of rate y + phase."""

    sine: bool
    rate: sp.Expr
    phase: sp.Expr


@dataclass(frozen=True)
class Kind:
    """exp(curvature y^2 + tilt y) times signs, a wave, and powers of what has no rule."""

    curvature: sp.Expr = sp.S.Zero
    tilt: sp.Expr = sp.S.Zero
    signs: tuple[Sign, ...] = ()
    wave: Wave | None = None
    others: tuple[tuple[sp.Expr, int], ...] = ()


ONE = Kind()
Polynomial = dict[int, sp.Expr]
Terms = dict[tuple[Kind, int], sp.Expr]
Reading = Callable[["Reader", sp.Expr], Terms | None]


def constant(value: sp.Expr) -> Terms:
    """A term without y."""
    return {(ONE, 0): sp.sympify(value)}


def total(parts: Iterable[Terms]) -> Terms:
    """The sum, like terms collected and zeros dropped."""
    coefficients: dict[tuple[Kind, int], list[sp.Expr]] = {}
    for part in parts:
        for key, coefficient in part.items():
            coefficients.setdefault(key, []).append(coefficient)
    summed = {key: sp.Add(*several) for key, several in coefficients.items()}
    return {key: c for key, c in summed.items() if c != 0}


def scaled(terms: Terms, factor: sp.Expr) -> Terms:
    """A multiple."""
    return {key: factor * c for key, c in terms.items()}


def polynomials(terms: Terms) -> dict[Kind, Polynomial]:
    """The terms by kind."""
    found: dict[Kind, Polynomial] = {}
    for (kind, n), c in terms.items():
        found.setdefault(kind, {})[n] = c
    return found


def wave_terms(sine: bool, rate: sp.Expr, phase: sp.Expr) -> Terms:
    """cos or sin of rate y + phase, its rate free of an overall sign."""
    if rate == 0:
        return constant(sp.sin(phase) if sine else sp.cos(phase))
    if rate.could_extract_minus_sign():
        return scaled(wave_terms(sine, -rate, -phase), sp.Integer(-1 if sine else 1))
    return {(Kind(wave=Wave(sine, rate, phase)), 0): sp.S.One}


def blurred_sign_terms(slope: sp.Expr, offset: sp.Expr) -> Terms:
    """erf((slope y + offset)/sqrt(2)), its slope free of an overall sign."""
    if slope.could_extract_minus_sign():
        return scaled(blurred_sign_terms(-slope, -offset), sp.S.NegativeOne)
    return {(Kind(signs=(Sign(slope, offset, 1),)), 0): sp.S.One}


def sharp_sign_terms(slope: sp.Expr, offset: sp.Expr) -> Terms:
    """sgn(slope y + offset) = |slope|/slope sgn(y + offset/slope)."""
    root = sp.Add(*[part / slope for part in sp.Add.make_args(offset)])
    return {(Kind(signs=(Sign(sp.S.One, root, 0),)), 0): sp.Abs(slope) / slope}


def _joined_signs(one: tuple[Sign, ...], other: tuple[Sign, ...]) -> list[tuple[int, tuple[Sign, ...]]]:
    """The product of two products of signs; at most one sharp sign is left in each term of it."""
    blurred = tuple(sorted((s for s in one + other if s.blur), key=_sign_order))
    sharp = [s for s in one + other if not s.blur]
    if len(sharp) < 2:
        return [(1, (*sharp, *blurred))]
    first, second = sharp
    gap = first.offset - second.offset
    if gap.is_zero:
        return [(1, blurred)]
    if gap.is_negative:
        first, second = second, first
    elif not gap.is_positive:
        raise Open(f"the order of the kinks depends on the sign of {gap}")
    return [(1, blurred), (-1, (first, *blurred)), (1, (second, *blurred))]


def _sign_order(sign: Sign) -> tuple[object, ...]:
    return (sp.default_sort_key(sign.slope), sp.default_sort_key(sign.offset))


def _joined_waves(one: Wave | None, other: Wave | None) -> Terms:
    """The product of two waves as a sum of waves."""
    if one is None or other is None:
        wave = one or other
        return {(Kind(wave=wave), 0): sp.S.One}
    if one.sine and not other.sine:
        one, other = other, one
    rates, phases = (one.rate, other.rate), (one.phase, other.phase)
    low = wave_terms(one.sine != other.sine, rates[1] - rates[0], phases[1] - phases[0])
    high = wave_terms(one.sine != other.sine, rates[1] + rates[0], phases[1] + phases[0])
    half = sp.Rational(1, 2)
    return total((scaled(low, half), scaled(high, -half if one.sine and other.sine else half)))


def _kind_product(one: Kind, other: Kind) -> Terms:
    others = Counter(dict(one.others))
    others.update(dict(other.others))
    ordered = tuple(sorted(others.items(), key=lambda item: sp.default_sort_key(item[0])))
    curvature, tilt = one.curvature + other.curvature, one.tilt + other.tilt
    return total(
        {(Kind(curvature, tilt, signs, key.wave, ordered), 0): sign * c}
        for sign, signs in _joined_signs(one.signs, other.signs)
        for (key, _), c in _joined_waves(one.wave, other.wave).items()
    )


class Reader:
    """Reads an expression as Terms in the variable; what has no reading stays whole among `others`."""

    def __init__(
        self,
        variable: sp.Symbol,
        readings: Mapping[type, Reading],
        random: frozenset[sp.Symbol] = frozenset(),
    ) -> None:
        self.variable, self.readings, self.random = variable, readings, random | {variable}
        self._work = 0

    def read(self, expr: sp.Expr) -> Terms:
        """The expression as a sum of products; Open beyond the bounds on size."""
        self._spend(1)
        if not expr.free_symbols & self.random:
            return constant(_settled(expr))
        if expr == self.variable:
            return {(ONE, 1): sp.S.One}
        if expr.is_Add:
            return total(self.read(a) for a in expr.args)
        if expr.is_Mul:
            return self._product([self.read(a) for a in expr.args])
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            if isinstance(expr.base, relu) and expr.exp > 1:
                return self.read(expr.base.args[0] ** expr.exp * step(expr.base.args[0]))
            return self._power(self.read(expr.base), int(expr.exp))
        return self._read_function(expr)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise Open("the expanded integrand is too large")

    def _read_function(self, expr: sp.Expr) -> Terms:
        reading = self.readings.get(type(expr))
        terms = reading(self, expr) if reading else None
        if terms is None and self.readings:
            terms = self._by_branches(expr)
        return {(Kind(others=((expr, 1),)), 0): sp.S.One} if terms is None else terms

    def product(self, one: Terms, other: Terms) -> Terms:
        """The product, expanded."""
        self._spend(len(one) * len(other))
        parts: list[Terms] = []
        for (kind, n), c in one.items():
            for (other_kind, m), d in other.items():
                joined = {(other_kind, 0): sp.S.One} if kind == ONE else _kind_product(kind, other_kind)
                parts.append({(key, n + m): e * c * d for (key, _), e in joined.items()})
        found = total(parts)
        if len(found) > MAX_TERMS:
            raise Open("the expanded integrand is too large")
        return found

    def _product(self, factors: list[Terms]) -> Terms:
        found = constant(sp.S.One)
        for factor in factors:
            found = self.product(found, factor)
        return found

    def _power(self, base: Terms, n: int) -> Terms:
        """base^n; a sum of two terms by the binomial theorem, which keeps coefficients factored."""
        if len(base) != 2:
            return self._product([base] * n)
        one, other = ({key: c} for key, c in base.items())
        powers = [[constant(sp.S.One)], [constant(sp.S.One)]]
        for several, term in zip(powers, (one, other)):
            for _ in range(n):
                several.append(self.product(several[-1], term))
        return total(scaled(self.product(powers[0][k], powers[1][n - k]), sp.binomial(n, k)) for k in range(n + 1))

    def polynomial(self, expr: sp.Expr, degree: int) -> list[sp.Expr] | None:
        """The coefficients 0..degree, or None if it is no polynomial of at most that degree."""
        terms = self.read(expr)
        if any(kind != ONE or n > degree for kind, n in terms):
            return None
        return [terms.get((ONE, n), sp.S.Zero) for n in range(degree + 1)]

    def line(self, expr: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
        """(slope, offset) of a linear expression."""
        found = self.polynomial(expr, 1)
        return None if found is None or found[1] == 0 else (found[1], found[0])

    def _by_branches(self, expr: sp.Expr) -> Terms | None:
        """f = (f+ + f-)/2 + sgn(u) (f+ - f-)/2 with f+- the integrand on either side of the kink at u = 0."""
        kinks = [k for k in expr.atoms(*KINKED) if k != expr and self.variable in k.free_symbols]
        for kink in sorted(kinks, key=sp.default_sort_key):
            line = self.line(kink.args[0])
            if line is None:
                continue
            sides = [self.read(expr.xreplace({kink: branch(kink, side)})) for side in (1, -1)]
            if any(kind.others for terms in sides for kind, _ in terms):
                return None
            even, odd = (total((sides[0], scaled(sides[1], sp.Integer(s)))) for s in (1, -1))
            whole = total((even, self.product(sharp_sign_terms(*line), odd)))
            return scaled(whole, sp.Rational(1, 2))
        return None


def _settled(expr: sp.Expr) -> sp.Expr:
    """A constant, its kinked functions resolved where the sign of the argument is known; SymPy does so with its own."""
    if not expr.has(*_OWN_KINKED):
        return expr
    expr = expr.func(*[_settled(a) for a in expr.args])
    if isinstance(expr, _OWN_KINKED) and (expr.args[0].is_positive or expr.args[0].is_nonpositive):
        return branch(expr, 1 if expr.args[0].is_positive else -1)
    return expr


def read_exp(reader: Reader, expr: sp.Expr) -> Terms | None:
    """exp of a polynomial of degree <= 2."""
    found = reader.polynomial(expr.args[0], 2)
    return None if found is None else {(Kind(found[2], found[1]), 0): sp.exp(found[0])}


def read_power(reader: Reader, expr: sp.Expr) -> Terms | None:
    """a^u = exp(u log a) for a positive constant a."""
    if reader.variable in expr.base.free_symbols or not expr.base.is_positive:
        return None
    return reader.read(sp.exp(expr.exp * sp.log(expr.base)))


def _of_line(read: Callable[[sp.Expr, sp.Expr], Terms]) -> Reading:
    """The reading of a function of a linear argument, by its slope and offset."""

    def reading(reader: Reader, expr: sp.Expr) -> Terms | None:
        line = reader.line(expr.args[0])
        return None if line is None else read(*line)

    return reading


def _by_record(record: Function) -> Reading:
    """The reading of a function that its record writes by others, or reflects so that parity shows."""

    def reading(reader: Reader, expr: sp.Expr) -> Terms | None:
        u = expr.args[0]
        if record.averaged is not None and reader.line(u) is not None:
            return reader.read(record.averaged(u))
        if record.reflected is not None and record.analytic and u.could_extract_minus_sign():
            return reader.read(record.reflected(-u, expr.func(-u)))
        return None

    return reading


READINGS: Mapping[type, Reading] = {
    **{
        node: _by_record(record)
        for node, record in BY_NODE.items()
        if record.averaged or (record.own and record.reflected)
    },
    sp.exp: read_exp,
    sp.Pow: read_power,
    sp.erf: _of_line(lambda slope, offset: blurred_sign_terms(sp.sqrt(2) * slope, sp.sqrt(2) * offset)),
    sp.sign: _of_line(sharp_sign_terms),
    sp.cos: _of_line(partial(wave_terms, False)),
    sp.sin: _of_line(partial(wave_terms, True)),
}


def cancelled(expr: sp.Expr) -> sp.Expr:
    """The expression as a ratio of polynomials, if it is small enough."""
    return sp.cancel(expr) if sp.count_ops(expr) <= MAX_OPERATIONS else expr


def addends(expr: sp.Expr, variables: Iterable[sp.Symbol]) -> list[sp.Expr]:
    """The expression as a sum over its products of functions, each with its polynomial in the first variable."""
    first, *others = variables
    terms = Reader(first, {}, frozenset(others)).read(expr)
    return [
        sp.Add(*[c * first**n for n, c in polynomial.items()]) * sp.Mul(*[f**k for f, k in kind.others])
        for kind, polynomial in polynomials(terms).items()
    ]
