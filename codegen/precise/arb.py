"""Balls of Arb, through python-flint, as the numbers of a precise program: each carries a bound on its rounding.

They are the extra `arb`; without it the decimals of the standard library are taken, and rounding is left to the guard
digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from importlib.util import find_spec
from typing import Any

import mpmath
from mpmath import mpf

from replicode.codegen.precise.kernel import Number, Numbers, decimal_numbers, functions_of

GUARD_BITS = 8
EXACT_BITS = 32
INPUT_BITS = 4  # that the rounding of what is computed before the sums takes


def best_numbers() -> Numbers:
    """Balls where python-flint is installed, else decimals."""
    return arb_numbers() if find_spec("flint") else decimal_numbers()


def arb_numbers() -> Numbers:
    """Real balls: a number and a bound on what rounding did to it."""
    import flint

    functions = functions_of(_Balls(flint)) | {"Max": _extreme(flint, "max"), "Min": _extreme(flint, "min")}
    return Numbers("arb", _ball(flint), lambda u: _exact(u.mid()), _digits(flint), functions, lambda u: _exact(u.rad()))


def _ball(flint: Any) -> Callable[[mpf], Number]:
    """Numbers of mpmath as balls: what has all bits that mpmath allows was rounded a few times on its way."""

    def ball(value: mpf) -> Number:
        sign, mantissa, exponent, bits = mpf(value)._mpf_
        exact = flint.arb(int(-mantissa if sign else mantissa)) * flint.arb(2) ** int(exponent)
        if bits <= EXACT_BITS:
            return exact
        return flint.arb(exact, flint.arb(2) ** int(exponent + bits - mpmath.mp.prec + INPUT_BITS))

    return ball


def _exact(value: Number) -> mpf:
    """The dyadic number that a ball without radius is."""
    mantissa, exponent = value.man_exp()
    return mpf((int(mantissa), int(exponent)))


def _digits(flint: Any) -> Callable[[int], AbstractContextManager[None]]:
    @contextmanager
    def working(digits: int) -> Iterator[None]:
        before = flint.ctx.prec
        with mpmath.workdps(digits + 1):
            flint.ctx.prec = int(mpmath.mp.prec) + GUARD_BITS
            try:
                yield
            finally:
                flint.ctx.prec = before

    return working


def _extreme(flint: Any, name: str) -> Callable[..., Number]:
    """The larger or the smaller of balls, whichever it is where they overlap."""

    def found(*balls: Number) -> Number:
        return reduce(lambda a, b: getattr(flint.arb(a), name)(b), balls)

    return found


class _Balls:
    """Balls under mpmath's names."""

    def __init__(self, flint: Any) -> None:
        self.mpf, self._working = flint.arb, _digits(flint)

    @property
    def pi(self) -> Number:
        return self.mpf.pi()

    def __getattr__(self, name: str) -> Callable[[Number], Number]:
        method = getattr(self.mpf, name)
        ball = self.mpf
        return lambda u: method(u if isinstance(u, ball) else ball(u))

    def workdps(self, digits: int) -> AbstractContextManager[None]:
        """More digits for a while."""
        return self._working(digits)
