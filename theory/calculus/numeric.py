"""Values of expressions with token sums at explicit scores, in mpmath at whatever precision the caller works in.

`Program` runs an expression for all tokens of a sequence at once, common subexpressions shared; `zero_along` looks for
a zero of a scalar function on a line. Together they confirm or refute by a point what the algebra claims.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import mpmath
import sympy as sp
from mpmath import mpf

from replicode.theory.language.functions import BY_NODE, Function
from replicode.theory.language.nodes import L, TokenSum, X

CONSTANT_DIGITS = 160
LARGEST_BITS = 3000
LARGEST_POWER = 10**6
FAR = 10**30
HALF = mpf(1) / 2
MOST_MINIMA = 8
# Near a zero of even order the values shrink at least as fast as a root of the bracket, which is 1e-4 by then.
EARLY, EARLY_ENOUGH = 20, mpf("0.02")
GOLDEN = (mpmath.sqrt(5) - 1) / 2


class Undefined(ArithmeticError):
    """There is no finite real value: a pole, the logarithm or root of a negative number, or plain overflow."""


class Program:
    """An expression in X, L, token sums and the symbols of `values`, compiled once for many scores.

    Where the scores have names of their own, `names` lists them and the expression is one number.
    """

    def __init__(
        self, expr: sp.Expr, values: Mapping[sp.Symbol, object] | None = None, names: Sequence[sp.Symbol] = ()
    ) -> None:
        self.expr = expr
        self._named = {s: i for i, s in enumerate(names)}
        with mpmath.workdps(CONSTANT_DIGITS):
            self._values = {s: _constant(sp.sympify(v)) for s, v in (values or {}).items()}
            self._steps: list[tuple[str, object, tuple[int, ...]]] = []
            self._places: dict[sp.Basic, int] = {}
            self._result = self._place(expr)

    def _place(self, node: sp.Basic) -> int:
        if node not in self._places:
            arguments = () if not node.args else tuple(self._place(a) for a in node.args)
            self._steps.append((*self._operation(node), arguments))
            self._places[node] = len(self._steps) - 1
        return self._places[node]

    def _operation(self, node: sp.Basic) -> tuple[str, object]:
        if node == X:
            return "scores", None
        if node == L:
            return "length", None
        if node in self._values:
            return "constant", self._values[node]
        if node in self._named:
            return "named", self._named[node]
        if isinstance(node, TokenSum):
            return "sum", None
        if node.is_Number or not node.args:
            try:
                return "constant", _constant(node)
            except Undefined as fault:
                return "apply", _undefined(str(fault))
        return "apply", _FUNCTIONS.get(node.func) or _undefined(f"{node.func.__name__} has no numerical value")

    def __call__(self, scores: Sequence[mpf]) -> list[mpf]:
        """The value at every token; Undefined unless all are finite and real."""
        vector = self.raw(scores)
        for value in vector:
            if not mpmath.isfinite(value):
                raise Undefined(f"the value is {mpmath.nstr(value, 5)}")
        return vector

    def raw(self, scores: Sequence[mpf]) -> list[mpf]:
        """The value at every token, infinite where it overflows."""
        count = len(scores)
        values: list[mpf | list[mpf]] = []
        for kind, what, places in self._steps:
            arguments = [values[p] for p in places]
            if kind == "constant":
                values.append(what)
            elif kind == "scores":
                values.append(list(scores))
            elif kind == "named":
                values.append(scores[what])  # type: ignore[call-overload]
            elif kind == "length":
                values.append(mpf(count))
            elif kind == "sum":
                total = arguments[0]
                values.append(mpmath.fsum(total) if isinstance(total, list) else count * total)
            else:
                values.append(_applied(what, arguments, count))  # type: ignore[arg-type]
        result = values[self._result]
        return result if isinstance(result, list) else [result] * count

    def first(self, scores: Sequence[mpf]) -> mpf:
        """The value at the first token."""
        return self(scores)[0]


def _undefined(problem: str) -> Callable[..., mpf]:
    def refuse(*_: mpf) -> mpf:
        raise Undefined(problem)

    return refuse


def _applied(function: Callable[..., mpf], arguments: list[mpf | list[mpf]], count: int) -> mpf | list[mpf]:
    if not any(isinstance(a, list) for a in arguments):
        return function(*arguments)
    columns = [a if isinstance(a, list) else [a] * count for a in arguments]
    return [function(*row) for row in zip(*columns)]


def _constant(number: sp.Expr) -> mpf:
    if number.is_Rational:
        return mpf(int(number.p)) / int(number.q)
    value = number._to_mpmath(mpmath.mp.prec) if number.is_number else None
    if not isinstance(value, mpf):
        raise Undefined(f"{number} is not a real number")
    return value


def _size(value: mpf) -> int:
    """The binary exponent, which bounds the work of the functions below."""
    return int(mpmath.mag(value)) if value and mpmath.isfinite(value) else 0


def _exp(u: mpf) -> mpf:
    if _size(u) > LARGEST_BITS:
        return mpmath.inf if u > 0 else mpf(0)
    return mpmath.exp(u)


def _log(u: mpf) -> mpf:
    if u <= 0:
        raise Undefined(f"the logarithm of {mpmath.nstr(u, 5)}")
    return mpmath.log(u)


def _power(base: mpf, exponent: mpf) -> mpf:
    if base == 0 and exponent < 0:
        raise Undefined("a division by zero")
    if mpmath.isint(exponent):
        return base ** int(exponent) if abs(exponent) < LARGEST_POWER else mpmath.power(base, exponent)
    if base < 0:
        raise Undefined(f"the power {mpmath.nstr(exponent, 5)} of {mpmath.nstr(base, 5)}")
    if base and mpmath.isfinite(base) and _size(exponent) > LARGEST_BITS:
        raise Undefined("a power too large to write down")
    return mpmath.sqrt(base) if exponent == HALF else mpmath.power(base, exponent)


def _guarded(record: Function) -> Callable[..., mpf]:
    """The function of a record, by its growth where the argument is too large to be worked with."""
    plain, ends = record.evaluator(), [None if end is None else Program(end) for end in record.ends]

    def guarded(u: mpf, *order: mpf) -> mpf:
        if order or abs(u) <= FAR:
            return plain(u, *order)
        end = ends[u > 0]
        if end is None and (not mpmath.isfinite(u) or _size(u) > LARGEST_BITS):
            raise Undefined(f"{record.name} of too large a number")
        return plain(u) if end is None else end.raw([u])[0]

    return guarded


_FUNCTIONS: dict[type[sp.Basic], Callable[..., mpf]] = {
    sp.Add: lambda *terms: sum(terms[1:], terms[0]),
    sp.Mul: lambda *factors: mpmath.fprod(factors),
    sp.Pow: _power,
    sp.exp: _exp,
    sp.log: _log,
    sp.Max: max,
    sp.Min: min,
}
_FUNCTIONS |= {node: _guarded(record) for node, record in BY_NODE.items() if node not in _FUNCTIONS}


def random_scores(rng: random.Random, tokens: int, scale: float = 1.5) -> list[mpf]:
    """Scores in (-scale, scale), exact to every precision."""
    return [mpf(rng.uniform(-scale, scale)) for _ in range(tokens)]


def exchanged(values: Sequence[mpf], i: int, j: int) -> list[mpf]:
    """The same values with two of them exchanged."""
    moved = list(values)
    moved[i], moved[j] = moved[j], moved[i]
    return moved


def shown(scores: Sequence[mpf]) -> str:
    """A point in a message."""
    return "(" + ", ".join(mpmath.nstr(mpf(s), 6) for s in scores) + ")"


_NEAR = [mpf(i) / 16 for i in range(-96, 97)]
_FAR = [sign * mpf(6) * mpf(4) ** (mpf(k) / 3) for sign in (-1, 1) for k in range(1, 31)]
GRID = tuple(sorted(_NEAR + _FAR))


def zero_along(function: Callable[[mpf], mpf | None]) -> mpf | None:
    """A t with function(t) = 0 on the line, by sign changes and by minima that reach zero; None where none is seen.

    The function returns None where it has no value.
    """
    seen = {t: v for t in GRID if (v := function(t)) is not None}
    steps = sorted(zip(seen, list(seen)[1:]), key=lambda pair: abs(pair[0] + pair[1]))
    for a, b in steps:
        if seen[a] == 0 or seen[b] == 0:
            return a if seen[a] == 0 else b
        if seen[a] * seen[b] < 0 and (found := _bisected(function, a, b, seen[a])) is not None:
            return found
    triples = zip(seen, list(seen)[1:], list(seen)[2:])
    minima = [(a, t, b) for a, t, b in triples if abs(seen[t]) <= min(abs(seen[a]), abs(seen[b]))]
    for a, t, b in sorted(minima, key=lambda triple: abs(triple[1]))[:MOST_MINIMA]:
        if (found := _touching(function, a, b, abs(seen[t]))) is not None:
            return found
    return None


def _bisected(function: Callable[[mpf], mpf | None], a: mpf, b: mpf, left: mpf) -> mpf | None:
    while b - a > mpmath.eps * (1 + abs(a)) * 4:
        middle = (a + b) / 2
        value = function(middle)
        if value is None:
            return None
        if value == 0:
            return middle
        a, b = (middle, b) if left * value > 0 else (a, middle)
    jump = [function(a), function(b)]
    # A pole of the argument changes its sign too: at a zero the values are small.
    return (a + b) / 2 if all(v is not None and abs(v) < abs(left) + 1 for v in jump) else None


def _touching(function: Callable[[mpf], mpf | None], a: mpf, b: mpf, scale: mpf) -> mpf | None:
    """The minimum of |function| in (a, b) when it is zero to half the working precision."""
    inner, outer = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    low, high = function(inner), function(outer)
    for turn in range(int(mpmath.mp.dps * 2.5)):
        if low is None or high is None or (turn == EARLY and min(abs(low), abs(high)) > scale * EARLY_ENOUGH):
            return None
        if abs(low) < abs(high):
            b, outer, high = outer, inner, low
            inner = b - GOLDEN * (b - a)
            low = function(inner)
        else:
            a, inner, low = inner, outer, high
            outer = a + GOLDEN * (b - a)
            high = function(outer)
    if low is None or abs(low) > (scale + mpmath.eps) * mpmath.sqrt(mpmath.eps):
        return None
    nearby = mpf(float((a + b) / 2))
    for candidate in (mpmath.nint(16 * nearby) / 16, mpf(mpmath.nstr(nearby, 12)), (a + b) / 2):
        value = function(candidate)
        if value is not None and abs(value) <= 4 * abs(low):
            return candidate
    return (a + b) / 2
