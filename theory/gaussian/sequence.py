"""Averages over a sequence of exchangeable tokens, factorised over the tokens.

What depends on the sequence through token sums becomes a sum of `Product`s: functions of single tokens, a factor that
every token carries (from exponentials of sums), and negative powers of sums, each of which is a Laplace integral

    (c + sum_l b_l)^-p = int_0^inf ds s^(p-1) / Gamma(p) exp(-s c) prod_l exp(-s b_l),

so that any number of tokens costs one-token averages only. Positive powers of sums are opened token by token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import sympy as sp

from replicode.theory.calculus.expansion import expanded
from replicode.theory.language.activation import Activation, TokenForm
from replicode.theory.language.functions import KINKED
from replicode.theory.language.nodes import L, X
from replicode.theory.language.task import Task
from replicode.theory.model import CHI_STAR

_MOST_TERMS = 60
_MOST_SUMS = 6


@dataclass(frozen=True)
class InversePower:
    """(offset + sum over the tokens of body)^-power."""

    offset: sp.Expr
    body: sp.Expr
    power: sp.Expr


@dataclass(frozen=True)
class Product:
    """coefficient prod_i functions[i](token i) prod_l every(token l) prod of inverse powers of sums.

    Functions sit on distinct tokens, the first of which is the one that the expression was taken at.
    """

    coefficient: sp.Expr
    functions: tuple[sp.Expr, ...]
    every: sp.Expr
    powers: tuple[InversePower, ...]


@dataclass(frozen=True)
class SignedFunction:
    """A function of one token's score as its sign and the logarithm of its size, and the scores where it has kinks."""

    sign: sp.Expr
    log: sp.Expr
    kinks: tuple[sp.Expr, ...]

    @staticmethod
    def of(expr: sp.Expr) -> SignedFunction:
        """Exponentials are turned into their exponents; kinks are those in something linear in the score."""
        sign, log = _sign_and_log(expr)
        nodes = sorted(expr.atoms(*KINKED), key=sp.default_sort_key)
        slopes = [(n.args[0], sp.diff(n.args[0], X)) for n in nodes]
        kinks = [(a.subs(X, 0) / -slope) for a, slope in slopes if slope != 0 and X not in slope.free_symbols]
        return SignedFunction(sign, log, tuple(kinks))


def _sign_and_log(expr: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    if expr.is_Mul:
        pairs = [_sign_and_log(a) for a in expr.args]
        return sp.Mul(*[s for s, _ in pairs]), sp.Add(*[l for _, l in pairs])
    if isinstance(expr, sp.exp):
        return sp.S.One, expr.args[0]
    if expr.is_Pow and expr.exp.is_Integer:
        sign, log = _sign_and_log(expr.base)
        return sign**expr.exp if expr.exp % 2 else sp.S.One, expr.exp * log
    if expr.is_positive:
        return sp.S.One, sp.log(expr)
    return sp.sign(expr), sp.log(sp.Abs(expr))


@dataclass(frozen=True)
class _Monomial:
    """own(x) prod of sums' bodies (one sum each) times what Product has; the sums are not yet opened."""

    coefficient: sp.Expr
    own: sp.Expr
    sums: tuple[sp.Expr, ...]
    every: sp.Expr
    powers: tuple[InversePower, ...]


def _monomials(form: TokenForm) -> tuple[_Monomial, ...] | None:
    """f as a sum of monomials in token sums; None when it is not of that shape."""
    symbols = {s for s, _ in form.sums}
    if any(body.free_symbols & symbols for _, body in form.sums):
        return None
    bodies = dict(form.sums)
    found: list[_Monomial] = []
    for term in _terms(form.f, symbols):
        whole = _monomial(term, bodies)
        parts = [whole] if whole is not None else [_monomial(t, bodies) for t in sp.Add.make_args(expanded(term))]
        if any(p is None for p in parts) or len(found) > _MOST_TERMS:
            return None
        found += [p for p in parts if p is not None]
    return tuple(found)


def _terms(expr: sp.Expr, symbols: set[sp.Symbol]) -> tuple[sp.Expr, ...]:
    """The terms of a sum, those without token sums kept together."""
    alone, coupled = sp.sift(sp.Add.make_args(expr), lambda t: not t.free_symbols & symbols, binary=True)
    return ((sp.Add(*alone),) if alone else ()) + tuple(coupled)


def _squared(monomials: tuple[_Monomial, ...]) -> tuple[_Monomial, ...]:
    """The monomials of the square."""
    pairs = [(a, b) for i, a in enumerate(monomials) for b in monomials[: i + 1]]
    return tuple(
        _Monomial(
            (1 if a is b else 2) * a.coefficient * b.coefficient,
            a.own * b.own,
            a.sums + b.sums,
            a.every * b.every,
            _merged(a.powers + b.powers),
        )
        for a, b in pairs
    )


def _monomial(term: sp.Expr, bodies: dict[sp.Symbol, sp.Expr]) -> _Monomial | None:
    made = _Monomial(sp.S.One, sp.S.One, (), sp.S.One, ())
    for factor in sp.Mul.make_args(term):
        taken = _taken(made, factor, bodies)
        if taken is None:
            return None
        made = taken
    return made if len(made.sums) <= _MOST_SUMS else None


def _taken(made: _Monomial, factor: sp.Expr, bodies: dict[sp.Symbol, sp.Expr]) -> _Monomial | None:
    """The monomial times one more factor."""
    if not factor.free_symbols & set(bodies):
        if X in factor.free_symbols:
            return replace(made, own=made.own * factor)
        return replace(made, coefficient=made.coefficient * factor)
    if factor in bodies:
        return replace(made, sums=(*made.sums, bodies[factor]))
    if isinstance(factor, sp.exp):
        linear = _linear_in_sums(factor.args[0], bodies)
        if linear is None:
            return None
        return replace(made, own=made.own * sp.exp(linear[0]), every=made.every * sp.exp(linear[1]))
    if not factor.is_Pow:
        return None
    base, exponent = factor.as_base_exp()
    linear = _linear_in_sums(base, bodies)
    if linear is None or not exponent.is_Number:
        return None
    offset, body = linear
    if exponent.is_Integer and exponent > 0 and offset == 0:
        return replace(made, sums=(*made.sums, *[body] * int(exponent)))
    if exponent.is_positive or X in offset.free_symbols or not (body.is_nonnegative and offset.is_nonnegative):
        return None
    if offset.is_positive and not body.is_positive:
        # A body that vanishes somewhere is divided by there: the offset is shared out among the tokens.
        offset, body = sp.S.Zero, body + offset / L
    return replace(made, powers=_merged((*made.powers, InversePower(offset, body, -exponent))))


def _merged(powers: Iterable[InversePower]) -> tuple[InversePower, ...]:
    total: dict[tuple[sp.Expr, sp.Expr], sp.Expr] = {}
    for p in powers:
        total[p.offset, p.body] = total.get((p.offset, p.body), sp.S.Zero) + p.power
    return tuple(InversePower(offset, body, power) for (offset, body), power in total.items())


def _linear_in_sums(expr: sp.Expr, bodies: dict[sp.Symbol, sp.Expr]) -> tuple[sp.Expr, sp.Expr] | None:
    """(offset, body) with expr = offset + sum over the tokens of body."""
    rest, body = expr, sp.S.Zero
    for symbol, term in bodies.items():
        slope = sp.diff(expr, symbol)
        if slope.free_symbols & ({X} | set(bodies)):
            return None
        rest, body = rest - slope * symbol, body + slope * term
    return expanded(rest), body


def _opened(monomial: _Monomial, functions: tuple[sp.Expr, ...], own: int) -> Iterator[Product]:
    """Open every sum: its token is one of those that carry a function already, or a further one."""
    start = list(functions)
    start[own] *= monomial.own

    def place(index: int, placed: list[sp.Expr], count: sp.Expr) -> Iterator[Product]:
        if index == len(monomial.sums):
            yield Product(monomial.coefficient * count, tuple(placed), monomial.every, monomial.powers)
            return
        body = monomial.sums[index]
        for i in range(len(placed)):
            yield from place(index + 1, [f * body if j == i else f for j, f in enumerate(placed)], count)
        yield from place(index + 1, [*placed, body], count * (L - len(placed)))

    yield from place(0, start, sp.S.One)


@dataclass(frozen=True)
class WeightedAverages:
    """A = E_w sigma_eps, B = E_w sum sigma^2 and E[weight], by which both are to be divided, as sums of products.

    Token functions are in x, the student's score, and chi_star, the teacher's; token 0 is the hidden one. Where the
    task leaves the scores Gaussian, `gaussian` is the (mean, variance) of chi_star at token 0 and no weight is left.
    """

    A: tuple[Product, ...]
    B: tuple[Product, ...]
    normalisation: tuple[Product, ...]
    gaussian: tuple[sp.Expr, sp.Expr] | None


_ONE = _Monomial(sp.S.One, sp.S.One, (), sp.S.One, ())


def weighted_averages(act: Activation, setting: Task) -> WeightedAverages | None:
    """The two averages of the population risk, None when they do not factorise over the tokens."""
    sigma = _monomials(act.token_form())
    gaussian = setting.hidden_score() if setting.gaussian else None
    weights = (_ONE,) if gaussian else _monomials(Activation("weight", setting.weight).token_form())
    if sigma is None or weights is None or any(w.sums for w in weights):
        return None
    square = _squared(sigma)
    if setting.scores_unweighted:
        b = [p for m in square for p in _scaled(_weighted(_ONE, m, 0), L)]
    else:
        hidden = [p for w in weights for m in square for p in _weighted(w, m, 0)]
        idle = [p for w in weights for m in square for p in _scaled(_weighted(w, m, 1), L - 1)]
        b = hidden + idle
    return WeightedAverages(
        A=tuple(p for w in weights for m in sigma for p in _weighted(w, m, 0)),
        B=tuple(b),
        normalisation=tuple(p for w in weights for p in _weighted(w, _ONE, 0)),
        gaussian=gaussian,
    )


def at_teacher(averages: WeightedAverages) -> WeightedAverages:
    """The same at k = k*, where the student's score is the teacher's and equal powers of sums merge."""

    def merged(product: Product) -> Product:
        same = {CHI_STAR: X}
        powers = _merged(replace(p, body=p.body.xreplace(same)) for p in product.powers)
        functions = tuple(f.xreplace(same) for f in product.functions)
        return Product(product.coefficient, functions, product.every.xreplace(same), powers)

    a, b, total = (tuple(map(merged, p)) for p in (averages.A, averages.B, averages.normalisation))
    return WeightedAverages(a, b, total, averages.gaussian)


def _weighted(weight: _Monomial, monomial: _Monomial, own: int) -> Iterator[Product]:
    """The products of weight(token 0) monomial(token `own`)."""
    teacher = {X: CHI_STAR}
    functions = (weight.own.xreplace(teacher), *[sp.S.One] * own)
    for p in _opened(monomial, functions, own):
        yield Product(
            p.coefficient * weight.coefficient,
            p.functions,
            p.every * weight.every.xreplace(teacher),
            (*p.powers, *[replace(w, body=w.body.xreplace(teacher)) for w in weight.powers]),
        )


def _scaled(products: Iterable[Product], factor: sp.Expr) -> Iterator[Product]:
    return (replace(p, coefficient=p.coefficient * factor) for p in products)
