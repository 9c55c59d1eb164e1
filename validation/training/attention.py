"""Single-location attention and its regularised training objective, with gradient; the model says what they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from replicode.theory.model import DEFAULT_MODEL, Model
from replicode.validation.data.sampling import Array, Batch, Dataset, Tokens
from replicode.validation.training.learning import learning


class TokenMap(Protocol):
    """An activation sigma: R^L -> R^L acting on n sequences at once, tokens along axis 0; L is that of chi."""

    def sigma(self, chi: Array) -> Array:
        """sigma(chi), of the shape (L, n) of chi."""

    def pullback(self, chi: Array, cotangent: Array) -> Array:
        """sum_l cotangent_l d sigma_l / d chi_j, of the shape (L, n) of chi."""


def fields(X: Tokens, direction: Array) -> Array:
    """X w / sqrt(D) for a direction w, tokens along axis 0: shape (L, n), in double precision."""
    samples, tokens, dim = X.shape
    product = X.reshape(-1, dim) @ _as_tokens(direction, X)
    return np.ascontiguousarray(product.reshape(samples, tokens).T) / np.float64(sqrt(dim))


def predictions(k: Array, v: Array, batch: Batch, token_map: TokenMap, model: Model = DEFAULT_MODEL) -> Array:
    """The output f, sigma(chi)^T z by default, for every sequence of a batch, shape (n,)."""
    parts = learning(model).output(token_map.sigma(fields(batch.X, k)), fields(batch.X, v))
    f: Array = parts.sum(axis=0)
    return f


@dataclass(frozen=True, eq=False)
class Centre:
    """A point (k, v) with its fields chi and z, one array (L, n) per batch, computed in double precision.

    Fields of a point nearby are these plus the product of X with the difference, whose rounding is as small as the
    difference. So data in single precision give an objective that is smooth near the centre, where without it the
    rounding of the fields is larger than what a last step of a minimiser gains.
    """

    k: Array
    v: Array
    chi: tuple[Array, ...]
    z: tuple[Array, ...]

    @classmethod
    def at(cls, params: Array, dataset: Dataset) -> Centre:
        """The fields at params, by products of chunks of X raised to double precision."""
        k, v = np.split(params, 2)
        pairs = [_fields_in_double(batch, k, v) for batch in dataset.batches]
        return cls(k, v, tuple(chi for chi, _ in pairs), tuple(z for _, z in pairs))


def _fields_in_double(batch: Batch, k: Array, v: Array) -> tuple[Array, Array]:
    count, tokens, _ = batch.X.shape
    chi, z = np.empty((tokens, count)), np.empty((tokens, count))
    for part in batch.chunks():
        X = batch.X[part].astype(np.float64)
        chi[:, part], z[:, part] = fields(X, k), fields(X, v)
    return chi, z


def objective(
    params: Array,
    dataset: Dataset,
    token_map: TokenMap,
    lambda_k: float,
    lambda_v: float,
    centre: Centre | None = None,
    rounding: float | None = None,
) -> tuple[float, Array]:
    """Value and gradient at params = (k, v) of the training objective of the data's model, its loss rounded or not.

    The sequences are taken in chunks that stay in a cache, so that X is read from memory once: four matrix-vector
    products per chunk, two forward and two backward. (A pair of them takes half to two thirds of the time of one
    product with two columns.) Products are in the precision of X, sums over chunks and all else in double.
    """
    k, v = np.split(params, 2)
    of, penalised = learning(dataset.model, rounding), ((k, lambda_k), (v, lambda_v))
    value = sum(of.penalty(*pair).sum() for pair in penalised).item()
    gradient: Array = np.concatenate([of.penalty_slope(*pair) for pair in penalised])
    moved = (k, v) if centre is None else (k - centre.k, v - centre.v)
    for number, batch in enumerate(dataset.batches):
        for part in batch.chunks():
            X = batch.X[part]
            chi, z = (fields(X, w) for w in moved)
            if centre is not None:
                chi += centre.chi[number][:, part]
                z += centre.z[number][:, part]
            sigma, y = token_map.sigma(chi), batch.y[part]
            f = of.output(sigma, z).sum(axis=0)
            value += of.loss(y, f).sum().item()
            slope = of.loss_by_output(y, f)
            gradient[: k.size] += _back(X, token_map.pullback(chi, slope * of.output_by_sigma(sigma, z)))
            gradient[k.size :] += _back(X, slope * of.output_by_value(sigma, z))
    return value, gradient


def _back(X: Tokens, cotangent: Array) -> Array:
    """Adjoint of `fields`: the gradient in w, given the gradient in X w / sqrt(D), of shape (L, n)."""
    dim = X.shape[2]
    product: Array = _as_tokens(cotangent.T.reshape(-1) / sqrt(dim), X) @ X.reshape(-1, dim)
    return product


def _as_tokens(vector: Array, X: Tokens) -> Array:
    """A real vector in the precision of X, so that a product with X makes no copy of X."""
    return vector.astype(X.dtype, copy=False) if np.isrealobj(vector) else vector
