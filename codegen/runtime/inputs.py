"""Checks of the arguments of the public functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from replicode.codegen.runtime.kernel import DEFAULTS, HARD_LIMIT, PARAMETERS, Array

ORDER_NAMES = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")
CONJUGATE_NAMES = ("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v")


class ArgumentError(ValueError):
    """An argument is outside what is allowed."""

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"{argument}: got {value!r}, allowed is {allowed}")


def check_number(name: str, value: float, allowed: str, valid: bool) -> None:
    """Raise ArgumentError naming the argument, the value and what is allowed."""
    if not (isinstance(value, (int, float, np.floating, np.integer)) and math.isfinite(value) and valid):
        raise ArgumentError(name, value, allowed)


def told_apart(value: float, other: float) -> tuple[str, str]:
    """Two numbers in so many digits that they are seen to differ."""
    for digits in range(1, 17):
        texts = f"{value:.{digits}e}", f"{other:.{digits}e}"
        if texts[0] != texts[1]:
            break
    return texts


def check_signal(nu: float) -> None:
    """The signal strength; infinite where the task has a limit."""
    if HARD_LIMIT and isinstance(nu, float) and nu == math.inf:
        return
    check_number("nu", nu, "a finite number, 0 or above" + (", or inf" if HARD_LIMIT else ""), nu >= 0)


def check_setting(alpha: float, nu: float, noise: float, lambda_k: float, lambda_v: float) -> None:
    """The ranges of the physical arguments."""
    check_number("alpha", alpha, "a finite number above 0", alpha > 0)
    check_signal(nu)
    check_number("noise", noise, "a finite number, 0 or above", noise >= 0)
    check_number("lambda_k", lambda_k, "a finite number, 0 or above", lambda_k >= 0)
    check_number("lambda_v", lambda_v, "a finite number, 0 or above", lambda_v >= 0)


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
        check_number(name, values[name], "a finite number", True)
    return np.array([float(values[p]) for p in PARAMETERS])


def unknowns(mapping: Mapping[str, float], names: tuple[str, ...]) -> Array:
    """A mapping with exactly these keys as an array."""
    if set(mapping) != set(names):
        raise ArgumentError("keys", sorted(mapping), str(list(names)))
    return np.array([float(mapping[n]) for n in names])


def check_physical(order: Array) -> None:
    """Raise ArgumentError unless m^2 < q and V > 0 in both blocks."""
    for block, (m, q, v) in zip(("k", "v"), order.reshape(2, 3)):
        check_number(f"q_{block}", float(q), f"a finite number above m_{block}^2 = {m * m:.6g}", q > m * m)
        check_number(f"V_{block}", float(v), "a finite number above 0", v > 0)
