"""Vectors of order parameters by block: places come from the model, and none is written out."""

from __future__ import annotations

import numpy as np

from replicode.codegen.runtime.kernel import M_K, ORDER_NAMES, Q_K, Array

RATES = len(ORDER_NAMES)
BLOCKS = tuple(
    tuple(ORDER_NAMES.index(f"{letter}_{block}") for letter in "mqV") for block in "kv" if f"m_{block}" in ORDER_NAMES
)
OVERLAPS = [place for block in BLOCKS for place in block[:2]]


def by_block(order: Array) -> tuple[Array, Array, Array]:
    """m, q and V, each of all blocks."""
    m, q, v = (order[list(places)] for places in zip(*BLOCKS))
    return m, q, v


def ordered(m: Array | float, q: Array | float, v: Array | float) -> Array:
    """The vector of m, q and V of all blocks, or of one number for each that these share."""
    order = np.empty(RATES)
    for places, values in zip(zip(*BLOCKS), (m, q, v)):
        order[list(places)] = values
    return order


def of_scores(m_k: float, q_k: float) -> Array:
    """Order parameters of which only those of the scores are known."""
    order = np.full(RATES, np.nan)
    order[M_K], order[Q_K] = m_k, q_k
    return order
