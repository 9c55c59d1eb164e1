"""Emitted functions of order parameters, conjugates and rates against the same IR on numbers of mpmath."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from strategies import system_of

from replicode.codegen.emit.mpmath import mpmath_function
from replicode.codegen.emit.numpy import derived_definitions
from replicode.codegen.ir import Unpacked
from replicode.codegen.loading import load_source
from replicode.codegen.lower import lower_module
from replicode.theory.derive.saddle import derive

HEAD = "from __future__ import annotations\n\nimport numpy as np\nfrom typing import Any, NamedTuple\n\n"
OF_FIELDS = {"channel_rates", "channel_moments", "displacements", "bending", "overlap_risk_terms"}
OF_SECOND_RATES = {"free_energy_hessian", "train_loss_slopes"}


CASES = [("softmax", "spiked", 2), ("1 + relu(x - c)", "spiked", 2), ("linear", "max", 3), ("linear", "nu*tanh(x)", 2)]


def _arguments(function, rng):
    """Random numbers of the shapes that a function takes; order parameters that are physical."""
    sizes = {n.source: len(n.symbols) for n in function.names if isinstance(n, Unpacked)}
    physical = np.array([0.4, 1.3, 0.7, -0.3, 0.9, 0.5])
    return [
        physical + 0.1 * rng.random(6)
        if a.name == "order"
        else rng.random(sizes[a.name])
        if a.name in sizes
        else rng.random()
        for a in function.signature.arguments
    ]


@pytest.mark.parametrize("case", CASES)
def test_derived_functions(case):
    ir = lower_module(derive(*case))
    texts = {n: d.text for d in derived_definitions(ir) for n in d.names}
    rng, seen = np.random.default_rng(1), set()
    for function in ir.functions:
        if function.name in OF_FIELDS | OF_SECOND_RATES:
            continue
        emitted = vars(load_source(HEAD + texts[function.name], "emitted_function"))[function.name]
        given = _arguments(function, rng)
        with mpmath.workdps(30):
            exact = mpmath_function(function)(*[[*map(mpf, a)] if np.ndim(a) else mpf(a) for a in given])
        found = emitted(*given)
        pairs = zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]
        for one, other in pairs:
            assert np.asarray(one, dtype=float) == pytest.approx(np.array(other, dtype=float), rel=1e-13, abs=1e-14)
        seen.add(function.name)
    assert {"hidden_law", "rates_from_moments", "prior_update", "free_energy_gradient", "stability_matrix"} <= seen


def test_sums_over_samples_have_no_such_form():
    functions = {f.name: f for f in lower_module(system_of("1 + x", 1)).functions}
    with pytest.raises(TypeError, match="sum over samples"):
        mpmath_function(functions["channel_rates"])
