"""Attention trained on real tokens, on tokens of the same covariance that are Gaussian, and their theory.

Teachers are drawn once, and their own weights in the eigenbasis of the covariance go into the theory. Every training
sequence has tokens of its own; the test risk is that of sequences of tokens that no training has seen. Hands on a
`Comparison` of three columns, with z-scores that are corrected for the number of quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from replicode.codegen.interpret.functions import numpy_function
from replicode.codegen.threads import one_thread
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.nodes import L, X
from replicode.theory.language.task import Task
from replicode.theory.model import NU
from replicode.validation.data.pool import Pool, effective_sample
from replicode.validation.data.sampling import Batch, Dataset
from replicode.validation.data.scores import ExtremeScores, LocatedScores, Scores, scores_of
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import FALSE_ALARM, POWER, SHIFT, holm, t_power
from replicode.validation.statistics.measure import QUANTITIES, measure
from replicode.validation.training.attention import predictions
from replicode.validation.training.learning import learning
from replicode.validation.training.train import Trained, train

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Progress = Callable[[int, int, str], None]

TEST_SEQUENCES = 20_000
LEAST_UNSEEN = 500
ALLOWANCE = 0.01
NOTICED_KURTOSIS = 0.2  # static word embeddings have 0.08, and agree; contextual ones 2


@dataclass(frozen=True, eq=False)
class Teachers:
    """Whitened teachers of norm sqrt(D), orthogonal to each other."""

    k: Array
    v: Array

    def columns(self, s: Array) -> Array:
        """The rows of a spectrum: eigenvalues, and the weights t_i of both."""
        return np.column_stack([s, self.k**2 / s.size, self.v**2 / s.size])


def teachers_of(weights: Array, s: Array, rng: np.random.Generator) -> Teachers:
    """Normal draws of which coordinate i has the variance that the weights give it; v* is projected off k*."""
    sizes = np.sqrt(weights * (s > 0)[:, None])
    k, v = (sizes[:, i] * rng.standard_normal(s.size) for i in (0, -1))
    k *= sqrt(s.size) / np.linalg.norm(k)
    v -= k * (k @ v) / s.size
    return Teachers(k, v * sqrt(s.size) / np.linalg.norm(v))


@dataclass(frozen=True, eq=False)
class Study:
    """What is trained: attention at its point, teachers, and the task with the law of its location."""

    attention: GeneratedAttention
    lambdas: tuple[float, float]
    task: Task
    tokens: int
    samples: int
    teachers: Teachers
    coordinates: Coordinates
    init: str = "informed"

    @property
    def scores(self) -> Scores:
        """The law of the location."""
        return scores_of(self.task, self.attention.nu, self.tokens)

    @property
    def tilted(self) -> bool:
        """Whether the weight changes the law of the hidden token, which on a pool means tilting it."""
        return not isinstance(self.scores, LocatedScores | ExtremeScores)

    def log_weights(self, chi: Array) -> Array:
        """The log-weight of tokens with these scores, where it belongs to the hidden token's own."""
        own = numpy_function(self.task.own, (X, NU, L))
        return np.asarray(np.broadcast_to(own(chi, self.attention.nu, float(self.tokens)), chi.shape))

    def start(self) -> Any:
        """Where training starts."""
        return self.attention.start(self.init)

    def dataset(self, rows: Array, eps: Index, rng: np.random.Generator) -> Dataset:
        """Labelled sequences of whitened tokens (n, L, D)."""
        n, _, dim = rows.shape
        model = self.attention.model
        z = np.einsum("nd,d->n", rows[np.arange(n), eps], self.teachers.v) / sqrt(dim)
        y = learning(model).label(z, self.attention.noise, rng)
        batch = Batch(rows, y, eps, np.arange(n))
        return Dataset((batch,), self.teachers.k, self.teachers.v, model, self.coordinates)

    def trained(self, dataset: Dataset, rng: np.random.Generator) -> Trained:
        """Attention trained on it."""
        return train(dataset, self.attention, self.lambdas, self.start(), rng)

    def measured(self, dataset: Dataset, trained: Trained, risk: float | None) -> dict[str, float]:
        """All quantities; without a risk that of Gaussian tokens, which the overlaps give."""
        exact = self.attention.risk if risk is None else (lambda _: risk)
        return dict(measure(dataset, trained, self.attention, self.lambdas, exact))

    def test_risk(self, dataset: Dataset, trained: Trained) -> float:
        """The mean risk of these sequences."""
        k, v = dataset.whitened(trained.k), dataset.whitened(trained.v)
        (batch,) = dataset.batches
        f = predictions(k, v, batch, self.attention, dataset.model)
        return float(learning(dataset.model).risk(batch.y, f).mean())


class GaussianTokens:
    """Tokens x = r Sigma^1/2 g with g normal; r is one, or drawn from the radii of a pool."""

    def __init__(self, study: Study, radii: Array | None) -> None:
        self.study, self.radii = study, radii

    def draw(self, rng: np.random.Generator, count: int) -> Dataset:
        """So many sequences."""
        study, dim = self.study, self.study.coordinates.dim
        rows = rng.standard_normal((count, study.tokens, dim))
        if self.radii is not None:
            rows *= rng.choice(self.radii, size=(count, study.tokens, 1))
        chi = rows @ study.teachers.k / sqrt(dim)
        eps, scores = study.scores.draw(rng, chi)
        moved = scores - chi[np.arange(count), eps]
        rows[np.arange(count), eps] += moved[:, None] * study.teachers.k / sqrt(dim)
        return study.dataset(rows, eps, rng)


class PoolTokens:
    """Tokens of a pool: those of training sequences, each used once, and those that are kept for the test."""

    def __init__(self, study: Study, rows: Array) -> None:
        self.study, self.rows = study, rows
        self.chi = rows @ study.teachers.k / sqrt(rows.shape[1])

    def draw(self, rng: np.random.Generator, count: int, replace: bool = False) -> Dataset:
        """So many sequences; a tilted pool gives hidden tokens by their weight, some of them several times."""
        study, tokens = self.study, self.study.tokens
        chosen = (
            rng.integers(len(self.rows), size=(count, tokens))
            if replace
            else rng.permutation(len(self.rows))[: count * tokens].reshape(count, tokens)
        )
        if study.tilted:
            eps = rng.integers(tokens, size=count)
            logs = study.log_weights(self.chi)
            weights = np.exp(logs - logs.max())
            chosen[np.arange(count), eps] = rng.choice(len(self.rows), size=count, p=weights / weights.sum())
        else:
            eps, _ = study.scores.draw(rng, self.chi[chosen])
        return study.dataset(self.rows[chosen], eps, rng)


@dataclass(frozen=True)
class Column:
    """Trained values of every quantity, one for each seed."""

    values: Mapping[str, Array]
    failures: int

    def row(self, quantity: str, theory: float, error: float) -> dict[str, float]:
        """Mean, standard error, z and p of a quantity against its theory."""
        mean, sem, dof = _moments(self.values[quantity])
        z = (mean - theory) / hypot(sem, error)
        return {"mean": mean, "sem": sem, "z": z, "p_value": _two_sided(z, dof)}


def _moments(values: Array) -> tuple[float, float, float]:
    count = values.size
    return float(values.mean()), float(values.std(ddof=1)) / sqrt(count), float(count - 1)


def _two_sided(z: float, dof: float) -> float:
    return float(2.0 * special.stdtr(dof, -abs(z)))


def check_pool(pool: Pool, samples: int, tokens: int) -> None:
    """An InputError where the pool has fewer tokens than the sequences need."""
    needed = samples * tokens + LEAST_UNSEEN
    if pool.size < needed:
        allowed = (
            f"at least {needed} tokens: {samples} sequences of {tokens}, each token used once, and "
            f"{LEAST_UNSEEN} for the test"
        )
        raise InputError("embeddings", f"a pool of {pool.size} tokens", allowed)


def tilted_share(pool: Pool, study: Study) -> float | None:
    """The effective sample of the tilted pool relative to it; a Refusal where it is smaller than what is drawn."""
    if not study.tilted:
        return None
    chi = pool.rows @ study.teachers.k / sqrt(pool.dim)
    share = effective_sample(study.log_weights(chi)) / pool.size
    if share * pool.size < study.samples:
        raise Refusal(
            f"embeddings: the weight of this task tilts the pool to an effective sample of {share:.2%}, "
            f"{share * pool.size:.0f} tokens for {study.samples} sequences; take a weaker signal, or the task max"
        )
    return share


@one_thread()
def run(
    pool: Pool, study: Study, seeds: int, radial: bool, root_seed: int = 0, progress: Progress | None = None
) -> tuple[Column, Column]:
    """The surrogate and the real column, seed by seed."""
    columns: list[list[dict[str, float] | None]] = [[], []]
    surrogate = GaussianTokens(study, pool.radii if radial else None)
    for seed in range(seeds):
        for which, rows in enumerate(columns):
            data_rng, start_rng, test_rng = (
                np.random.default_rng(s) for s in np.random.SeedSequence(root_seed, spawn_key=(seed, which)).spawn(3)
            )
            rows.append((_surrogate, _real)[which](pool, study, surrogate, data_rng, start_rng, test_rng))
            if progress is not None:
                done = "trained" if rows[-1] else "not converged"
                progress(2 * seed + which + 1, 2 * seeds, f"{('Gaussian', 'real')[which]}, seed {seed}: {done}")
    found = [_column(rows) for rows in columns]
    return found[0], found[1]


def _column(rows: list[dict[str, float] | None]) -> Column:
    kept = [row for row in rows if row is not None]
    if len(kept) < 2:
        raise Refusal("embeddings: fewer than two trainings converged")
    return Column({q: np.array([row[q] for row in kept]) for q in QUANTITIES}, len(rows) - len(kept))


def _surrogate(
    pool: Pool, study: Study, tokens: GaussianTokens, data: Any, start: Any, test: Any
) -> dict[str, float] | None:
    dataset = tokens.draw(data, study.samples)
    trained = study.trained(dataset, start)
    if not trained.converged:
        return None
    risk = None if tokens.radii is None else study.test_risk(tokens.draw(test, TEST_SEQUENCES // 4), trained)
    return study.measured(dataset, trained, risk)


def _real(
    pool: Pool, study: Study, tokens: GaussianTokens, data: Any, start: Any, test: Any
) -> dict[str, float] | None:
    """Seen and unseen tokens are drawn apart for every seed."""
    order = data.permutation(pool.size)
    cut = min(pool.size - LEAST_UNSEEN, max(study.samples * study.tokens, pool.size // 2))
    seen, unseen = (PoolTokens(study, pool.rows[part]) for part in (order[:cut], order[cut:]))
    dataset = seen.draw(data, study.samples)
    trained = study.trained(dataset, start)
    if not trained.converged:
        return None
    return study.measured(dataset, trained, _tested(study, unseen, trained, test))


def _tested(study: Study, unseen: PoolTokens, trained: Trained, rng: np.random.Generator) -> float:
    """The risk on sequences of unseen tokens, a part at a time."""
    parts = [study.test_risk(unseen.draw(rng, TEST_SEQUENCES // 10, replace=True), trained) for _ in range(10)]
    return float(np.mean(parts))


@dataclass(frozen=True)
class Comparison:
    """Both columns against the theory, the real one against the surrogate, and what was decided."""

    surrogate: Mapping[str, Mapping[str, float]]
    real: Mapping[str, Mapping[str, float]]
    difference: Mapping[str, Mapping[str, float]]
    verdict: str
    p_value: float
    power: float
    warnings: tuple[str, ...]


def compare(theory: Mapping[str, float], errors: Mapping[str, float], surrogate: Column, real: Column) -> Comparison:
    """Real tokens disagree where they differ from the surrogate significantly, Holm-corrected, and by more than 1 %.

    The surrogate has the same dimension and teachers, so that finite-size corrections drop out of the difference.
    """
    columns = [{q: c.row(q, theory[q], errors[q]) for q in QUANTITIES} for c in (surrogate, real)]
    difference = {q: _difference(real.values[q], surrogate.values[q], theory[q]) for q in QUANTITIES}
    adjusted = dict(zip(QUANTITIES, holm([difference[q]["p_value"] for q in QUANTITIES]), strict=True))
    for q in QUANTITIES:
        difference[q]["adjusted_p_value"] = adjusted[q]
    apart = [q for q in QUANTITIES if adjusted[q] < FALSE_ALARM and abs(difference[q]["relative"]) > ALLOWANCE]
    notes = tuple(_disagreement(q, columns[0][q], columns[1][q], difference[q]) for q in apart)
    power = _power(difference["test_risk"], theory["test_risk"])
    verdict = "disagrees" if apart else "agrees" if power >= POWER else "undecided"
    if verdict == "undecided":
        notes = (f"a shift of {SHIFT:.0%} of the test risk is seen with probability {power:.2f} only: more seeds",)
    return Comparison(columns[0], columns[1], difference, verdict, min(adjusted.values()), power, notes)


def _power(found: Mapping[str, float], theory: float) -> float:
    """The chance to see a shift of the test risk, at the level of one of several tests."""
    return float(t_power(SHIFT * abs(theory) / found["sem"], found["dof"], FALSE_ALARM / len(QUANTITIES)))


def _disagreement(
    quantity: str, surrogate: Mapping[str, float], real: Mapping[str, float], found: Mapping[str, float]
) -> str:
    here, there = (f"{row['mean']:.4g} +- {row['sem']:.1g}" for row in (real, surrogate))
    how = f"{found['relative']:+.1%}, z = {found['z']:.1f}"
    return f"{quantity} disagrees: real {here} against {there} on the surrogate ({how})"


def _difference(real: Array, surrogate: Array, scale: float) -> dict[str, float]:
    """Welch's test of the two columns."""
    (mean, sem, dof), (other, other_sem, other_dof) = _moments(real), _moments(surrogate)
    total = hypot(sem, other_sem)
    degrees = total**4 / (sem**4 / dof + other_sem**4 / other_dof)
    z = (mean - other) / total
    return {
        "mean": mean - other,
        "sem": total,
        "z": z,
        "relative": (mean - other) / abs(scale),
        "dof": degrees,
        "p_value": _two_sided(z, degrees),
    }


def diagnostics(pool: Pool, share: float | None) -> dict[str, float | None]:
    """What tells when Gaussian tokens should fail."""
    return {
        "pool": float(pool.size),
        "radial_kurtosis": pool.radial_kurtosis,
        "neighbour_dependence": pool.neighbour_dependence,
        "tilted_sample": share,
    }


def diagnosis(pool: Pool, radial: bool) -> tuple[str, ...]:
    """Warnings of what the theory that was asked for leaves out."""
    told = []
    if abs(pool.radial_kurtosis) > NOTICED_KURTOSIS and not radial:
        told.append(
            f"tokens are not Gaussian: their squared radii have a relative variance {pool.radial_kurtosis:.3g} beyond "
            "that of Gaussian tokens; --radial empirical has these radii in the theory"
        )
    return tuple(told)
