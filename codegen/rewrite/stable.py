"""Stable forms: sums over tokens are taken relative to their largest term.

With P = exp(shift), S = P S' and exp(u) = P exp(u - shift), sigma does not depend on the shift, so it is a constant to
every derivative; what overflows at scores of 800 is gone when P cancels, and enters as 1/P <= 1 when it does not.
Sums of pure powers of one exponential share one shift; otherwise each log scale (codegen.scales) has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from replicode.codegen.rewrite.recognise import recognised
from replicode.codegen.rewrite.scales import factored, has_carriers, linear, product, released, scaled, settled, square
from replicode.theory.calculus.tokens import Definition
from replicode.theory.language.activation import TokenForm
from replicode.theory.language.nodes import L, X

_INVERSE = sp.Symbol("inverse_scale", positive=True)
_TERM = sp.Symbol("term", positive=True)


@dataclass(frozen=True)
class StableForm:
    """A token form relative to shifts; each is defined just before the sum that it comes with."""

    form: TokenForm
    shifts: tuple[tuple[sp.Symbol, Definition], ...] = ()
    several_scales: bool = False

    def multiplied(self, radius: sp.Expr) -> StableForm:
        """The same of scores that are `radius` times x."""
        scores = {X: radius * X}
        shifts = tuple((s, replace(d, expr=d.expr.xreplace(scores))) for s, d in self.shifts)
        return replace(self, form=self.form.multiplied(radius), shifts=shifts)

    def with_shifts(self, definitions: tuple[Definition, ...]) -> tuple[Definition, ...]:
        """The definitions of the sums with those of the shifts before them."""
        before = [(tuple(s for symbol, s in self.shifts if symbol == d.symbol), d) for d in definitions]
        return tuple(d for shifts, definition in before for d in (*shifts, definition))

    def evaluated(self, expr: sp.Expr) -> sp.Expr:
        """A derivative of the form as it is to be evaluated."""
        return settled(expr) if self.several_scales else expr


def stabilised(form: TokenForm) -> StableForm:
    """The form in stable nodes, its sums relative to their largest terms."""
    nodes = TokenForm(recognised(form.f), tuple((s, recognised(b)) for s, b in form.sums))
    return _with_one_shift(nodes) or _with_own_shifts(nodes)


def fused(form: TokenForm) -> TokenForm:
    """Sums that were split over their terms, where together they are one stable node: L + sum(erf) = sum(erfc)."""
    bodies: dict[sp.Symbol, sp.Expr] = {}

    def whole(*terms: sp.Expr) -> sp.Expr:
        inside = [t for t in terms if t.free_symbols & (set(bodies) | {L})]
        for group in (inside, terms):
            body = _joint_body(group, bodies)
            if body is not None and not (node := recognised(body)).is_Add:
                symbol = sp.Symbol(f"S_{len(bodies) + 1}", real=True, positive=node.is_positive)
                bodies[symbol] = node
                return sp.Add(symbol, *[t for t in terms if t not in group])
        return sp.Add(*terms)

    for symbol, body in form.sums:
        bodies[symbol] = body.replace(sp.Add, whole)
    f = form.f.replace(sp.Add, whole)
    used, kept = f.free_symbols, []
    for symbol, body in reversed(bodies.items()):
        if symbol in used:
            kept.append((symbol, body))
            used |= body.free_symbols
    return TokenForm(f, tuple(kept[::-1]))


def _joint_body(terms: Sequence[sp.Expr], bodies: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr | None:
    """The body whose sum is the sum of the terms, each a multiple of a sum or a constant."""
    found, sums = [], 0
    for term in terms:
        symbols = term.free_symbols & set(bodies)
        if X in term.free_symbols or len(symbols) > 1:
            return None
        symbol = symbols.pop() if symbols else L
        factor = sp.cancel(term / symbol)
        if factor.free_symbols & set(bodies):
            return None
        sums += symbol != L
        found.append(factor * bodies.get(symbol, sp.S.One))
    return sp.expand_mul(sp.Add(*found)) if sums and len(found) > 1 else None


def _largest(scale: sp.Expr, number: int) -> tuple[list[Definition], sp.Expr]:
    """What defines the shift of a log scale, and the shift.

    For -k q^2 + u it is -k r^2 + s with r = max -|q| and s = max(u + k (r - q)(r + q)): no large squares cancel.
    """
    name = "shift" if number == 0 else f"shift_{number + 1}"
    squares = [(q, k) for q, k in map(square, sp.Add.make_args(scale)) if q is not None and k.is_negative]
    rest = sp.Symbol(f"{name}_rest" if squares else name, real=True)
    roots = [sp.Symbol(f"{name}_{i}" if i else name, real=True) for i in range(len(squares))]
    found = [Definition(r, "max", -sp.Abs(q)) for r, (q, _) in zip(roots, squares, strict=True)]
    shift = sp.Add(*[k * r**2 for r, (_, k) in zip(roots, squares, strict=True)])
    if len(squares) == 1 and scale == squares[0][1] * squares[0][0] ** 2:
        return found, shift
    return [*found, Definition(rest, "max", factored(scale - shift))], shift + rest


def _with_own_shifts(form: TokenForm) -> StableForm:
    """Each sum relative to the largest log scale of its terms; equal log scales share a shift."""
    shifts: list[tuple[sp.Symbol, Definition]] = []
    known: dict[sp.Expr, sp.Expr] = {}
    sums: list[tuple[sp.Symbol, sp.Expr]] = []
    restored: dict[sp.Expr, sp.Expr] = {}
    for symbol, body in form.sums:
        term, scale = scaled(body.xreplace(restored))
        scale = released(scale)
        if X in scale.free_symbols:
            if scale not in known:
                found, known[scale] = _largest(scale, len(known))
                shifts += [(symbol, definition) for definition in found]
            term = product(term, sp.exp(-known[scale]))
            restored[symbol] = sp.exp(known[scale]) * symbol
        sums.append((symbol, term))
    return StableForm(TokenForm(linear(form.f.xreplace(restored)), tuple(sums)), tuple(shifts), True)


def _with_one_shift(form: TokenForm) -> StableForm | None:
    """Shift the exponent shared by the sums, when sigma is a rational function of the exponential and the sums."""
    exponent = _shared_exponent(form)
    if exponent is None:
        return None
    bodies = {s: _in_powers(b, exponent) for s, b in form.sums}
    degrees = {s: d for s, b in bodies.items() if (d := _degree(b)) is not None}
    f = _in_powers(form.f, exponent)
    if len(degrees) < len(bodies) or any(e.has(sp.exp(exponent)) for e in (f, *bodies.values())):
        return None
    scales = {s: s * _INVERSE ** -degrees[s] for s in degrees}
    f = sp.cancel(sp.together(f.xreplace({**scales, _TERM: _TERM / _INVERSE})))
    if not f.is_rational_function(_INVERSE):
        return None
    found, shift = _largest(exponent, 0)
    if _INVERSE in f.free_symbols:
        if sp.fraction(f)[1].xreplace({_TERM: sp.S.Zero, _INVERSE: sp.S.One, **dict.fromkeys(bodies, sp.S.Zero)}) == 0:
            return None
        found.append(Definition(found[-1].symbol, "scalar", sp.Max(found[-1].symbol, 0)))
    back = {_TERM: sp.exp(factored(exponent - shift)), _INVERSE: sp.exp(-shift)}
    sums = tuple((s, b.xreplace(back)) for s, b in bodies.items())
    first = form.sums[0][0]
    return StableForm(TokenForm(f.xreplace(back), sums), tuple((first, d) for d in found))


def _shared_exponent(form: TokenForm) -> sp.Expr | None:
    """The one u for which every exponential of the form is exp(k u + constant), k a positive integer."""
    if not form.sums or any(set(b.free_symbols) & {s for s, _ in form.sums} for _, b in form.sums):
        return None
    expressions = (form.f, *(b for _, b in form.sums))
    if any(has_carriers(e) for e in expressions):
        return None
    arguments = {e.args[0] for expr in expressions for e in expr.atoms(sp.exp) if X in e.free_symbols}
    candidates = sorted({a.as_independent(X, as_Add=True)[1] for a in arguments}, key=sp.default_sort_key)
    for candidate in candidates:
        if all(_multiple(a, candidate) is not None for a in arguments):
            return candidate
    return None


def _multiple(argument: sp.Expr, exponent: sp.Expr) -> tuple[int, sp.Expr] | None:
    """(k, constant) with argument = k exponent + constant, k a positive integer."""
    ratio = sp.simplify(sp.diff(argument, X) / sp.diff(exponent, X))
    if not (ratio.is_Integer and ratio > 0):
        return None
    constant = sp.simplify(argument - ratio * exponent)
    return None if X in constant.free_symbols else (int(ratio), constant)


def _in_powers(expr: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """exp(k u + constant) -> exp(constant) term^k."""

    def powers(argument: sp.Expr) -> sp.Expr:
        found = _multiple(argument, exponent) if X in argument.free_symbols else None
        return sp.exp(argument) if found is None else sp.exp(found[1]) * _TERM ** found[0]

    return expr.replace(sp.exp, powers)


def _degree(body: sp.Expr) -> int | None:
    """k when the body is proportional to term^k."""
    degree = sp.simplify(_TERM * sp.diff(body, _TERM) / body)
    return int(degree) if degree.is_Integer else None
