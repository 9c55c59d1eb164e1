"""Both branches of the Bayes-optimal theory along alpha, and the thresholds between their phases.

As alpha grows an informed branch appears, its free entropy passes that of the uninformed one (the information-theoretic
threshold), and the uninformed branch ends (the algorithmic one); between the last two lies the hard phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from replicode.cache import cached
from replicode.codegen.runtime.bayes_evolution import Branch
from replicode.codegen.runtime.bayes_solver import equilibrium, is_hard
from replicode.codegen.threads import one_thread
from replicode.inputs.arguments import check_digits, not_negative, positive, rising
from replicode.inputs.content import task_content
from replicode.inputs.learned import ModelTexts
from replicode.inputs.spectrum import SpectrumLike
from replicode.modules import bayes_module, call
from replicode.theory.errors import InputError
from replicode.theory.language.task import Task
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.model import Model

SCAN = 17
RANGE_POINTS = 25
_JUMP = 0.1
_ONE, _INFORMED = "one", "informed"


@dataclass(frozen=True)
class BayesBranches:
    """The branches found at every alpha: one, or an informed and an uninformed one."""

    task: str
    tokens: str
    nu: float
    noise: float
    alphas: tuple[float, ...]
    points: tuple[tuple[Branch, ...], ...]
    noise_risk: float

    @property
    def equilibria(self) -> tuple[Branch, ...]:
        """The branch of the largest free entropy at every alpha."""
        return tuple(equilibrium(p) for p in self.points)

    @property
    def hard(self) -> tuple[bool, ...]:
        """Where the equilibrium is not reached from an uninformed start."""
        return tuple(is_hard(p) for p in self.points)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON: the equilibrium and all branches at every alpha."""
        rows = [
            {
                "alpha": alpha,
                "test_risk": best.test_risk,
                "excess_risk": best.test_risk - self.noise_risk,
                "hard_phase": hard,
                "branches": [b._asdict() for b in found],
            }
            for alpha, found, best, hard in zip(self.alphas, self.points, self.equilibria, self.hard)
        ]
        return {"task": self.task, "tokens": self.tokens, "nu": self.nu, "noise": self.noise, "points": rows}


@dataclass(frozen=True)
class Thresholds:
    """Values of alpha, None outside the range: where an informed branch appears, wins, and is reached from nothing.

    Each is right to `tolerance`, as far as the scan of the range resolves what lies between its points.
    """

    informed_branch: float | None
    information_theoretic: float | None
    algorithmic: float | None
    tolerance: float

    def as_dict(self) -> dict[str, Any]:
        """The fields in order, ready for JSON."""
        return asdict(self)


class _Along:
    """The branches at any alpha of one setting, each kept in the cache: an interrupted range goes on where it was."""

    def __init__(
        self, task: str | Task, tokens: Tokens, nu: float, noise: float, digits: int, texts: ModelTexts
    ) -> None:
        self.accuracy, learning = check_digits(digits), texts.read()
        self.module, self.data = bayes_module(task, tokens, learning.model), learning.data
        self.physics = {"nu": not_negative("nu", nu, True), "noise": not_negative("noise", noise)}
        self.key = task_content(task), repr(lengths(tokens)), *self.physics.values(), self.accuracy, *learning.content

    def branches(self, alpha: float) -> tuple[Branch, ...]:
        """One branch, or an informed and an uninformed one."""

        def build() -> dict[str, Any]:
            with one_thread():
                found = call(self.module, "branches", alpha=alpha, tol=self.accuracy, **self.physics, **self.data)
            return {"made_for": f"Bayes-optimal branches, alpha = {alpha:g}", "branches": [b._asdict() for b in found]}

        return tuple(Branch(**b) for b in cached("branches", (*self.key, alpha), build)["branches"])


def shown_alphas(low: float, high: float, marks: Thresholds) -> list[float]:
    """The values of alpha at which branches are drawn: a grid, and both sides of every threshold."""
    step = (high - low) / (RANGE_POINTS - 1)
    near = [m for m in (marks.informed_branch, marks.information_theoretic, marks.algorithmic) if m is not None]
    away = [side * far for side in (-1.0, 1.0) for far in (marks.tolerance, 0.1 * step, 0.4 * step)]
    beside = [mark + far for mark in near for far in away]
    return sorted({*(low + step * i for i in range(RANGE_POINTS)), *(a for a in beside if low < a < high)})


def bayes_branches(
    task: str | Task,
    tokens: Tokens,
    nu: float,
    noise: float,
    alphas: Sequence[float],
    digits: int = 5,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
) -> BayesBranches:
    """All branches at every alpha."""
    at = tuple(positive("alpha", alpha) for alpha in alphas)
    along = _Along(task, tokens, nu, noise, digits, ModelTexts(model, spectrum=spectrum, teacher=teacher))
    points = tuple(map(along.branches, at))
    shown = task if isinstance(task, str) else task.text
    return BayesBranches(shown, str(tokens), nu, noise, at, points, float(along.module.noise_risk(noise)))


def thresholds(
    task: str | Task,
    tokens: Tokens,
    nu: float,
    noise: float,
    low: float,
    high: float,
    tolerance: float = 1e-3,
    digits: int = 5,
    scan: int = SCAN,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
) -> Thresholds:
    """The thresholds between two values of alpha: a scan, then bisection wherever neighbours differ."""
    rising("alpha", low, high)
    if not tolerance > 0.0:
        raise InputError("tolerance", tolerance, "a positive number")
    along = _Along(task, tokens, nu, noise, digits, ModelTexts(model, spectrum=spectrum, teacher=teacher))
    search = _Bisection(along, tolerance)
    step = (high - low) / (scan - 1)
    scanned = [search.state(low + step * i) for i in range(scan)]
    for left, right in pairwise(scanned):
        search.separate(left, right)
    return Thresholds(
        informed_branch=search.first(lambda a, b: a == _ONE and b != _ONE),
        information_theoretic=search.first(lambda a, b: a != _INFORMED and b == _INFORMED),
        algorithmic=search.first(lambda a, b: a != _ONE and b == _ONE),
        tolerance=tolerance,
    )


@dataclass(frozen=True)
class _State:
    """Which branch wins at alpha, or that there is one only, and how much of v an uninformed start finds."""

    alpha: float
    winner: str
    q_v: float


class _Bisection:
    """Changes of state along alpha, each between two values that are closer than the tolerance."""

    def __init__(self, along: _Along, tolerance: float) -> None:
        self.along, self.tolerance = along, tolerance
        self.changes: list[tuple[_State, _State]] = []

    def state(self, alpha: float) -> _State:
        found = self.along.branches(alpha)
        uninformed = next(b for b in found if b.start == "uninformed")
        return _State(alpha, equilibrium(found).start if len(found) > 1 else _ONE, uninformed.q_v)

    def separate(self, left: _State, right: _State) -> None:
        """Note the changes between two states; a jump between two single branches is looked into as well."""
        jumps = left.winner == right.winner == _ONE and abs(right.q_v - left.q_v) > _JUMP
        if left.winner == right.winner and not jumps:
            return
        if right.alpha - left.alpha < self.tolerance:
            if left.winner != right.winner:
                self.changes.append((left, right))
            return
        middle = self.state((left.alpha + right.alpha) / 2.0)
        self.separate(left, middle)
        self.separate(middle, right)

    def first(self, kind: Callable[[str, str], bool]) -> float | None:
        """The middle of the first change of a kind."""
        found = [(a.alpha + b.alpha) / 2.0 for a, b in self.changes if kind(a.winner, b.winner)]
        return found[0] if found else None
