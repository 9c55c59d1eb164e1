"""What validation needs of a generated module: its activation as a TokenMap, its data law, its exact risk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from replicode.theory.language.task import task
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.validation.data.sampling import Array
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.experiment import Ensemble
from replicode.validation.statistics.measure import Overlaps
from replicode.validation.training.train import Informed, Random, Start


@dataclass(frozen=True)
class GeneratedAttention:
    """A generated module at fixed parameters and signal, as the trainer and the measurements see it."""

    module: ModuleType
    nu: float
    noise: float
    params: Array
    model: Model = DEFAULT_MODEL
    coordinates: Coordinates | None = None

    def sigma(self, chi: Array) -> Array:
        """sigma(chi), tokens along axis 0."""
        return np.asarray(self._kernel(chi).sigma(chi, self.params))

    def pullback(self, chi: Array, cotangent: Array) -> Array:
        """sum_l cotangent_l d sigma_l / d chi_j."""
        return np.asarray(self._kernel(chi).pullback(chi, cotangent, self.params))

    def _kernel(self, chi: Array) -> Any:
        """The kernel of as many tokens as chi has rows."""
        return next(kernel for kernel in self.module.KERNELS if kernel.tokens == chi.shape[0])

    @property
    def kinks(self) -> tuple[float, ...]:
        """The scores at which an element-wise activation has a kink, in order."""
        if not (self.module.ELEMENTWISE and hasattr(self.module, "kink_points")):
            return ()
        setting = self.module.Setting(self.nu, self.noise, self.params)
        return tuple(map(float, self.module.kinks_of(setting)))

    @property
    def lengths(self) -> Lengths:
        """The lengths that the module was generated for, with their probabilities."""
        kernels = sorted(self.module.KERNELS, key=lambda kernel: int(kernel.tokens))
        return Lengths(tuple(int(k.tokens) for k in kernels), tuple(float(k.share) for k in kernels))

    def risk(self, overlaps: Overlaps) -> float:
        """The exact test risk of an estimator with these overlaps."""
        if not self.has_scores:  # keys that nothing sees: any will do
            overlaps = replace(overlaps, m_k=0.0, q_k=1.0, k_vstar=0.0, k_v=0.0)
        names = (*self.model.overlaps, *self.model.cross_overlaps)
        values = np.array([getattr(overlaps, s.name) for s in names])
        named = dict(zip(self.module.PARAMETERS, self.params, strict=True))
        return float(self.module.risk_of_overlaps(values, self.nu, self.noise, tol=1e-7, **named))

    def setting(self, alpha: float, *, single: bool = False) -> Ensemble:
        """The law of the data, from the task and the lengths that the module was generated for."""
        law = task(self.module.METADATA["task"])
        more: dict[str, Any] = {"single": single, "model": self.model, "coordinates": self.coordinates}
        return Ensemble.of(law, self.lengths, alpha, self.nu, self.noise, **more)

    def start(self, init: str) -> Start:
        """The informed start at the activation's own population optimum, or a random one."""
        if init == "random":
            return Random()
        if not self.has_scores:
            setting = self.module.settings_of(self.nu, self.noise, self.params)
            moments = (*self.module.constant_moments(setting), *self.module.label_moments(self.noise))
            m_v = float(self.module.best_value_overlap(*moments))
            return Informed(0.0, 0.0, m_v, m_v * m_v)
        return Informed(*map(float, self.module.informed_overlaps(self.nu, self.params, self.noise)))

    @property
    def has_scores(self) -> bool:
        """Whether there are keys to learn."""
        return "m_k" in self.module.ORDER_NAMES
