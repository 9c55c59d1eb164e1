"""Full-batch gradient descent at finite alpha: which energy it ends at from several starts, beside the replica one.

The training objective is minimised by plain gradient descent on one data set per seed, the same for all starts, so that
starts are compared pair by pair. Hands on an `Ending` per start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from replicode.theory.errors import InputError
from replicode.validation.data.sampling import Array
from replicode.validation.experiment import Ensemble
from replicode.validation.training.attention import TokenMap
from replicode.validation.training.methods import GradientDescent
from replicode.validation.training.train import Random, Start, Trained, train

SMALL, LARGE = Random(0.01), Random(1.0)
TOLERANCE = 1e-4  # of the relative gradient norm; the energy's error is its square


@dataclass(frozen=True)
class Ending:
    """Energies (objective/D) that a start ends at: mean and standard error, against theory, and against the best start.

    `above` is how far the energy lies above the least that any start reached on the same data; `converged` is the share
    of runs whose gradient became small.
    """

    energy: float
    sem: float
    theory: float
    above: float
    converged: float

    @property
    def z(self) -> float:
        """The deviation from the theory in standard errors."""
        return (self.energy - self.theory) / self.sem if self.sem > 0 else float("inf")


def descend_fully(
    ensemble: Ensemble,
    token_map: TokenMap,
    lambdas: tuple[float, float],
    starts: Mapping[str, Start],
    theory: float,
    dim: int,
    seeds: int,
    *,
    rate: float = 0.05,
    steps: int = 4000,
    root_seed: int = 0,
) -> dict[str, Ending]:
    """The endings of all starts; `rate` is that of the objective summed over the sequences, per unit of alpha."""
    if seeds < 2:
        raise InputError("seeds", seeds, "an integer of at least 2")
    method = GradientDescent(rate / max(1.0, ensemble.alpha), steps)
    rows: list[dict[str, Trained]] = []
    for seed in range(seeds):
        data = np.random.default_rng([root_seed, dim, seed])
        dataset = ensemble.sampler(dim, data).draw(data)
        row = {}
        for name, start in starts.items():
            rng = np.random.default_rng([1, seed])
            row[name] = train(dataset, token_map, lambdas, start, rng, method=method, tolerance=TOLERANCE)
        rows.append(row)
    best = np.array([min(t.objective for t in row.values()) for row in rows]) / dim
    return {name: _ending([row[name] for row in rows], best, theory, dim) for name in starts}


def _ending(found: Sequence[Trained], best: Array, theory: float, dim: int) -> Ending:
    energies = np.array([t.objective for t in found]) / dim
    return Ending(
        energy=float(energies.mean()),
        sem=float(energies.std(ddof=1)) / sqrt(energies.size),
        theory=theory,
        above=float((energies - best).mean()),
        converged=float(np.mean([t.converged for t in found])),
    )
