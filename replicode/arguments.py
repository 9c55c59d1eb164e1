"""Checks of the plain arguments of the verbs, before any work is done and without SymPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from replicode.theory.errors import InputError
from replicode.theory.limits import real_number, whole_number

DOUBLE_DIGITS = 12
FLOAT_DIGITS = 15
MOST_DIGITS = 50
INITS = ("informed", "random")
BACKENDS = ("numpy", "fast")


def check_digits(digits: int, most: int = DOUBLE_DIGITS) -> float:
    """The tolerance that a number of digits asks for."""
    return 10.0 ** -whole_number("digits", digits, 1, most)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """A word among those allowed."""
    if value not in allowed:
        raise InputError(name, value, " or ".join(allowed))
    return value


def positive(name: str, value: float) -> float:
    """A finite number above 0."""
    number = real_number(name, value, "a finite number above 0")
    if not (math.isfinite(number) and number > 0):
        raise InputError(name, value, "a finite number above 0")
    return number


def not_negative(name: str, value: float, infinite: bool = False) -> float:
    """A number of at least 0, infinite where that is said to be allowed."""
    allowed = "a finite number, 0 or above" + (", or inf where the limit exists" if infinite else "")
    number = real_number(name, value, allowed)
    if not number >= 0 or (math.isinf(number) and not infinite):
        raise InputError(name, value, allowed)
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
        allowed = f"the parameters {', '.join(names)}" if names else "no parameter: the activation has none"
        raise InputError("param", ", ".join(unknown), allowed)
    if missing := [n for n in names if n not in values]:
        named = " and ".join(map(repr, missing))
        raise InputError("param", None, f"a value for {named}, as in --param {missing[0]}=0.5: there is no default")
    for name in names:
        if not math.isfinite(values[name]):
            raise InputError(f"param {name}", values[name], "a finite number")
