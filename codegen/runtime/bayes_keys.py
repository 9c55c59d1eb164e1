"""Nodes over the scores w_chi of all tokens at once, for weights that couple them: (nodes, tokens) with weights.

Averages are symmetric under permutations of the tokens, so one node stands for all its permutations on lattices that
have that symmetry: the projection of Z^L along (1, .., 1), which is A*_{L-1}, where only differences of scores count,
else the body-centred lattice Z^L and Z^L + 1/2. The trapezoid rule on them converges exponentially.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import Array


class KeyNodes(NamedTuple):
    """Standard normal scores of every token, (nodes, tokens), with weights that sum to one."""

    scores: Array
    weights: Array


@lru_cache(maxsize=32)
def symmetric_lattice(tokens: int, step: float, reach: float, differences: bool, most: int) -> KeyNodes | None:
    """Lattice nodes within sqrt(reach^2 + dimension), sorted tokens only; None where they are more than `most`."""
    limit = (reach**2 + tokens) / step**2
    if differences:
        rows = _sorted_integers(tokens, limit, most, differences)
        found = [] if rows is None else [rows - rows.mean(axis=1, keepdims=True)]
    else:
        parts = [_sorted_integers(tokens, limit, most, differences, shift) for shift in (0.0, 0.5)]
        found = [] if any(p is None for p in parts) else [p for p in parts if p is not None]
    if not found:
        return None
    scores = step * np.concatenate(found)
    weights = np.concatenate([_permutations(f) for f in found]) * np.exp(-(scores**2).sum(axis=1) / 2.0)
    return KeyNodes(scores, weights / weights.sum())


def _sorted_integers(tokens: int, limit: float, most: int, differences: bool, shift: float = 0.0) -> Array | None:
    """Ascending rows of integers (plus shift), of sum of squares (about their mean, for differences) up to limit.

    Built token by token: that sum only grows with further ones.
    """
    reach = int(np.sqrt(2.0 * limit)) + 1
    first = np.zeros(1) if differences else np.arange(-reach, reach + 1) + shift
    rows = first[:, None]
    for count in range(1, tokens + 1):
        if count > 1:
            steps = np.arange(2 * reach + 1)
            further = (rows[:, -1:] + steps).reshape(-1, 1)
            rows = np.concatenate([np.repeat(rows, steps.size, axis=0), further], axis=1)
        mean = rows.mean(axis=1) if differences else 0.0
        rows = rows[(rows**2).sum(axis=1) - count * mean**2 <= limit * (1.0 + 1e-12)]
        if len(rows) > most:
            return None
    return np.asarray(rows, dtype=np.float64)


def _permutations(rows: Array) -> Array:
    """The number of distinct permutations of every sorted row."""
    tokens = rows.shape[1]
    log, run = np.full(len(rows), special.gammaln(tokens + 1.0)), np.ones(len(rows))
    for l in range(1, tokens):
        run = np.where(rows[:, l] - rows[:, l - 1] < 0.25, run + 1.0, 1.0)
        log -= np.log(run)
    return np.asarray(np.exp(log))
