"""Symbolic properties of an activation; every reduction follows from these, none from a name.

Each property is a statement expr = 0 about token sums with L symbolic. Numbers come first: at random scores of two to
five tokens, in 80 digits, what is false shows itself and leaves a witness. What stays zero is then proved by algebra.
What can be neither refuted nor proved is undecided, and counts as absent wherever something is built on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import mpmath
import sympy as sp
from mpmath import mpf

from replicode.theory.calculus.expansion import MAX_EXPANDED, expanded, expanded_terms
from replicode.theory.calculus.numeric import Program, Undefined, random_scores, shown, zero_along
from replicode.theory.language import _budget, _Exhausted
from replicode.theory.language.activation import Activation
from replicode.theory.language.functions import FOLDED, KINKED, rewritten
from replicode.theory.language.nodes import L, TokenSum, X

Found = TypeVar("Found")

DIGITS = 80
ZERO = mpf(10) ** -50
TOKENS = (2, 3, 4, 5)
_DRAWS, _SEED = 8, 20250921
_PROVABLE_SIZE = 400
_PROOF_STEPS = 250_000


@dataclass(frozen=True)
class Properties:
    """What the algebra found: row sum (None when it depends on x), shift invariance, element-wise, smooth."""

    row_sum: sp.Expr | None
    shift_invariant: bool
    elementwise: bool
    smooth: bool


@dataclass(frozen=True)
class Claim:
    """Whether a statement holds for every L >= 2: proved, refuted by a witness, or undecided (None)."""

    holds: bool | None
    witness: str | None = None


def at_tokens(expr: sp.Expr, token: int, scores: Sequence[sp.Expr], values: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """The expression at one token of an explicit sequence of scores."""

    def explicit(node: sp.Expr, score: sp.Expr) -> sp.Expr:
        if isinstance(node, TokenSum):
            return sp.Add(*[explicit(node.args[0], s) for s in scores])
        if node == X:
            return score
        if not node.args:
            return node
        return node.func(*[explicit(a, score) for a in node.args])

    fixed = {L: sp.Integer(len(scores)), **values}
    return explicit(expr.xreplace(fixed), scores[token])


def sample_points(expr: sp.Expr) -> Iterator[tuple[Program, list[mpf], dict[str, float]]]:
    """Programs of the expression at random parameters, with random scores of two to five tokens."""
    rng = random.Random(_SEED)
    free = sorted(expr.free_symbols - {X, L}, key=lambda s: s.name)
    for draw in range(_DRAWS):
        values = {s: rng.uniform(0.3, 1.2) for s in free}
        program = Program(expr, values)
        yield program, random_scores(rng, TOKENS[draw % len(TOKENS)]), {s.name: v for s, v in values.items()}


def refutation(expr: sp.Expr) -> Claim:
    """A point where the expression is not zero; holds=True says that it was zero wherever it could be evaluated."""
    evaluated = 0
    with mpmath.workdps(DIGITS):
        for program, scores, values in sample_points(expr):
            try:
                sizes = [abs(v) for v in program(scores)]
            except Undefined:
                continue
            evaluated += 1
            if max(sizes) > ZERO:
                at = "".join(f", {name} = {value:.6g}" for name, value in values.items())
                return Claim(False, f"scores {shown(scores)}{at}: off by {mpmath.nstr(max(sizes), 3)}")
    return Claim(True if evaluated else None)


def zero_claim(expr: sp.Expr) -> Claim:
    """Whether expr = 0 for every L: refuted by a point, else proved by algebra, else undecided."""
    if expr == 0:
        return Claim(True)
    seen = refutation(expr)
    if seen.holds is not True:
        return seen
    return Claim(True if proved_zero(expr) else None)


def vanishes(expr: sp.Expr) -> bool:
    """Whether the algebra proves expr = 0 for every L."""
    return zero_claim(expr).holds is True


def proved_zero(expr: sp.Expr) -> bool:
    """Whether plain algebra brings the expression to zero, within a bounded number of steps."""
    attempts: tuple[Callable[[sp.Expr], sp.Expr], ...] = (sp.expand, sp.cancel, _numerator, sp.simplify)
    forms = [expr]
    if (elementary := in_exponentials(expr)) != expr:
        forms.append(elementary)
    for attempt in attempts:
        for form in forms:
            if sp.count_ops(form) <= _PROVABLE_SIZE and bounded(attempt, form) == 0:
                return True
    return False


def in_exponentials(expr: sp.Expr) -> sp.Expr:
    """Functions made of exponentials written so, relu with the absolute value."""
    return rewritten(expr, "elementary")


def bounded(function: Callable[[sp.Expr], Found], expr: sp.Expr, steps: int = _PROOF_STEPS) -> Found | None:
    """function(expr), or None when it makes too many terms, takes too many steps or SymPy gives up on it."""
    if expanded_terms(expr) > MAX_EXPANDED:
        return None
    try:
        with _budget(steps):
            return function(expr)
    except (_Exhausted, RecursionError, NotImplementedError, ValueError, TypeError, sp.PolynomialError, KeyError):
        return None


def _numerator(expr: sp.Expr) -> sp.Expr:
    return sp.expand(sp.numer(sp.together(sp.expand(expr))))


def row_sum(expr: sp.Expr) -> sp.Expr | None:
    """sum_l sigma_l when the algebra shows that it does not depend on the scores."""
    forms: list[Callable[[sp.Expr], sp.Expr]] = [sp.S, sp.expand, sp.together]
    if _row_sum_refutation(expr).holds is None:
        forms += [sp.factor, lambda e: sp.cancel(sp.together(in_exponentials(e)))]
    for form in forms:
        total = bounded(partial(_summed, form), expr)
        if total is not None and not total.has(TokenSum) and X not in total.free_symbols:
            tidy = bounded(sp.simplify, total)
            return total if tidy is None else tidy
    return None


def _summed(form: Callable[[sp.Expr], sp.Expr], expr: sp.Expr) -> sp.Expr:
    return sp.expand(TokenSum(form(expr)))


def row_sum_claim(expr: sp.Expr) -> Claim:
    """Whether sum_l sigma_l is free of the scores, proved or refuted by two points."""
    return Claim(True) if row_sum(expr) is not None else _row_sum_refutation(expr)


def _row_sum_refutation(expr: sp.Expr) -> Claim:
    """Two points with different row sums; undecided where none are found."""
    with mpmath.workdps(DIGITS):
        for program, scores, values in sample_points(expr):
            moved = [s * mpf("0.7") - mpf("0.2") * i for i, s in enumerate(scores)]
            try:
                sums = [mpmath.fsum(program(point)) for point in (scores, moved)]
            except Undefined:
                continue
            if abs(sums[0] - sums[1]) > ZERO:
                at = "".join(f", {name} = {value:.6g}" for name, value in values.items())
                pair = " and ".join(mpmath.nstr(s, 6) for s in sums)
                return Claim(False, f"scores {shown(scores)} and {shown(moved)}{at}: sums {pair}")
    return Claim(None)


def common_shift_rate(act: Activation) -> sp.Expr:
    """d sigma_l(x + t) / dt at t = 0: zero exactly when sigma is invariant under a common shift of the scores."""
    form = act.token_form()
    bodies: dict[sp.Symbol, sp.Expr] = {}
    rates: dict[sp.Symbol, sp.Expr] = {}
    for symbol, body in form.sums:
        flow = sp.diff(body, X) + sum((sp.diff(body, s) * r for s, r in rates.items()), sp.S.Zero)
        bodies[symbol] = TokenSum(body.xreplace(bodies))
        rates[symbol] = TokenSum(expanded(flow.xreplace(bodies)))
    total = sp.diff(form.f, X) + sum((sp.diff(form.f, s) * r for s, r in rates.items()), sp.S.Zero)
    return total.xreplace(bodies)


def shift_claim(act: Activation) -> Claim:
    """Whether sigma(x + t) = sigma(x): the finite shift refutes, and either it or its rate at t = 0 proves."""
    shift = sp.Symbol("shift", real=True)
    difference = act.expr.xreplace({X: X + shift}) - act.expr
    if difference == 0:
        return Claim(True)
    seen = refutation(difference)
    if seen.holds is not True:
        return seen
    return Claim(True if proved_zero(common_shift_rate(act)) or proved_zero(difference) else None)


def kinked_arguments(expr: sp.Expr) -> tuple[sp.Expr, ...]:
    """Arguments of abs, relu and step, and bases of fractional powers, at whose zeros the expression is not smooth."""
    found = {node.args[0] for node in expr.atoms(*KINKED)}
    roots = {p.base for p in expr.atoms(sp.Pow) if p.exp.is_number and not p.exp.is_integer}
    found |= {_inside(b) for b in roots if not b.is_number and not b.is_positive and reaches_zero(b)}
    open_ones = [a for a in found if not (a.is_positive or a.is_negative)]
    return tuple(sorted(open_ones, key=sp.default_sort_key))


def _inside(expr: sp.Expr) -> sp.Expr:
    """The argument under abs and relu: it is zero where their own kink is."""
    return _inside(expr.args[0]) if isinstance(expr, FOLDED) else expr


def reaches_zero(expr: sp.Expr) -> bool:
    """Whether a zero of the expression is found at equal scores, or along one score of three."""
    free = sorted(expr.free_symbols - {X, L}, key=lambda s: s.name)
    with mpmath.workdps(30):
        program = Program(expr, dict.fromkeys(free, 0.7))

        def value(*scores: mpf) -> mpf | None:
            try:
                return program.first(scores)
            except Undefined:
                return None

        side = (mpf("0.37"), mpf("-0.81"))
        lines: tuple[Callable[[mpf], mpf | None], ...] = (lambda t: value(t, t, t), lambda t: value(t, *side))
        return any(zero_along(line) is not None for line in lines)


def properties(act: Activation) -> Properties:
    """All of them, once per activation."""
    return Properties(
        row_sum=row_sum(act.expr),
        shift_invariant=shift_claim(act).holds is True,
        elementwise=not act.expr.has(TokenSum),
        smooth=not kinked_arguments(act.expr),
    )
