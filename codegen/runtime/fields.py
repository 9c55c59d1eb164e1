"""Gaussian fields (w_chi, w_z, y) of one sequence as mean + factor @ standard normals, invariances projected out.

A label that is no Gaussian field is told from w_z afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import LABEL_NORMALS, SHIFT_INVARIANT, Array, hidden_law, idle_law
from replicode.codegen.runtime.label import FieldLabel, Told, label_of
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product

EXCHANGED = 3  # tokens from which on two of them are idle


class FieldFactor(NamedTuple):
    """fields = mean + factor @ zeta; scores come first, then values, then the label, unless it is no field."""

    score_mean: Array
    score_factor: Array
    value_factor: Array
    label: FieldLabel | None = None


def dimensions(setting: Setting) -> tuple[int, int]:
    """Number of normals that the scores and the values (with the label) need."""
    score = setting.tokens - 1 if SHIFT_INVARIANT else setting.tokens
    return score, value_dimensions(setting)


def balanced_dimensions(setting: Setting) -> int:
    """One normal for each value and for the label, less one where M sees differences alone."""
    return setting.tokens if setting.row_sum else setting.tokens + 1


def told_dimensions(setting: Setting) -> int:
    """One normal for each value, and those of the label."""
    return setting.tokens + LABEL_NORMALS


value_dimensions: Callable[[Setting], int] = balanced_dimensions


def field_law(order: Array, setting: Setting) -> tuple[Array, Array, Array]:
    """Mean of the scores, and the covariances of the scores and of the values with the label."""
    tokens = setting.tokens
    mean, hidden = hidden_law(order, setting.nu, setting.noise)
    _, idle = idle_law(order)
    score_mean, score = np.zeros(tokens), idle[0, 0] * np.eye(tokens)
    score_mean[0], score[0, 0] = mean[0], hidden[0, 0]
    return score_mean, score, value_covariance(hidden[1:, 1:], idle[1, 1], tokens)


def with_label(hidden: Array, idle: float, tokens: int) -> Array:
    """The covariance of all values and the label, given that of the hidden token's value and the label."""
    value = idle * np.eye(tokens + 1)
    value[0, 0], value[-1, -1], value[0, -1], value[-1, 0] = hidden[0, 0], hidden[1, 1], hidden[0, 1], hidden[0, 1]
    return value


def without_label(hidden: Array, idle: float, tokens: int) -> Array:
    """The covariance of all values."""
    value = idle * np.eye(tokens)
    value[0, 0] = hidden[0, 0]
    return value


value_covariance: Callable[[Array, float, int], Array] = with_label


def field_factor(order: Array, setting: Setting, held: bool = False) -> FieldFactor:
    """Factor the fields' covariance; along an invariance of M the fields are replaced by their conditional mean.

    With the label held where m and q move, the rates are derivatives of E[M] on the same nodes, however few.
    """
    tokens = setting.tokens
    score_mean, score, value = field_law(order, setting)
    scores, values = (_blind(d) if d else None for d in unseen_directions(setting))
    return FieldFactor(
        score_mean=score_mean,
        score_factor=_idle_first(reduced_factor(score, scores), tokens),
        value_factor=_idle_first(reduced_factor(value, values, held), tokens),
        label=label_of(order, setting),
    )


def unseen_directions(setting: Setting) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The directions of the scores, and of the values with the label, along which M does not change; () for none."""
    ones, total = (1.0,) * setting.tokens, setting.row_sum
    return ones if SHIFT_INVARIANT else (), (*ones, total) if total else ()


def seen_part(covariance: Array, direction: tuple[float, ...]) -> Array:
    """The matrix that takes fields to their conditional mean, given all but what is along the direction."""
    if not direction:
        return np.eye(len(covariance))
    blind = _blind(direction)
    cross = covariance @ blind.T
    return np.asarray(np.linalg.solve(blind @ cross, cross.T).T @ blind)


def _idle_first(factor: Array, tokens: int) -> Array:
    """The factor turned so that exchanging tokens 1 and 2, both idle, changes the sign of the first normal alone."""
    if tokens < EXCHANGED:
        return factor
    along = np.linalg.pinv(factor)[:, 1:3] @ np.array([1.0, -1.0])
    mirror = along / np.linalg.norm(along)
    mirror[0] += 1.0 if mirror[0] >= 0.0 else -1.0
    return np.asarray(factor - np.outer(factor @ mirror, 2.0 * mirror / (mirror @ mirror)))


def jittered(covariance: Array) -> Array:
    """The covariance, which may be singular, with next to nothing added to its diagonal."""
    return np.asarray(covariance + np.eye(len(covariance)) * (1e-60 + 1e-14 * covariance.diagonal().max()))


def reduced_factor(covariance: Array, blind: Array | None, held: bool = False) -> Array:
    """F with F F^T the covariance, or, given the functionals blind to an invariance, that of E[field | them]."""
    covariance = jittered(covariance)
    if blind is None:
        return np.asarray(
            np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1] if held else np.linalg.cholesky(covariance)
        )
    cross = covariance @ blind.T
    return np.asarray(np.linalg.solve(np.linalg.cholesky(blind @ cross), cross.T).T)


@lru_cache(maxsize=64)
def _blind(direction: tuple[float, ...]) -> Array:
    """Rows spanning the functionals that vanish on `direction` (whose first entry is not zero)."""
    return np.column_stack([-np.array(direction[1:]) / direction[0], np.eye(len(direction) - 1)])


class Fields(NamedTuple):
    """w_chi and w_z of shape (L, n) and y of shape (n,)."""

    w_chi: Array
    w_z: Array
    y: Array

    @property
    def radii(self) -> tuple[Array, ...]:
        """The radii of the tokens, of shape (L, n), where they have any."""
        return ()

    def at(self, samples: Array | slice) -> Fields:
        """The fields of some of the samples."""
        return Fields(self.w_chi[:, samples], self.w_z[:, samples], self.y[samples])


def fields(law: FieldFactor, zeta: Array) -> Fields:
    """The fields at the nodes zeta."""
    split = law.score_factor.shape[1]
    w_chi = law.score_mean[:, None] + product(law.score_factor, zeta[:split])
    values, _ = value_rows(law, zeta[split:])
    return Fields(w_chi, values[:-1], values[-1])


def value_rows(law: FieldFactor, zeta: Array) -> tuple[Array, Told | None]:
    """The values and below them the label, at the nodes without those of the scores; and what tells the label."""
    split = law.value_factor.shape[1]
    values = product(law.value_factor, zeta[:split])
    if law.label is None:
        return values, None
    told = law.label.at(values[0], zeta[split:])
    return np.concatenate([values, told.y[None]]), told
