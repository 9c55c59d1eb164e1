"""Control variates: functions of a data set alone whose mean over data sets is known exactly.

They are read off the teacher-aligned estimators k = a k*, v = b v*, which no training has touched:

- the mean squared residual of such an estimator over the data set, minus its population risk: the fields of exact
  teachers have their law at any D, so that this is the risk at the overlaps (a, a^2, b, b^2). With b = 0 it is
  mean(y^2) - 1 - Delta^2;
- the noise of the gradient at one of them, |P g|^2 - (D - 2)/D sum_mu r_mu^2 sum_l c_mu,l^2, over D. Here r is the
  residual, g = sum_mu r_mu sum_l c_mu,l X_mu,l / sqrt(D) with c_l = df/dchi_l for the keys and sigma_l for the values,
  and P removes the teachers' directions. What is left of a token is N(0, I) in D - 2 dimensions and independent of
  r and c, which makes the difference zero on average, given r and c already.

Both kinds follow what training does to (k, v) at this data set, to first and to second order in its noise. All
fluctuate like 1/sqrt(D), as the trained quantities do. They hand `statistics` one row of numbers per training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from replicode.codegen.compiler import generate
from replicode.codegen.runtime.optimum import CHECK, FINE
from replicode.codegen.threads import one_thread
from replicode.theory.derive.population import derive_population
from replicode.theory.language.activation import activation
from replicode.theory.language.task import task
from replicode.theory.model import DEFAULT_MODEL, STRUCTURED_MODEL
from replicode.validation.data.sampling import Array, Dataset
from replicode.validation.training.attention import TokenMap, fields, objective
from replicode.validation.training.learning import learning

if TYPE_CHECKING:
    from replicode.validation.module import GeneratedAttention

KEYS = (0.5, 1.0)
ALIGNED = {
    "labels": (1.0, 0.0),
    "half key": (0.5, 1.0),
    "half key, half value": (0.5, 0.5),
    "whole": (1.0, 1.0),
    "half value": (1.0, 0.5),
}
GRADIENT_AT = (0.5, 0.7)
ACCURACY = 1e-6
# In the order of what they explain: where seeds are few, only the first ones are used.
CONTROLS = (
    "labels",
    "half key",
    "half key, half value",
    "value gradient",
    "key gradient",
    "whole",
    "half value",
)


@dataclass(frozen=True, eq=False)
class Controls:
    """The control variates around the alignment (a, b); risk(a, b) is that of k = a k*, v = b v*.

    At any alignment their means are zero; how much they explain depends on it.
    """

    token_map: TokenMap
    risk: Callable[[float, float], float]
    a: float
    b: float

    def of(self, dataset: Dataset) -> Mapping[str, float]:
        """The `CONTROLS` of one data set, each of mean zero."""
        found = self._losses(dataset) | self._gradients(dataset)
        return {name: found[name] for name in CONTROLS}

    @cached_property
    def expected(self) -> Mapping[str, float]:
        """The population risks of the aligned estimators."""
        return {name: self.risk(self.a * key, self.b * value) for name, (key, value) in ALIGNED.items()}

    def _losses(self, dataset: Dataset) -> dict[str, float]:
        """Mean risks of the aligned estimators on the data, minus their expectations."""
        sums, of = dict.fromkeys(ALIGNED, 0.0), learning(dataset.model)
        for batch in dataset.batches:
            chi, z = (fields(batch.X, teacher) for teacher in (dataset.k_star, dataset.v_star))
            sigmas = {key: self.token_map.sigma(key * self.a * chi) for key in KEYS}
            for name, (key, value) in ALIGNED.items():
                f = of.output(sigmas[key], value * self.b * z).sum(axis=0)
                sums[name] += float(of.risk(batch.y, f).sum())
        return {name: total / dataset.samples - self.expected[name] for name, total in sums.items()}

    def _gradients(self, dataset: Dataset) -> dict[str, float]:
        """Squared norms of the gradient off the teachers' directions, minus their expectations given the fields."""
        key, value = GRADIENT_AT[0] * self.a, GRADIENT_AT[1] * self.b
        params = np.concatenate([key * dataset.k_star, value * dataset.v_star])
        _, gradient = objective(params, dataset, self.token_map, 0.0, 0.0)
        expected, of = {"key gradient": 0.0, "value gradient": 0.0}, learning(dataset.model)
        for batch in dataset.batches:
            chi, z = key * fields(batch.X, dataset.k_star), value * fields(batch.X, dataset.v_star)
            sigma = self.token_map.sigma(chi)
            squares = of.loss_by_output(batch.y, of.output(sigma, z).sum(axis=0)) ** 2
            slopes = self.token_map.pullback(chi, of.output_by_sigma(sigma, z))
            expected["key gradient"] += float((slopes**2).sum(axis=0) @ squares)
            expected["value gradient"] += float((of.output_by_value(sigma, z) ** 2).sum(axis=0) @ squares)
        dim = dataset.dim
        parts = (_off_teachers(part, dataset) for part in np.split(gradient, 2))
        return {n: (float(p @ p) - (dim - 2) / dim * expected[n]) / dim for n, p in zip(expected, parts)}


@one_thread()
def controls_of(attention: GeneratedAttention) -> Controls | None:
    """The control variates of a generated activation around its population optimum, to which training is near.

    None where the risks of the aligned estimators are not known to ACCURACY, by far the smallest error in sight, and
    for any problem but the default one, on which they were tried, its tokens isotropic or whitened.
    """
    module = attention.module
    if attention.model not in (DEFAULT_MODEL, STRUCTURED_MODEL) or not attention.has_scores:
        return None
    act, setting = activation(module.METADATA["activation"]), task(module.METADATA["task"])
    averages = generate(derive_population(act, setting, attention.lengths)).load().averages_at

    def risk(a: float, b: float, fineness: float = FINE) -> float:
        return float(
            module.risk_on_manifold(
                b, b * b, attention.noise, *averages(a, 0.0, attention.nu, attention.params, fineness)
            )
        )

    a, _, b, _ = map(float, module.informed_overlaps(attention.nu, attention.params))
    gaps = [abs(risk(key * a, b) - risk(key * a, b, CHECK)) for key in KEYS]
    return Controls(attention, risk, a, b) if max(gaps) <= ACCURACY else None


def _off_teachers(vector: Array, dataset: Dataset) -> Array:
    """The part orthogonal to both teachers, which have norm sqrt(D) and are orthogonal to each other."""
    for teacher in (dataset.k_star, dataset.v_star):
        vector = vector - teacher * (teacher @ vector) / dataset.dim
    return vector
