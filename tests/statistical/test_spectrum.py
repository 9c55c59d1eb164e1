"""Trained attention on structured tokens against its theory, by corrected tests, and the response at a minimum."""

import numpy as np
import pytest

import replicode as rc
from replicode.inputs.spectrum import token_spectrum
from replicode.modules import module_for
from replicode.theory.model import STRUCTURED_MODEL
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.experiment import streams
from replicode.validation.module import GeneratedAttention
from replicode.validation.training.response import loss_curvatures, response
from replicode.validation.training.train import train

POINT = {"tokens": 2, "alpha": 4.0, "nu": 2.0, "noise": 0.3}
CASES = {
    "power law": ("power:1:100", "isotropic"),
    "steep power law, i.i.d. teachers": ("power:1.5:200", "white"),
    "top-heavy teachers": ("power:0.7:100", "top:10"),
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_trained_attention_agrees(case):
    """D = 200, 400, 800, extrapolated in 1/D; seven quantities, false alarm 1e-3 for all together."""
    spectrum, teacher = CASES[case]
    report = rc.validate("softmax", **POINT, spectrum=spectrum, teacher=teacher, dim=800, seeds=16)
    assert report.dims == (200, 400, 800) and report.failures == 0
    assert report.verdict == "agrees", report.warnings


def test_the_response_at_a_minimum():
    """Tr R_bb/D = tau_b and |R_bb'|^2/D = (I - T)^-1 diag(-tau'), whitened: V and the stability matrix of a spectrum.

    Sixteen trainings at D = 200; two t tests of fifteen degrees of freedom at |z| < 5, a false alarm of 3e-4. With
    V^2 in place of -tau' the replicon would be 0.45.
    """
    spectrum = token_spectrum("power:1:100")
    module = module_for("softmax", "spiked", 2, model=STRUCTURED_MODEL)[0]
    coordinates = Coordinates.of(spectrum.coordinates)
    attention = GeneratedAttention(module, 2.0, 0.3, np.zeros(0), STRUCTURED_MODEL, coordinates)
    rows = np.array([_response(attention, seed) for seed in range(16)])
    mean, sem = rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    solution = module.solve(4.0, 2.0, 0.3, spectrum=spectrum.argument, tol=1e-6)
    V = np.array([solution.order_parameters[n] for n in ("V_k", "V_v")])
    assert (np.abs(mean[:2] - V) < 5 * sem[:2]).all()
    conjugates = np.array([solution.conjugates[n] for n in module.CONJUGATE_NAMES])
    (traces,) = module.spectral_traces_at(conjugates, module.Problem(4.0, 1.0, 1.0, spectrum.coordinates))
    order = np.array([solution.order_parameters[n] for n in module.ORDER_NAMES])
    squares = np.diag(module.stability_matrix(order, 1.0, np.array([1.0, 0.0, 1.0]), traces))
    T = np.eye(2) - np.diag(squares) @ np.linalg.inv([mean[2:4], mean[3:]])
    assert np.abs(np.linalg.eigvals(T)).max() == pytest.approx(solution.replicon, abs=0.05)


def _response(attention, seed):
    data_rng, start_rng = streams(1, 200, seed)
    dataset = attention.setting(4.0).sampler(200, data_rng).draw(data_rng)
    trained = train(dataset, attention, (1.0, 1.0), attention.start("informed"), start_rng)
    return response(dataset, trained, loss_curvatures(attention), (1.0, 1.0))
