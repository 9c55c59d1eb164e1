"""Further solutions of the saddle-point equations at one point: several starts, then deflation.

Starts are combinations of a teacher found or not found in each block, and a small and a large student. Deflation is
Newton's method on M(u) F(u), M(u) = prod_i (1 + 1/|u - u_i|^2) over the known solutions u_i, which it therefore does
not find again. Whatever it finds is solved for as any other solution is. What is handed on is a `SearchResult`: the
solutions with how each was found, and what was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from replicode.codegen.runtime.fixedpoint import from_free, to_free
from replicode.codegen.runtime.kernel import ORDER_NAMES
from replicode.inputs.problem import Problem, Start
from replicode.modules import call
from replicode.results import Solution
from replicode.theory.errors import Refusal

LEVEL = 2
APART = 0.02  # of two solutions in u, relative to their size
SETTLED = 1e-6
SEARCH_TOL = 1e-6
QUICK_START, QUICK_NEWTON, QUICK_TOL = "k found, v not", 10, 1e-4
CLEARLY = 1e-3
MOST_NEWTON = 25
LONGEST = 1.0
FOUND, LOST, SMALL, LARGE = 0.9, 0.02, 0.1, 4.0


@dataclass(frozen=True)
class Found:
    """A solution: its unknowns u, the module's Solution, and how it was found."""

    u: np.ndarray[Any, np.dtype[Any]]
    solution: Any
    how: str


@dataclass(frozen=True)
class SearchResult:
    """All solutions found, the least energy first, and what was tried, in words."""

    solutions: tuple[Found, ...]
    tried: tuple[str, ...]


def starts(posed: Problem) -> dict[str, Start]:
    """Starts by name: the two that `solve` has, and four that know one block only, or start small or large."""
    fit = posed.values["alpha"] / (1.0 + posed.values["alpha"])
    response = {b: 1.0 / (posed.values[f"lambda_{b}"] + 0.3 * fit + 1e-3) for b in "kv"}

    def at(m_k: float, q_k: float, m_v: float, q_v: float) -> dict[str, float]:
        return {"m_k": m_k, "q_k": q_k, "V_k": response["k"], "m_v": m_v, "q_v": q_v, "V_v": response["v"]}

    return {
        "informed": "informed",
        "random": "random",
        "k found, v not": at(FOUND, 1.0, LOST, 0.3),
        "v found, k not": at(LOST, 0.3, FOUND, 1.0),
        "small": at(LOST * SMALL, SMALL**2, LOST * SMALL, SMALL**2),
        "large": at(LARGE * FOUND, LARGE**2, FOUND, 1.0),
    }


def free(order: Mapping[str, float]) -> Any:
    """The unknowns u = (m, log(q - m^2), log V) of both blocks."""
    return to_free(np.array([float(order[name]) for name in ORDER_NAMES]))


def order_of(u: Any) -> dict[str, float]:
    """The order parameters of unknowns u."""
    return dict(zip(ORDER_NAMES, map(float, from_free(u))))


def same(one: Any, two: Any) -> bool:
    """Whether two unknowns are those of one solution; what is left of a small norm counts little."""
    return bool(np.abs(one - two).max() < APART * (1.0 + np.abs(one).max()))


def search(
    posed: Problem,
    tol: float | None,
    known: Sequence[tuple[str, Start]] = (),
    names: Sequence[str] | None = None,
    deflated: bool = True,
) -> SearchResult:
    """Solutions from starts, those of `known` first, and by deflation where the map is smooth."""
    found: list[Found] = []
    tried = []
    chosen = starts(posed)
    for name, start in (*known, *((n, chosen[n]) for n in (names or chosen))):
        tried.append(f"start: {name}")
        _solved(posed, tol, start, tried[-1], found)
    if deflated and hasattr(posed.module, "linearised_map"):
        tried.append("deflation from every start" if _deflated_all(posed, tol, chosen, found) else "deflation: refused")
    return SearchResult(tuple(sorted(found, key=lambda f: float(f.solution.energy))), tuple(tried))


def _solved(posed: Problem, tol: float | None, start: Start, how: str, found: list[Found]) -> bool:
    """Solve from a start and note the solution where it is new."""
    solution = posed.solve(tol, start, False, False, False)
    if not solution.converged:
        return False
    u = free(solution.order_parameters)
    if any(same(u, f.u) for f in found):
        return False
    found.append(Found(u, solution, how))
    return True


def _deflated_all(posed: Problem, tol: float | None, chosen: Mapping[str, Start], found: list[Found]) -> bool:
    """Deflated Newton steps from every start that is a mapping, and from every solution; False where refused."""
    begins = [(n, free(s)) for n, s in chosen.items() if isinstance(s, Mapping)]
    begins += [(f"beside the solution from {f.how}", f.u + 0.3) for f in found]
    try:
        for name, u in begins:
            at = deflated_newton(posed, u, [f.u for f in found])
            if at is not None:
                _solved(posed, tol, order_of(at), f"deflation: {name}", found)
    except Refusal:
        return False
    return True


def deflated_newton(posed: Problem, u: Any, known: Sequence[Any], most: int = MOST_NEWTON) -> Any:
    """A zero of F that is none of those known; None where there is none within some steps."""
    for _ in range(most):
        value, by_u, *_ = call(posed.module, "linearised_map", free=u, parameter="alpha", level=LEVEL, **posed.values)
        if not (np.isfinite(value).all() and np.isfinite(by_u).all()):
            return None
        if np.abs(value).max() < SETTLED and not any(same(u, k) for k in known):
            return u
        try:
            step = -np.linalg.solve(by_u, value)
        except np.linalg.LinAlgError:
            return None
        gaps = [u - k for k in known]
        away = sum((-2.0 * g / ((g @ g) ** 2) / (1.0 + 1.0 / (g @ g)) for g in gaps), np.zeros(u.size))
        step = step / (1.0 - float(away @ step))
        length = float(np.abs(step).max())
        u = u + step * min(1.0, LONGEST / length)
    return None


def searched(found: Solution, posed: Problem) -> Solution:
    """A Solution with all branches that a search finds, and a warning where one has lower energy."""
    if posed.learning.data or set(found.order_parameters) != set(ORDER_NAMES):
        raise Refusal("branches: searched for with scores, and without a spectrum or radii")
    looked = search(posed, SEARCH_TOL, [("the solution", dict(found.order_parameters))])
    rows = tuple(_row(f) for f in looked.solutions)
    warnings = list(found.warnings)
    best = looked.solutions[0] if looked.solutions else None
    clear = best is not None and found.converged and not same(best.u, free(found.order_parameters))
    if best is not None and clear and best.solution.energy < found.energy - _open(found) - _open(best.solution):
        warnings = [w for w in warnings if not w.startswith("another branch")]
        lower = f"{best.solution.energy:.6g} < {found.energy:.6g}"
        warnings.append(
            f"another branch, by {best.how}, has lower energy ({lower}), test risk {best.solution.test_risk:.6g}"
        )
    return found._replace(branches=rows, tried=looked.tried, warnings=tuple(warnings))


def other_branch(found: Solution, posed: Problem) -> Solution:
    """A Solution with a warning where a few deflated steps lead to a solution of clearly lower energy."""
    told = any(w.startswith("another branch") for w in found.warnings)
    if told or not found.converged or not hasattr(posed.module, "linearised_map"):
        return found
    if set(found.order_parameters) != set(ORDER_NAMES):
        return found
    known, start = free(found.order_parameters), starts(posed)[QUICK_START]
    assert isinstance(start, Mapping)
    try:
        u = deflated_newton(posed, free(start), [known], QUICK_NEWTON)
    except Refusal:
        return found
    there = None if u is None else posed.solve(QUICK_TOL, order_of(u), False, False, False)
    if there is None or not there.converged or same(free(there.order_parameters), known):
        return found
    least = found.energy - CLEARLY * (abs(found.energy) + abs(there.energy))
    if not there.energy < least - _open(found) - _open(there):
        return found
    text = (
        f"another branch, by deflation, has lower energy ({there.energy:.4g} < {found.energy:.4g}), "
        f"test risk {there.test_risk:.4g}"
    )
    return found._replace(warnings=(*found.warnings, text))


def _open(solution: Any) -> float:
    return float(solution.errors.get("energy", 0.0))


def _row(found: Found) -> dict[str, Any]:
    solution = found.solution
    numbers = {n: float(getattr(solution, n)) for n in ("test_risk", "train_loss", "energy", "error")}
    return {**numbers, "order_parameters": dict(solution.order_parameters), "found_by": found.how}
