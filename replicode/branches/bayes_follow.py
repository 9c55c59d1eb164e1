"""The branch of the Bayes-optimal state evolution in one parameter, followed through its folds.

Folds are the spinodals: where the informed branch begins, and where the uninformed one ends. Between them the branch
passes each value three times, and where the free entropies of the outer two are equal is the first-order transition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.branches.arclength import Array, BranchPoint, FollowedBranch, Steps, corrected, follow
from replicode.codegen.threads import one_thread
from replicode.inputs.arguments import not_negative, one_of, positive, rising
from replicode.inputs.learned import ModelTexts
from replicode.inputs.spectrum import SpectrumLike
from replicode.modules import bayes_module, call
from replicode.theory.lengths import Tokens
from replicode.verbs.branch import ENDS, LEFT_OPEN, BranchResult

if TYPE_CHECKING:
    from replicode.theory.language.task import Task

FINENESS = (0.75, 0.95)  # of the branch, and of its spinodals and transitions
DIFFERENCE = 1e-4
MOST_NEWTON = 20
SETTLED = 1e-11


@dataclass(frozen=True, repr=False)
class BayesBranch(BranchResult):
    """A branch of the state evolution with its transitions; `errors` are those of spinodals and transitions."""

    headline = ("parameter", "spinodals", "transitions")

    transitions: tuple[float, ...]
    errors: dict[str, tuple[float, ...]]


class Evolution:
    """F(u, alpha) = log(1 + alpha rates(u)) - u, u = log(1 + qh) of both blocks; in alpha F_p is explicit."""

    def __init__(self, module: Any, nu: float, noise: float, fineness: float, spectrum: Any = None) -> None:
        self.module, self.noise, self.fineness = module, noise, fineness
        self.spectrum = module.spectrum_of(spectrum)
        self.channel = module.channel_at(nu, noise)

    def search(self, alpha: float) -> Any:
        """The state evolution at one alpha."""
        return self.module.Search(self.channel, alpha, self.noise, spectrum=self.spectrum)

    def rates(self, u: Array) -> Any:
        """The averages at u, which alpha does not enter."""
        return self.search(1.0).averages(np.maximum(u, 1e-26), self.fineness)

    def conjugates(self, q: Array, alpha: float) -> Array:
        """u at overlaps that are a fixed point."""
        at = self.module.BayesOverlaps(q[0], 1.0 - q[0], q[1], 1.0 - q[1])
        found: Array = self.search(alpha).conjugates(self.channel.rates(at, self.fineness))
        return found

    def _both(self, u: Array) -> Array:
        found = self.rates(u)
        return np.array([found.k, found.v])

    def __call__(self, u: Array, alpha: float) -> tuple[Array, Array, Array]:
        """F, F_u by central differences of the rates, and F_alpha."""
        rates = self._both(u)
        slopes = np.stack(
            [(self._both(u + d) - self._both(u - d)) / (2.0 * DIFFERENCE) for d in DIFFERENCE * np.eye(u.size)], axis=1
        )
        scale = 1.0 / (1.0 + alpha * rates)
        return np.log1p(alpha * rates) - u, alpha * scale[:, None] * slopes - np.eye(u.size), scale * rates

    def record(self, u: Array, alpha: float) -> dict[str, float]:
        """What is reported along the branch."""
        search, rates = self.search(alpha), self.rates(u)
        at = search.overlaps(u)
        return {
            "q_k": float(at.q_k),
            "q_v": float(at.q_v),
            "test_risk": search.risk(u, rates),
            "free_entropy": search.free_entropy(at, rates),
            "log_evidence": float(rates.entropy),
        }


def bayes_branch(
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    nu: float,
    noise: float,
    low: float,
    high: float,
    start: str = "low",
    told: Callable[[str], None] | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
) -> BayesBranch:
    """Follow the branch in alpha from one end of a range to the other, and locate its spinodals and transitions."""
    rising("alpha", low, high)
    begin, say = (low if one_of("start", start, ENDS) == "low" else high), told or (lambda _: None)
    nu, noise = not_negative("nu", nu, True), positive("noise", noise)
    learning = ModelTexts(spectrum=spectrum, teacher=teacher).read()
    module, data = bayes_module(task, tokens, learning.model), learning.data.get("spectrum")
    with one_thread():
        seeds = call(module, "branches", alpha=begin, nu=nu, noise=noise, tol=1e-6, spectrum=data)
        seed = max(seeds, key=lambda b: b.free_entropy)
        rough, fine = (Evolution(module, nu, noise, f, data) for f in FINENESS)
        q = np.array([seed.q_k, seed.q_v])
        u = -np.log1p(-q) if data is None else rough.conjugates(q, begin)
        branch = follow(
            rough,
            u,
            begin,
            high - begin or low - begin,
            (low, high),
            Steps(),
            rough.record,
            lambda p: say(f"alpha = {p.p:.6f}: test risk {p.record['test_risk']:.6f}"),
        )
        found = {e: ([_spinodal(e, p) for p in branch.folds], _transitions(e, branch)) for e in (rough, fine)}
    (rough_folds, rough_equal), (folds, equal) = found[rough], found[fine]
    errors = {
        "spinodals": tuple(2.0 * abs(a - b) + 1e-9 for a, b in zip(rough_folds, folds)),
        "transitions": tuple(2.0 * abs(a - b) + 1e-9 for a, b in zip(rough_equal, equal)),
    }
    asked = {"task": str(task), "tokens": str(tokens), "nu": nu, "noise": noise, "alpha": [low, high], "start": start}
    return BayesBranch(
        parameter="alpha",
        columns=branch.columns("alpha"),
        spinodals=tuple(folds),
        complete=branch.complete,
        transitions=tuple(equal),
        errors=errors,
        warnings=() if branch.complete else (LEFT_OPEN,),
        asked=asked | learning.question(),
    )


def _spinodal(system: Evolution, near: BranchPoint) -> float:
    """Alpha at a fold: Newton's method on F = 0 and det F_u = 0, from a fold on coarser averages.

    Near it the branch is alpha = alpha_0 + c s^2 in the length s along u, so that three points tell the extremum.
    """
    direction = near.tangent[:-1] / np.linalg.norm(near.tangent[:-1])
    across, steps, width = np.r_[direction, 0.0], Steps(tolerance=SETTLED), 0.02
    centre = near.u
    for _ in range(3):
        points = [corrected(system, centre + s * direction, near.p, across, steps) for s in (-width, 0.0, width)]
        if any(p is None for p in points):
            return float("nan")
        (_, below, _), (middle, here, _), (_, above, _) = (p for p in points if p is not None)
        slope, bend = (above - below) / (2.0 * width), (above - 2.0 * here + below) / width**2
        move = -slope / bend
        alpha = here + slope * move + 0.5 * bend * move**2
        centre, width = middle + move * direction, max(0.3 * width, 3e-3)
    return float(alpha)


def _transitions(system: Evolution, branch: FollowedBranch) -> list[float]:
    """Where the first and the last of three solutions have the same free entropy, by Newton's method in alpha.

    The free entropy is stationary in u, so that it moves with alpha as E[log Z].
    """
    if len(branch.folds) < 2:
        return []
    low, high = sorted(p.p for p in branch.folds[:2])
    alpha = 0.5 * (low + high)
    ways = branch.crossings(alpha)
    if len(ways) < 3:
        return []
    ends = [ways[0].u, ways[-1].u]
    across, steps = np.r_[np.zeros(2), 1.0], Steps(tolerance=SETTLED)
    for _ in range(MOST_NEWTON):
        found = [corrected(system, u, alpha, across, steps) for u in ends]
        if any(f is None for f in found):
            return []
        ends = [f[0] for f in found if f is not None]
        one, two = (system.record(u, alpha) for u in ends)
        move = -(one["free_entropy"] - two["free_entropy"]) / (one["log_evidence"] - two["log_evidence"])
        alpha = float(np.clip(alpha + move, low, high))
        if abs(move) < 1e-10:
            break
    return [alpha]
