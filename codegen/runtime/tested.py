"""What a fresh sequence costs: the average of the loss itself, and how often a label of two values is missed.

The fields w of the saddle point are the scores and values of a fresh sequence, so that f = sigma(w_chi).w_z. Given the
scores, f is Gaussian with variance q_v N, and its covariance with z* is m_v sigma_eps: how often sign(f) is not y needs
one more integral, over f on each side of zero or over z*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from replicode.codegen.runtime.channel import ProxChannel, node_dimensions
from replicode.codegen.runtime.fields import field_factor, fields
from replicode.codegen.runtime.kernel import (
    LABEL_COPIES,
    LABEL_NORMALS,
    LABEL_VALUES,
    M_V,
    Q_V,
    Array,
    hidden_law,
    label_chances,
    loss_value,
)
from replicode.codegen.runtime.label import ValueOverlaps, branched, label_at
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import weighted_sum
from replicode.codegen.runtime.nodes import gauss_panels, lattice
from replicode.codegen.runtime.places import BLOCKS
from replicode.codegen.runtime.refinement import Safety, level_error
from replicode.codegen.runtime.values import constant_averages

TESTED_NODES = (20_000.0, 60_000.0)
TESTED_SAFETY = Safety(2.0, rounding=1e-13)
FAR_OUTPUT = 9.0
PANEL = 0.75
WIDE_PANEL = 3.0  # where z* and the noise are both averaged over
TOLD_STEP = 0.15
NEAR_OVERLAP = 0.05  # of q - m^2, within which the averages are taken to be straight


Tested = dict[str, tuple[float, float]]  # values with their errors: of test_loss, and of classification_error


def untested(order: Array, errors: Array, settings: Sequence[Setting]) -> Tested:
    """Of the square loss the test risk says it all."""
    return {}


def tested_on(
    order: Array, errors: Array, settings: Sequence[Setting], make: Callable[..., tuple[float, float]]
) -> Tested:
    """On coarse and on fine nodes, which tell the error together with those of the overlaps."""

    def average(at: Array, level: int) -> Array:
        return np.asarray(np.sum([s.kernel.share * np.array(make(at, s, level)) for s in settings], axis=0))

    coarse, fine = average(order, 0), average(order, 1)
    opened = level_error((coarse, fine), TESTED_SAFETY)
    for m, q, _ in BLOCKS:
        for place in (m, q):
            step = min(float(errors[place]), NEAR_OVERLAP * float(order[q] - order[m] ** 2))
            if step > 0.0:
                moved = order.copy()
                moved[place] += step if place == q or order[m] < 0.0 else -step
                opened += np.abs(average(moved, 0) - coarse) * float(errors[place]) / step
    names = ("test_loss", "classification_error") if _two_valued() else ("test_loss",)
    return {name: (float(value), float(error)) for name, value, error in zip(names, fine, opened)}


def _two_valued() -> bool:
    """Whether the label is y or -y; of a mirrored one only the first is named."""
    return label_at is not None and len(LABEL_VALUES) == 2 and LABEL_VALUES[0] == -LABEL_VALUES[1]


def _outputs(level: int, width: float = PANEL) -> tuple[Array, Array]:
    """Nodes and weights of a standard normal, in panels that end at zero."""
    panels = np.arange(-FAR_OUTPUT, FAR_OUTPUT + 1e-9, width / (1.0 + level))
    nodes, weights = gauss_panels(panels)
    weights = weights * np.exp(-0.5 * nodes * nodes)
    return nodes, weights / weights.sum()


def tested_scores(order: Array, errors: Array, settings: Sequence[Setting]) -> Tested:
    """Where there are scores."""
    return tested_on(order, errors, settings, _of_scores)


def _of_scores(order: Array, setting: Setting, level: int) -> tuple[float, float]:
    """Both on nodes in the fields; the label's weight is that of the channel."""
    channel = ProxChannel(lattice(node_dimensions(setting), TESTED_NODES[level], level), setting)
    at = fields(field_factor(order, setting), channel.zeta)
    total, mass = np.zeros(2), 0.0
    for part, weights, _ in channel._weighted(order, at):
        here = at.at(part)
        sigmas = setting.kernel.sigma(here.w_chi, setting.params)
        lost = loss_value(here.y, (sigmas * here.w_z).sum(axis=0))
        missed = _missed_given(order, setting, sigmas, level) if _two_valued() else np.zeros_like(lost)
        total += weighted_sum(np.stack([lost, missed]), weights)
        mass += float(weights.sum())
    return float(total[0] / mass), float(total[1] / mass)


def _missed_given(order: Array, setting: Setting, sigmas: Array, level: int) -> Array:
    """How often the label is missed at given attention weights, one column for each sample."""
    variance = order[Q_V] * np.maximum((sigmas * sigmas).sum(axis=0), 1e-300)
    return missed_labels(ValueOverlaps(order[M_V] * sigmas[0], variance), setting.noise, level)


def missed_on_sides(at: ValueOverlaps, noise: float, level: int) -> Array:
    """Over f on both sides of zero, with the label told from f."""
    assert label_at is not None
    t, weights = _outputs(level)
    m, q = np.atleast_1d(at.m), np.atleast_1d(at.q)
    total = np.zeros(q.shape)
    for node, weight in zip(t, weights):
        f = node * np.sqrt(q)
        zeta, copies = branched((np.zeros((LABEL_NORMALS, f.size)), np.ones(f.size)), LABEL_NORMALS)
        count = copies.size // f.size
        told = label_at(ValueOverlaps(np.tile(m, count), np.tile(q, count)), noise).at(np.tile(f, count), zeta)
        wrong = told.weight * (told.y * np.tile(f, count) < 0.0)
        total += weight * wrong.reshape(count, -1).sum(axis=0)
    return total


def missed_by_chance(at: ValueOverlaps, noise: float, level: int) -> Array:
    """Over z*, given which f is Gaussian."""
    z = np.arange(-FAR_OUTPUT, FAR_OUTPUT + 1e-9, TOLD_STEP / (1.0 + level))
    weights = np.exp(-0.5 * z * z)
    weights /= weights.sum()
    m, q = np.atleast_1d(at.m), np.atleast_1d(at.q)
    slope = m / np.sqrt(np.maximum(q - m * m, 1e-300))
    chances = label_chances(z, noise)
    total = np.zeros(q.shape)
    for value, log in zip(LABEL_VALUES, chances):
        for node, weight, chance in zip(z, weights, np.exp(log)):
            total += LABEL_COPIES * weight * chance * special.ndtr(-np.sign(value) * slope * node)
    return total


missed_labels: Callable[[ValueOverlaps, float, int], Array] = missed_on_sides


def tested_values(order: Array, errors: Array, settings: Sequence[Setting]) -> Tested:
    """Where the activation is a constant, f is one Gaussian."""
    return tested_on(order, errors, settings, _of_values)


def _of_values(order: Array, setting: Setting, level: int) -> tuple[float, float]:
    found = constant_averages(0.0, 1.0, setting, 0.0)
    at = ValueOverlaps(found.A * float(order[M_V]), found.B * float(order[Q_V]))
    f, weights = _outputs(level, WIDE_PANEL if LABEL_NORMALS > 1 else PANEL)
    f = f * np.sqrt(at.q)
    y, chance = _labels_at(order, setting, at, f, level, found.A)
    lost = float(weights @ (chance * loss_value(y, np.broadcast_to(f[:, None], y.shape))).sum(axis=1))
    missed = float(missed_labels(at, setting.noise, level)[0]) if _two_valued() else 0.0
    return lost, missed


def _labels_at(
    order: Array, setting: Setting, at: ValueOverlaps, f: Array, level: int, sigma: float
) -> tuple[Array, Array]:
    """Labels told from f and their chances: one row for each output."""
    normals = LABEL_NORMALS if label_at is not None else 1
    line, chance = _outputs(level, WIDE_PANEL if normals > 1 else PANEL)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[line] * normals)]) if normals else np.zeros((0, 1))
    weights = (
        np.prod(np.stack([g.ravel() for g in np.meshgrid(*[chance] * normals)]), axis=0) if normals else np.ones(1)
    )
    if label_at is None:
        _, law = hidden_law(order, setting.nu, setting.noise)
        along = sigma * law[-2, -1] / at.q
        spread = np.sqrt(max(law[-1, -1] - sigma * law[-2, -1] * along, 0.0))
        return along * f[:, None] + spread * grid, np.broadcast_to(weights, (f.size, weights.size))
    zeta, weights = branched((grid, weights), normals)
    every = np.tile(zeta, f.size)
    told = label_at(at, setting.noise).at(np.repeat(f, weights.size), every)
    shape = f.size, weights.size
    return told.y.reshape(shape), told.weight.reshape(shape) * weights


tested: Callable[[Array, Array, Sequence[Setting]], Tested] = untested
