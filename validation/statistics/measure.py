"""What is read off a trained estimator: the seven overlaps, and the quantities a theory predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from replicode.theory.model import DEFAULT_MODEL
from replicode.validation.data.sampling import Array, Dataset
from replicode.validation.training.attention import TokenMap, predictions
from replicode.validation.training.learning import learning
from replicode.validation.training.train import Trained

LAW_PARAMETERS = tuple(s.name for s in DEFAULT_MODEL.overlaps)
QUANTITIES = ("test_risk", "train_loss", "energy", *LAW_PARAMETERS)


@dataclass(frozen=True)
class Overlaps:
    """The seven overlaps of (k, v) with themselves and the teachers, divided by D; three are crossed."""

    m_k: float
    q_k: float
    m_v: float
    q_v: float
    k_vstar: float
    v_kstar: float
    k_v: float

    @classmethod
    def of(cls, k: Array, v: Array, k_star: Array, v_star: Array) -> Overlaps:
        """The overlaps of these four vectors."""
        pairs = ((k, k_star), (k, k), (v, v_star), (v, v), (k, v_star), (v, k_star), (k, v))
        return cls(*(float(a @ b) / k.size for a, b in pairs))


Risk = Callable[[Overlaps], float]


def measure(
    dataset: Dataset, trained: Trained, token_map: TokenMap, lambdas: tuple[float, float], risk: Risk
) -> Mapping[str, float]:
    """The `QUANTITIES` of one training.

    With exact teachers the fields of a fresh token are exactly Gaussian given (k, v), so the test risk is a
    function of the seven overlaps: no test set and no test noise. Of structured tokens the overlaps are in the metric
    of their covariance. The energy is taken from alpha train_loss and the
    penalties, not from the optimiser's word.
    """
    k, v = dataset.whitened(trained.k), dataset.whitened(trained.v)
    overlaps = Overlaps.of(k, v, dataset.k_star, dataset.v_star)
    of, model = learning(dataset.model), dataset.model
    outputs = [predictions(k, v, batch, token_map, model) for batch in dataset.batches]
    losses = [float(of.loss(batch.y, f).sum()) for batch, f in zip(dataset.batches, outputs, strict=True)]
    train_loss = sum(losses) / dataset.samples
    each = 1.0 if dataset.coordinates is None else dataset.coordinates.weights
    pairs = zip((trained.k, trained.v), lambdas, strict=True)
    penalties = [float((each * of.penalty(w, weight)).sum()) for w, weight in pairs]
    return {
        "test_risk": float(risk(overlaps)),
        "train_loss": train_loss,
        "energy": (dataset.samples * train_loss + sum(penalties)) / dataset.dim,
        **{name: getattr(overlaps, name) for name in LAW_PARAMETERS},
    }
