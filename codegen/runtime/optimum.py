"""The population optimum: the best k and parameters of an activation, by the gain A^2/B = 1 - excess risk.

A coarse search on many starts, Newton with differences for the last digits, and evaluations beside the optimum that
show it is one to within the error of the quadrature. How A and B are averaged is left to the caller.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize

from replicode.codegen.runtime.inputs import check_size
from replicode.codegen.runtime.kernel import Array

COARSE, CHECK, FINE = 0.5, 0.75, 1.0
RUNG = 2.0**0.75
LADDER = RUNG ** np.arange(-6.0, 4.1)
LONGER = 2.0 ** np.arange(3.5, 5.1, 0.5)
PARAMETER_STARTS = (0.0, 0.6, -0.6, 1.5, -1.5)
FARTHEST_START = 30.0

AverageFunction = Callable[[float, float, Mapping[str, float], float], tuple[float, float]]


class Optimum(NamedTuple):
    """The best k and parameters: gain A^2/B with its error, and beside it points that are worse, per coordinate."""

    m: float
    tau: float
    parameters: Mapping[str, float]
    A: float
    B: float
    gain: float
    error: float
    brackets: Mapping[str, tuple[float, float]]
    flat: tuple[str, ...]
    unbounded: bool


class OverlapSearch:
    """Maximises the gain over z = (m, parameters) and, where noise in the scores pays, tau."""

    def __init__(self, averages: AverageFunction, free: Sequence[str], fixed: Mapping[str, float]) -> None:
        self.averages = averages
        self.free = tuple(free)
        self.fixed = dict(fixed)
        self.tau = 0.0

    def values(self, z: Array) -> dict[str, float]:
        """The activation's parameters."""
        return {**self.fixed, **{n: float(v) for n, v in zip(self.free, z[1:])}}

    def gain(self, z: Array, fineness: float, tau: float | None = None) -> float:
        """A^2/B, or -1 where it is not finite."""
        a, b = self.averages(float(z[0]), self.tau if tau is None else tau, self.values(z), fineness)
        return a * a / b if np.isfinite(a) and np.isfinite(b) and b > 0.0 else -1.0

    def coarse(self) -> Array:
        """The best of many starts, improved without derivatives."""
        ladder = LADDER if len(self.free) < 2 else LADDER[1::3]
        scores = np.r_[0.0, ladder, -ladder]
        inside = PARAMETER_STARTS[: 5 if len(self.free) < 2 else 3]
        starts = [np.array([m, *p]) for m in scores for p in itertools.product(inside, repeat=len(self.free))]
        gains = [self.gain(z, COARSE) for z in starts]
        edge = starts[int(np.argmax(gains))]
        if abs(edge[0]) >= ladder[-1]:
            starts += [np.r_[np.sign(edge[0]) * m, edge[1:]] for m in LONGER]
            gains += [self.gain(z, COARSE) for z in starts[len(gains) :]]
            if gains[-1] > max(gains[:-1]) + 1e-9:
                return starts[-1]
        top = max(gains)
        tied = [z for z, g in zip(starts, gains) if g > top - 1e-9]
        best = min(tied, key=lambda z: abs(np.log(max(abs(z[0]), 1e-3))))
        for i in np.argsort(-np.array(gains))[: 3 if self.free else 2]:
            improved = self._improved(starts[int(i)])
            if self.gain(improved, COARSE) > self.gain(best, COARSE) + 1e-10:
                best = improved
        return best

    def _improved(self, z: Array) -> Array:
        """A better point near z: Brent's method along m alone, the simplex with parameters."""
        if not self.free:
            ends = sorted((z[0] / RUNG, z[0] * RUNG)) if z[0] else [-LADDER[0], LADDER[0]]
            tolerance = 1e-4 * max(abs(float(z[0])), 0.1)
            found = optimize.minimize_scalar(
                lambda m: -self.gain(np.array([m]), COARSE), bounds=ends, method="bounded", options={"xatol": tolerance}
            )
            better = np.array([float(found.x)])
        else:
            simplex = np.vstack([z, z + np.diag(0.25 * np.maximum(np.abs(z), 0.2))])
            found = optimize.minimize(
                lambda y: -self.gain(y, COARSE),
                z,
                method="Nelder-Mead",
                options={
                    "initial_simplex": simplex,
                    "xatol": 1e-4,
                    "fatol": 1e-9,
                    "maxfev": 100 * (1 + len(self.free)),
                },
            )
            better = np.asarray(found.x)
        return better if -found.fun > self.gain(z, COARSE) + 1e-12 else z


def best(averages: AverageFunction, free: Sequence[str], fixed: Mapping[str, float]) -> Optimum:
    """The optimum over m_k, q_k >= m_k^2 and the free parameters."""
    search = OverlapSearch(averages, free, fixed)
    z = search.coarse()
    z, search.tau = _with_noise(search, z)
    unbounded = bool(np.any(np.abs(z) > FARTHEST_START)) or _still_rising(search, z)
    derivatives = _at_rest(search, z) if not unbounded else None
    if derivatives is not None:
        z = derivatives.z
    a, b = averages(float(z[0]), search.tau, search.values(z), FINE)
    check_size(b)
    gain, check = a * a / b, search.gain(z, CHECK)
    quadrature = abs(gain - check) + 4e-16
    if derivatives is not None:
        remaining = derivatives.decrement
    else:  # what is still gained from half the size on bounds what is gained beyond it, falling at least like 1/|k|
        remaining = 2.0 * abs(gain - search.gain(np.r_[z[0] / 2.0, z[1:]], FINE))
    names = ("m_k", *search.free)
    return Optimum(
        m=float(z[0]),
        tau=search.tau,
        parameters=search.values(z),
        A=a,
        B=b,
        gain=gain,
        error=quadrature + remaining,
        brackets={} if unbounded else _brackets(search, z, names, gain, quadrature),
        flat=() if derivatives is None else derivatives.flat(names),
        unbounded=unbounded,
    )


def _with_noise(search: OverlapSearch, z: Array) -> tuple[Array, float]:
    """The same with a component of k across k*, which only adds noise to the scores, where that helps."""
    best_gain = search.gain(z, COARSE)
    size = max(abs(float(z[0])), 0.3)
    turns = [(np.cos(angle), np.sin(angle)) for angle in (0.07, 0.4, 0.9)]
    trials = [(np.r_[z[0] * along, z[1:]], size * across) for along, across in (*turns, (0.5, 0.4))]
    gains = [search.gain(y, COARSE, t) for y, t in trials]
    if max(gains) <= best_gain + 1e-6:
        return z, 0.0
    start, tau = trials[int(np.argmax(gains))]
    joint = optimize.minimize(
        lambda y: -search.gain(y[:-1], COARSE, float(np.exp(y[-1]))),
        np.r_[start, np.log(tau)],
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-10, "maxfev": 400},
    )
    return np.asarray(joint.x[:-1]), float(np.exp(joint.x[-1]))


def _still_rising(search: OverlapSearch, z: Array) -> bool:
    """Whether the gain keeps growing with |k|: the optimum is then approached only as |k| -> infinity."""
    if abs(z[0]) < 5.0:
        return False
    farther = [search.gain(np.r_[z[0] * f, z[1:]], COARSE) for f in (1.0, 1.5, 2.0)]
    return bool(farther[1] > farther[0] + 1e-12 and farther[2] > farther[1] + 1e-12)


class _AtRest(NamedTuple):
    """Where Newton's method came to rest, what it still promised, and the curvature there."""

    z: Array
    decrement: float
    curvature: Array

    def flat(self, names: Sequence[str]) -> tuple[str, ...]:
        """Directions in which the gain does not change, as combinations of the coordinates."""
        values, vectors = np.linalg.eigh(self.curvature)
        flat = np.abs(values) < 1e-6
        return tuple(_direction(vectors[:, i], names) for i in np.flatnonzero(flat))


def _direction(vector: Array, names: Sequence[str]) -> str:
    vector = vector / vector[np.argmax(np.abs(vector))]
    return " + ".join(f"{v:.4g} d{n}" for v, n in zip(vector, names) if abs(v) > 1e-4)


def _at_rest(search: OverlapSearch, z: Array) -> _AtRest:
    """Newton steps with differences of the fine quadrature; flat directions are left alone."""
    decrement, curvature = 0.0, np.zeros((z.size, z.size))
    for _ in range(4):
        gradient, curvature = _gradient_and_hessian(lambda y: search.gain(y, FINE), z)
        step = -np.linalg.pinv(curvature, rcond=1e-5, hermitian=True) @ gradient if np.any(curvature) else 0.0 * z
        decrement = float(abs(gradient @ step))
        if np.abs(step).max() > 0.2 * max(1.0, float(np.abs(z).max())):
            break
        if search.gain(z + step, FINE) >= search.gain(z, FINE) - 1e-14:
            z = z + step
        if decrement < 1e-17:
            break
    return _AtRest(z, decrement, curvature)


def _gradient_and_hessian(function: Callable[[Array], float], z: Array) -> tuple[Array, Array]:
    """Gradient (fourth order) and Hessian (second order) by central differences."""
    h = 4e-3 * np.maximum(np.abs(z), 0.25)
    count = z.size
    frame = np.diag(h)
    centre = function(z)
    gradient, hessian = np.zeros(count), np.zeros((count, count))
    for i in range(count):
        one = [function(z + s * frame[i]) for s in (-2.0, -1.0, 1.0, 2.0)]
        gradient[i] = (one[0] - 8.0 * one[1] + 8.0 * one[2] - one[3]) / (12.0 * h[i])
        hessian[i, i] = (-one[0] + 16.0 * one[1] - 30.0 * centre + 16.0 * one[2] - one[3]) / (12.0 * h[i] ** 2)
        for j in range(i):
            corners = [s * t * function(z + s * frame[i] + t * frame[j]) for s in (-1.0, 1.0) for t in (-1.0, 1.0)]
            hessian[i, j] = hessian[j, i] = sum(corners) / (4.0 * h[i] * h[j])
    return gradient, hessian


def _brackets(
    search: OverlapSearch, z: Array, names: Sequence[str], gain: float, quadrature: float
) -> dict[str, tuple[float, float]]:
    """For each coordinate an interval at whose ends the gain is lower by more than the quadrature can err."""
    found = {}
    for i, name in enumerate(names):
        for width in np.geomspace(1e-8, 1.0, 17) * max(1.0, abs(float(z[i]))):
            ends = [z + s * width * np.eye(z.size)[i] for s in (-1.0, 1.0)]
            if all(search.gain(e, FINE) < gain - 2.0 * quadrature - 1e-15 for e in ends):
                found[name] = (float(z[i] - width), float(z[i] + width))
                break
    return found
