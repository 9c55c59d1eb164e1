"""Nodes where folds are: scrambled Sobol sets drawn to a mixture of Gaussians that is fitted to the folded mass.

Coordinates are the normals of scores and values. The law of the folded mass is even under the flips of the averages, so
one half of it is fitted, and the density of a node is the mean over all flips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.linear import product, weighted_sum
from replicode.codegen.runtime.nodes import Flips, sobol

COMPONENTS = 12
FITTED = 8000  # nodes, of equal weight, that a mixture is fitted to
EM_STEPS = 16
WIDENED = 1.3  # covariances, since nodes are missed sooner than wasted
ALL_OVER = 0.1  # the share of one Gaussian beside them
ALL_OVER_WIDENED = 2.5
LEAST_COVARIANCE = 1e-3


class Proposal(NamedTuple):
    """Shares, means and Cholesky factors of Gaussians in the coordinates of the nodes."""

    shares: Array
    means: Array
    factors: Array
    flips: Flips

    def nodes(self, log2: int, seed: int) -> tuple[Array, Array]:
        """2^log2 nodes, and weights by which they stand for standard normals; each Gaussian has its part of the set."""
        zeta, _ = sobol(self.means.shape[1], log2, seed)
        edges = np.round(2**log2 * np.r_[0.0, np.cumsum(self.shares)]).astype(int)
        for part, mean, low in zip(starmap(slice, pairwise(edges)), self.means, self.factors, strict=True):
            zeta[:, part] = mean[:, None] + product(low, zeta[:, part])
        return zeta, self._replace(shares=np.diff(edges) / 2**log2).weights(zeta)

    def weights(self, zeta: Array) -> Array:
        """The standard normal density over that of the proposal, over the number of nodes."""
        signs = _flipped(self.flips, len(zeta))
        density = sum(_densities(zeta * sign[:, None], self)[0] for sign in signs) / len(signs)
        return np.asarray(np.exp(-0.5 * (zeta * zeta).sum(axis=0)) / density / zeta.shape[1])


def _flipped(flips: Flips, dim: int) -> Array:
    """The signs of the coordinates under all flips."""
    found = []
    for taken in np.ndindex(*(2 for _ in flips)):
        sign = np.ones(dim)
        for flip in (f for f, on in zip(flips, taken, strict=True) if on):
            sign[list(flip)] *= -1.0
        found.append(sign)
    return np.array(found)


def _densities(zeta: Array, law: Proposal) -> tuple[Array, Array]:
    """The density without its power of 2 pi, and the share of each Gaussian in it."""
    parts = np.empty((len(law.shares), zeta.shape[1]))
    for part, share, mean, low in zip(parts, law.shares, law.means, law.factors, strict=True):
        inner = product(np.linalg.inv(low), zeta - mean[:, None])
        part[:] = np.exp(-0.5 * (inner * inner).sum(axis=0)) * (share / np.prod(np.diag(low)))
    total = parts.sum(axis=0)
    return total, parts / np.maximum(total, 1e-300)


def canonical(zeta: Array, flips: Flips) -> Array:
    """The nodes turned to the half in which the first coordinate of each flip is not negative."""
    zeta = zeta.copy()
    for flip in flips:
        zeta[list(flip)] *= np.where(zeta[flip[0]] < 0.0, -1.0, 1.0)
    return zeta


def one_gaussian(zeta: Array, masses: Array, flips: Flips) -> Proposal:
    """A single wide one."""
    mean, spread = _moments(canonical(zeta, flips), masses / masses.sum())
    return Proposal(np.ones(1), mean[None], np.linalg.cholesky(ALL_OVER_WIDENED * spread)[None], flips)


def _moments(zeta: Array, weights: Array) -> tuple[Array, Array]:
    mean = weighted_sum(zeta, weights)
    away = zeta - mean[:, None]
    return mean, np.einsum("in,jn,n->ij", away, away, weights) + LEAST_COVARIANCE * np.eye(len(zeta))


def mixture_of_gaussians(zeta: Array, masses: Array, flips: Flips) -> Proposal:
    """Several, fitted by expectation and maximisation, and a wide one for what they miss."""
    wide = one_gaussian(zeta, masses, flips)
    steps = (0.5 + np.arange(FITTED)) / FITTED
    chosen = np.searchsorted(np.cumsum(masses) / masses.sum(), steps)
    points = canonical(zeta[:, np.minimum(chosen, masses.size - 1)], flips)
    _, spread = _moments(points, np.full(FITTED, 1.0 / FITTED))
    begun = points[:, np.linspace(0, FITTED - 1, COMPONENTS).astype(int)].T
    factors = np.repeat(np.linalg.cholesky(0.5 * spread)[None], COMPONENTS, axis=0)
    law = Proposal(np.full(COMPONENTS, 1.0 / COMPONENTS), begun, factors, flips)
    for _ in range(EM_STEPS):
        belongs = _densities(points, law)[1]
        shares = np.maximum(belongs.mean(axis=1), 1e-6)
        fitted = [_moments(points, b / max(b.sum(), 1e-12)) for b in belongs]
        factors = np.array([np.linalg.cholesky(s + LEAST_COVARIANCE * spread) for _, s in fitted])
        law = Proposal(shares / shares.sum(), np.array([m for m, _ in fitted]), factors, flips)
    return Proposal(
        np.r_[(1.0 - ALL_OVER) * law.shares, ALL_OVER],
        np.concatenate([law.means, wide.means]),
        np.concatenate([np.sqrt(WIDENED) * law.factors, wide.factors]),
        flips,
    )


Seen = Callable[[Array, Array], tuple[Array, Array]]  # nodes with weights -> those that fold, with their masses


def proposal_for(looks: Sequence[Seen], first: tuple[Array, Array], flips: Flips, log2: int) -> Proposal | None:
    """A proposal for what the last of some looks sees, on nodes of a wide one for each; None where too little folds."""
    nodes = first
    for seed, look in enumerate(looks, 1):
        zeta, masses = look(*nodes)
        if np.count_nonzero(masses) <= 2 * len(zeta):
            return None
        nodes = one_gaussian(zeta, masses, flips).nodes(log2, seed) if seed < len(looks) else nodes
    return mixture_of_gaussians(zeta, masses, flips)
