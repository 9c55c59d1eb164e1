"""Minima of the training objective from many starts on the same data: hands on a `Landscape`.

Starts are informed, shaken (an informed minimum moved at random), random, by plain gradient descent, or by basin
hopping: shaken again and again, the lower minimum kept. Every minimum is kept as soon as it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np

from replicode.codegen.threads import one_thread
from replicode.validation.data.sampling import Array, Dataset
from replicode.validation.experiment import streams
from replicode.validation.ledger import Ledger, LedgerError
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.measure import measure
from replicode.validation.training.methods import GradientDescent
from replicode.validation.training.train import Random, Start, Trained, Warm, train

FAMILIES = ("informed", "shaken", "random", "descent", "hopping")
SHAKEN = (0.3, 0.6, 1.0)  # how far a minimum is moved, relative to its own size
HOPS = 12
HOP = 0.25
SLOW = GradientDescent(rate=0.02, steps=1500)
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Minimum:
    """A minimum: the data set and start it came from, what is measured of it, and its weights."""

    seed: int
    start: int
    family: str
    converged: bool
    measured: Mapping[str, float]
    k: tuple[float, ...]
    v: tuple[float, ...]

    @property
    def energy(self) -> float:
        """The objective per dimension."""
        return float(self.measured["energy"])


@dataclass(frozen=True)
class Landscape:
    """All minima, by data set."""

    dim: int
    minima: tuple[Minimum, ...]

    def of_data(self, seed: int) -> tuple[Minimum, ...]:
        """The converged minima of one data set."""
        return tuple(m for m in self.minima if m.seed == seed and m.converged)

    def lowest(self) -> dict[int, Minimum]:
        """The lowest minimum of every data set that has one."""
        return {seed: min(of, key=lambda m: m.energy) for seed in self.seeds if (of := self.of_data(seed))}

    @property
    def seeds(self) -> tuple[int, ...]:
        """The data sets."""
        return tuple(sorted({m.seed for m in self.minima}))


@dataclass(frozen=True, eq=False)
class Ground:
    """What minima are looked for in: one data set with its penalties."""

    attention: GeneratedAttention
    dataset: Dataset
    lambdas: tuple[float, float]

    def trained(self, start: Start, rng: np.random.Generator, slow: bool = False) -> Trained:
        """A training by L-BFGS, after plain gradient descent where it is to be slow."""
        if slow:
            first = train(self.dataset, self.attention, self.lambdas, start, rng, method=SLOW)
            start = Warm(first.k, first.v)
        return train(self.dataset, self.attention, self.lambdas, start, rng)

    def found(self, family: str, number: int, rng: np.random.Generator) -> Trained:
        """The minimum of one start."""
        if family in ("random", "descent"):
            return self.trained(Random(1.0 if number % 2 else 0.1), rng, slow=family == "descent")
        home = self.trained(self.attention.start("informed"), rng)
        if family == "informed":
            return home
        if family == "shaken":
            return self.trained(shaken(home, SHAKEN[number % len(SHAKEN)], rng), rng)
        return self.hopped(home, rng)

    def hopped(self, best: Trained, rng: np.random.Generator) -> Trained:
        """The lowest minimum of a walk that accepts lower ones only."""
        for _ in range(HOPS):
            there = self.trained(shaken(best, HOP, rng), rng)
            if there.converged and there.objective < best.objective:
                best = there
        return best


def shaken(found: Trained, size: float, rng: np.random.Generator) -> Warm:
    """A point at a random direction from a minimum, `size` times its norm away in both blocks."""
    moved = (w + size * np.linalg.norm(w) / sqrt(w.size) * rng.standard_normal(w.size) for w in (found.k, found.v))
    return Warm(*moved)


@one_thread()
def explore(
    attention: GeneratedAttention,
    alpha: float,
    lambdas: tuple[float, float],
    dim: int,
    starts: int,
    seeds: int,
    kept: Ledger | None = None,
    progress: Progress | None = None,
) -> Landscape:
    """Minima from `starts` starts, the families in turn, on each of `seeds` data sets.

    The random streams depend on the data set and on the number of the start alone: more starts change nothing that is
    there.
    """
    kept = kept or Ledger(None)
    found: list[Minimum] = []
    for seed in range(seeds):
        ground: Ground | None = None
        for start in range(starts):
            key = {"dim": dim, "seed": seed, "start": start}
            payload = kept.get(key)
            if payload is None:
                ground = ground or _ground(attention, alpha, lambdas, dim, seed)
                payload = asdict(_minimum(ground, seed, start))
                with suppress(LedgerError):  # what can not be kept is no reason to stop
                    kept.put(key, payload)
            found.append(_restored(payload))
            if progress is not None:
                state = f"{found[-1].family}, energy {found[-1].energy:.5f}"
                progress(len(found), seeds * starts, f"data {seed}, start {start}: {state}")
    return Landscape(dim, tuple(found))


def _ground(attention: GeneratedAttention, alpha: float, lambdas: tuple[float, float], dim: int, seed: int) -> Ground:
    rng, _ = streams(0, dim, seed)
    return Ground(attention, attention.setting(alpha).sampler(dim, rng).draw(rng), lambdas)


def _minimum(ground: Ground, seed: int, start: int) -> Minimum:
    rng = np.random.default_rng(np.random.SeedSequence(1, spawn_key=(ground.dataset.dim, seed, start)))
    family = FAMILIES[start % len(FAMILIES)]
    found = ground.found(family, start // len(FAMILIES), rng)
    measured = measure(ground.dataset, found, ground.attention, ground.lambdas, ground.attention.risk)
    k, v = (tuple(float(f"{x:.7g}") for x in w) for w in (found.k, found.v))
    return Minimum(seed, start, family, found.converged, dict(measured), k, v)


def _restored(payload: Mapping[str, Any]) -> Minimum:
    return Minimum(**{**payload, "k": tuple(payload["k"]), "v": tuple(payload["v"])})


def weights(minima: tuple[Minimum, ...], block: str) -> Array:
    """The weights of a block, one row a minimum."""
    return np.array([getattr(m, block) for m in minima])
