"""Checks of the plain arguments of the verbs, before any work is done and without SymPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replicode.theory.errors import InputError
from replicode.theory.limits import LEAST, MOST, MOST_NOISE, MOST_NU, parameter_value, real_number, whole_number

PHYSICS = ("alpha", "nu", "noise", "lambda_k", "lambda_v")
DOUBLE_DIGITS = 12
FLOAT_DIGITS = 15
MOST_DIGITS = 50
INITS = ("informed", "random")
UNASKED_WORST = 1e-3
BACKENDS = ("numpy", "fast")


def check_digits(digits: int, most: int = DOUBLE_DIGITS) -> float:
    """The tolerance that a number of digits asks for."""
    return 10.0 ** -whole_number("digits", digits, 1, most)


class Accuracy(NamedTuple):
    """The digits asked for, the absolute error aimed at, and the one above which a result is not to be trusted."""

    digits: int | None
    aim: float
    worst: float


def error_asked(digits: int | None, most: int = DOUBLE_DIGITS) -> float | None:
    """The same where digits are asked for."""
    return None if digits is None else check_digits(digits, most)


def accuracy(digits: int | None, usual: int) -> Accuracy:
    """Digits asked for are owed; without them the usual ones are aimed at, and three will do."""
    if digits is None:
        return Accuracy(None, 10.0**-usual, UNASKED_WORST)
    aim = check_digits(digits)
    return Accuracy(int(digits), aim, aim)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """A word among those allowed."""
    if value not in allowed:
        raise InputError(name, value, " or ".join(allowed))
    return value


def positive(name: str, value: float) -> float:
    """A number above 0, within what double precision resolves."""
    allowed = f"a number from {LEAST:g} to {MOST:g}"
    number = real_number(name, value, allowed)
    if not LEAST <= number <= MOST:
        raise InputError(name, value, allowed)
    return number


def rising(name: str, low: float, high: float) -> None:
    """Both ends of a range of positive numbers, the lower one first."""
    positive(name, low), positive(name, high)
    if not low < high:
        raise InputError(name, (low, high), "a range whose lower end is below its upper one")


def not_negative(name: str, value: float, infinite: bool = False) -> float:
    """A number of at least 0, infinite where that is said to be allowed."""
    most = {"nu": MOST_NU, "noise": MOST_NOISE}.get(name, MOST)
    allowed = f"a number from 0 to {most:g}" + (", or inf where the limit exists" if infinite else "")
    number = real_number(name, value, allowed)
    if not 0 <= number <= most and not (infinite and number == math.inf):
        raise InputError(name, value, allowed)
    if name == "noise" and 0 < number < LEAST:
        raise InputError(name, value, f"0, or a number from {LEAST:g} to {most:g}")
    return number


def point(alpha: float, nu: float, noise: float, lambda_k: float, lambda_v: float) -> dict[str, float]:
    """The arguments of the saddle-point equations as floats."""
    return {
        "alpha": positive("alpha", alpha),
        "nu": not_negative("nu", nu, infinite=True),
        "noise": not_negative("noise", noise),
        "lambda_k": not_negative("lambda_k", lambda_k),
        "lambda_v": not_negative("lambda_v", lambda_v),
    }


def check_parameters(names: Sequence[str], values: Mapping[str, float]) -> None:
    """Every parameter of the activation has a finite value, and nothing else is given."""
    if unknown := sorted(set(values) - set(names)):
        allowed = f"the parameters {', '.join(names)}" if names else "no parameter: there is none here"
        raise InputError("param", ", ".join(unknown), allowed)
    if missing := [n for n in names if n not in values]:
        named = " and ".join(map(repr, missing))
        raise InputError("param", None, f"a value for {named}, as in --param {missing[0]}=0.5: there is no default")
    for name in names:
        parameter_value(name, values[name])
