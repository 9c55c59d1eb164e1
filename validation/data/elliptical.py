"""The theory of elliptical tokens x = r Sigma^1/2 g: a law of the fields in which every token has a radius of its own.

With chi_l = r_l c_l and z_l = r_l zeta_l the fields (c, zeta) are those of Gaussian tokens, and so are G, the Stein
forms and the prior; the radii enter the loss alone, sigma(chi).z. A token's label over its radius, y/r, is a label of
noise Delta/r. The prox of c is found at scrambled Sobol nodes. The equations are those of the generated module; values
are eliminated by the expressions of theory/derive/channel.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy import special
from scipy.stats import qmc

from replicode.codegen.interpret.functions import numpy_function
from replicode.codegen.threads import one_thread
from replicode.theory.derive.channel import N, U, eliminate_values
from replicode.theory.errors import Refusal
from replicode.theory.model import Model, Y
from replicode.validation.training.attention import TokenMap

Array = NDArray[np.float64]
SCRAMBLES = 6
LOG2_NODES = 12
NEWTON_STEPS = 40
HALVINGS = 12  # of a step that does not descend
DIFFERENCE = 1e-5
SETTLED = 1e-9
JUMP = 2.0
COVERAGE = 0.975
TOLERANCE = 1e-6
QUANTITIES = ("test_risk", "train_loss", "energy", "m_k", "q_k", "m_v", "q_v")


@dataclass(frozen=True)
class Eliminated:
    """Functions of (U, N, y, V_v): the eliminated loss, its slopes in U and N, the gain, and the loss at the prox."""

    envelope: Any
    by_u: Any
    by_n: Any
    gain: Any
    loss: Any

    @classmethod
    def of(cls, model: Model) -> Eliminated:
        """Those of a model."""
        found, arguments = eliminate_values(model), (U, N, Y, model.values.V)
        parts = (found.envelope, sp.diff(found.envelope, U), sp.diff(found.envelope, N), found.field_gain, found.loss)
        return cls(*(numpy_function(sp.factor(p), arguments) for p in parts))


@dataclass(frozen=True, eq=False)
class EllipticalLaw:
    """A module at its point, the radii of tokens, and the number of tokens of a sequence."""

    module: ModuleType
    token_map: TokenMap
    model: Model
    tokens: int
    nu: float
    noise: float
    radii: Array

    def check(self) -> None:
        """Only weights that leave the scores their law leave the radii theirs."""
        if self.module.LOCATION not in ("ranked", "normalised"):
            raise Refusal(
                "radial empirical: the weight of this task tilts the law of the radii; take one whose weights add up "
                "to the same for all scores, such as max"
            )


class _Nodes:
    """Scrambled nodes: teacher scores, noise of scores, values and label, and radii, hidden token first."""

    def __init__(self, law: EllipticalLaw, log2: int, seed: int) -> None:
        tokens = law.tokens
        sobol = qmc.Sobol(4 * tokens + 2, scramble=True, seed=seed).random_base2(log2).T
        u = np.clip(sobol, 1e-15, 1.0 - 1e-15)
        normal = special.ndtri(u[: 3 * tokens + 2])
        self.star, self.xi, self.zeta = (normal[i * tokens : (i + 1) * tokens] for i in range(3))
        self.value_noise, self.label_noise = normal[3 * tokens :]
        self.r = np.quantile(law.radii, u[3 * tokens + 2 :], method="inverted_cdf")
        self.weights = self._located(law)

    def _located(self, law: EllipticalLaw) -> Array:
        """Weights of the location, or, at infinite nu, tokens exchanged so that the chosen one is first."""
        chi = self.r * self.star
        if np.isinf(law.nu):
            chosen = (law.module.HARD_LIMIT * chi).argmax(axis=0)
            for array in (self.star, self.r):
                columns = np.arange(array.shape[1])
                first = array[0].copy()
                array[0] = array[chosen, columns]
                array[chosen, columns] = np.where(chosen == 0, array[0], first)
            return np.full(chi.shape[1], 1.0 / chi.shape[1])
        weight = np.asarray(law.module.softmax_weight(chi, law.nu).value)
        return np.asarray(weight / weight.sum())


class EllipticalChannel:
    """Channel averages of elliptical tokens, as the fixed point of a generated module takes them."""

    name = "elliptical, prox"

    def __init__(self, law: EllipticalLaw, seed: int, log2: int = LOG2_NODES) -> None:
        self.law, self.nodes = law, _Nodes(law, log2, seed)
        self.eliminated = Eliminated.of(law.model)
        self.c: Array | None = None

    @property
    def work(self) -> float:
        """Steps of Newton's method at every node."""
        return float(self.nodes.weights.size * self.law.tokens * NEWTON_STEPS)

    def _fields(self, order: Array) -> tuple[Array, Array, Array, Array]:
        """w_c, w_zeta, y and the slopes of the location's weight."""
        m = self.law.module
        at = self.nodes
        m_k, q_k, m_v, q_v = (float(order[i]) for i in (m.M_K, m.Q_K, m.M_V, m.Q_V))
        w_c = m_k * at.star + np.sqrt(max(q_k - m_k * m_k, 0.0)) * at.xi
        spread = max(1.0 - m_k * m_k / q_k, 1e-12)
        slopes = (at.star - m_k / q_k * w_c) / spread
        w_zeta = np.sqrt(q_v) * at.zeta
        w_zeta[0] = m_v * at.zeta[0] + np.sqrt(max(q_v - m_v * m_v, 0.0)) * at.value_noise
        y = at.r[0] * at.zeta[0] + self.law.noise * at.label_noise
        return w_c, w_zeta, y, slopes

    def _rho(self, c: Array) -> Array:
        """What a token's value field is multiplied by: r sigma(r c)."""
        return np.asarray(self.nodes.r * self.law.token_map.sigma(self.nodes.r * c))

    def _value(self, c: Array, at: tuple[Array, ...], v: tuple[float, float]) -> Array:
        w_c, w_zeta, y = at
        rho = self._rho(c)
        loss = self.eliminated.envelope((rho * w_zeta).sum(axis=0), (rho * rho).sum(axis=0), y, v[1])
        return np.asarray(((c - w_c) ** 2).sum(axis=0) / (2.0 * v[0]) + loss)

    def _slope(self, c: Array, at: tuple[Array, ...], v: tuple[float, float]) -> Array:
        w_c, w_zeta, y = at
        rho = self._rho(c)
        u, n = (rho * w_zeta).sum(axis=0), (rho * rho).sum(axis=0)
        by_rho = self.eliminated.by_u(u, n, y, v[1]) * w_zeta + 2.0 * self.eliminated.by_n(u, n, y, v[1]) * rho
        pulled = self.law.token_map.pullback(self.nodes.r * c, self.nodes.r * by_rho)
        return np.asarray((c - w_c) / v[0] + self.nodes.r * pulled)

    def _newton(self, c: Array, at: tuple[Array, ...], v: tuple[float, float]) -> Array:
        """Damped Newton steps, the Hessian by differences of the slope; steps that do not descend are halved."""
        value = self._value(c, at, v)
        for _ in range(NEWTON_STEPS):
            slope = self._slope(c, at, v)
            step = self._step(c, slope, at, v)
            if float((v[0] * np.abs(slope)).max()) < SETTLED * (1.0 + float(np.abs(c).max())):
                break
            for _ in range(HALVINGS):
                moved = c + step
                better = self._value(moved, at, v)
                worse = ~(better <= value + 1e-13 * np.abs(value))
                if not worse.any():
                    break
                step = np.where(worse, 0.5 * step, step)
            keep = better <= value
            c, value = np.where(keep, moved, c), np.where(keep, better, value)
        return c

    def _step(self, c: Array, slope: Array, at: tuple[Array, ...], v: tuple[float, float]) -> Array:
        tokens = len(c)
        hessian = np.empty((c.shape[1], tokens, tokens))
        for i in range(tokens):
            away = np.zeros((tokens, 1))
            away[i] = DIFFERENCE
            difference = (self._slope(c + away, at, v) - self._slope(c - away, at, v)) / (2.0 * DIFFERENCE)
            hessian[:, :, i] = difference.T
        hessian = 0.5 * (hessian + hessian.transpose(0, 2, 1))
        values, vectors = np.linalg.eigh(hessian)
        along = np.einsum("nji,jn->ni", vectors, -slope)
        return np.asarray(np.einsum("nji,ni->jn", vectors, along / np.maximum(np.abs(values), 0.1 / v[0])))

    def _prox(self, at: tuple[Array, ...], v: tuple[float, float], search: bool) -> Array:
        """The least of the minima from the field, from each token far ahead, and from the prox found before."""
        starts = [at[0]] if self.c is None else [self.c]
        if self.c is None or search:
            starts += [at[0], *(at[0] + JUMP * np.eye(len(at[0]))[:, [i]] for i in range(len(at[0])))]
        ends = [self._newton(s.copy(), at, v) for s in starts]
        values = np.stack([self._value(e, at, v) for e in ends])
        best = values.argmin(axis=0)
        return np.asarray(np.stack(ends)[best, :, np.arange(best.size)].T)

    def averages(self, order: Array, search: bool = False) -> Any:
        """All averages at these order parameters, as the module has them."""
        m, e = self.law.module, self.eliminated
        v = float(order[m.V_K]), float(order[m.V_V])
        w_c, w_zeta, y, slopes = self._fields(order)
        at = (w_c, w_zeta, y)
        self.c = self._prox(at, v, search)
        rho = self._rho(self.c)
        u, n = (rho * w_zeta).sum(axis=0), (rho * rho).sum(axis=0)
        g_c, g_zeta = (self.c - w_c) / v[0], e.gain(u, n, y, v[1]) * rho
        r, noise = self.nodes.r[0], self.law.noise / self.nodes.r[0]
        rates = m.channel_rates(order, self.law.nu, noise, w_c, w_zeta, y / r, g_c, g_zeta, slopes)
        weights = self.nodes.weights
        means = np.array([float((np.broadcast_to(x, y.shape) * weights).sum()) for x in rates])
        envelope = float((self._value(self.c, at, v) * weights).sum())
        train = float((e.loss(u, n, y, v[1]) * weights).sum())
        return m.Averages(means, envelope, train, 1.0, 0.0, 0.0)

    def response(self, order: Array) -> Any:
        """Not asked for: stability of elliptical tokens is not derived."""
        raise NotImplementedError

    def risk(self, order: Array) -> float:
        """E (y - f)^2 of a fresh sequence: that of Gaussian tokens in units of the hidden radius, given the scores."""
        m = self.law.module
        w_c, *_ = self._fields(order)
        rho, r = self._rho(w_c), self.nodes.r[0]
        squares = (rho * rho).sum(axis=0) / r**2
        scaled = m.risk_on_manifold(float(order[m.M_V]), float(order[m.Q_V]), self.law.noise / r, rho[0] / r, squares)
        return float((r**2 * scaled * self.nodes.weights).sum())


@one_thread()
def elliptical_theory(
    law: EllipticalLaw,
    problem: tuple[float, float, float],
    spectrum: Any,
    start: Array,
    gaussian: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float], bool]:
    """The quantities of the saddle point, their errors from the scatter of independent nodes, and whether it converged.

    What the nodes give is the difference that the radii make; `gaussian` has the quantities without them.
    """
    law.check()
    at = law.module.Problem(*problem, law.module.spectrum_of(spectrum))
    plain = replace(law, radii=np.ones(1))
    rows, settled = [], True
    for seed in range(SCRAMBLES):
        (here, well), (without, too) = (_solved(EllipticalChannel(each, seed), at, start) for each in (law, plain))
        rows.append(here - without)
        settled &= well and too
    table = np.array([gaussian[q] for q in QUANTITIES]) + np.array(rows)
    bound = special.stdtrit(SCRAMBLES - 1, COVERAGE) * table.std(axis=0, ddof=1) / np.sqrt(SCRAMBLES)
    named = (dict(zip(QUANTITIES, map(float, x), strict=True)) for x in (table.mean(axis=0), bound))
    means, errors = named
    return means, errors, settled


def _solved(channel: EllipticalChannel, problem: Any, start: Array) -> tuple[Array, bool]:
    """The quantities at the fixed point on some nodes, minima searched for afresh at its end."""
    module = channel.law.module
    with np.errstate(all="ignore"):
        found = module.iterate(channel, start, problem, TOLERANCE, 60)
        last = module.evaluate(channel, found.last.order, problem, search=True)
    named = dict(zip(module.REPORTED, module.reported(last, problem), strict=True))
    values = np.array([channel.risk(last.order), *(float(named[q]) for q in QUANTITIES[1:])])
    return values, bool(found.converged and last.residual < 1e3 * TOLERANCE)
