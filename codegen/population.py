"""Numerical population level: A and B at given overlaps, and the optimum over k and the activation's parameters.

`averager` chooses how A and B are computed from what the activation and the task are like. `best` maximises
A^2/B = 1 - excess risk: a coarse search on many starts, Newton with differences for the last digits, and evaluations
beside the optimum that show it is one to within the error of the quadrature.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
from scipy import optimize

from replicode.codegen.averages import Array, Evaluator, Law, compiled
from replicode.codegen.hardmax import HardEvaluator
from replicode.codegen.sampled import SampledAverages
from replicode.codegen.threads import one_thread
from replicode.theory.errors import Refusal
from replicode.theory.gaussian.sequence import WeightedAverages, at_teacher, weighted_averages
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths
from replicode.theory.model import NU
from replicode.theory.properties.symbolic import properties, row_sum

COARSE, CHECK, FINE = 0.5, 0.75, 1.0
AverageFunction = Callable[[float, float, Mapping[sp.Symbol, float], float], tuple[float, float]]
_MOST_POWERS = 2


def averager(act: Activation, setting: Task, nu: float, lengths: Lengths) -> tuple[AverageFunction, str]:
    """A function (m, tau, parameters, fineness) -> (A, B) averaged over P(L), tau^2 = q - m^2, and its name."""
    hard = setting.hard_limit() if np.isinf(nu) else None
    plain = Task("uniform", sp.S.Zero)
    products = weighted_averages(act, setting if hard is None else plain)
    if products is None or _most_powers(products) > _MOST_POWERS - (hard is not None):
        return _sampled(act, setting, nu, hard, lengths), "nodes over all tokens"
    if hard is not None:
        return _hard(products, hard, lengths), "threshold integral, one token at a time"
    return _factorised(products, setting, nu, lengths), "one token at a time"


def _most_powers(products: WeightedAverages) -> int:
    return max(len(p.powers) for p in (*products.A, *products.B))


def _factorised(products: WeightedAverages, setting: Task, nu: float, lengths: Lengths) -> AverageFunction:
    hidden = _hidden(products, nu, lengths)
    unweighted = setting.scores_unweighted
    norm = _normalisation(products, setting, nu, lengths, hidden)

    def averages(m: float, tau: float, values: Mapping[sp.Symbol, float], fineness: float) -> tuple[float, float]:
        evaluator = Evaluator(Law(m, m * m + tau * tau, hidden), {NU: nu, **values}, fineness)
        a = evaluator.value(products.A, lengths.tokens) / norm
        b = evaluator.value(products.B, lengths.tokens) / (1.0 if unweighted else norm)
        return float(a @ lengths.weights), float(b @ lengths.weights)

    return averages


def _normalisation(
    products: WeightedAverages, setting: Task, nu: float, lengths: Lengths, hidden: tuple[float, float] | None
) -> Array:
    """E[g] for every length: one where the scores are Gaussian, sum_e g / L where that is a constant."""
    if products.gaussian is not None:
        return np.ones(len(lengths.tokens))
    total = row_sum(setting.weight)
    if total is not None:
        return np.array([float(compiled(total / L, (NU, L))(nu, float(n))) for n in lengths.tokens])
    return Evaluator(Law(1.0, 1.0, hidden), {NU: nu}, FINE).value(products.normalisation, lengths.tokens)


def _hard(products: WeightedAverages, sign: int, lengths: Lengths) -> AverageFunction:
    def averages(m: float, tau: float, values: Mapping[sp.Symbol, float], fineness: float) -> tuple[float, float]:
        law = Law(m, m * m + tau * tau, None)
        a = HardEvaluator(law, sign, values, fineness).hard_value(products.A, lengths.tokens)
        hidden = Law(law.m, law.q, (0.0, 1.0))
        b = Evaluator(hidden, values, fineness).value(products.B, lengths.tokens)
        return float(a @ lengths.weights), float(b @ lengths.weights)

    return averages


def _sampled(act: Activation, setting: Task, nu: float, hard: int | None, lengths: Lengths) -> AverageFunction:
    nodes = SampledAverages(act, setting, hard, properties(act).smooth)
    products = weighted_averages(Activation("constant", sp.S.One), setting) if hard is None else None
    hidden = None if products is None else _hidden(products, nu, lengths)

    def averages(m: float, tau: float, values: Mapping[sp.Symbol, float], fineness: float) -> tuple[float, float]:
        level = {COARSE: 0, CHECK: 1}.get(fineness, 2)
        law = Law(m, m * m + tau * tau, hidden)
        a, b = nodes.averages(law, {NU: nu if hard is None else 0.0, **values}, lengths.tokens, level, 1 + level)
        return float(a @ lengths.weights), float(b @ lengths.weights)

    return averages


@dataclass(frozen=True)
class BayesGain:
    """E_w[p_eps] of the posterior p of the location given the teacher's scores, with its error."""

    gain: float
    error: float


@one_thread()
def bayes_gain(setting: Task, nu: float, lengths: Lengths) -> BayesGain:
    """1 + noise^2 minus the Bayes risk; its Nishimori twin E[sum p^2] is computed too and counted in the error."""
    if np.isinf(nu):
        setting.hard_limit()
        return BayesGain(1.0, 0.0)
    posterior = Activation("posterior", setting.posterior)
    products = weighted_averages(posterior, setting)
    if products is None:
        averages = _sampled(posterior, setting, nu, None, lengths)
    else:
        averages = _factorised(at_teacher(products), setting, nu, lengths)
    (gain, twin), (check, _) = (averages(1.0, 0.0, {}, f) for f in (FINE, CHECK))
    return BayesGain(gain, abs(gain - twin) + abs(gain - check) + 4e-16)


def _hidden(products: WeightedAverages, nu: float, lengths: Lengths) -> tuple[float, float] | None:
    if products.gaussian is None:
        return None
    if lengths.fixed is None and any(L in e.free_symbols for e in products.gaussian):
        raise Refusal("a Gaussian weight that depends on L is averaged at one number of tokens only")
    mean, variance = (float(compiled(e, (NU, L))(nu, float(lengths.tokens[0]))) for e in products.gaussian)
    if not variance > 0.0:
        raise Refusal(f"at nu = {nu} the weight of the task has no finite average")
    return mean, variance


@dataclass(frozen=True)
class Optimum:
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


_RUNG = 2.0**0.75
_LADDER = _RUNG ** np.arange(-6.0, 4.1)
_LONGER = 2.0 ** np.arange(3.5, 5.1, 0.5)
_PARAMETER_STARTS = (0.0, 0.6, -0.6, 1.5, -1.5)
_FAR = 30.0


class _Search:
    """Maximises the gain over z = (m, parameters) and, where noise in the scores pays, tau."""

    def __init__(self, averages: AverageFunction, free: Sequence[str], fixed: Mapping[str, float]) -> None:
        self.averages = averages
        self.free = tuple(free)
        self.fixed = {sp.Symbol(n, real=True): v for n, v in fixed.items()}
        self.tau = 0.0

    def values(self, z: Array) -> dict[sp.Symbol, float]:
        named = {sp.Symbol(n, real=True): float(v) for n, v in zip(self.free, z[1:])}
        return {**self.fixed, **named}

    def gain(self, z: Array, fineness: float, tau: float | None = None) -> float:
        a, b = self.averages(float(z[0]), self.tau if tau is None else tau, self.values(z), fineness)
        return a * a / b if np.isfinite(a) and np.isfinite(b) and b > 0.0 else -1.0

    def coarse(self) -> Array:
        """The best of many starts, improved without derivatives."""
        ladder = _LADDER if len(self.free) < 2 else _LADDER[1::3]
        scores = np.r_[0.0, ladder, -ladder]
        inside = _PARAMETER_STARTS[: 5 if len(self.free) < 2 else 3]
        starts = [np.array([m, *p]) for m in scores for p in itertools.product(inside, repeat=len(self.free))]
        gains = [self.gain(z, COARSE) for z in starts]
        edge = starts[int(np.argmax(gains))]
        if abs(edge[0]) >= ladder[-1]:
            starts += [np.r_[np.sign(edge[0]) * m, edge[1:]] for m in _LONGER]
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
            ends = sorted((z[0] / _RUNG, z[0] * _RUNG)) if z[0] else [-_LADDER[0], _LADDER[0]]
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


@one_thread()
def best(averages: AverageFunction, free: Sequence[str], fixed: Mapping[str, float]) -> Optimum:
    """The optimum over m_k, q_k >= m_k^2 and the free parameters."""
    search = _Search(averages, free, fixed)
    z = search.coarse()
    z, search.tau = _with_noise(search, z)
    unbounded = bool(np.any(np.abs(z) > _FAR)) or _still_rising(search, z)
    derivatives = _newton(search, z) if not unbounded else None
    if derivatives is not None:
        z = derivatives.z
    a, b = averages(float(z[0]), search.tau, search.values(z), FINE)
    if not b > 0.0:
        raise Refusal("the activation vanishes in double precision at these parameters: there is no risk to minimise")
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
        parameters={s.name: v for s, v in search.values(z).items()},
        A=a,
        B=b,
        gain=gain,
        error=quadrature + remaining,
        brackets={} if unbounded else _brackets(search, z, names, gain, quadrature),
        flat=() if derivatives is None else derivatives.flat(names),
        unbounded=unbounded,
    )


def _with_noise(search: _Search, z: Array) -> tuple[Array, float]:
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


def _still_rising(search: _Search, z: Array) -> bool:
    """Whether the gain keeps growing with |k|: the optimum is then approached only as |k| -> infinity."""
    if abs(z[0]) < 5.0:
        return False
    farther = [search.gain(np.r_[z[0] * f, z[1:]], COARSE) for f in (1.0, 1.5, 2.0)]
    return bool(farther[1] > farther[0] + 1e-12 and farther[2] > farther[1] + 1e-12)


@dataclass(frozen=True)
class _Newton:
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


def _newton(search: _Search, z: Array) -> _Newton:
    """Newton steps with differences of the fine quadrature; flat directions are left alone."""
    decrement, curvature = 0.0, np.zeros((z.size, z.size))
    for _ in range(4):
        gradient, curvature = _differences(lambda y: search.gain(y, FINE), z)
        step = -np.linalg.pinv(curvature, rcond=1e-5, hermitian=True) @ gradient if np.any(curvature) else 0.0 * z
        decrement = float(abs(gradient @ step))
        if np.abs(step).max() > 0.2 * max(1.0, float(np.abs(z).max())):
            break
        if search.gain(z + step, FINE) >= search.gain(z, FINE) - 1e-14:
            z = z + step
        if decrement < 1e-17:
            break
    return _Newton(z, decrement, curvature)


def _differences(function: Callable[[Array], float], z: Array) -> tuple[Array, Array]:
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
    search: _Search, z: Array, names: Sequence[str], gain: float, quadrature: float
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
