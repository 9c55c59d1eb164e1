"""The linear response of a trained estimator: R = H^-1 at its minimum, which the theory predicts too.

In high dimension Tr R_bb/D = V_b and |R_bb'|_F^2/D = [(I - T)^-1 diag(V^2)]_bb', with the de Almeida-Thouless matrix
T, as long as replica symmetry holds. Read backwards, the second gives the replicon of the minimum that training found,
without any theory of its overlaps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replicode.validation.data.sampling import Array, Dataset
from replicode.validation.module import GeneratedAttention
from replicode.validation.training.attention import fields
from replicode.validation.training.learning import learning
from replicode.validation.training.train import Trained

Curvatures = Callable[[Array, Array, Array], tuple[Array, Array, Array]]


class TrainedResponse(NamedTuple):
    """Tr R_bb/D, and |R_bb'|_F^2/D."""

    V_k: float
    V_v: float
    F_kk: float
    F_kv: float
    F_vv: float

    @property
    def replicon(self) -> float:
        """Spectral radius of T = I - diag(V^2) F^-1 of isotropic tokens; below 1 at every minimum, near 1 where it is
        marginal.
        """
        F = np.array([[self.F_kk, self.F_kv], [self.F_kv, self.F_vv]])
        T = np.eye(2) - np.diag([self.V_k**2, self.V_v**2]) @ np.linalg.inv(F)
        return float(np.abs(np.linalg.eigvals(T)).max())


def loss_curvatures(attention: GeneratedAttention) -> Curvatures:
    """Second derivatives of the loss in (chi, chi), (chi, z), (z, z), each (L, L, N).

    The generated kernel has them for the loss with z eliminated; at V_v = 0 that is the plain loss.
    """

    def at(chi: Array, z: Array, y: Array) -> tuple[Array, Array, Array]:
        kernel = next(kernel for kernel in attention.module.KERNELS if kernel.tokens == chi.shape[0])
        kk, kv, vv = kernel.curvatures(chi, z, y, 0.0, attention.params)
        return kk, kv, vv

    return at


def hessian(dataset: Dataset, trained: Trained, curvatures: Curvatures, lambdas: tuple[float, float]) -> Array:
    """Second derivatives of the training objective in (k, v), of shape (2 D, 2 D); whitened of structured tokens."""
    dim, at = dataset.dim, dataset.coordinates
    each = np.ones(dim) if at is None else at.weights / at.metric**2
    k, v = dataset.whitened(trained.k), dataset.whitened(trained.v)
    bend = learning(dataset.model).penalty_curvature
    penalised = zip((trained.k, trained.v), lambdas, strict=True)
    H = np.diag(np.concatenate([each * bend(w, weight) for w, weight in penalised])).astype(np.float64)
    for batch in dataset.batches:
        X = batch.X.astype(np.float64, copy=False)
        kk, kv, vv = curvatures(fields(X, k), fields(X, v), batch.y)
        mixed = _summed(X, kv)
        H += np.block([[_summed(X, kk), mixed], [mixed.T, _summed(X, vv)]])
    return np.asarray(H)


def _summed(X: Array, curvature: Array) -> Array:
    """sum_mu X^T curvature X / D over sequences of one length."""
    samples, tokens, dim = X.shape
    bent = np.einsum("ijn,njd->nid", curvature, X, optimize=True)
    return np.asarray(X.reshape(samples * tokens, dim).T @ bent.reshape(samples * tokens, dim) / dim)


def response(
    dataset: Dataset, trained: Trained, curvatures: Curvatures, lambdas: tuple[float, float]
) -> TrainedResponse:
    """Traces and squares of the blocks of the inverse Hessian at a trained minimum."""
    dim = dataset.dim
    R = np.linalg.inv(hessian(dataset, trained, curvatures, lambdas))
    kk, kv, vv = R[:dim, :dim], R[:dim, dim:], R[dim:, dim:]
    traces = (float(np.trace(part)) / dim for part in (kk, vv))
    return TrainedResponse(*traces, *(float((part * part).sum()) / dim for part in (kk, kv, vv)))
