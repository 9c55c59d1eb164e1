"""How a property fared, and comparisons of numbers that end in a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import mpmath
import numpy as np
from mpmath import mpf

if TYPE_CHECKING:
    from replicode.validation.properties.subject import Subject

Outcome = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Verdict:
    """How a property fared, and why."""

    outcome: Outcome
    detail: str = ""


Property = Callable[["Subject"], Verdict]

PASSED = Verdict("passed")


def not_applicable(why: str) -> Verdict:
    """The property is not meant to hold, or cannot be looked at."""
    return Verdict("not applicable", why)


def compared(what: str, found: Sequence[mpf], expected: Sequence[mpf], tolerance: mpf) -> Verdict:
    """Entry by entry, relative to the largest; what is not a finite number fails."""
    found, expected = list(found), list(expected)
    allowed = tolerance * (1 + max((abs(e) for e in expected), default=mpf(0)))
    gaps = [abs(f - e) for f, e in zip(found, expected, strict=True)]
    # One by one: Python's max passes over a nan that is not the first.
    bad = [mpf(gap) for gap in gaps if not gap <= allowed < mpmath.inf]
    return Verdict("failed", f"{what}: off by {mpmath.nstr(max(bad), 3)}") if bad else PASSED


def near(what: str, found: Any, expected: Any, allowed: float) -> Verdict:
    """Entry by entry in double precision, with an absolute allowance; what is not a number fails."""
    gap = float(np.abs(np.subtract(found, expected)).max())
    return PASSED if gap <= allowed else Verdict("failed", f"{what}: off by {gap:.3g}, allowed is {allowed:.2g}")


def above(what: str, found: float, bound: float, allowed: float) -> Verdict:
    """found >= bound up to the allowance."""
    if found >= bound - allowed:
        return PASSED
    return Verdict("failed", f"{what}: {found:.9g} is below {bound:.9g}")


def every(verdicts: Sequence[Verdict]) -> Verdict:
    """The first that did not pass."""
    return next((v for v in verdicts if v.outcome != "passed"), PASSED)
