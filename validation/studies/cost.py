"""What trainings need of memory and time: hands on nothing, refuses what no machine at hand can do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite

from replicode.theory.errors import InputError
from replicode.theory.lengths import Lengths

COPIES = 2.5  # of the tokens that sampling and training hold at once
RESULT = 2000.0  # bytes of what is measured of one training
EVALUATIONS = 150  # of the objective in one training
RATE = 2e9  # multiplications a second of one thread
OVERHEAD = 0.01  # seconds that a training takes at any dimension
LONGEST = 30 * 86400.0


def check_cost(lengths: Lengths, alpha: float, dims: Sequence[int], seeds: int, named: str = "seeds") -> None:
    """An InputError that names the argument and says what it would need."""
    if not isfinite(alpha):
        return
    tokens = sum(n * p for n, p in lengths.shares)
    there, needed = memory(), COPIES * 8.0 * _entries(max(dims), alpha, tokens)
    if needed > there:
        allowed = f"a dimension whose data fit into {_bytes(there)} of memory: these need about {_bytes(needed)}"
        raise InputError("dim", max(dims), allowed)
    each = sum(_seconds(dim, alpha, tokens) for dim in dims)
    if 2 * each > LONGEST:
        allowed = f"a dimension at which two seeds take less than {_time(LONGEST)}: here about {_time(2 * each)}"
        raise InputError("dim", max(dims), allowed)
    most = int(min(LONGEST / each, there / (RESULT * len(dims))))
    if seeds > most:
        these = f"{_bytes(seeds * RESULT * len(dims))} and {_time(seeds * each)}"
        raise InputError(named, seeds, f"at most {most} here: these need about {these}")


def _entries(dim: int, alpha: float, tokens: float) -> float:
    """Numbers in the tokens of a data set."""
    return max(alpha * dim, 1.0) * tokens * dim


def _seconds(dim: int, alpha: float, tokens: float) -> float:
    """About how long one training takes: four products with the tokens in an evaluation."""
    return OVERHEAD + EVALUATIONS * 4.0 * _entries(dim, alpha, tokens) / RATE


def memory() -> float:
    """Bytes of the machine's memory; where it does not say, sixteen gigabytes."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return 16e9


def _bytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"


def _time(seconds: float) -> str:
    days = seconds / 86400.0
    return f"{days:.3g} days" if days < 1000.0 else f"{days / 365.25:.3g} years"
