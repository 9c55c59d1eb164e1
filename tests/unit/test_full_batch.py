"""Full-batch descent: from all starts to one energy where the problem has one minimum, on the same data."""

import numpy as np
import pytest

from replicode.theory.errors import InputError
from replicode.theory.language.task import task
from replicode.theory.lengths import lengths
from replicode.validation.experiment import Ensemble
from replicode.validation.training.full_batch import LARGE, SMALL, descend_fully
from replicode.validation.training.train import Informed


class Softmax:
    def sigma(self, chi):
        e = np.exp(chi - chi.max(axis=0))
        return e / e.sum(axis=0)

    def pullback(self, chi, cotangent):
        s = self.sigma(chi)
        return s * (cotangent - (s * cotangent).sum(axis=0))


STARTS = {"informed": Informed(1.0, 1.1, 0.8, 0.7), "random": LARGE, "small": SMALL}


def test_all_starts_reach_one_energy():
    """Strong ridges: one minimum, at the replica energy of alpha 4, nu 2, noise 0.3, lambda 1 within its scatter."""
    ensemble = Ensemble.of(task("spiked"), lengths(2), 4.0, 2.0, 0.3)
    found = descend_fully(ensemble, Softmax(), (1.0, 1.0), STARTS, 1.03381, 40, 4)
    assert all(e.converged == 1.0 and e.above < 1e-5 for e in found.values())
    assert abs(found["informed"].z) < 5
    stopped = descend_fully(ensemble, Softmax(), (1.0, 1.0), STARTS, 1.03381, 40, 2, steps=3)
    assert stopped["small"].converged == 0.0 and stopped["random"].above > 1e-2


def test_one_seed_is_refused():
    ensemble = Ensemble.of(task("spiked"), lengths(2), 4.0, 2.0, 0.3)
    with pytest.raises(InputError, match="seeds"):
        descend_fully(ensemble, Softmax(), (1.0, 1.0), STARTS, 1.0, 20, 1)
