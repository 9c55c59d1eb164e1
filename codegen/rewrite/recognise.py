"""Recognition of stable nodes in what is typed as exp, log, erf or tanh.

`recognised` turns 1/(1 + exp(-x)) into sigmoid(x), log(1 + exp(x)) into softplus(x), 1 + erf(x) into erfc(-x),
log(erfc(x)) into log_ndtr and exp(x^2) erfc(x) into erfcx(x), so that neither values nor derivatives cancel.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from replicode.theory.language.functions import each
from replicode.theory.language.nodes import X, erfc, erfcx, log_ndtr, sigmoid, softplus

Rule = Callable[[sp.Expr], sp.Expr | None]

_STABLE, _COMPLEMENTS = each("stable"), each("complements")


def recognised(expr: sp.Expr) -> sp.Expr:
    """The same value in stable nodes, innermost parts first, until no rule applies."""
    if X not in expr.free_symbols or not expr.args:
        return expr
    arguments = [recognised(a) for a in expr.args]
    found = _STABLE.get(expr.func, expr.func)(*arguments)
    for rule in _RULES:
        better = rule(found)
        if better is not None:
            return recognised(better)
    return found


def _free(expr: sp.Expr) -> bool:
    return X not in expr.free_symbols


def _powers(expr: sp.Expr, kind: type[sp.Expr]) -> list[tuple[sp.Expr, sp.Expr]]:
    """(argument, power) of the factors kind(argument)**power with x in them."""
    pairs = [(f, sp.S.One) if isinstance(f, kind) else f.as_base_exp() for f in sp.Mul.make_args(expr)]
    return [(base.args[0], power) for base, power in pairs if isinstance(base, kind) and not _free(base)]


def _log_term(term: sp.Expr) -> sp.Expr | None:
    """u of a term exp(u), when it is one: an exponential with a positive factor."""
    factor, rest = term.as_independent(X, as_Add=False)
    if not factor.is_positive or not (rest == 1 or isinstance(rest, sp.exp)):
        return None
    return sp.log(factor) + (rest.args[0] if isinstance(rest, sp.exp) else 0)


def _exponents(expr: sp.Expr) -> list[sp.Expr]:
    """a, b, ... of exp(a) + exp(b) + ..., those without x first; none where it is no such sum."""
    if not expr.is_Add:
        return []
    logs = [_log_term(t) for t in sorted(expr.args, key=sp.default_sort_key)]
    found = [u for u in logs if u is not None]
    if len(found) < len(logs) or all(_free(u) for u in found):
        return []
    return sorted(found, key=lambda u: not _free(u))


def _log_sum_exp(exponents: list[sp.Expr]) -> sp.Expr:
    """log(exp(a) + exp(b) + ...), accurate also where it is close to a."""
    a, *others = exponents
    return a + softplus(_log_sum_exp(others) - a) if others else a


def _power_of_exponentials(expr: sp.Expr) -> sp.Expr | None:
    """(exp(a) + exp(b))^p, p other than 1, 2, 3, ..."""
    if not expr.is_Pow or isinstance(expr, sp.exp) or len(found := _exponents(expr.base)) != 2:
        return None
    (a, b), p = found, expr.exp
    if p.is_Integer:
        return None if p > 0 else sp.exp(p * a) * sigmoid(a - b) ** -p
    return sp.exp(p * (a + softplus(b - a)))


def _logarithm(expr: sp.Expr) -> sp.Expr | None:
    """The logarithm of a product with exponential factors, or of a sum of exponentials."""
    if not isinstance(expr, sp.log):
        return None
    if found := _exponents(expr.args[0]):
        return _log_sum_exp(found)
    outside, inside = sp.S.Zero, []
    for factor in sp.Mul.make_args(expr.args[0]):
        base, p = (factor, sp.S.One) if isinstance(factor, sp.exp) else factor.as_base_exp()
        if isinstance(base, sp.exp):
            outside += p * base.args[0]
        elif isinstance(base, sigmoid):
            outside -= p * softplus(-base.args[0])
        elif isinstance(base, erfc):
            outside += p * log_ndtr(-sp.sqrt(2) * base.args[0])
            inside.append(2**p)
        else:
            inside.append(factor)
    return None if outside == 0 else outside + sp.log(sp.Mul(*inside))


def _exponential(expr: sp.Expr) -> sp.Expr | None:
    """exp(-n softplus(u)) = sigmoid(-u)^n, and a^u = exp(u log(a))."""
    if expr.is_Pow and not isinstance(expr, sp.exp) and _free(expr.base) and expr.base.is_positive:
        return sp.exp(expr.exp * sp.log(expr.base))
    if not isinstance(expr, sp.exp):
        return None
    for term in sp.Add.make_args(expr.args[0]):
        number, rest = term.as_coeff_Mul()
        if isinstance(rest, softplus) and number.is_Integer and number < 0:
            return sigmoid(-rest.args[0]) ** -number * sp.exp(expr.args[0] - term)
    return None


def _product(expr: sp.Expr) -> sp.Expr | None:
    """exp(v) sigmoid(-v) = sigmoid(v), exp(u^2) erfc(u) = erfcx(u), and what brings them about."""
    exponents = [f.args[0] for f in sp.Mul.make_args(expr) if isinstance(f, sp.exp) and not _free(f)]
    sigmoids = _powers(expr, sigmoid)
    if not expr.is_Mul or not (exponents or sigmoids):
        return None
    for w in exponents:
        for v, n in sigmoids:
            k = _multiple(w, -v)
            if k is not None and n.is_Integer and n > 0:
                j = min(k, n)
                return expr / sp.exp(w) / sigmoid(v) ** j * sigmoid(-v) ** j * sp.exp(sp.expand(w + j * v))
        for u, n in _powers(expr, erfc):
            if n == 1 and _free(rest := sp.expand(w - u**2)):
                return expr / sp.exp(w) / erfc(u) * erfcx(u) * sp.exp(rest)
    for factor in expr.args:
        if sigmoids and factor.is_Add and any(not _free(e) for e in factor.atoms(sp.exp)):
            return sp.Add(*[t * (expr / factor) for t in factor.args])
    return None


def _multiple(w: sp.Expr, v: sp.Expr) -> int | None:
    """k when w - k v does not depend on x, k = 1, 2, ..."""
    k = sp.cancel(sp.diff(w, X) / sp.diff(v, X))
    return int(k) if k.is_Integer and k > 0 and _free(sp.expand(w - k * v)) else None


def _complement(expr: sp.Expr) -> sp.Expr | None:
    """k g(u) + k p, where g(u) + p is a node of its own."""
    if not expr.is_Add:
        return None
    terms = set(expr.args)
    for term in expr.args:
        for factor in sp.Mul.make_args(term):
            found = _COMPLEMENTS[factor.func](factor.args[0]) if factor.func in _COMPLEMENTS else []
            if factor.is_Pow and factor.exp == 2 and isinstance(factor.base, sp.tanh):
                u = factor.base.args[0]
                found = [(sp.S.NegativeOne, -4 * sigmoid(2 * u) * sigmoid(-2 * u))]
            for partner, node in found:
                k = term / factor
                others = set(sp.Add.make_args(sp.expand(k * partner)))
                if others <= terms - {term}:
                    return sp.Add(*(terms - {term} - others), k * node)
    return None


_RULES: tuple[Rule, ...] = (_power_of_exponentials, _logarithm, _exponential, _product, _complement)
