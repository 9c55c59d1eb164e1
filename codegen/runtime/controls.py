"""Averages of which the value is known, to take from others what a finite set of nodes gets wrong in both.

M is continuous where its prox jumps. For any smooth displacement u of the normals zeta, E[u.grad M] is
E[M (zeta.u - div u)]: the difference is zero, and on a finite set it is off as the rates are, since one side jumps and
the other does not. The displacements are those by which overlaps move the fields: both sides are forms of a rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.fields import FieldFactor, Fields, _blind, unseen_directions
from replicode.codegen.runtime.hessian import _moves
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product
from replicode.codegen.runtime.refinement import COVERAGE, t_bound

MOVING = 2  # of m, q and V: the response moves no field


class Displacement(NamedTuple):
    """Of the fields of a block, constant + matrix (field less its mean), and of its normals."""

    constant: Array
    matrix: Array
    normal_constant: Array
    normal_matrix: Array

    def moved(self, rows: Array) -> Array:
        """The fields' at some of these."""
        return np.asarray(self.constant[:, None] + product(self.matrix, rows))

    def likelihood(self, zeta: Array) -> Array:
        """zeta.u - div u."""
        u = self.normal_constant[:, None] + product(self.normal_matrix, zeta)
        return np.asarray((zeta * u).sum(axis=0) - np.trace(self.normal_matrix))


class Controls(NamedTuple):
    """The displacements of the scores, and of the values with the label, and what takes these to their normals."""

    normals: tuple[Array, Array]
    displacements: tuple[tuple[Displacement, ...], tuple[Displacement, ...]]

    def integrands(self, rows: tuple[Array, Array], gains: tuple[Array, Array], envelope: Array) -> Array:
        """What is zero on average, sample by sample, at fields less their means: G.move + M (zeta.u - div u)."""
        found = []
        for normals, displacements, row, gain in zip(self.normals, self.displacements, rows, gains, strict=True):
            zeta = product(normals, row)
            for d in displacements:
                found.append((gain * d.moved(row)[: len(gain)]).sum(axis=0) + envelope * d.likelihood(zeta))
        return np.array(found)


def controls_at(order: Array, setting: Setting, law: FieldFactor) -> Controls:
    """The displacements by which m and q of both blocks move the fields at the same label."""
    tokens = setting.tokens
    mean = np.r_[law.score_mean, np.zeros(tokens + 1)]
    columns = mean[:, None] + np.eye(mean.size, mean.size + 1, 1)  # nothing but the mean, then each field in turn
    at = Fields(columns[:tokens], columns[tokens:-1], columns[-1])
    none = np.zeros_like(at.w_chi)
    own = slice(1, 1 + tokens), slice(1 + tokens, None)
    normals, displacements = [], []
    for moves, block, factor, unseen in zip(
        _moves(order, setting, at, (none, none)), own, (law.score_factor, law.value_factor), unseen_directions(setting)
    ):
        seen = _blind(unseen) if unseen else np.eye(len(factor))
        inverse = np.linalg.solve(seen @ factor, seen)
        normals.append(inverse)
        displacements.append(tuple(_displacement(moves[:, k], block, factor, inverse) for k in range(MOVING)))
    return Controls((normals[0], normals[1]), (displacements[0], displacements[1]))


def no_controls(order: Array, setting: Setting, law: FieldFactor) -> Controls | None:
    """Where no displacements are derived."""
    return None


controls_of: Callable[[Array, Setting, FieldFactor], Controls | None] = controls_at


def _displacement(move: Array, block: slice, factor: Array, inverse: Array) -> Displacement:
    """That which is known at the mean and at one unit of each field; a label stays where it is."""
    constant = np.zeros(len(factor))
    matrix = np.zeros((len(factor), len(factor)))
    constant[: len(move)], matrix[: len(move)] = move[:, 0], move[:, block] - move[:, :1]
    return Displacement(constant, matrix, inverse @ constant, inverse @ matrix @ factor)


def off_zero(controls: Array) -> float:
    """The largest mean over the sets of a control that is farther from zero than its scatter allows, or nothing.

    Where critical points are missing the two forms of a rate are apart: by this much, averages cannot be trusted.
    """
    if not controls.size:
        return 0.0
    means = np.abs(controls.mean(axis=0))
    beyond = means > t_bound(controls)
    return float(means[beyond].max(initial=0.0))


def controlled(values: Array, controls: Array) -> Array:
    """Values set by set with what they share with averages that are zero taken off, set by set too.

    Their mean is that of the regression; their scatter is widened so that a t bound on it, of as many values as there
    are, is that of the mean of the regression.
    """
    sets, count = controls.shape
    if not (count and np.isfinite(controls).all()):
        return values
    scaled = controls / np.maximum(np.abs(controls).max(axis=0), 1e-300)
    away = scaled - scaled.mean(axis=0)
    slopes = np.linalg.lstsq(away, values - values.mean(axis=0), rcond=None)[0]
    found = values - scaled @ slopes
    lever = 1.0 + sets * float(scaled.mean(axis=0) @ np.linalg.pinv(away.T @ away) @ scaled.mean(axis=0))
    left = sets - 1 - count
    quantiles = (float(special.stdtrit(dof, COVERAGE)) for dof in (left, sets - 1))
    wider = np.sqrt((sets - 1) / left * lever) * next(quantiles) / next(quantiles)
    mean = found.mean(axis=0)
    # the deviations of a regression on controls add up to zero
    return np.asarray(mean + wider * (found - mean))
