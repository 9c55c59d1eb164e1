"""The best point on the stable side, where replica symmetry is broken at the minimum.

The edge of stability is where the larger of the replicon and of the jumps' weight, each over its threshold, passes 1.
Steps are those of sequential quadratic programming, with the slope of the edge by differences.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from replicode.branches.minimise import Array, Minimised
from replicode.codegen.runtime.solver import STABLE_JUMP, STABLE_REPLICON

OUTWARD = 0.5
MOST_OUTWARD = 12
EDGE_STEP = 0.02
NEXT_TO_EDGE = 1e-3
MOST_STEPS = 5
LONGEST = 0.5


class Solves(Protocol):
    """What solves at a place; `logs` tells the coordinates that are logarithms of lambdas."""

    logs: Array

    def solve(self, place: Array, checks: bool = False, slopes: bool = True) -> Any:
        """The solution there."""


def margin(found: Any) -> float:
    """How far beyond the edge of stability: negative where replica symmetry holds."""
    if not found.converged:
        return np.inf
    v, conjugate = found.order_parameters["V_k"], found.conjugates["Vh_k"]
    shift = found.jump_weight * max(abs(conjugate) * v, 1e-4)
    return float(max(found.replicon / STABLE_REPLICON, shift / STABLE_JUMP) - 1.0)


def constrained(search: Solves, found: Minimised, near: float = NEXT_TO_EDGE) -> tuple[Array, Any] | None:
    """The best place found on the stable side, to `near`, and the solution there."""
    place = found.best.place
    for _ in range(MOST_OUTWARD):
        place = place + OUTWARD * search.logs
        now = search.solve(place, checks=True)
        if now.converged and now.rs_stable:
            break
    else:
        return None
    at = _edge(search, found.best.place, place, now, near)
    for _ in range(MOST_STEPS):
        step = _step(search, at, found.curvature)
        inside = _edge(search, at[0] + step, at[0], at[1], near, straight=True)
        moved = float(np.abs(inside[0] - at[0]).max())
        better = inside[1].test_risk < at[1].test_risk
        at = inside if better else at
        if moved < near or not better:
            break
    return at


def _edge(
    search: Solves, outside: Array, inside: Array, known: Any, near: float, straight: bool = False
) -> tuple[Array, Any]:
    """The last stable point on the way to one that may not be, to `near`."""
    if straight:
        there = search.solve(outside, checks=True)
        if there.converged and there.rs_stable:
            return outside, there
    while np.abs(outside - inside).max() > near:
        middle = 0.5 * (outside + inside)
        there = search.solve(middle, checks=True)
        if there.converged and there.rs_stable:
            inside, known = middle, there
        else:
            outside = middle
    return inside, known


def _step(search: Solves, at: tuple[Array, Any], curvature: Array) -> Array:
    """Downhill within the linearised edge."""
    place, known = at
    over = getattr(search, "names", ())
    scale = np.where(search.logs, np.exp(np.where(search.logs, place, 0.0)), 1.0)
    gradient = scale * np.array([known.derivatives[n]["test_risk"] for n in over])
    here = margin(known)
    slopes = np.array(
        [(margin(search.solve(place + d, True, False)) - here) / EDGE_STEP for d in EDGE_STEP * np.eye(place.size)]
    )
    inverse = np.linalg.inv(curvature)
    step = -inverse @ gradient
    if here + slopes @ step > 0.0 and np.isfinite(slopes).all():
        across = inverse @ slopes
        step = step - across * (here + slopes @ step) / (slopes @ across)
    length = float(np.linalg.norm(step))
    return np.asarray(step if length <= LONGEST else step * (LONGEST / length))
