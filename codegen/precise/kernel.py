"""Kernels as straight-line Python on numbers of any precision.

`Program` turns expressions into three-address code: equal operations are done once, and those that do not change from
node to node are done before the loop. Such code works with `decimal_numbers`, `mpmath_numbers` (ten times as slow), the
balls of arb.py, or `double_arrays`, which take all nodes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import cache, partial, reduce
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from mpmath import mpf
from scipy import special

from replicode.codegen.ir import Kernel
from replicode.theory.calculus.tokens import OuterProducts
from replicode.theory.language.functions import BY_NODE, Function

Number = Any
Functions = Mapping[str, Callable[..., Number]]
_UNROLLED_POWERS = 4


@dataclass(frozen=True)
class Numbers:
    """A kind of real numbers: from and to mpmath's, the precision (mpmath's with it), functions, and rounding."""

    name: str
    real: Callable[[mpf], Number]
    read: Callable[[Number], mpf]
    working: Callable[[int], AbstractContextManager[None]]
    functions: Functions
    radius: Callable[[Number], mpf] = lambda _: mpf(0)  # a bound on its rounding, of numbers that know one


def mpmath_numbers() -> Numbers:
    """The numbers of mpmath."""
    return Numbers("mpmath", mpf, mpf, _mpmath_digits, functions_of(mpmath))


def decimal_numbers() -> Numbers:
    """The decimals of the standard library."""
    return Numbers("decimal", _to_decimal, _from_decimal, _decimal_digits, functions_of(_Decimals()))


def double_arrays() -> Numbers:
    """Arrays of doubles, a number for each node; they are read as their sum."""
    functions: dict[str, Callable[..., Number]] = {
        **{node.__name__: partial(_array_function, record) for node, record in BY_NODE.items()},
        "sqrt": np.sqrt,
        "pi": lambda: np.pi,
        "Max": lambda *u: reduce(np.maximum, u),
        "Min": lambda *u: reduce(np.minimum, u),
    }
    return Numbers("double", float, lambda a: mpf(float(np.sum(a))), _mpmath_digits, functions)


def _array_function(record: Function, u: Number, *order: int) -> Number:
    """A function at an array, by its NumPy source."""
    return _compiled(record.numpy_text("u", *map(str, order)))(u)


@cache
def _compiled(source: str) -> Callable[[Number], Number]:
    function: Callable[[Number], Number] = eval(f"lambda u: {source}", {"np": np, "special": special})
    return function


class _Decimals:
    """Decimals under mpmath's names; functions that the standard library lacks are taken from mpmath."""

    exp, log, sqrt, mpf = (staticmethod(f) for f in (Decimal.exp, Decimal.ln, Decimal.sqrt, Decimal))

    @property
    def pi(self) -> Decimal:
        return _to_decimal(+mpmath.pi)

    def __getattr__(self, name: str) -> Callable[[Decimal], Decimal]:
        return _borrowed(getattr(mpmath, name))

    @staticmethod
    def workdps(digits: int) -> AbstractContextManager[None]:
        return _decimal_digits(digits)

    @staticmethod
    def tanh(u: Decimal) -> Decimal:
        return 1 - 2 / (1 + (2 * u).exp())

    @staticmethod
    def log1p(u: Decimal) -> Decimal:
        """log(1 + u), the sum held to more digits where u is small."""
        with localcontext() as context:
            context.prec += max(0, -u.adjusted()) if u else 0
            found = (1 + u).ln()
        return +found


@contextmanager
def _mpmath_digits(digits: int) -> Iterator[None]:
    with mpmath.workdps(digits):
        yield


@contextmanager
def _decimal_digits(digits: int) -> Iterator[None]:
    traps = [DivisionByZero, InvalidOperation, Overflow]
    context = Context(prec=digits + 1, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=traps)
    with mpmath.workdps(digits + 1), localcontext(context):
        yield


def _to_decimal(value: mpf) -> Decimal:
    sign, mantissa, exponent, _ = mpf(value)._mpf_
    whole = int(-mantissa if sign else mantissa)
    return +Decimal(whole << exponent) if exponent >= 0 else Decimal(whole) / Decimal(1 << -exponent)


def _from_decimal(value: Decimal) -> mpf:
    return mpf(str(value))


def _borrowed(function: Callable[[mpf], mpf]) -> Callable[[Decimal], Decimal]:
    return lambda u: _to_decimal(function(_from_decimal(u)))


def functions_of(m: Any) -> dict[str, Callable[..., Number]]:
    """All functions of a kernel by the names of their nodes, on the numbers of m."""
    known = {node.__name__: record.evaluator(m) for node, record in BY_NODE.items()}
    return {**known, "sqrt": m.sqrt, "pi": lambda: m.mpf(m.pi), "Max": max, "Min": min}


@dataclass(frozen=True)
class Outers:
    """Names of the entries of a matrix given as diagonal plus outer products."""

    diagonal: Sequence[str]
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]]


@dataclass
class Program:
    """Three-address code in the making: `head` runs once, `body` at every node."""

    inputs: tuple[str, ...]
    fixed: set[str]
    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(fixed: Sequence[str], varying: Sequence[str]) -> Program:
        """A program that is given some numbers once and others at every node."""
        return Program((*fixed, *varying), set(fixed))

    def assigned(self, text: str, *operands: str) -> str:
        """The name of the value of `text`, which works on the operands."""
        if text not in self.known:
            name = f"a{len(self.known)}"
            once = all(o in self.fixed or o.isdigit() for o in operands)
            (self.head if once else self.body).append(f"{name} = {text}")
            if once:
                self.fixed.add(name)
            self.known[text] = name
        return self.known[text]

    def sum_of(self, terms: Sequence[str]) -> str:
        """The name of a sum; what does not vary is added up first."""
        return self._folded(terms, "+") if terms else "0"

    def product_of(self, factors: Sequence[str]) -> str:
        """The name of a product; what does not vary is multiplied first."""
        return self._folded(factors, "*") if factors else "1"

    def _folded(self, names: Sequence[str], sign: str) -> str:
        ordered = sorted(names, key=lambda n: not (n in self.fixed or n.isdigit()))
        return reduce(lambda a, b: self.assigned(f"{a} {sign} {b}", a, b), ordered)

    def value(self, expr: sp.Expr, names: Mapping[sp.Symbol, str]) -> str:
        """The name of the value of an expression whose symbols have these names."""
        if expr.is_Symbol:
            return names[expr]
        if expr.is_Float:
            return self.value(sp.Rational(expr), names)
        if expr.is_Rational:
            return self._rational(int(expr.p), int(expr.q))
        if expr is sp.pi:
            return self.assigned("pi()")
        if expr is sp.E:
            return self.assigned("exp(one)")
        if expr.is_Add:
            return self.sum_of([self.value(a, names) for a in expr.args])
        if expr.is_Mul:
            return self._product(expr, names)
        if expr.is_Pow:
            return self._power(expr, names)
        if type(expr).__name__ not in mpmath_numbers().functions:
            raise TypeError(f"no precise form of {type(expr).__name__}")
        arguments = [self.value(a, names) for a in expr.args]
        return self.assigned(f"{type(expr).__name__}({', '.join(arguments)})", *arguments)

    def _rational(self, over: int, under: int) -> str:
        text = str(over) if over >= 0 else self.assigned(f"{over}*one")
        return text if under == 1 else self.assigned(f"{over}*one/{under}")

    def _product(self, expr: sp.Mul, names: Mapping[sp.Symbol, str]) -> str:
        over, under = [], []
        for factor in expr.args:
            if factor.is_Pow and factor.exp.could_extract_minus_sign():
                under.append(self.value(factor.base**-factor.exp, names))
            else:
                over.append(self.value(factor, names))
        top = self.product_of(over)
        if not under:
            return top
        below = self.product_of(under)
        return self.assigned(f"{top}*one/{below}" if top.isdigit() else f"{top}/{below}", top, below)

    def _power(self, expr: sp.Pow, names: Mapping[sp.Symbol, str]) -> str:
        base, exponent = expr.base, expr.exp
        if exponent.could_extract_minus_sign():
            below = self.value(base**-exponent, names)
            return self.assigned(f"one/{below}", below)
        text = self.value(base, names)
        if exponent.is_Integer:
            if exponent <= _UNROLLED_POWERS:
                return reduce(lambda a, b: self.assigned(f"{a} * {b}", a, b), [text] * int(exponent))
            return self.assigned(f"{text} ** {int(exponent)}", text)
        if exponent == sp.Rational(1, 2):
            return self.assigned(f"sqrt({text})", text)
        power = self.value(exponent, names)
        return self.assigned(f"{text} ** {power}", text, power)

    def outputs(
        self, kernel: Kernel, tokens: Mapping[str, Sequence[str]], scalars: Mapping[sp.Symbol, str]
    ) -> dict[str, Any]:
        """Names of the outputs of a kernel: one, one for each token, or those of a matrix."""
        vectors: dict[sp.Symbol, list[str]] = {s: list(tokens[s.name]) for s in kernel.token_inputs}
        numbers = dict(scalars)
        (count,) = {len(v) for v in vectors.values()}

        def along(expr: sp.Expr) -> list[str]:
            return [self.value(expr, {**numbers, **{s: v[i] for s, v in vectors.items()}}) for i in range(count)]

        for statement in kernel.statements:
            if statement.kind == "scalar":
                numbers[statement.symbol] = self.value(statement.expr, numbers)
            elif statement.kind == "token":
                vectors[statement.symbol] = along(statement.expr)
            elif statement.kind == "sum":
                numbers[statement.symbol] = self.sum_of(along(statement.expr))
            else:
                parts = along(statement.expr)
                numbers[statement.symbol] = reduce(lambda a, b: self.assigned(f"Max({a}, {b})", a, b), parts)
        found: dict[str, Any] = {}
        for output in kernel.outputs:
            if isinstance(output.value, OuterProducts):
                pairs = tuple((along(a), along(b)) for a, b in output.value.outers)
                found[output.name] = Outers(along(output.value.diagonal), pairs)
            else:
                values = along(output.value)
                found[output.name] = values if kernel.is_token(output.value) or _per_token(output.name) else values[0]
        return found

    def dot(self, left: Sequence[str], right: Sequence[str]) -> str:
        """The name of the scalar product of two vectors."""
        return self.sum_of([self.product_of(pair) for pair in zip(left, right, strict=True)])

    def bilinear(self, matrix: Outers, left: Sequence[str], right: Sequence[str]) -> str:
        """The name of left^T matrix right."""
        diagonal = [self.product_of(names) for names in zip(left, matrix.diagonal, right, strict=True)]
        outers = [self.product_of([self.dot(left, a), self.dot(right, b)]) for a, b in matrix.pairs]
        return self.sum_of([*diagonal, *outers])

    def loop(self, sums: Sequence[str], functions: Functions) -> Callable[..., list[Number]]:
        """f(one, fixed, nodes): the sums of the named values over the nodes, each a tuple of what varies."""
        varying = [n for n in self.inputs if n not in self.fixed]
        given = [n for n in self.inputs if n in self.fixed]
        totals = [f"total{i}" for i in range(len(sums))]
        lines = ["def program(one, fixed, nodes):", f"    {''.join(n + ', ' for n in given)} = fixed" if given else ""]
        lines += [f"    {line}" for line in self.head]
        lines += [f"    {t} = 0*one" for t in totals]
        lines += [f"    for {''.join(n + ', ' for n in varying)} in nodes:"]
        lines += [f"        {line}" for line in self.body]
        lines += [f"        {t} += {name}" for t, name in zip(totals, sums)]
        lines += [f"    return [{', '.join(totals)}]"]
        space = dict(functions)
        exec(compile("\n".join(lines), "<precise program>", "exec"), space)
        return space["program"]


def _per_token(name: str) -> bool:
    """Outputs that hold one number for each token even where they do not depend on it."""
    return name in ("slope", "sigmas")
