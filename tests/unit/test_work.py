"""The work of a solve: what a few seconds give where no error is asked for, and an end in any case."""

import numpy as np
import pytest
from strategies import system_of

from replicode.codegen.compiler import generate

POINT = {"alpha": 4.0, "nu": 2.0, "noise": 0.3}
SMALL = {"LOG2_FEW": 6, "LOG2_SOBOL": (6, 8), "LOG2_COARSE": 6}


@pytest.fixture(scope="module")
def tanh():
    return generate(system_of("1 + tanh(x)", 2)).load()


def test_three_digits_will_do_where_none_are_asked_for(tanh, monkeypatch):
    """Eight digits are out of reach: with them there is a warning, without them none, and a part of the work."""
    monkeypatch.setattr(tanh, "LARGEST_LATTICE", 50_000)
    asked, free = tanh.solve(**POINT, tol=1e-8), tanh.solve(**POINT, tol=None)
    assert free.error == asked.error < 1e-3 and free.converged
    assert not free.warnings and asked.warnings[0].startswith("error: the bound ")
    monkeypatch.setattr(tanh, "QUICK_WORK", 1e5)
    sooner = tanh.solve(**POINT, tol=None)
    assert not sooner.warnings and asked.error < sooner.error < 1e-3
    assert abs(sooner.test_risk - free.test_risk) <= sooner.error + free.error


def test_fewer_digits_than_three_are_told(tanh, monkeypatch):
    monkeypatch.setattr(tanh, "GOOD_ENOUGH", 1e-12)
    monkeypatch.setattr(tanh, "LARGEST_LATTICE", 5_000)
    assert "of three digits" in tanh.solve(**POINT, tol=None).warnings[0]


@pytest.mark.parametrize("tol", [pytest.param(1e-8, marks=pytest.mark.full), None])
def test_every_solve_ends(monkeypatch, tol):
    """relu without penalties, whose iterations are long: the work done is a few times what is allowed at most."""
    module = generate(system_of("relu(x)", 3)).load()
    for name, value in {**SMALL, "LARGEST_WORK": 2e6}.items():
        monkeypatch.setattr(module, name, value)
    evaluate, done = module.evaluate, []
    monkeypatch.setattr(
        module, "evaluate", lambda channel, *rest, **more: done.append(channel.work) or evaluate(channel, *rest, **more)
    )
    found = module.solve(50.0, 2.0, 0.3, 0.0, 0.0, tol=tol)
    assert np.sum(done) < 12 * 2e6
    assert found.warnings
