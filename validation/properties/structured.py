"""Properties of the prior of structured tokens, at a given spectrum: laws that hold for every one of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from replicode.validation.properties.verdict import Verdict

Array = np.ndarray[Any, np.dtype[Any]]
CONJUGATES = np.array([0.6, 0.5, 0.8, -0.9, 1.1, 1.4])
STRENGTHS = 0.7, 1.3
SCALE = 3.0
ACCURACY = 1e-9
STEP = 1e-4


def spectrum_properties(module: ModuleType, argument: Any) -> dict[str, Verdict]:
    """All of them, by name."""
    spectrum = module.spectrum_of(argument)
    return {
        "spectrum: residual is the gradient": _gradient(module, spectrum),
        "spectrum: scale of covariance and penalty": _scale(module, spectrum),
        "spectrum: penalty of the covariance": _whitened(module, spectrum),
    }


def _verdict(found: Array, expected: Array, accuracy: float = ACCURACY) -> Verdict:
    gap = float(np.abs(found - expected).max() / (1.0 + np.abs(expected).max()))
    return Verdict("passed") if gap <= accuracy else Verdict("failed", f"relative deviation {gap:.2g}")


def _gradient(module: ModuleType, spectrum: Any) -> Verdict:
    """The derived gradient in the conjugates against differences of the free energy."""
    order, problem = np.array([0.35, 0.6, 0.4, 0.5, 0.8, 0.3]), module.Problem(2.3, *STRENGTHS, spectrum)
    found = module.gradient_at(order, CONJUGATES, problem, np.zeros_like(order))[order.size :]
    ways = STEP * np.eye(CONJUGATES.size)
    up, down = ([module.value_at(order, CONJUGATES + s * w, problem, 0.0) for w in ways] for s in (1.0, -1.0))
    return _verdict(found, (np.array(up) - np.array(down)) / (2.0 * STEP), 1e-6)


def _scale(module: ModuleType, spectrum: Any) -> Verdict:
    """(c Sigma, c lambda) gives the same order parameters."""
    one = module.image_at(CONJUGATES, module.Problem(1.0, *STRENGTHS, spectrum))
    stronger = module.Problem(1.0, *(SCALE * s for s in STRENGTHS), spectrum._replace(s=SCALE * spectrum.s))
    return _verdict(module.image_at(CONJUGATES, stronger), one)


def _whitened(module: ModuleType, spectrum: Any) -> Verdict:
    """The penalty lambda Sigma gives those of isotropic tokens, for whatever teacher."""
    full = spectrum._replace(p=spectrum.s, dim=spectrum.s.size)
    full = full._replace(c_k=full.c_k / full.c_k.mean(), c_v=full.c_v / full.c_v.mean())
    plain = module.Problem(1.0, *STRENGTHS, module.spectrum_of(None))
    found = module.image_at(CONJUGATES, module.Problem(1.0, *STRENGTHS, full))
    return _verdict(found, module.image_at(CONJUGATES, plain))
