"""The output at which (u - U)^2/(2 tau) + loss(y, u) is least, where that is not known in closed form.

Of a convex loss the minimum is between U and U - tau loss'(U): Newton's method, which bisects that interval where it
would leave it. Of any other the lowest of many points within reach is the start, and the interval is that around it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replicode.codegen.runtime.kernel import Array, loss_slopes, loss_value

OUTPUT_STEPS = 100
OUTPUT_TOLERANCE = 1e-15
SCANNED = 64


def loss_prox(y: Array, U: Array, tau: Array | float) -> Array:
    """The least point, sample by sample."""
    y, U, strength = np.broadcast_arrays(y, U, tau)
    return _bracketed_newton(y, U, strength, *interval(y, U, strength))


def convex_interval(y: Array, U: Array, tau: Array) -> tuple[Array, Array, Array]:
    """The slope of a convex loss falls on the way down: the minimum is no farther than its slope at U leads."""
    slope, _ = loss_slopes(y, U)
    other = U - tau * slope
    return np.minimum(U, other), np.maximum(U, other), 0.5 * (U + other)


def scanned_interval(y: Array, U: Array, tau: Array) -> tuple[Array, Array, Array]:
    """Around the lowest of points within reach: a loss that is not negative has its minimum within that distance."""
    reach = np.sqrt(2.0 * tau * np.maximum(loss_value(y, U), 0.0)) + 1e-12
    fractions = np.linspace(-1.0, 1.0, 2 * SCANNED + 1)
    best, place = np.full(U.shape, np.inf), U.copy()
    for fraction in fractions:
        point = U + fraction * reach
        value = 0.5 * (point - U) ** 2 / np.maximum(tau, 1e-300) + loss_value(y, point)
        lower = value < best
        best, place = np.where(lower, value, best), np.where(lower, point, place)
    return place - reach / SCANNED, place + reach / SCANNED, place


interval: Callable[[Array, Array, Array], tuple[Array, Array, Array]] = convex_interval


def _bracketed_newton(y: Array, U: Array, tau: Array, low: Array, high: Array, start: Array) -> Array:
    """The zero of u - U + tau loss'(u) between two points, by Newton's method or by halves."""
    u = start.copy()
    for _ in range(OUTPUT_STEPS):
        slope, bend = loss_slopes(y, u)
        rest = u - U + tau * slope
        low, high = np.where(rest < 0.0, u, low), np.where(rest > 0.0, u, high)
        rate = 1.0 + tau * bend
        step = u - rest / np.where(rate > 0.0, rate, 1.0)
        inside = (rate > 0.0) & (step >= low) & (step <= high)
        moved = np.where(inside, step, 0.5 * (low + high))
        done = np.abs(moved - u) <= OUTPUT_TOLERANCE * (1.0 + np.abs(u)) * 4.0
        u = moved
        if done.all():
            break
    return u
