"""Checks of the arguments of the public functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from replicode.codegen.runtime.kernel import DEFAULTS, HARD_LIMIT, ORDER_NAMES, PARAMETERS, Array
from replicode.codegen.runtime.places import BLOCKS

LEAST, MOST = 1e-12, 1e12  # beyond these doubles have no digits left for what is asked
MOST_NU, MOST_NOISE = 1e6, 1e4
AIMED_AT, GOOD_ENOUGH = 1e-8, 1e-3  # where no error is asked for: what is tried, and what will do


class ArgumentError(ValueError):
    """An argument is outside what is allowed."""

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"{argument}: got {value!r}, allowed is {allowed}")


class OutOfReach(ArithmeticError):
    """The arguments are allowed, but the quadratures at hand do not resolve what is asked."""


def check_size(B: float) -> None:
    """B = E sum sigma^2 is above 0: of an activation that is 0 nothing is learned."""
    if not B > 0.0:
        raise OutOfReach("the activation vanishes in double precision at these parameters: its output is 0")


def check_number(name: str, value: float, allowed: str, valid: bool) -> None:
    """Raise ArgumentError naming the argument, the value and what is allowed."""
    if not (isinstance(value, (int, float, np.floating, np.integer)) and math.isfinite(value) and valid):
        raise ArgumentError(name, value, allowed)


def asked_error(tol: float | None) -> tuple[float, float]:
    """The error that is aimed at, and the largest that needs no warning."""
    if tol is None:
        return AIMED_AT, GOOD_ENOUGH
    check_number("tol", tol, "a finite number above 0, or None", tol > 0)
    return float(tol), float(tol)


def check_signal(nu: float) -> None:
    """The signal strength; infinite where the task has a limit."""
    if HARD_LIMIT and isinstance(nu, float) and nu == math.inf:
        return
    check_number("nu", nu, f"a number from 0 to {MOST_NU:g}" + (", or inf" if HARD_LIMIT else ""), 0 <= nu <= MOST_NU)


def check_physics(alpha: float, nu: float, noise: float) -> None:
    """The ranges of what the data are drawn from."""
    check_number("alpha", alpha, f"a number from {LEAST:g} to {MOST:g}", LEAST <= alpha <= MOST)
    check_signal(nu)
    heard = noise == 0 or LEAST <= noise <= MOST_NOISE
    check_number("noise", noise, f"0, or a number from {LEAST:g} to {MOST_NOISE:g}", heard)


def check_setting(alpha: float, nu: float, noise: float, lambda_k: float, lambda_v: float) -> None:
    """The ranges of the physical arguments."""
    check_physics(alpha, nu, noise)
    check_number("lambda_k", lambda_k, f"a number from 0 to {MOST:g}", 0 <= lambda_k <= MOST)
    check_number("lambda_v", lambda_v, f"a number from 0 to {MOST:g}", 0 <= lambda_v <= MOST)


def parameter_values(given: Mapping[str, float]) -> Array:
    """The activation's parameters in order, defaults filled in."""
    unknown = sorted(set(given) - set(PARAMETERS))
    if unknown:
        raise ArgumentError("parameters", unknown, f"only {list(PARAMETERS)}")
    values = {**DEFAULTS, **given}
    missing = [p for p in PARAMETERS if p not in values]
    if missing:
        raise ArgumentError("parameters", sorted(given), f"a number for each of {missing}, which have no default")
    for name in PARAMETERS:
        check_number(name, values[name], f"a number from {-MOST:g} to {MOST:g}", abs(values[name]) <= MOST)
    return np.array([float(values[p]) for p in PARAMETERS])


def unknowns(mapping: Mapping[str, float], names: tuple[str, ...]) -> Array:
    """A mapping with exactly these keys as an array."""
    if set(mapping) != set(names):
        raise ArgumentError("keys", sorted(mapping), str(list(names)))
    return np.array([float(mapping[n]) for n in names])


def named(names: tuple[str, ...], values: Sequence[float] | Array) -> dict[str, float]:
    """An array as a mapping, the inverse of `unknowns`."""
    return dict(zip(names, map(float, values), strict=True))


def check_physical(order: Array) -> None:
    """Raise ArgumentError unless m^2 < q and V > 0 in both blocks."""
    for block in BLOCKS:
        m_name, q_name, v_name = (ORDER_NAMES[i] for i in block)
        m, q, v = (float(order[i]) for i in block)
        check_number(q_name, q, f"a finite number above {m_name}^2 = {m * m:.6g}", q > m * m)
        check_number(v_name, v, "a finite number above 0", v > 0)
