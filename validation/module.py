"""What validation needs of a generated module: its activation as a TokenMap, its data law, its exact risk."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from types import ModuleType

import numpy as np

from validation.experiment import Setting
from validation.measure import Overlaps
from validation.sampling import Array
from validation.training import Informed, Random, Start


@dataclass(frozen=True)
class GeneratedAttention:
    """A generated module at fixed parameters and signal, as the trainer and the measurements see it."""

    module: ModuleType
    nu: float
    noise: float
    params: Array

    def sigma(self, chi: Array) -> Array:
        """sigma(chi), tokens along axis 0."""
        return np.asarray(self.module.sigma(chi, self.params))

    def pullback(self, chi: Array, cotangent: Array) -> Array:
        """sum_l cotangent_l d sigma_l / d chi_j."""
        return np.asarray(self.module.pullback(chi, cotangent, self.params))

    def risk(self, overlaps: Overlaps) -> float:
        """The exact test risk of an estimator with these overlaps."""
        o = overlaps
        values = np.array([o.m_k, o.q_k, o.m_v, o.q_v, o.k_vstar, o.v_kstar, o.k_v])
        named = dict(zip(self.module.PARAMETERS, self.params, strict=True))
        return float(self.module.risk_of_overlaps(values, self.nu, self.noise, tol=1e-7, **named))

    def setting(self, alpha: float) -> Setting:
        """The law of the data: the hidden score's mean and variance are those of a student k = k*."""
        mean, variance, _ = self.module.score_law(1.0, 1.0, self.nu)
        return Setting(int(self.module.TOKENS), alpha, self.noise, float(mean), sqrt(float(variance)))

    def start(self, init: str) -> Start:
        """The informed start at the activation's own population optimum, or a random one."""
        if init == "random":
            return Random()
        return Informed(*map(float, self.module.informed_overlaps(self.nu, self.params)))
