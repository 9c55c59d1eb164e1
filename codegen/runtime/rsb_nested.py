"""Nested averages at one step of breaking, where M sees too many coordinates for a table: nodes within nodes.

Outer nodes are those of shifted lattices over the fields of replica symmetry. Around each of them stand inner nodes for
the noise that tells states apart: Gauss radii, and on each sphere points of a rule of fifth order that is turned at
random. What is averaged over the tilted noise is not linear in its sums, such as a logarithm: twice the value with all
inner nodes less the mean of those with either half of them has no error of first order in their number. Several such
sets, drawn independently, tell the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.linalg import helmert

from replicode.codegen.runtime.channel import _blocks, _response_integrands, node_dimensions
from replicode.codegen.runtime.fields import Fields, dimensions, field_factor, fields
from replicode.codegen.runtime.kernel import (
    EVEN_LOSS,
    ORDER_NAMES,
    SHIFT_INVARIANT,
    V_K,
    V_V,
    Array,
    channel_rates,
)
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.location import location_dimensions, location_of
from replicode.codegen.runtime.nodes import Flips, lattice
from replicode.codegen.runtime.prox import FAR, NEAR, _scan, objective, prox
from replicode.codegen.runtime.rsb_averages import TiltedAverages, TiltedResponse

DISTINCT = 1e-3  # distance of two minima, relative to their size
FURTHER = 0.1  # relative move of the order parameters after which minima are searched for anew
KEPT_MOMENTS = 3
ALONE = 16.0  # times as many outer nodes where there are no inner ones
LEAST_SHARE = 1e-9  # variance of noise, relative to the whole, that needs no inner nodes


class Minima(NamedTuple):
    """The lowest minimum found at every sample; and the second one, at the samples `rival` that have one."""

    chi: Array
    rival: Array
    other: Array


def two_lowest(at: Fields, V: tuple[float, float], setting: Setting) -> Minima:
    """By Newton's method from the field and from the lowest points along the token directions, as `global_prox`."""
    best, _ = prox(at.w_chi, at, V, setting)
    value = objective(best, at, V, setting)
    other, beaten = best.copy(), np.full(value.shape, np.inf)
    reach = np.sqrt(2.0 * V[0] * np.where(np.isfinite(value), value, 1.0))
    for sign in (1.0, -1.0):
        for part in (NEAR, FAR):
            found, _ = prox(_scan(at, V, setting, sign * reach, part), at, V, setting)
            level = objective(found, at, V, setting)
            apart = np.abs(found - best).max(axis=0) > DISTINCT * (1.0 + np.abs(best).max(axis=0))
            lower = apart & (level < value)
            other[:, lower], beaten[lower] = best[:, lower], value[lower]
            best[:, lower], value[lower] = found[:, lower], level[lower]
            second = apart & ~lower & (level < beaten)
            other[:, second], beaten[second] = found[:, second], level[second]
    rival = np.flatnonzero(np.isfinite(beaten))
    return Minima(best, rival, other[:, rival])


def followed(minima: Minima, at: Fields, V: tuple[float, float], setting: Setting) -> Minima:
    """Both minima from where they were, and the lower of them."""
    chi, _ = prox(minima.chi, at, V, setting)
    if not minima.rival.size:
        return minima._replace(chi=chi)
    here, mine = at.at(minima.rival), chi[:, minima.rival]
    other, _ = prox(minima.other, here, V, setting)
    lower = objective(other, here, V, setting) < objective(mine, here, V, setting)
    chi[:, minima.rival] = np.where(lower, other, mine)
    return Minima(chi, minima.rival, np.where(lower, mine, other))


class Inner(NamedTuple):
    """Normals of the noise around every outer node, (dimensions, outer, inner), and the weights of the inner nodes."""

    xi: Array
    weights: Array

    @property
    def parts(self) -> tuple[slice, ...]:
        """All inner nodes, and either half of them."""
        half = self.weights.size // 2
        return (slice(None), slice(0, half), slice(half, None)) if half else (slice(None),)


def fifth_order(dim: int) -> tuple[Array, Array]:
    """Points on the unit sphere, (dim, n), and weights that are exact to fifth order (Mysovskikh).

    They are the corners of a regular simplex, the middles of its edges, and the points opposite to them.
    """
    corners = helmert(dim + 1).T
    middles = np.array([corners[i] + corners[j] for i in range(dim + 1) for j in range(i)])
    kinds = [k / np.linalg.norm(k, axis=1, keepdims=True) for k in (corners, middles)]
    powers = [[float(len(k)), float(((k @ kinds[0][0]) ** 4).sum())] for k in kinds]
    wanted = [0.5, 1.5 / (dim * (dim + 2.0))]  # of either side: the whole, and the fourth power of a coordinate
    each = np.linalg.lstsq(np.array(powers).T, wanted, rcond=None)[0]
    points = np.concatenate([sign * k for k in kinds for sign in (1.0, -1.0)])
    weights = np.repeat(each, [2 * len(k) for k in kinds])
    _, first, same = np.unique(points.round(9) + 0.0, axis=0, return_index=True, return_inverse=True)
    return points[first].T, np.bincount(same.ravel(), weights)


def inner_nodes(dim: int, outer: int, groups: int, radii: int, rng: np.random.Generator) -> Inner:
    """`groups` sets of such points, turned at random, on spheres that are Gauss's for the length of `dim` normals."""
    squares, shares = special.roots_genlaguerre(radii, 0.5 * dim - 1.0)
    points, weights = fifth_order(dim)
    turns, _ = np.linalg.qr(rng.standard_normal((outer, groups, radii, dim, dim)))
    turned = np.einsum("r,ogrij,jp->iogrp", np.sqrt(2.0 * squares), turns, points, optimize=True)
    each = np.outer(shares / shares.sum(), weights).ravel() / groups
    return Inner(turned.reshape(dim, outer, -1), np.tile(each, groups))


def whole_ball(zeta: Array, weights: Array) -> Array:
    """The weights of a ball of nodes with what is cut off around it made up for.

    They are multiplied by a polynomial in |zeta|^2 by which the even moments of the length are those of normals.
    """
    dim, squares = len(zeta), (zeta * zeta).sum(axis=0)
    wanted = np.cumprod([1.0, *(dim + 2.0 * k for k in range(KEPT_MOMENTS))])
    powers = (squares / dim) ** np.arange(len(wanted))[:, None]
    scaled = wanted / float(dim) ** np.arange(len(wanted))
    return np.asarray(weights * (np.linalg.solve((powers * weights) @ powers.T, scaled) @ powers))


class Cloud:
    """One set of outer nodes with their inner ones; the minima are followed from one call to the next."""

    def __init__(self, nodes: tuple[Array, Array], inner: Inner, setting: Setting) -> None:
        self.zeta, self.weights = nodes
        self.inner, self.setting = inner, setting
        tokens = setting.tokens
        split = dimensions(setting)[0]
        frame = helmert(tokens).T if SHIFT_INVARIANT else np.eye(tokens)
        self.noise_chi = np.einsum("ts,soi->toi", frame, inner.xi[:split])
        self.noise_z = inner.xi[split:]
        self.minima: Minima | None = None
        self.fields: Fields | None = None

    def _points(self, order: Array, noise: tuple[float, float]) -> tuple[Fields, Fields, Array]:
        """The outer fields, all fields, and the prox at all."""
        outer = fields(field_factor(order, self.setting), self.zeta)
        shape = self.inner.xi.shape[1:]
        w_chi, w_z = (
            (w[:, :, None] + np.sqrt(d) * xi).reshape(len(w), -1)
            for w, d, xi in zip(outer[:2], noise, (self.noise_chi, self.noise_z), strict=True)
        )
        at = Fields(w_chi, w_z, np.repeat(outer.y, shape[1]))
        V = float(order[V_K]), float(order[V_V])
        if self.minima is None or self.fields is None:
            self.minima = two_lowest(at, V, self.setting)
        else:
            moved = at.w_chi - self.fields.w_chi
            last, rival = self.minima, self.minima.rival
            self.minima = followed(Minima(last.chi + moved, rival, last.other + moved[:, rival]), at, V, self.setting)
        self.fields = at
        return outer, at, self.minima.chi

    def _weighted(self, order: Array, outer: Fields) -> tuple[Array, tuple[Array, ...]]:
        """The weights of the outer nodes, that of the location included, and its slopes."""
        location = location_of(order, self.setting)
        if location is None:
            return self.weights, ()
        first = self.zeta.shape[0] - location_dimensions(self.setting)
        here = location.at(outer.w_chi, self.zeta[first:])
        weights = self.weights * here.value
        return weights / weights.sum(), (here.slopes,)

    def averages(self, order: Array, noise: tuple[float, float], y: float) -> Array:
        """Rates, squares, E[F], E<M> and E<loss> in one row."""
        outer, at, chi = self._points(order, noise)
        weights, slopes = self._weighted(order, outer)
        gains, rows = self._gains(order, at, chi)

        def tilted(mean: Tilted) -> Array:
            g_chi, g_z = np.split(mean.of(gains), 2)
            rates = channel_rates(order, self.setting.nu, self.setting.noise, *outer, g_chi, g_z, *slopes)
            each = [*(np.broadcast_to(r, weights.shape) for r in rates), mean.envelope, *mean.of(rows)]
            return np.asarray(weighted_sum(np.stack(each), weights))

        return self._without_bias([tilted(m) for m in self._tilts(rows[0], y)])

    def _gains(self, order: Array, at: Fields, chi: Array) -> tuple[Array, Array]:
        """G of scores and values, (2 tokens, outer, inner); and M, |G_k|^2, |G_v|^2 and the residual's loss."""
        value, _, sigmas, gain, residual = self.setting.kernel.gradient(
            chi, at.w_z, at.y, order[V_V], self.setting.params
        )
        g_chi, g_z = (chi - at.w_chi) / order[V_K], gain * sigmas
        g_chi = g_chi - g_chi.mean(axis=0) if SHIFT_INVARIANT else g_chi  # of the noise along the shift there is none
        squares = [(g * g).sum(axis=0) for g in (g_chi, g_z)]
        rows = np.stack([0.5 * order[V_K] * squares[0] + value, *squares, residual])
        shape = self.inner.xi.shape[1:]
        return np.concatenate([g_chi, g_z]).reshape(-1, *shape), rows.reshape(-1, *shape)

    def _tilts(self, envelope: Array, y: float) -> list[Tilted]:
        """The tilted averages over all inner nodes, and over either half of them."""
        least = envelope.min(axis=1)
        tilt = self.inner.weights * np.exp(-y * (envelope - least[:, None]))
        return [Tilted.over(tilt, least, y, part, self.inner.weights) for part in self.inner.parts]

    @staticmethod
    def _without_bias(found: Sequence[Array]) -> Array:
        """Without the error of first order in the number of inner nodes."""
        return found[0] if len(found) == 1 else 2.0 * found[0] - 0.5 * (found[1] + found[2])

    def response(self, order: Array, noise: tuple[float, float], y: float) -> Array:
        """Squared responses in kk, kv, vv within states, their trace, and those between states, in one row.

        Between states d<G>/dw is taken by Stein's lemma over the noise, which jumps of the prox do not disturb.
        """
        outer, at, chi = self._points(order, noise)
        weights, _ = self._weighted(order, outer)
        gains, rows = self._gains(order, at, chi)
        inside = np.concatenate(
            [_response_integrands(order, self.setting, at.at(b), chi[:, b]) for b in _blocks(at.y.size, self.setting)],
            axis=1,
        ).reshape(4, *self.inner.xi.shape[1:])
        tokens = self.setting.tokens
        scale = np.repeat(np.sqrt(noise), tokens)[:, None, None]
        xi = np.concatenate([self.noise_chi, self.noise_z]) / scale

        def tilted(mean: Tilted) -> Array:
            mean_gain = mean.of(gains)
            slopes = np.stack([[mean.of(x * g) for x in xi] for g in gains])
            bends = y * mean_gain[:, None] * mean_gain[None, :] - 0.5 * (slopes + slopes.transpose(1, 0, 2))
            blocks = bends[:tokens, :tokens], bends[:tokens, tokens:], bends[tokens:, tokens:]
            squares = [(b * b).sum(axis=(0, 1)) for b in blocks]
            return np.asarray(weighted_sum(np.stack([*mean.of(inside), *squares]), weights))

        return self._without_bias([tilted(m) for m in self._tilts(rows[0], y)])


class Tilted(NamedTuple):
    """The average over some of the inner nodes, tilted by exp(-y M), and F there."""

    tilt: Array
    envelope: Array
    part: slice

    @staticmethod
    def over(tilt: Array, least: Array, y: float, part: slice, weights: Array) -> Tilted:
        """From the weights of all inner nodes times exp(-y (M - least))."""
        here = tilt[:, part]
        partition = here.sum(axis=1)
        share = float(weights[part].sum())
        return Tilted(here / partition[:, None], least - np.log(partition / share) / y, part)

    def of(self, values: Array) -> Array:
        """<values>, outer node by outer node."""
        return np.asarray(np.einsum("...oi,oi->...o", values[..., self.part], self.tilt))


class NestedLayout(NamedTuple):
    """Several clouds, drawn independently; `order` and `noise` are where they were made."""

    clouds: tuple[Cloud, ...]
    order: Array
    alone: bool

    @property
    def resolved(self) -> bool:
        """Nodes in units of the noise need no shorter steps."""
        return True

    @property
    def members(self) -> tuple[NestedLayout, ...]:
        """Each of the clouds."""
        return tuple(self._replace(clouds=(c,)) for c in self.clouds)

    @property
    def text(self) -> str:
        """What they are."""
        shape = self.clouds[0].inner.xi.shape
        return f"{len(self.clouds)} nested rules of {shape[1]} x {shape[2]} nodes, prox by search"

    def serves(self, order: Array, noise: tuple[float, float]) -> bool:
        """Whether these order parameters are near enough to follow the minima."""
        near = np.abs(order - self.order) <= FURTHER * (np.abs(self.order) + FURTHER)
        return bool(near.all()) and self.alone == negligible(order, noise)

    def averages(self, order: Array, noise: tuple[float, float], y: float) -> TiltedAverages:
        """The mean over the clouds."""
        row = np.mean([c.averages(order, noise, y) for c in self.clouds], axis=0)
        rates, (envelope, tilted), squares, loss = np.split(row, np.cumsum([len(order), 2, 2]))
        return TiltedAverages(rates, squares, float(envelope), float(tilted), float(loss[0]), 0.0)

    def response(self, order: Array, noise: tuple[float, float], y: float) -> TiltedResponse:
        """The mean over the clouds; one state has no others."""
        row = np.mean([c.response(order, noise, y) for c in self.clouds], axis=0)
        return TiltedResponse(row[:3], row[:3] if self.alone else row[4:], float(row[3]))


def negligible(order: Array, noise: tuple[float, float]) -> bool:
    """Whether the noise is so small that there is one state."""
    named = dict(zip(ORDER_NAMES, order, strict=True))
    return all(d <= LEAST_SHARE * named[f"q_{b}"] for b, d in zip(("k", "v"), noise, strict=True))


class Nested(NamedTuple):
    """How many outer nodes, groups of inner nodes and radii, and how many such sets."""

    outer: float
    groups: int
    radii: int
    sets: int

    def laid(self, order: Array, noise: tuple[float, float], setting: Setting) -> NestedLayout:
        """Clouds for these order parameters, of which `order` has q0 in the place of q; of one state without noise."""
        alone = negligible(order, noise)
        return NestedLayout(tuple(self._clouds(alone, setting)), order, alone)

    def _clouds(self, alone: bool, setting: Setting) -> Iterator[Cloud]:
        score, value = dimensions(setting)
        dim = node_dimensions(setting)
        noisy = score + setting.tokens
        count = self.outer * (ALONE if alone else 1.0)
        flips: Flips = (tuple(range(score, score + value)),) if EVEN_LOSS else ()
        for seed in range(self.sets):
            rng = np.random.default_rng((seed, int(count)))
            zeta, weights = lattice(dim, count * 2.0 ** len(flips), seed, flips)
            turned = zeta.copy()
            for rows in flips:  # a lattice that is even along these is not shifted there
                turned[list(rows)] = product(np.linalg.qr(rng.standard_normal((len(rows),) * 2))[0], zeta[list(rows)])
            size = weights.size
            none = Inner(np.zeros((noisy, size, 1)), np.ones(1))
            around = none if alone else inner_nodes(noisy, size, self.groups, self.radii, rng)
            yield Cloud((turned, whole_ball(turned, weights)), around, setting)
