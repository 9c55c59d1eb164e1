"""One problem for message passing: its evidence, its data, and the risk of its estimates on fresh sequences."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from replicode.theory.errors import InputError
from replicode.theory.language.task import Task, task
from replicode.theory.lengths import Lengths, lengths
from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.validation.amp.evidence import evidence_of
from replicode.validation.amp.passing import Evidence, PassingStep
from replicode.validation.data.sampling import Array, Dataset, Sampler
from replicode.validation.data.scores import Index, Scores, scores_of
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.statistics.measure import Overlaps
from replicode.validation.training.learning import learning


@dataclass(frozen=True, eq=False)
class PassingProblem:
    """A task with alpha = N/D, the law of its scores for each length, and the evidence a sequence offers."""

    task: Task
    lengths: Lengths
    nu: float
    noise: float
    alpha: float
    scores: tuple[Scores, ...]
    evidence: Evidence
    model: Model = DEFAULT_MODEL
    spectrum: Any = None

    def __post_init__(self) -> None:
        if not (isfinite(self.alpha) and self.alpha > 0):
            raise InputError("alpha", self.alpha, "a finite number above 0")

    def draw(self, dim: int, rng: np.random.Generator) -> Dataset:
        """A data set of N = alpha D sequences, tokens in single precision."""
        samples = max(1, round(self.alpha * dim))
        coordinates = None if self.spectrum is None else Coordinates.of(self.spectrum).at(dim)
        sampler = Sampler(
            self.lengths, dim, samples, self.noise, self.scores, True, self.model, coordinates=coordinates
        )
        return sampler.draw(rng)


def problem(
    setting: str | Task,
    tokens: int | str | Lengths,
    nu: float,
    noise: float,
    alpha: float,
    model: Model = DEFAULT_MODEL,
    spectrum: Any = None,
) -> PassingProblem:
    """The problem of a task at these numbers; a `spectrum` of the run-time makes the tokens structured."""
    setting, sizes = task(setting), lengths(tokens)
    laws = tuple(scores_of(setting, nu, n) for n in sizes.tokens)
    evidence = evidence_of(setting, sizes, nu, noise, model)
    return PassingProblem(setting, sizes, nu, noise, alpha, laws, evidence, model, spectrum)


def drawn_scores(law: Scores, tokens: int, count: int, rng: np.random.Generator) -> tuple[Array, Index]:
    """Teacher scores (count, L) under the weight, and the hidden tokens."""
    chi = rng.standard_normal((count, tokens))
    eps, hidden = law.draw(rng, chi)
    chi[np.arange(count), eps] = hidden
    return chi, eps


def fresh_risk(of: PassingProblem, step: PassingStep, count: int, rng: np.random.Generator) -> tuple[float, float]:
    """E (y - f)^2 of f = sum_l P_l omega_v,l on fresh sequences, and its standard error over `count` of each length.

    Given the estimates, the fields of a fresh token are exactly Gaussian with the overlaps as covariances, so they are
    drawn and no sequence is.
    """
    means, variances = [], []
    for law, tokens in zip(of.scores, of.lengths.tokens):
        chi, eps = drawn_scores(law, tokens, count, rng)
        omega_k, z_star, omega_v = _conditional_fields(step.overlaps, chi, rng)
        hidden = np.arange(count), eps
        y = learning(of.model).label(z_star[hidden], of.noise, rng)
        f = (of.evidence.location(omega_k, step.V_k) * omega_v).sum(axis=1)
        means.append(((y - f) ** 2).mean())
        variances.append(((y - f) ** 2).var() / count)
    shares = np.array(of.lengths.weights)
    return float(shares @ means), sqrt(float(shares**2 @ variances))


def _conditional_fields(o: Overlaps, chi: Array, rng: np.random.Generator) -> Array:
    """X k/sqrt(D), X v*/sqrt(D) and X v/sqrt(D) of tokens with these X k*/sqrt(D), for orthogonal teachers."""
    slopes = np.array([o.m_k, 0.0, o.v_kstar])
    covariance = np.array([[o.q_k, o.k_vstar, o.k_v], [o.k_vstar, 1.0, o.m_v], [o.k_v, o.m_v, o.q_v]])
    values, vectors = np.linalg.eigh(covariance - np.outer(slopes, slopes))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return slopes[:, None, None] * chi + np.tensordot(root, rng.standard_normal((3, *chi.shape)), axes=1)
