"""Population averages over all tokens at once, for activations that do not factorise over them.

Scores are nodes of a shifted lattice in few dimensions and of scrambled Sobol sequences otherwise; sigma and the task's
weight are evaluated as they stand. The location is summed over, so that only the scores are sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import sympy as sp

from replicode.codegen.interpret.averages import Law
from replicode.codegen.interpret.functions import Array, evaluated
from replicode.codegen.runtime.linear import weighted_sum
from replicode.codegen.runtime.nodes import lattice, level_count, sobol
from replicode.theory.language.activation import Activation
from replicode.theory.language.task import Task

_LATTICE_DIMENSIONS = 6
_SOBOL_LOG2 = 14


class SampledAverages:
    """A and B of one activation on one task, by nodes over all scores; `hard` is +-1 in the limit nu -> infinity."""

    def __init__(self, act: Activation, setting: Task, hard: int | None, smooth: bool) -> None:
        self.form = act.token_form()
        self.weight = Activation("weight", setting.log_weight).token_form()
        self.hard = hard
        self.smooth = smooth and hard is None

    def averages(
        self, law: Law, values: Mapping[sp.Symbol, float], lengths: Sequence[int], level: int, seed: int
    ) -> tuple[Array, Array]:
        """A and B for each number of tokens."""
        pairs = [self._at(law, values, n, level, seed) for n in lengths]
        return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])

    def _at(
        self, law: Law, values: Mapping[sp.Symbol, float], tokens: int, level: int, seed: int
    ) -> tuple[float, float]:
        residual = np.sqrt(max(law.q - law.m**2, 0.0))
        two = law.hidden is None and residual > 0.0
        nodes, weights = self._nodes(tokens * (2 if two else 1), level, seed)
        if law.hidden is not None:
            mean, variance = law.hidden
            x = np.sqrt(law.q) * nodes
            x[0] = law.m * mean + np.sqrt(max(law.q + law.m**2 * (variance - 1.0), 0.0)) * nodes[0]
            sigma = evaluated(self.form, x, values)
            return float(weighted_sum(sigma[0], weights)), float(weighted_sum((sigma * sigma).sum(axis=0), weights))
        chi = nodes[:tokens]
        sigma = evaluated(self.form, law.m * chi + (residual * nodes[tokens:] if two else 0.0), values)
        location = self._location(chi, values)
        total = float(weighted_sum(location.sum(axis=0), weights))
        a = float(weighted_sum((location * sigma).sum(axis=0), weights))
        b = float(weighted_sum(location.sum(axis=0) * (sigma * sigma).sum(axis=0), weights))
        return a / total, b / total

    def _location(self, chi: Array, values: Mapping[sp.Symbol, float]) -> Array:
        """The weight of every location given the teacher's scores."""
        if self.hard is not None:
            return np.asarray(self.hard * chi == (self.hard * chi).max(axis=0), dtype=float)
        return np.exp(evaluated(self.weight, chi, values))

    def _nodes(self, dim: int, level: int, seed: int) -> tuple[Array, Array]:
        if self.smooth and dim <= _LATTICE_DIMENSIONS:
            return lattice(dim, 4.0 * level_count(dim, level), seed)
        return sobol(dim, _SOBOL_LOG2 + level, seed)
