"""Train over dimensions and seeds, and report the comparison with a theory as in `replicode validate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import floor, isfinite
from typing import Any

import numpy as np

from replicode.codegen.threads import one_thread
from replicode.theory.errors import InputError
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.validation.data.sampling import Array, Sampler
from replicode.validation.data.scores import Scores, scores_of
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.ledger import Ledger, LedgerError
from replicode.validation.statistics.comparison import FALSE_ALARM, SHIFT, Comparison, QuantityTest, compare, holm
from replicode.validation.statistics.controls import CONTROLS, Controls
from replicode.validation.statistics.measure import QUANTITIES, Risk, measure
from replicode.validation.training.attention import TokenMap
from replicode.validation.training.train import Start, train

Progress = Callable[[int, int, str], None]

MOST_FAILURES = 0.1


@dataclass(frozen=True)
class Ensemble:
    """The law of the data at every dimension, with alpha = N/D; `scores` has one law for each length."""

    lengths: Lengths
    alpha: float
    noise: float
    scores: tuple[Scores, ...]
    single: bool = False
    model: Model = DEFAULT_MODEL
    coordinates: Coordinates | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        lengths: Lengths,
        alpha: float,
        nu: float,
        noise: float,
        *,
        single: bool = False,
        model: Model = DEFAULT_MODEL,
        coordinates: Coordinates | None = None,
    ) -> Ensemble:
        """The setting of a task at a signal nu, which is infinite where the task has that limit."""
        scores = tuple(scores_of(task, nu, tokens) for tokens in lengths.tokens)
        return cls(lengths, alpha, noise, scores, single, model, coordinates)

    def __post_init__(self) -> None:
        if not (isfinite(self.alpha) and self.alpha > 0):
            raise InputError("alpha", self.alpha, "a finite number above 0")

    def sampler(self, dim: int, rng: np.random.Generator) -> Sampler:
        """The sampler at dimension D, with N = alpha D.

        Where alpha D is not an integer (to 1e-9), N is one of its neighbours, drawn so that E[N] = alpha D: a
        fixed rounding would add a bias of order 1/D that jumps with D and that no a + b/D can remove.
        """
        exact = self.alpha * dim
        samples = round(exact) if abs(exact - round(exact)) <= 1e-9 else floor(exact + rng.random())
        law = None if self.coordinates is None else self.coordinates.at(dim)
        return Sampler(self.lengths, dim, max(samples, 1), self.noise, self.scores, self.single, self.model, law)


@dataclass(frozen=True)
class Failure:
    """A training that did not converge; its values are left out of the averages."""

    dim: int
    seed: int
    gradient_norm: float
    iterations: int


@dataclass(frozen=True, eq=False)
class Experiment:
    """values[quantity][dim] of the converged trainings in order of seed, and the failed ones.

    variates[dim] has the control variates of the same trainings, one row each; it is empty where none were asked for.
    """

    values: Mapping[str, Mapping[int, Array]]
    failures: tuple[Failure, ...]
    dims: tuple[int, ...]
    seeds: int
    root_seed: int
    variates: Mapping[int, Array] = field(default_factory=dict)


@one_thread()
def run(
    setting: Ensemble,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    start: Start,
    risk: Risk,
    dims: Sequence[int],
    seeds: int,
    root_seed: int = 0,
    progress: Progress | None = None,
    *,
    tolerance: float | None = None,
    controls: Controls | None = None,
    kept: Ledger | None = None,
) -> Experiment:
    """Train `seeds` times at each dimension, with control variates where they are asked for.

    The random stream of a training depends on (root_seed, dim, seed) only, so an experiment can be enlarged,
    or its parts run in any order, without changing what is already there. `kept` has the trainings that were done
    before, for this very setting, and gets each new one as soon as it is done.
    """
    _check(dims, seeds, lambdas)
    kept = kept or Ledger(None)
    rows: dict[int, list[Mapping[str, float]]] = {dim: [] for dim in dims}
    failures: list[Failure] = []
    for done, (dim, seed) in enumerate(((dim, seed) for dim in dims for seed in range(seeds)), start=1):
        key = {"dim": dim, "seed": seed, "root_seed": root_seed, "tolerance": tolerance, "controls": bool(controls)}
        outcome = _outcome(kept.get(key))
        if outcome is None:
            args = (setting, token_map, lambdas, start, risk, dim, seed, root_seed)
            outcome = run_one(*args, tolerance=tolerance, controls=controls)
            with suppress(LedgerError):  # what can not be kept is no reason to stop
                kept.put(key, asdict(outcome) if isinstance(outcome, Failure) else dict(outcome))
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            rows[dim].append(outcome)
        if progress is not None:
            state = "not converged" if isinstance(outcome, Failure) else "trained"
            progress(done, len(dims) * seeds, f"D = {dim}, seed {seed}: {state}")
    values = {q: {dim: np.array([row[q] for row in rows[dim]]) for dim in dims} for q in QUANTITIES}
    variates = {dim: _rows_of(rows[dim]) for dim in dims} if controls else {}
    return Experiment(values, tuple(failures), tuple(dims), seeds, root_seed, variates)


def _outcome(payload: dict[str, Any] | None) -> Mapping[str, float] | Failure | None:
    """What was kept of a training."""
    return Failure(**payload) if payload and "gradient_norm" in payload else payload


def _rows_of(rows: Sequence[Mapping[str, float]]) -> Array:
    """The control variates of trainings, shape (trainings, controls)."""
    return np.array([[row[name] for name in CONTROLS] for row in rows]).reshape(len(rows), len(CONTROLS))


def run_one(
    setting: Ensemble,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    start: Start,
    risk: Risk,
    dim: int,
    seed: int,
    root_seed: int = 0,
    *,
    tolerance: float | None = None,
    controls: Controls | None = None,
) -> Mapping[str, float] | Failure:
    """The quantities of one training and the control variates of its data, or its failure."""
    data_rng, start_rng = streams(root_seed, dim, seed)
    dataset = setting.sampler(dim, data_rng).draw(data_rng)
    trained = train(dataset, token_map, lambdas, start, start_rng, tolerance=tolerance)
    if not trained.converged:
        return Failure(dim, seed, trained.gradient_norm, trained.iterations)
    found = measure(dataset, trained, token_map, lambdas, risk)
    return found if controls is None else {**found, **controls.of(dataset)}


def streams(root_seed: int, dim: int, seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """The generators of the data and of the start of one training, independent of those of any other."""
    data, start = np.random.SeedSequence(root_seed, spawn_key=(dim, seed)).spawn(2)
    return np.random.default_rng(data), np.random.default_rng(start)


def _check(dims: Sequence[int], seeds: int, lambdas: tuple[float, float]) -> None:
    """An InputError for settings that cannot be run."""
    if not dims or len(set(dims)) < len(dims) or min(dims) < 4:
        raise InputError("dims", tuple(dims), "distinct integers of at least 4")
    if seeds < 2:
        raise InputError("seeds", seeds, "at least 2, to have a standard error")
    for name, value in zip(("lambda_k", "lambda_v"), lambdas):
        if not (isfinite(value) and value >= 0):
            raise InputError(name, value, "a finite number of at least 0")


def report(
    theory: Mapping[str, float],
    experiment: Experiment,
    theory_error: Mapping[str, float] | None = None,
    *,
    false_alarm: float = FALSE_ALARM,
    shift: float = SHIFT,
) -> dict[str, object]:
    """The JSON-ready result of `replicode validate`; non-finite numbers are None.

    When more than a tenth of the trainings failed the survivors are a selection, and the verdict is
    "undecided" whatever they say.
    """
    warnings = _run_warnings(experiment)
    result: dict[str, object] = {
        "theory": {q: _number(x) for q, x in theory.items()},
        "trained": {},
        "dim": max(experiment.dims),
        "dims": list(experiment.dims),
        "seeds": experiment.seeds,
        "failures": len(experiment.failures),
        "verdict": "undecided",
        "p_value": None,
        "power": 0.0,
        "seeds_needed": None,
    }
    if not any(len(sample) > 1 for sample in experiment.values[QUANTITIES[0]].values()):
        return result | {"warnings": [*warnings, "too few converged trainings to compare anything"]}
    controls = experiment.variates or None
    comparison = compare(
        experiment.values, theory, theory_error, variates=controls, false_alarm=false_alarm, shift=shift
    )
    return result | {
        "trained": {q: _row(test) for q, test in comparison.tests.items()},
        "verdict": "undecided" if _failed_share(experiment) > MOST_FAILURES else comparison.verdict,
        "p_value": _number(comparison.p_value),
        "power": _number(comparison.power),
        "seeds_needed": comparison.seeds_needed,
        "warnings": warnings + _comparison_warnings(comparison),
    }


def _failed_share(experiment: Experiment) -> float:
    """The share of the trainings that did not converge."""
    return len(experiment.failures) / (len(experiment.dims) * experiment.seeds)


def _row(test: QuantityTest) -> dict[str, float | None]:
    """One quantity's row of the report."""
    shown = {
        "mean": test.mean,
        "sem": test.sem,
        "z": test.z,
        "p_value": test.p,
        "adjusted_p_value": test.adjusted_p,
        "variance_ratio": test.gain,
    }
    return {key: _number(value) for key, value in shown.items()}


def _number(value: float) -> float | None:
    """The number as JSON has it."""
    return float(value) if isfinite(value) else None


def _run_warnings(experiment: Experiment) -> list[str]:
    """What the reader must know of the trainings themselves."""
    warnings = []
    if sum(len(sample) > 0 for sample in experiment.values[QUANTITIES[0]].values()) == 1:
        warnings.append("a single dimension: the means carry a finite-size bias of order 1/D, which is not removed")
    if experiment.failures:
        worst = max(failure.gradient_norm for failure in experiment.failures)
        total = len(experiment.dims) * experiment.seeds
        text = f"{len(experiment.failures)} of {total} trainings did not converge and are left out"
        warnings.append(f"{text} (relative gradient norm up to {worst:.1e})")
    if _failed_share(experiment) > MOST_FAILURES:
        warnings.append("more than a tenth of the trainings failed: the verdict is undecided")
    return warnings


def _comparison_warnings(comparison: Comparison) -> list[str]:
    """What the reader must know of the comparison."""
    warnings = []
    for quantity, test in comparison.tests.items():
        if test.adjusted_p < comparison.false_alarm:
            detail = f"{test.mean:.6g} +- {test.sem:.2g} against theory {test.theory:.6g}"
            warnings.append(f"{quantity} disagrees: {detail} (z = {test.z:.1f}, adjusted p = {test.adjusted_p:.1e})")
    fits = {q: test.lack_of_fit for q, test in comparison.tests.items() if test.lack_of_fit is not None}
    for quantity, p in zip(fits, holm(list(fits.values()))):
        if p < comparison.false_alarm:
            warnings.append(f"{quantity} does not follow a + b/D at these dimensions (adjusted p = {p:.1e})")
    if comparison.verdict == "undecided":
        needed = comparison.seeds_needed
        seeds = f"{needed} seeds per dimension would" if needed is not None else "no number of seeds would"
        aim = f"a shift of {comparison.shift:.0%} is seen with probability {comparison.power:.2f} only"
        warnings.append(f"{aim}; {seeds} bring this to 0.9")
    return warnings
