"""One-pass SGD without its vectors: at any finite D the overlaps are a Markov chain, drawn here exactly.

The law of the tokens does not change under rotations. In a frame of both teachers and both students a token has four
coordinates that matter; of the others only the products of tokens with each other do, and these are Wishart. So a step
costs the same at every D, and has exactly the law of `stream`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from replicode.theory.errors import InputError
from replicode.validation.training.learning import learning
from replicode.validation.training.stream import Array, Descent, Stream

FRAME = 4


def descend_reduced(
    stream: Stream,
    descent: Descent,
    start: Array,
    dim: int,
    seeds: int,
    times: Sequence[float],
    rng: np.random.Generator,
) -> Array:
    """The overlaps (times, seeds, 7) at rising times = steps/D, for one length and one sequence per step."""
    if stream.lengths.fixed is None or descent.batch != 1 or descent.spherical:
        raise InputError("stream", str(stream.lengths), "one length, batches of 1, free norms")
    if dim < FRAME + stream.lengths.fixed:
        raise InputError("dim", dim, f"an integer of at least {FRAME + stream.lengths.fixed}")
    students = np.repeat(_coordinates(np.repeat(start[:, None], 1, axis=1)), seeds, axis=2)
    found, done = [], 0
    for stop in (round(t * dim) for t in times):
        for _ in range(done, stop):
            students = _coordinates(_overlaps(*_moved(stream, descent, students, dim, rng)))
        done = stop
        found.append(_overlaps(students, np.zeros((3, seeds))).T)
    return np.array(found)


def _coordinates(overlaps: Array) -> Array:
    """k and v in a frame whose first axes are the teachers: (2, 4, seeds), per sqrt(D)."""
    m_k, q_k, m_v, q_v, kv_star, vk_star, kv = overlaps
    own = np.sqrt(np.maximum(q_k - m_k**2 - kv_star**2, 1e-300))
    shared = (kv - m_k * vk_star - kv_star * m_v) / own
    rest = np.sqrt(np.maximum(q_v - m_v**2 - vk_star**2 - shared**2, 0.0))
    zero = np.zeros_like(own)
    return np.array([[m_k, kv_star, own, zero], [vk_star, m_v, shared, rest]])


def _overlaps(students: Array, beyond: Array) -> Array:
    """The overlaps (7, seeds); `beyond` is what lies outside of the frame: of k with k, of v with v, of k with v."""
    k, v = students
    inside = [(k * k).sum(0), (v * v).sum(0), (k * v).sum(0)]
    q_k, q_v, kv = (a + b for a, b in zip(inside, beyond, strict=True))
    return np.array([k[0], q_k, v[1], q_v, k[1], v[0], kv])


def _moved(
    stream: Stream, descent: Descent, students: Array, dim: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Both students after a step: within the frame, and the products of what lies outside of it."""
    (tokens,), seeds, of = stream.lengths.tokens, students.shape[2], learning(stream.model)
    inside = rng.standard_normal((FRAME, tokens, seeds))
    eps, scores = stream.scores[0].draw(rng, inside[0].T)
    every = np.arange(seeds)
    inside[0, eps, every] = scores
    y = of.label(inside[1, eps, every], stream.noise, rng)
    chi, z = np.einsum("wis,ils->wls", students, inside)
    sigma, jacobian = stream.attentions[0](chi)
    gain = -of.loss_by_output(y, of.output(sigma, z).sum(axis=0))
    by_sigma = np.broadcast_to(of.output_by_sigma(sigma, z), sigma.shape)
    by_value = np.broadcast_to(of.output_by_value(sigma, z), sigma.shape)
    pulls = gain * np.stack([np.einsum("ljn,ln->jn", jacobian, by_sigma), by_value])
    pulls *= np.array([descent.rate_k, descent.rate_v])[:, None, None] / dim
    kept = np.array([1.0 - descent.rate_k * descent.lambda_k / dim, 1.0 - descent.rate_v * descent.lambda_v / dim])
    moved = kept[:, None, None] * students + np.einsum("wls,ils->wis", pulls, inside)
    # Outside of the frame a step adds pulls times the tokens' other coordinates, of which the factor of Bartlett has
    # the products: sqrt(chi^2) on the diagonal, normals below.
    k, v = _outside(pulls, dim, rng)
    return moved, np.array([(k * k).sum(0), (v * v).sum(0), (k * v).sum(0)])


def _outside(pulls: Array, dim: int, rng: np.random.Generator) -> Array:
    """sum_l pulls_l a_l, a_l the rows of the triangular factor: (2, tokens, seeds)."""
    _, tokens, seeds = pulls.shape
    found = np.zeros_like(pulls)
    for column in range(tokens):
        diagonal = np.sqrt(rng.chisquare(dim - FRAME - column, seeds))
        found[:, column] += pulls[:, column] * diagonal
        for row in range(column + 1, tokens):
            found[:, column] += pulls[:, row] * rng.standard_normal(seeds)
    return found
