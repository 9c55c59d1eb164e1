"""Energy, residual and Jacobian of a module to a tolerance: met, against far more nodes, or said not to be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from generated import module_of

ORDER = dict(zip(("m_k", "q_k", "V_k", "m_v", "q_v", "V_v"), (0.4, 0.5, 0.3, 0.7, 0.8, 0.5), strict=True))
CONJUGATES = dict(zip(("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v"), (0.5, 0.4, 0.6, 1.0, 0.5, 0.9), strict=True))
PHYSICS = (4.0, 2.0, 0.3, 1.0, 1.0)


@pytest.mark.parametrize(("activation", "tokens"), [("softmax", 2), ("softmax", 3)])
@pytest.mark.parametrize("name", ["free_energy", "residual", "jacobian"])
def test_a_tolerance_is_met(activation, tokens, name):
    function = getattr(module_of(activation, "spiked", tokens), name)
    exact = np.asarray(function(ORDER, CONJUGATES, *PHYSICS, nodes=400_000))
    for tol in (1e-3, 1e-5):
        found = np.asarray(function(ORDER, CONJUGATES, *PHYSICS, tol=tol))
        assert found.shape == exact.shape
        assert np.abs(found - exact).max() <= tol


@pytest.mark.full
def test_what_is_not_met_is_said():
    """Where folds weigh nothing smaller than them is known; without a tolerance nothing is said, nor changed."""
    module = module_of("softmax", "spiked", 3)
    folded = ORDER | {"V_k": 6.0}
    with pytest.warns(RuntimeWarning, match=r"tol: the bound .* is above the 1\.0e-09 asked for"):
        module.free_energy(folded, CONJUGATES, *PHYSICS, tol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.free_energy(folded, CONJUGATES, *PHYSICS, nodes=2_000)


@pytest.mark.parametrize("tol", [0.0, -1.0, np.nan])
def test_a_bad_tolerance_is_named(tol):
    module = module_of("softmax", "spiked", 2)
    with pytest.raises(module.ArgumentError, match="tol"):
        module.residual(ORDER, CONJUGATES, *PHYSICS, tol=tol)
