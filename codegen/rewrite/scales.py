"""Log scales: every product is a bounded mantissa times one exponential.

A positive function with exponential or Gaussian tails is exp(e(u)) r(u), e its log scale and r its mantissa, in its
record. `scaled` finds an expression's log scale and takes sums in denominators, powers and logarithms relative to
their largest term; `settled`, after differentiation, merges the scales of each product, so that what overflows meets
what underflows in an exponent. Scales are `held`: the whole does not depend on them, hence no derivative sees them.
"""

from __future__ import annotations

import sympy as sp

from replicode.theory.language.functions import BY_NODE, Pair, each
from replicode.theory.language.nodes import X, held, ierfcx

_CARRIERS = each("log_scale")
_GROWING = tuple(node for node in _CARRIERS if BY_NODE[node].explosive)
_SATURATED = each("saturation")


def has_carriers(expr: sp.Expr) -> bool:
    """Whether functions of x other than exp have a log scale here."""
    return any(X in e.free_symbols for e in expr.atoms(*_CARRIERS))


def hold(scale: sp.Expr) -> sp.Expr:
    """The scale as a constant to derivatives."""
    bare = released(scale)
    return bare if bare.is_number else held(bare)


def released(expr: sp.Expr) -> sp.Expr:
    """Held values in the open again, once derivatives are taken."""
    return expr.replace(held, lambda u: u)


def product(*factors: sp.Expr) -> sp.Expr:
    """The product with its exponentials as one, which SymPy keeps apart."""
    parts = [_split(f) for f in factors]
    return sp.exp(sp.Add(*[u for u, _ in parts])) * sp.Mul(*[rest for _, rest in parts])


def _split(expr: sp.Expr) -> Pair:
    """(u, rest) of exp(u) rest."""
    exponentials, rest = sp.sift(sp.Mul.make_args(expr), lambda f: isinstance(f, sp.exp), binary=True)
    return sp.Add(*[e.args[0] for e in exponentials]), sp.Mul(*rest)


def scaled(expr: sp.Expr) -> Pair:
    """(an equal expression, its log scale); sums are relative to their largest term."""
    if isinstance(expr, sp.exp):
        inner = linear(expr.args[0])
        return sp.exp(inner), inner
    if expr.is_Mul:
        parts = [scaled(f) for f in expr.args]
        return product(*[e for e, _ in parts]), sp.Add(*[s for _, s in parts])
    if expr.is_Add:
        return _scaled_sum(expr)
    if expr.is_Pow:
        base, scale = scaled(expr.base)
        power = linear(expr.exp)
        exponent, rest = _split(base)
        return sp.exp(power * exponent) * rest**power, power * scale
    if not expr.args or isinstance(expr, held):
        return expr, sp.S.Zero
    if isinstance(expr, sp.log):
        exponent, rest = _split(scaled(expr.args[0])[0])
        return exponent + sp.log(rest), sp.S.Zero
    arguments = [linear(a) for a in expr.args]
    scale = _CARRIERS[expr.func](*arguments)[0] if expr.func in _CARRIERS else sp.S.Zero
    return expr.func(*arguments), scale


def linear(expr: sp.Expr) -> sp.Expr:
    """An equal expression whose terms are scaled one by one."""
    return sp.Add(*[scaled(t)[0] for t in sp.Add.make_args(expr)])


def _scaled_sum(expr: sp.Expr) -> Pair:
    parts = [scaled(t) for t in expr.args]
    largest = hold(sp.Max(*[s for _, s in parts]))
    if largest == 0:
        return sp.Add(*[e for e, _ in parts]), sp.S.Zero
    return sp.exp(largest) * sp.Add(*[product(e, sp.exp(-largest)) for e, _ in parts]), largest


def settled(expr: sp.Expr) -> sp.Expr:
    """The expression to evaluate: scales released, and merged in every product that could overflow."""
    return _clipped(_merged(released(expr), {})) if expr.has(sp.exp, *_CARRIERS) else expr


def _clipped(expr: sp.Expr) -> sp.Expr:
    """Exponentials inside functions that no longer see how large they are, short of overflow."""
    if not expr.args or not expr.has(sp.exp):
        return expr
    found = expr.func(*[_clipped(a) for a in expr.args])
    bound = _SATURATED.get(expr.func)
    inside = found.args[0].atoms(sp.exp) if bound is not None else set()
    return found.xreplace({e: sp.exp(sp.Min(e.args[0], bound)) for e in inside if not e.args[0].has(sp.Min)})


def _merged(expr: sp.Expr, known: dict[sp.Expr, sp.Expr]) -> sp.Expr:
    if not expr.args or not expr.has(sp.exp, *_CARRIERS):
        return expr
    if expr not in known:
        known[expr] = _merged_node(expr, known)
    return known[expr]


def _merged_node(expr: sp.Expr, known: dict[sp.Expr, sp.Expr]) -> sp.Expr:
    if expr.is_Mul and (spread := _distributed(expr)) is not None:
        return _merged(spread, known)
    if expr.is_Mul or expr.func in _CARRIERS or (expr.is_Pow and expr.base.func in _CARRIERS):
        return _merged_product([(_inner(b, known), p) for b, p in _factors(expr)])
    if isinstance(expr, sp.log):
        return _merged_logarithm([(_inner(b, known), p) for b, p in _factors(expr.args[0])])
    return expr.func(*[_merged(a, known) for a in expr.args])


def _inner(expr: sp.Expr, known: dict[sp.Expr, sp.Expr]) -> sp.Expr:
    """Merged inside its arguments only; -(c + x), as differentiation leaves it, becomes -c - x as elsewhere."""
    if expr.func not in _CARRIERS and not isinstance(expr, sp.exp):
        return _merged(expr, known)
    merged = [_merged(a, known) for a in expr.args]
    return expr.func(*[a.func(*a.args) if a.is_Mul else a for a in merged])


def _factors(expr: sp.Expr) -> list[Pair]:
    """(base, power) of the factors, an exponential being its own base."""
    return [(f, sp.S.One) if isinstance(f, sp.exp) else f.as_base_exp() for f in sp.Mul.make_args(expr)]


def _distributed(expr: sp.Expr) -> sp.Expr | None:
    """A product that could overflow, with a sum of carriers multiplied out so that each term meets the rest."""
    for factor in expr.args:
        rest = expr / factor
        if factor.is_Add and factor.has(sp.exp, *_CARRIERS) and _could_grow(_factors(rest)):
            return sp.Add(*[t * rest for t in factor.args])
    return None


def _could_grow(factors: list[Pair]) -> bool:
    return any(
        (isinstance(b, sp.exp) and not b.args[0].is_nonpositive)
        or b.func in _GROWING
        or (b.func in _CARRIERS and not (p.is_Integer and p > 0))
        for b, p in factors
    )


def _merged_product(factors: list[Pair]) -> sp.Expr:
    (first, power), *others = factors
    split = _could_grow(factors) and (bool(others) or power != 1 or isinstance(first, ierfcx))
    scale, mantissa = sp.S.Zero, sp.S.One
    for base, power in factors:
        if isinstance(base, sp.exp):
            scale += base.args[0]
        elif split and base.func in _CARRIERS:
            e, r = _CARRIERS[base.func](*base.args)
            scale += power * e
            mantissa *= r**power
        else:
            mantissa *= base**power
    return sp.exp(factored(scale)) * mantissa


def factored(exponent: sp.Expr) -> sp.Expr:
    """k r^2 - k q^2, r a symbol, as k (r - q) (r + q), which does not cancel."""
    terms = list(sp.Add.make_args(exponent))
    for above in terms:
        r, room = square(above)
        if r is None or not r.is_Symbol or not room.is_positive:
            continue
        for below in terms:
            q, k = square(below)
            if q is not None and k.is_negative and (room + k).is_nonnegative:
                rest = exponent - below + k * r**2
                return factored(rest) - k * (r - q) * (r + q)
    return exponent


def square(term: sp.Expr) -> tuple[sp.Expr | None, sp.Expr]:
    """(q, k) of a term k q^2 with a number k."""
    k, rest = term.as_coeff_Mul()
    return (rest.base, k) if rest.is_Pow and rest.exp == 2 else (None, k)


def _merged_logarithm(factors: list[Pair]) -> sp.Expr:
    scale, inside = sp.S.Zero, sp.S.One
    for base, power in factors:
        e, r = _CARRIERS[base.func](*base.args) if base.func in _CARRIERS else (sp.S.Zero, base)
        scale += power * e
        inside *= r**power
    return scale + sp.log(inside)
