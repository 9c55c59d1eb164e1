"""The de Almeida-Thouless matrix: every step by numbers, the emitted function, and ridge regression."""

import checker
import numpy as np
import pytest
import sympy as sp
from generated import module_of

import replicode as rc
from replicode.derivations.present import as_json, as_latex, derivation
from replicode.theory.derive.saddle import derive
from replicode.theory.derive.stability import derive_stability, replicon_direction, responses_of, stability_matrix
from replicode.theory.model import DEFAULT_MODEL


@pytest.fixture(scope="module")
def found():
    return derive_stability(derive("softmax", "max", 2))


def test_every_step_by_numbers(found):
    shown = as_json(derivation(found))
    assert len(shown["steps"]) == 8
    assert checker.failures(shown, points=2, known=set()) == []
    assert set(shown["equations"]) == {"T_kk", "T_kv", "T_vk", "T_vv", "replicon"}
    assert r"\rho(T)" in as_latex(derivation(found))


def test_the_fluctuation_is_in_the_replicon_sector():
    delta = replicon_direction()
    assert delta == delta.T and list(delta.diagonal()) == [0] * 4 and list(delta * sp.ones(4, 1)) == [0] * 4


def test_the_replicon_is_the_spectral_radius(found):
    values = {s: sp.Rational(i + 2, 7) for i, s in enumerate(sorted(found.replicon.free_symbols, key=str))}
    matrix = np.array(found.matrix.subs(values), dtype=float)
    assert float(found.replicon.subs(values)) == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max())


def test_the_generated_matrix_is_the_derived_one():
    module = module_of("linear")
    order, squares = np.array([0.3, 0.4, 1.7, 0.5, 0.6, 0.8]), np.array([0.2, 0.05, 0.3])
    names = {"V_k": 1.7, "V_v": 0.8, "alpha": 3.0, **dict(zip(("R_kk", "R_kv", "R_vv"), squares, strict=True))}
    expected = [float(e.subs({s: names[s.name] for s in e.free_symbols})) for e in stability_matrix(DEFAULT_MODEL)]
    assert module.stability_matrix(order, 3.0, squares).ravel() == pytest.approx(expected)
    assert len(set(responses_of(DEFAULT_MODEL))) == 3


def test_ridge_is_always_stable():
    module = module_of("softmax", tokens=1)
    for alpha, penalty in ((0.3, 1e-3), (1.0, 0.1), (8.0, 2.0)):
        solution = module.solve(alpha, 1.0, 0.2, 1.0, penalty)
        v = solution.order_parameters["V_v"]
        assert solution.replicon == pytest.approx(alpha * (v / (1.0 + v)) ** 2, rel=1e-9)
        assert solution.replicon < 1.0 and solution.rs_stable and solution.jump_weight == 0.0


def test_the_module_of_stability_is_that_of_the_saddle_point():
    def source(level):
        return rc.generate(rc.derive("softmax", tokens=2, level=level)).source

    assert source("stability") == source("rs")
