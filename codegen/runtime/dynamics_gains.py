"""The averages of the training dynamics for any loss and label: G is averaged over the output and the label's source.

Given the scores, the output f and the source s = a z* + b + c xi of the label are Gaussian with all other fields. In an
orthonormal frame they are two normals; of G only its moments with Hermite polynomials of these enter what is derived
(`gained_product`). `line_gains`: the label is s and the loss sees s - f alone, one normal. `side_gains`: the label has
one of few values; given f, their chances are averaged, in closed form where each is taken on one side of a threshold.
`plane_gains`: any other, nodes in s, then in f.
Kinks of the loss and of the label are edges of panels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.dynamics_averages import TOTAL, Given, Slopes, World, least_count, slopes_given
from replicode.codegen.runtime.dynamics_kernel import (
    FIELDS,
    LABEL_PLANE,
    LOSS_KINKS,
    SCORE,
    TRANSLATED,
    VALUE,
    VALUE_STAR,
    SequenceKernel,
    absorbed_noise,
    gained_product,
    joined_noise,
    loss_at,
)
from replicode.codegen.runtime.dynamics_nodes import ScoreNodes, score_nodes
from replicode.codegen.runtime.kernel import (
    LABEL_BRANCHES,
    LABEL_KINKS,
    LABEL_VALUES,
    Array,
    label_chances,
    label_lines,
    label_samples,
)
from replicode.codegen.runtime.linear import weighted_sum
from replicode.codegen.runtime.nodes import gauss_legendre

REACH = 8.5
TRAPEZOID, PER_LEVEL, PANEL = 32, 12, 16
EVALUATIONS = 200_000  # of the gain at once
LEAST_SHARE = 1e-16  # of a variance that is left given another variable


class Seen(NamedTuple):
    """A Gaussian variable given the scores: mean, variance, covariances with fields and slopes of every token."""

    mean: Array
    variance: Array
    fields: tuple[Array, ...]
    slopes: Array

    def less(self, other: Seen, covariance: Array) -> Seen:
        """Its difference from another one."""
        fields = tuple(a - b for a, b in zip(self.fields, other.fields, strict=True))
        variance = self.variance + other.variance - 2.0 * covariance
        return Seen(self.mean - other.mean, np.maximum(variance, 0.0), fields, self.slopes - other.slopes)


class Normal(NamedTuple):
    """A normal of the frame: what the fields and the slopes of every token have of it."""

    fields: tuple[Array, ...]
    slopes: Array


class Frame(NamedTuple):
    """The first variable is mean + deviation u_1, the second its own mean + shared u_1 + rest u_2."""

    first: Seen
    second: Seen
    deviation: Array
    shared: Array
    rest: Array
    normals: tuple[Normal, Normal]


class Gains(NamedTuple):
    """Moments of G and of its square, (6, n) each, the risk and the loss."""

    gains: Array
    squares: Array
    risk: Array
    loss: Array


def frame_of(first: Seen, second: Seen, covariance: Array) -> Frame:
    """An orthonormal frame of two variables."""
    deviation = np.sqrt(np.maximum(first.variance, 1e-300))
    one = _divided(first, deviation)
    shared = covariance / deviation
    rest = np.sqrt(np.maximum(second.variance - shared * shared, LEAST_SHARE * (second.variance + 1e-200)))
    left = Seen(
        second.mean,
        second.variance,
        tuple(a - shared * b for a, b in zip(second.fields, one.fields, strict=True)),
        second.slopes - shared * one.slopes,
    )
    return Frame(first, second, deviation, shared, rest, (one, _divided(left, rest)))


def _divided(seen: Seen, by: Array) -> Normal:
    return Normal(tuple(f / by for f in seen.fields), seen.slopes / by)


def trapezoid(fineness: int) -> tuple[Array, Array]:
    """Nodes and weights of a normal, for smooth integrands."""
    u = np.linspace(-REACH, REACH, TRAPEZOID + PER_LEVEL * fineness)
    weights = np.exp(-0.5 * u * u)
    return u, weights / weights.sum()


def split_nodes(kinks: list[Array], fineness: int) -> tuple[Array, Array]:
    """Nodes and weights of a normal along the last axis, in panels between its values at the kinks, by sample."""
    if not kinks:
        return trapezoid(fineness)
    shape = np.broadcast_shapes(*(k.shape for k in kinks))
    inside = [np.broadcast_to(np.clip(k, -REACH, REACH), shape) for k in kinks]
    edges = np.sort(np.stack([np.full(shape, -REACH), *inside, np.full(shape, REACH)], axis=-1), axis=-1)
    places, shares = gauss_legendre(PANEL + PER_LEVEL // 2 * fineness)
    half = 0.5 * np.diff(edges, axis=-1)[..., None]
    u = edges[..., :-1, None] + half * (1.0 + places)
    weights = half * shares * np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)
    return u.reshape(*shape, -1), weights.reshape(*shape, -1)


def loss_kinks(y: Array) -> list[Array]:
    """The outputs at which the loss has a kink, for these labels."""
    return [y + kink if TRANSLATED else y * kink for kink in LOSS_KINKS]


def hermite(weights: Array, gain: Array, one: Array, two: Parts) -> Array:
    """The six moments over the last axis; `two` are weights of 1, u_2 and u_2^2 - 1 beside those of u_1."""
    weighed = weights * gain
    zero, first, second = (weighed * part for part in two)
    rows = (zero, zero * one, first, zero * (one * one - 1.0), first * one, second)
    return np.stack([np.broadcast_to(r, weighed.shape).sum(axis=-1) for r in rows])


def line_gains(source: Seen, output: Seen, covariance: Array, branch: int, noise: float, fineness: int) -> _Branch:
    """The label is the source and the loss a function of r = y - f, one normal."""
    residual = source.less(output, covariance)
    frame = frame_of(residual, residual._replace(mean=0.0 * residual.mean), residual.variance)
    mean, deviation = residual.mean[:, None], frame.deviation[:, None]
    u, weights = split_nodes([(-kink - residual.mean) / frame.deviation for kink in LOSS_KINKS], fineness)
    r = mean + deviation * u
    loss, gain, risk = loss_at(r, np.zeros_like(r))
    alone = (np.ones(1), np.zeros(1), np.zeros(1))
    chance = label_lines(noise)[branch][3]
    return _Branch(frame, _collected(chance * weights, gain, risk, loss, u, alone))


def side_gains(source: Seen, output: Seen, covariance: Array, branch: int, noise: float, fineness: int) -> _Branch:
    """The label has one of few values: the rest of its source is averaged given the output."""
    frame, y = frame_of(output, source, covariance), np.array(LABEL_VALUES[branch])
    kinks = [(k - output.mean) / frame.deviation for k in loss_kinks(y)]
    u, weights = split_nodes(kinks, fineness)
    f = output.mean[:, None] + frame.deviation[:, None] * u
    loss, gain, risk = loss_at(y, f)
    mean = source.mean[:, None] + frame.shared[:, None] * u
    parts = chances_of(mean, frame.rest[:, None], branch, noise, fineness)
    return _Branch(frame, _collected(weights, gain, risk, loss, u, parts))


Parts = tuple[Array, Array, Array]


def sided_chances(mean: Array, rest: Array, branch: int, noise: float, fineness: int) -> Parts:
    """E[step(mean + rest u) (1, u, u^2 - 1)]: the value is taken where the source is positive."""
    side = mean / rest
    density = np.exp(-0.5 * side * side) / np.sqrt(2.0 * np.pi)
    return special.ndtr(side), density, -side * density


def averaged_chances(mean: Array, rest: Array, branch: int, noise: float, fineness: int) -> Parts:
    """The same of any chance, on nodes."""
    u, weights = trapezoid(fineness)
    chance = np.exp(np.minimum(label_chances(mean[..., None] + rest[..., None] * u, noise)[branch], 0.0))
    rows = np.stack([weights, weights * u, weights * (u * u - 1.0)])
    zero, one, two = np.einsum("...u,pu->p...", chance, rows)
    return zero, one, two


chances_of: Callable[[Array, Array, int, float, int], Parts] = sided_chances


def plane_gains(source: Seen, output: Seen, covariance: Array, branch: int, noise: float, fineness: int) -> _Branch:
    """Nodes in the source, then in the output, which takes the noise that the label adds."""
    output = output._replace(variance=output.variance + absorbed_noise(noise) ** 2)
    frame = frame_of(source, output, covariance)
    u, outer = split_nodes([(k - source.mean) / frame.deviation for k in LABEL_KINKS], fineness)
    s = source.mean[:, None] + frame.deviation[:, None] * u
    y, chance = labels_at(s, branch, noise)
    mean = output.mean[:, None] + frame.shared[:, None] * u
    v, inner = split_nodes([(k - mean) / frame.rest[:, None] for k in loss_kinks(y)], fineness)
    f = mean[:, :, None] + frame.rest[:, None, None] * v
    loss, gain, risk = loss_at(y[:, :, None], f)
    weights = (np.broadcast_to(outer, s.shape) * chance)[:, :, None] * inner
    first = np.broadcast_to(u, s.shape)[:, :, None]
    parts = (weights, gain, risk, loss, first, v)
    weights, gain, risk, loss, one, two = (np.broadcast_to(a, f.shape).reshape(len(s), -1) for a in parts)
    return _Branch(frame, _collected(weights, gain, risk, loss, one, (np.ones(1), two, two * two - 1.0)))


def lined_labels(s: Array, branch: int, noise: float) -> tuple[Array, Array]:
    """The label is its source."""
    return s, np.broadcast_to(label_lines(noise)[branch][3], s.shape)


def sampled_labels(s: Array, branch: int, noise: float) -> tuple[Array, Array]:
    """The label is a function of its source."""
    y, chance = label_samples(s, np.zeros(1), noise)[2 * branch : 2 * branch + 2]
    return np.broadcast_to(y, s.shape), np.broadcast_to(chance, s.shape)


labels_at: Callable[[Array, int, float], tuple[Array, Array]] = lined_labels


def _collected(weights: Array, gain: Array, risk: Array, loss: Array, u: Array, two: Parts) -> Gains:
    known = weights * two[0]
    return Gains(
        hermite(weights, gain, u, two),
        hermite(weights, gain * gain, u, two),
        np.broadcast_to(known * risk, gain.shape).sum(axis=-1),
        np.broadcast_to(known * loss, gain.shape).sum(axis=-1),
    )


class _Branch(NamedTuple):
    """A branch of the label: the frame of its variables, and the moments of the gain there."""

    frame: Frame
    gains: Gains


BranchGains = Callable[[Seen, Seen, Array, int, float, int], _Branch]
branch_gains: BranchGains = line_gains


def source_lines(noise: float) -> Array:
    """The a, b, c of the source of every branch: those of its line."""
    return label_lines(noise)


def plain_sources(noise: float) -> Array:
    """The source is z*, with some of the noise where the label sees both together."""
    return np.tile([1.0, 0.0, joined_noise(noise), 1.0], (LABEL_BRANCHES, 1))


label_sources: Callable[[float], Array] = source_lines


def gained_averages(overlaps: Array, world: World, kernel: SequenceKernel, count: int, seed: int) -> Array:
    """Pulls, spreads, the risk and the loss of sequences of one length."""
    given = Given.at(overlaps, world.nu)
    nodes = score_nodes(kernel.tokens, world.nu, given.hidden[1], given.idle[1], count, seed)
    fineness = max(0, round(np.log2(count / least_count(kernel.tokens, world.nu))))
    per_normal = (TRAPEZOID + PER_LEVEL * fineness) * (1 + max(len(LOSS_KINKS), len(LABEL_KINKS)))
    blocks = nodes.blocks(max(1, EVALUATIONS // per_normal**LABEL_PLANE))
    return sum((_gained_block(given, part, world, kernel, fineness) for part in blocks), start=np.zeros(TOTAL))


def _gained_block(given: Given, nodes: ScoreNodes, world: World, kernel: SequenceKernel, fineness: int) -> Array:
    tokens, means = kernel.tokens, given.means(nodes)
    sigmas, jacobian = kernel.attention(means[SCORE], world.params)
    value_variance = given.covariances(tokens, VALUE, VALUE)
    output = Seen(
        (sigmas * means[VALUE]).sum(axis=0),
        (sigmas * sigmas * value_variance).sum(axis=0),
        tuple(sigmas * given.covariances(tokens, VALUE, field) for field in range(FIELDS)),
        np.einsum("ljn,ln->jn", jacobian, sigmas * value_variance),
    )
    slopes = slopes_given(means, sigmas, jacobian, value_variance)
    total = np.zeros((TOTAL, nodes.weights.size))
    for branch, (a, b, c, _) in enumerate(label_sources(world.noise)):
        rows = [np.zeros_like(sigmas) for _ in range(FIELDS)]
        for field in range(FIELDS):
            rows[field][0] = a * given.hidden[2][VALUE_STAR, field]
        with_value = a * given.hidden[2][VALUE_STAR, VALUE]
        variance = a * a * given.hidden[2][VALUE_STAR, VALUE_STAR] + c * c
        source = Seen(
            a * means[VALUE_STAR, 0] + b,
            np.full(nodes.weights.size, variance),
            tuple(rows),
            with_value * jacobian[0],
        )
        found = branch_gains(source, output, with_value * sigmas[0], branch, world.noise, fineness)
        total += _products(found, slopes, means, given, tokens)
    return weighted_sum(total, nodes.weights)


def _products(found: _Branch, slopes: tuple[Slopes, Slopes], means: Array, given: Given, tokens: int) -> Array:
    """E[G f_l h_l] and E[G^2 f_l f'_l] over all tokens, the risk and the loss."""
    gains, (one, two) = found.gains, found.frame.normals
    of_k = (one.slopes, two.slopes)
    loads = (of_k, (np.zeros_like(one.slopes), np.zeros_like(one.slopes)))
    pulls = [
        gained_product(
            gains.gains,
            slope.mean,
            means[field],
            *load,
            one.fields[field],
            two.fields[field],
            slope.own * given.covariances(tokens, VALUE, field),
        ).sum(axis=0)
        for slope, load in zip(slopes, loads, strict=True)
        for field in range(FIELDS)
    ]
    pairs = ((0, 0), (0, 1), (1, 1))
    spreads = [
        gained_product(gains.squares, slopes[i].mean, slopes[j].mean, *loads[i], *loads[j], slopes[j].variance).sum(
            axis=0
        )
        for i, j in pairs
    ]
    return np.array([*pulls, *spreads, gains.risk, gains.loss])
