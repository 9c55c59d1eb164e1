"""Gaussian fields (w_chi, w_z, y) of one sequence as mean + factor @ standard normals, invariances projected out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codegen.runtime.kernel import SHIFT_INVARIANT, Array, hidden_law, idle_law
from codegen.runtime.lengths import Setting


class FieldFactor(NamedTuple):
    """fields = mean + factor @ zeta; scores come first, then values, then the label."""

    score_mean: Array
    score_factor: Array
    value_factor: Array


def dimensions(setting: Setting) -> tuple[int, int]:
    """Number of normals that the scores and the values (with the label) need."""
    score = setting.tokens - 1 if SHIFT_INVARIANT else setting.tokens
    value = setting.tokens if setting.row_sum else setting.tokens + 1
    return score, value


def field_factor(order: Array, setting: Setting) -> FieldFactor:
    """Factor the fields' covariance; along an invariance of M the fields are replaced by their conditional mean."""
    tokens, total = setting.tokens, setting.row_sum
    mean, hidden = hidden_law(order, setting.nu, setting.noise)
    _, idle = idle_law(order)
    score = np.diag(np.r_[hidden[0, 0], np.full(tokens - 1, idle[0, 0])])
    value = np.diag(np.r_[hidden[1, 1], np.full(tokens - 1, idle[1, 1]), hidden[2, 2]])
    value[0, -1] = value[-1, 0] = hidden[1, 2]
    return FieldFactor(
        score_mean=np.r_[mean[0], np.zeros(tokens - 1)],
        score_factor=reduced_factor(score, np.ones(tokens) if SHIFT_INVARIANT else None),
        value_factor=reduced_factor(value, np.r_[np.ones(tokens), total] if total else None),
    )


def reduced_factor(covariance: Array, invariant: Array | None) -> Array:
    """F with F F^T the covariance, or, given an invariant direction, that of E[field | all functionals blind to it]."""
    jitter = np.eye(len(covariance)) * (1e-60 + 1e-14 * np.diag(covariance).max())
    if invariant is None:
        return np.asarray(np.linalg.cholesky(covariance + jitter))
    blind = _complement(invariant)
    cross = (covariance + jitter) @ blind.T
    return np.asarray(np.linalg.solve(np.linalg.cholesky(blind @ cross), cross.T).T)


def _complement(direction: Array) -> Array:
    """Rows spanning the functionals that vanish on `direction` (whose first entry is not zero)."""
    return np.asarray(np.c_[-direction[1:] / direction[0], np.eye(len(direction) - 1)])


class Fields(NamedTuple):
    """w_chi and w_z of shape (L, n) and y of shape (n,)."""

    w_chi: Array
    w_z: Array
    y: Array

    def at(self, samples: Array | slice) -> Fields:
        """The fields of some of the samples."""
        return Fields(self.w_chi[:, samples], self.w_z[:, samples], self.y[samples])


def fields(law: FieldFactor, zeta: Array) -> Fields:
    """The fields at the nodes zeta."""
    split = law.score_factor.shape[1]
    w_chi = law.score_mean[:, None] + law.score_factor @ zeta[:split]
    values = law.value_factor @ zeta[split : split + law.value_factor.shape[1]]
    return Fields(w_chi, values[:-1], values[-1])
