"""What `check` reports of an activation beyond the properties that reductions need: growth, parity, kinks, scaling.

Statements of algebra are `Claim`s (proved, refuted by a witness, undecided). Growth is read off values at scores up to
1e8 in 100 digits, fitted by x^p log(x)^s exp(r x^b) and kept only where the next scores confirm the fit.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import sympy as sp
from mpmath import mpf

from replicode.theory.budget import budget
from replicode.theory.calculus.expansion import expanded
from replicode.theory.calculus.numeric import Program, Undefined, exchanged, random_scores, shown
from replicode.theory.language import unparse
from replicode.theory.language.activation import Activation
from replicode.theory.language.functions import each
from replicode.theory.language.nodes import TokenSum, X
from replicode.theory.properties.symbolic import (
    DIGITS,
    ZERO,
    Claim,
    Properties,
    kinked_arguments,
    properties,
    sample_points,
    shift_claim,
    zero_claim,
)

_PLAUSIBLE = (0.7, 1.3, 0.4, 2.1)
_LADDER = (5, 10, 20, 40, 60, 100, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8)
_WAVES = tuple(mpf(41 * i) / 100 for i in range(16))
_GROWTH_DIGITS = 100


@dataclass(frozen=True)
class Growth:
    """Growth of sigma_l in its own score, the others fixed, towards +infinity and -infinity; None if undecided.

    Parameters without a value are taken to be positive, and named.
    """

    up: str | None
    down: str | None
    positive: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """Everything found of one activation; claims carry their witnesses."""

    properties: Properties
    equivariant: Claim
    normalised: Claim
    shift_invariant: Claim
    smooth: bool
    kinks: tuple[str, ...]
    growth: Growth
    parity: str | None
    homogeneous: sp.Expr | None


@budget("analysing the activation")
def analysis(act: Activation) -> Analysis:
    """The symbolic analysis, each statement confirmed by numbers."""
    found = properties(act)
    kinks = kink_conditions(act)
    return Analysis(
        properties=found,
        equivariant=equivariance(act),
        normalised=normalisation(act, found),
        shift_invariant=shift_claim(act),
        smooth=not kinks,
        kinks=kinks,
        growth=growth(act),
        parity=parity(act),
        homogeneous=homogeneity(act),
    )


def equivariance(act: Activation) -> Claim:
    """sigma(P chi) = P sigma(chi): a token form has it by construction; every exchange of two tokens confirms it."""
    with mpmath.workdps(DIGITS):
        for program, scores, _ in sample_points(act.expr):
            for i, j in itertools.combinations(range(len(scores)), 2):
                try:
                    plain, moved = program(scores), program(exchanged(scores, i, j))
                except Undefined:
                    continue
                if any(abs(a - b) > ZERO for a, b in zip(exchanged(plain, i, j), moved)):
                    return Claim(False, f"scores {shown(scores)} with tokens {i + 1} and {j + 1} exchanged")
    return Claim(True)


def normalisation(act: Activation, found: Properties) -> Claim:
    """Whether sum_l sigma_l = 1; without a proved row sum it is undecided unless a sum other than 1 is seen."""
    if found.row_sum is not None:
        return zero_claim(found.row_sum - 1)
    with mpmath.workdps(DIGITS):
        for program, scores, _ in sample_points(act.expr):
            try:
                total = mpmath.fsum(program(scores))
            except Undefined:
                continue
            if abs(total - 1) > ZERO:
                return Claim(False, f"scores {shown(scores)}: the sum is {mpmath.nstr(total, 6)}")
    return Claim(None)


def kink_conditions(act: Activation) -> tuple[str, ...]:
    """Where sigma is not smooth, as conditions: solved for x where the argument is linear in it."""
    return tuple(dict.fromkeys(_condition(a) for a in kinked_arguments(act.expr)))


def _condition(argument: sp.Expr) -> str:
    slope = sp.diff(argument, X)
    if not argument.has(TokenSum) and slope != 0 and X not in slope.free_symbols:
        return f"x = {unparse(sp.expand(-(argument - slope * X) / slope))}"
    return f"{unparse(argument)} = 0"


def parity(act: Activation) -> str | None:
    """Behaviour under chi -> -chi of all scores: even, odd or none; None when it is undecided."""
    reflected = act.expr.xreplace({X: -X})
    claims = {"even": zero_claim(reflected - act.expr), "odd": zero_claim(reflected + act.expr)}
    for name, claim in claims.items():
        if claim.holds:
            return name
    return "none" if all(c.holds is False for c in claims.values()) else None


def homogeneity(act: Activation) -> sp.Expr | None:
    """The degree d with sigma(t chi) = t^d sigma(chi) for t > 0, when there is one and the algebra proves it."""
    degree = _apparent_degree(act.expr)
    if degree is None:
        return None
    t = sp.Symbol("t", positive=True)
    scaled = _scale_pulled_out(act.expr.xreplace({X: t * X}), t)
    difference = scaled - t**degree * act.expr
    return degree if zero_claim(difference).holds else None


def _scale_pulled_out(expr: sp.Expr, t: sp.Symbol) -> sp.Expr:
    """f(t u) = t^d f(u) for positive t, as the records have it of relu, abs and step."""

    def pulled(arg: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        factored = sp.factor_terms(expanded(arg))
        outside, inside = factored.as_independent(*(arg.free_symbols - {t}), TokenSum, as_Add=False)
        return (outside, inside) if outside.is_positive else (sp.S.One, arg)

    for node, degree in each("degree").items():
        expr = expr.replace(node, lambda u, f=node, d=degree: pulled(u)[0] ** d * f(pulled(u)[1]))
    return expr


def _apparent_degree(expr: sp.Expr) -> sp.Expr | None:
    """The common value of log(sigma(t chi)/sigma(chi))/log t at random points, a simple fraction."""
    degrees: list[mpf] = []
    with mpmath.workdps(DIGITS):
        for program, scores, _ in sample_points(expr):
            for t in (2, mpf("0.3")):
                try:
                    pairs = zip(program([t * s for s in scores]), program(scores))
                    degrees += [mpmath.log(a / b) / mpmath.log(t) for a, b in pairs if b and a / b > 0]
                except (Undefined, ZeroDivisionError):
                    continue
        if not degrees or max(degrees) - min(degrees) > ZERO:
            return None
        simple = Fraction(float(degrees[0])).limit_denominator(12)
        return sp.Rational(simple.numerator, simple.denominator) if abs(_real(simple) - degrees[0]) < ZERO else None


def known_values(act: Activation, draw: int = 0) -> dict[sp.Symbol, float]:
    """A value for every parameter: given, registered, or else a plausible one."""
    known = {**act.defaults, **act.values}
    return {
        sp.Symbol(p, real=True): known.get(p, _PLAUSIBLE[(draw + i) % len(_PLAUSIBLE)])
        for i, p in enumerate(act.parameters)
    }


def growth(act: Activation) -> Growth:
    """In both directions; the rate of a free parameter is named after it where two of its values agree on that."""
    free = [p for p in act.parameters if p not in {**act.defaults, **act.values}]
    up, down = (_growth_along(act, sign, free) for sign in (1, -1))
    return Growth(up, down, tuple(free))


def _growth_along(act: Activation, sign: int, free: Sequence[str]) -> str | None:
    draws = [known_values(act, draw) for draw in (range(3) if free else range(1))]
    fits = [fit for values in draws if (fit := _fit(act, sign, values)) is not None]
    if len(fits) < len(draws):
        return None
    for name in ("", *free):
        scales = [float(values[sp.Symbol(name, real=True)]) if name else 1.0 for values in draws]
        texts = {fit.text(sign, name, scale) for fit, scale in zip(fits, scales)}
        if len(texts) == 1:
            return texts.pop()
    return None


@dataclass(frozen=True)
class _Fit:
    """|sigma| ~ x^power log(x)^logs exp(rate x^stretch) in x = |own score|."""

    power: Fraction
    logs: int
    rate: mpf
    stretch: Fraction

    def text(self, sign: int, name: str = "", value: float = 1.0) -> str:
        """As a product of powers of x, log and exp, the rate as a multiple of a named parameter."""
        factors = [_raised(self.power)] if self.power else []
        factors += [f"log(abs(x))^{self.logs}".removesuffix("^1")] if self.logs else []
        if self.rate:
            mirrored = sign < 0 and self.stretch.denominator == 1 and self.stretch % 2 == 1
            multiple = _simple((-1 if mirrored else 1) * self.rate / mpf(value))
            parts = [p for p in (multiple.lstrip("-"), name, _raised(self.stretch)) if p not in ("", "1")]
            factors.append(f"exp({'-' if multiple.startswith('-') else ''}{'*'.join(parts)})")
        return "*".join(factors) or "bounded"


def _raised(power: Fraction) -> str:
    base = "x" if power.denominator == 1 else "abs(x)"
    if power == 1:
        return base
    return f"{base}^{power}" if power.denominator == 1 and power > 0 else f"{base}^({power})"


def _simple(number: mpf) -> str:
    near = Fraction(float(number)).limit_denominator(1000)
    return str(near) if abs(_real(near) - number) < mpf(10) ** -9 * abs(number) else mpmath.nstr(number, 6)


def _real(fraction: Fraction) -> mpf:
    return mpf(fraction.numerator) / fraction.denominator


def _fit(act: Activation, sign: int, values: Mapping[sp.Symbol, float]) -> _Fit | None:
    sizes = _sizes(act, sign, values)
    if len(sizes) < 4:
        return None
    with mpmath.workdps(_GROWTH_DIGITS):
        for fit in (_bounded_fit, _power_fit, _exponential_fit):
            found = fit(sizes)
            if found is not None:
                return found
    return None


def _sizes(act: Activation, sign: int, values: Mapping[sp.Symbol, float]) -> list[tuple[mpf, mpf]]:
    """(R, largest |sigma| near R), where two precisions agree on it; the other scores stay put."""
    others = random_scores(random.Random(7), 2, 1.0)
    program = Program(act.expr, values)

    def size(radius: mpf, digits: int) -> mpf:
        with mpmath.workdps(digits):
            return abs(program.first([sign * radius, *others]))

    found: list[tuple[mpf, mpf]] = []
    for start in _LADDER:
        try:
            coarse, radius = max((size(start + wave, _GROWTH_DIGITS), start + wave) for wave in _WAVES)
            fine = size(radius, 2 * _GROWTH_DIGITS)
        except (Undefined, ValueError, OverflowError):
            break
        if abs(fine - coarse) > mpf(10) ** -6 * fine and fine > mpf(10) ** -40:
            break
        found.append((radius, fine))
    return found


def _bounded_fit(sizes: Sequence[tuple[mpf, mpf]]) -> _Fit | None:
    values = [v for _, v in sizes]
    top = max(values[:-2])
    if max(values[-2:]) <= top * (1 + mpf(10) ** -2) or values[-1] <= values[-2] * (1 + mpf(10) ** -6):
        return _Fit(Fraction(0), 0, mpf(0), Fraction(1))
    return None


def _power_fit(sizes: Sequence[tuple[mpf, mpf]]) -> _Fit | None:
    """x^p or x^p log x: the ratio to the candidate is the same at the last three scores."""
    (r0, v0), (r1, v1), (r2, v2) = sizes[-3:]
    slope = mpmath.log(v2 / v1) / mpmath.log(r2 / r1)
    if slope > 100:
        return None
    for power in (Fraction(float(slope)).limit_denominator(n) for n in (1, 2, 3, 4, 12)):
        for logs in (0, 1, 2):
            ratios = [v / (r ** _real(power) * mpmath.log(r) ** logs) for r, v in ((r0, v0), (r1, v1), (r2, v2))]
            drift = max(ratios[1:]) / min(ratios[1:]) - 1
            tolerance = mpf("0.1") if logs else mpf("0.02")
            if drift < tolerance and drift <= abs(ratios[1] / ratios[0] - 1) + mpf(10) ** -3:
                return _Fit(power, logs, mpf(0), Fraction(1))
    return None


def _exponential_fit(sizes: Sequence[tuple[mpf, mpf]]) -> _Fit | None:
    """log|sigma| = r R^b + p log R + c on three scores, confirmed on a fourth."""
    last = [(r, mpmath.log(v)) for r, v in sizes[-4:] if v > 0]
    if len(last) < 4 or last[-1][1] <= 0 or last[-2][1] <= 0:
        return None
    stretch = mpmath.log(last[-1][1] / last[-2][1]) / mpmath.log(last[-1][0] / last[-2][0])
    for b in (Fraction(float(stretch)).limit_denominator(n) for n in (1, 2, 3, 4)):
        if b <= 0:
            continue
        exponent = _real(b)
        rows = [[r**exponent, mpmath.log(r), mpf(1)] for r, _ in last]
        found = mpmath.lu_solve(mpmath.matrix(rows[1:]), mpmath.matrix([a for _, a in last[1:]]))
        expected = mpmath.fdot(rows[0], list(found))
        power = Fraction(float(found[1])).limit_denominator(4)
        if abs(expected - last[0][1]) < mpf("0.1") and abs(_real(power) - found[1]) < mpf("0.05"):
            return _Fit(power, 0, found[0], b)
    return None
