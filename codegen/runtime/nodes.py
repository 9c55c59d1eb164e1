"""Quadrature nodes for standard Gaussian averages: shifted lattices in few dimensions, scrambled Sobol in many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from scipy import special

from replicode.codegen.runtime.kernel import Array

SMALL_LATTICE, LARGE_LATTICE = 30_000, 300_000  # nodes of lattices of which many, and few, are kept for later


def level_count(dim: int, level: int) -> float:
    """Nodes at a level: about 1000 in three dimensions, 1.78 times more per further one, tripled per level."""
    return 1000.0 * 1.78 ** (dim - 3) * 3.0**level


Flips = tuple[tuple[int, ...], ...]  # sets of coordinates that may change sign together; the first of each is its own


def lattice(dim: int, count: float, seed: int, flips: Flips = ()) -> tuple[Array, Array]:
    """About `count` nodes of a randomly shifted body-centred lattice in a ball, with normalised Gaussian weights.

    Of integrands that are even in sets of coordinates, half of the nodes stand for all, for each of the sets.

    The trapezoid rule on a lattice converges exponentially for analytic integrands; the body-centred one samples an
    isotropic band limit with fewer nodes than the cubic one (its dual is the denser packing D_n). Radius and spacing
    are balanced, spacing = 2 sqrt(2) pi balance / radius, so that what the ball cuts off and what the spacing aliases
    fall together as nodes are added; the ball cuts off more in more dimensions, hence the linear balance, which was
    tuned on softmax, linear and sigmoid in 3, 5 and 7 dimensions and affects cost only.
    """
    size = lattice_size(count, flips)
    make = _small_lattice if size <= SMALL_LATTICE else _large_lattice if size <= LARGE_LATTICE else _lattice
    return make(dim, count, seed, flips)


def lattice_size(count: float, flips: Flips) -> float:
    """About how many nodes `lattice` keeps of `count`."""
    return count * 0.5 ** len(flips)


def _lattice(dim: int, count: float, seed: int, flips: Flips) -> tuple[Array, Array]:
    balance = 0.375 + 0.075 * dim
    log_volume = 0.5 * dim * np.log(np.pi) - special.gammaln(0.5 * dim + 1.0)
    reach = 2.0 * np.sqrt(2.0) * np.pi * balance
    radius = float(np.exp((np.log(0.5 * count) + dim * np.log(reach) - log_volume) / (2 * dim)))
    return ball_lattice(dim, reach / radius, radius, seed, flips)


def ball_lattice(dim: int, spacing: float, radius: float, seed: int, flips: Flips = ()) -> tuple[Array, Array]:
    """The nodes of `lattice` for a spacing and a radius that are given."""
    shift, halved = _shifted(dim, seed, flips)
    halves = [_shifted_grid(dim, spacing, radius, shift + offset, halved) for offset in (0.0, 0.5)]
    nodes = np.empty((dim, sum(half[0].size for half in halves)))
    for row, parts in zip(nodes, zip(*halves, strict=True), strict=True):
        np.concatenate(parts, out=row)
    weights = _densities_at(nodes, halved)
    weights /= weights.sum()
    return nodes, weights


_small_lattice = lru_cache(maxsize=32)(_lattice)
_large_lattice = lru_cache(maxsize=2)(_lattice)


def reaching_lattice(
    dim: int, count: float, radius: float, seed: int, flips: Flips = ()
) -> Iterator[tuple[Array, Array]]:
    """About `count` nodes of such a lattice within a given radius, in parts; weights are not normalised.

    They are closer than those of `lattice`, which go as far out as integrands without a singularity are worth it.
    """
    log_volume = 0.5 * dim * np.log(np.pi) - special.gammaln(0.5 * dim + 1.0)
    spacing = radius * float(np.exp((np.log(2.0 / count) + log_volume) / dim))
    shift, halved = _shifted(dim, seed, flips)
    share = 0.5 * (spacing / np.sqrt(2.0 * np.pi)) ** dim
    for offset in (0.0, 0.5):
        for first in _line(0, spacing, radius, shift + offset, halved):
            grid = _grown([np.array([first])], spacing, radius, shift + offset, halved)
            if grid[0].size:
                nodes = np.stack(grid)
                yield nodes, share * _densities_at(nodes, halved)


def _shifted(dim: int, seed: int, flips: Flips) -> tuple[Array, set[int]]:
    """A random shift along what has no flip, and the coordinates of which one half is enough."""
    shift = np.random.default_rng(seed).random(dim)
    shift[[axis for flip in flips for axis in flip]] = 0.0
    return shift, {flip[0] for flip in flips}


def _densities_at(nodes: Array, halved: set[int]) -> Array:
    """The Gaussian density without its constant, of both halves where one stands for them."""
    weights = np.exp(-0.5 * np.einsum("dn,dn->n", nodes, nodes))
    for axis in sorted(halved):
        weights[nodes[axis] > 0.0] *= 2.0
    return np.asarray(weights)


def _shifted_grid(dim: int, spacing: float, radius: float, shift: Array, halved: set[int]) -> list[Array]:
    """The points of spacing * (Z^dim + shift) within the radius, some coordinates not negative."""
    first = _line(0, spacing, radius, shift, halved)
    return _grown([first[first * first <= radius * radius]], spacing, radius, shift, halved)


def _line(axis: int, spacing: float, radius: float, shift: Array, halved: set[int]) -> Array:
    reach = int(np.ceil(radius / spacing)) + 1
    line = spacing * (np.arange(-reach, reach + 1) + shift[axis] % 1.0)
    return np.asarray(line[line >= 0.0] if axis in halved else line)


def _grown(rows: list[Array], spacing: float, radius: float, shift: Array, halved: set[int]) -> list[Array]:
    """The points that begin with some coordinates, one more coordinate at a time."""
    squares = np.zeros(rows[0].size)
    for row in rows:
        squares += row * row
    for axis in range(len(rows), len(shift)):
        line = _line(axis, spacing, radius, shift, halved)
        square = line * line
        inside = squares[:, None] + square <= radius * radius  # a piece of the line, or nothing
        counts, first = inside.sum(axis=1), inside.argmax(axis=1)
        chosen = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
        rows = [*(np.repeat(row, counts) for row in rows), line[chosen]]
        squares = np.repeat(squares, counts) + square[chosen]
    return rows


def sobol(dim: int, log2_count: int, seed: int) -> tuple[Array, Array]:
    """Scrambled Sobol nodes mapped to standard normals, with equal weights."""
    from scipy.stats import qmc

    uniform = qmc.Sobol(dim, scramble=True, seed=np.random.default_rng(seed)).random_base2(log2_count)
    nodes = special.ndtri(np.clip(uniform, 1e-16, 1.0 - 1e-16)).T
    return np.ascontiguousarray(nodes), np.full(nodes.shape[1], 2.0**-log2_count)


COMPOSITE_NODES = 12


@lru_cache(maxsize=8)
def gauss_legendre(count: int) -> tuple[Array, Array]:
    """Nodes and weights on (-1, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return nodes, weights


@lru_cache(maxsize=1)
def panel_integrals() -> Array:
    """S_ij = integral from -1 to node i of the Lagrange polynomial of node j of a panel."""
    legendre, (nodes, _) = np.polynomial.legendre, gauss_legendre(COMPOSITE_NODES)
    values = legendre.legvander(nodes, COMPOSITE_NODES - 1)
    integrals = [legendre.legval(nodes, legendre.legint(row, lbnd=-1)) for row in np.eye(COMPOSITE_NODES)]
    return np.asarray(np.linalg.solve(values.T, np.stack(integrals)).T)


def gauss_panels(edges: Array) -> tuple[Array, Array]:
    """Composite Gauss-Legendre nodes and weights between the edges."""
    nodes, weights = gauss_legendre(COMPOSITE_NODES)
    half = np.diff(edges)[:, None] / 2.0
    return (edges[:-1, None] + half * (1.0 + nodes)).ravel(), (half * weights).ravel()
