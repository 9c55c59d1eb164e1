"""A landscape in numbers: by family of starts, the lowest minima, and the overlaps of pairs on the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replicode.validation.data.sampling import Array
from replicode.validation.landscape.minima import FAMILIES, Landscape, Minimum, weights

SHOWN = ("energy", "test_risk", "train_loss", "m_k", "q_k", "m_v", "q_v")
SAME = 1e-3  # relative distance in overlap below which two minima are one


def overlaps_of(found: Landscape, block: str) -> Array:
    """k.k'/D (or v.v'/D) of all pairs of minima on the same data, those of one minimum found twice left out."""
    pairs = []
    for seed in found.seeds:
        rows = weights(found.of_data(seed), block)
        if len(rows) > 1:
            products = rows @ rows.T / found.dim
            norms = products.diagonal()
            apart = np.triu(norms[:, None] + norms[None, :] - 2.0 * products > SAME * norms.mean(), k=1)
            pairs.append(products[apart])
    return np.concatenate(pairs) if pairs else np.zeros(0)


def summary(found: Landscape) -> dict[str, Any]:
    """Means over the data sets: of every family of starts, of the lowest minimum, and of the pairs' overlaps."""
    lowest = found.lowest()
    families = {f: _family([m for m in found.minima if m.family == f and m.converged], lowest) for f in FAMILIES}
    pairs = {b: overlaps_of(found, b) for b in ("k", "v")}
    return {
        "families": {name: row for name, row in families.items() if row},
        "lowest": _means(list(lowest.values())),
        "overlaps": {b: _spread(p) for b, p in pairs.items()},
        "failures": sum(not m.converged for m in found.minima),
    }


def _means(minima: Sequence[Minimum]) -> dict[str, Mapping[str, float] | int]:
    """Mean and scatter of everything measured, and how many there are."""
    if not minima:
        return {}
    rows = {name: np.array([m.measured[name] for m in minima]) for name in SHOWN}
    stated = {name: {"mean": float(r.mean()), "scatter": float(r.std())} for name, r in rows.items()}
    return {**stated, "minima": len(minima)}


def _family(minima: Sequence[Minimum], lowest: Mapping[int, Minimum]) -> dict[str, Any]:
    """The means, and how far above the lowest minimum of the same data they are, as a share of its energy."""
    above = [m.energy / lowest[m.seed].energy - 1.0 for m in minima]
    return {**_means(minima), "above_lowest": float(np.mean(above))} if minima else {}


def _spread(pairs: Array) -> dict[str, float | int | None]:
    """Mean, scatter and range of overlaps."""
    if not pairs.size:
        return {"pairs": 0, "mean": None, "scatter": None, "least": None, "most": None}
    found = {"mean": pairs.mean(), "scatter": pairs.std(), "least": pairs.min(), "most": pairs.max()}
    return {"pairs": int(pairs.size), **{name: float(value) for name, value in found.items()}}
