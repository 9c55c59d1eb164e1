"""Channel averages dE[M]/d(order parameters): by the prox at nodes in w, or prox-free at nodes in the prox point.

Both evaluators share one interface: `averages(order)` for the saddle equations and `response(order)` for stability.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from codegen.runtime.fields import FieldFactor, Fields, dimensions, field_factor, fields
from codegen.runtime.kernel import Array, channel_rates, curvatures, gradient, hessian
from codegen.runtime.linear import add_identity, factor, solve_factored
from codegen.runtime.prox import BLOCK, global_prox, prox

RATES = 6


class Averages(NamedTuple):
    """dE[M]/d(m_k, q_k, V_k, m_v, q_v, V_v), E[M], E[loss], and what went wrong on the way."""

    rates: Array
    envelope: float
    train_loss: float
    mass: float
    folded_mass: float
    unconverged: float


class Response(NamedTuple):
    """E sum of squares of dG_kk, dG_kv, dG_vv, and E of the trace of -dG_kk (the derivative form of Vh_k / alpha)."""

    squares: Array
    trace: float


class Setting(NamedTuple):
    """What an average depends on besides the order parameters."""

    nu: float
    noise: float
    params: Array


def _integrands(order: Array, setting: Setting, at: Fields, chi: Array) -> Array:
    """The six rates, M and the residual's loss, sample by sample: (8, n)."""
    value, slope, sigmas, gain, residual_loss = gradient(chi, at.w_z, at.y, order[5], setting.params)
    g_chi, g_z = -slope, gain * sigmas
    rates = channel_rates(order, setting.nu, setting.noise, *at, g_chi, g_z)
    envelope = 0.5 * order[2] * (g_chi * g_chi).sum(axis=0) + value
    return np.stack([np.broadcast_to(r, at.y.shape) for r in (*rates, envelope, residual_loss)])


def _response_integrands(order: Array, setting: Setting, at: Fields, chi: Array) -> Array:
    """Squares of the blocks of d^2 M / dw^2 at a prox point, and the trace of the score block: (4, n).

    With A = (I + V_k H)^-1: kk = H A, kv = A C, vv = E - V_k C^T A C.
    """
    h, c, e = curvatures(chi, at.w_z, at.y, order[5], setting.params)
    lower, pivots = factor(add_identity(order[2] * h))
    score = solve_factored(lower, pivots, h)
    mixed = solve_factored(lower, pivots, c)
    value = e - order[2] * np.einsum("lin,ljn->ijn", c, mixed)
    squares = [(block * block).sum(axis=(0, 1)) for block in (score, mixed, value)]
    return np.stack([*squares, np.einsum("iin->n", score)])


def _blocks(count: int) -> Iterator[slice]:
    for begin in range(0, count, BLOCK):
        yield slice(begin, begin + BLOCK)


class ProxChannel:
    """Averages at nodes in w, the prox being followed from one call to the next; `search` looks for global minima."""

    name = "prox"

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        self.zeta, self.weights = nodes
        self.setting = setting
        self.chi: Array | None = None
        self.failed = 0

    def refined(self, nodes: tuple[Array, Array]) -> ProxChannel:
        """The same on other nodes."""
        return ProxChannel(nodes, self.setting)

    def adapt(self, order: Array) -> None:
        """Nodes in w need no adapting."""

    def _prox_points(self, order: Array, search: bool) -> tuple[Fields, Array]:
        at = fields(field_factor(order, *self.setting), self.zeta)
        V = (float(order[2]), float(order[5]))
        if self.chi is None:
            self.chi, self.failed = global_prox(at.w_chi, at, V, self.setting.params)
        else:
            move = global_prox if search else prox
            self.chi, self.failed = move(self.chi, at, V, self.setting.params)
        return at, self.chi

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters."""
        at, chi = self._prox_points(order, search)
        total = np.zeros(RATES + 2)
        for b in _blocks(self.weights.size):
            total += _integrands(order, self.setting, at.at(b), chi[:, b]) @ self.weights[b]
        failed = self.failed / self.weights.size
        return Averages(total[:RATES], float(total[RATES]), float(total[RATES + 1]), 1.0, 0.0, failed)

    def response(self, order: Array) -> Response:
        """Second derivatives of M on the smooth part of the prox."""
        at, chi = self._prox_points(order, False)
        total = np.zeros(4)
        for b in _blocks(self.weights.size):
            total += _response_integrands(order, self.setting, at.at(b), chi[:, b]) @ self.weights[b]
        return Response(total[:3], float(total[3]))


class ProxFreeChannel:
    """Averages at nodes in the prox point chi: w = chi + V_k grad loss is explicit, so nothing is minimised.

    E[F] = int dchi det(I + V_k Hess loss) p_w(w(chi)) F. The determinant is signed, which keeps the integrand analytic
    and cancels most of what a fold adds; the weight where it is not positive definite is the folded mass, and where
    that matters the integral is not to be trusted.
    """

    name = "prox-free"

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        self.zeta, self.weights = nodes
        self.setting = setting
        self.split = dimensions(setting.params)[0]
        self.center = np.zeros(self.split)
        self.scale = np.ones(self.split)

    def _points(self, order: Array, law: FieldFactor, b: slice) -> tuple[Array, Fields, Array, Array]:
        """chi and the fields of a block, its quadrature weights with the Jacobian, and whether chi is a minimiser."""
        t = self.zeta[: self.split, b]
        offset = self.center[:, None] + self.scale[:, None] * t
        chi = law.score_mean[:, None] + law.score_factor @ offset
        values = law.value_factor @ self.zeta[self.split :, b]
        w_z, y = values[:-1], values[-1]
        _, slope, curvature = hessian(chi, w_z, y, order[5], self.setting.params)
        w_chi = chi + order[2] * slope
        inverse = np.linalg.pinv(law.score_factor)
        tau = inverse @ (w_chi - law.score_mean[:, None])
        frame = np.linalg.qr(law.score_factor)[0]
        reduced = np.einsum("la,lmn,mb->abn", frame, curvature, frame, optimize=True)
        _, pivots = factor(add_identity(order[2] * reduced))
        density = 0.5 * ((t * t).sum(axis=0) - (tau * tau).sum(axis=0))
        weights = self.weights[b] * np.prod(self.scale) * np.exp(density) * pivots.prod(axis=0)
        return chi, Fields(w_chi, w_z, y), weights, np.asarray((pivots > 0.0).all(axis=0))

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; `search` has no meaning here."""
        law = field_factor(order, *self.setting)
        total = np.zeros(RATES + 2)
        mass = folded = 0.0
        for b in _blocks(self.weights.size):
            chi, at, weights, minimiser = self._points(order, law, b)
            folded += float(np.abs(weights[~minimiser]).sum())
            mass += float(weights.sum())
            total += _integrands(order, self.setting, at, chi) @ weights
        return Averages(total[:RATES], float(total[RATES]), float(total[RATES + 1]), mass, folded, 0.0)

    def refined(self, nodes: tuple[Array, Array]) -> ProxFreeChannel:
        """The same on other nodes, centre and scale handed on."""
        finer = ProxFreeChannel(nodes, self.setting)
        finer.center, finer.scale = self.center, self.scale
        return finer

    def adapt(self, order: Array) -> None:
        """Centre and scale the nodes on the law of the prox point at these order parameters."""
        for _ in range(2):
            self._recentre(order)

    def _recentre(self, order: Array) -> None:
        law = field_factor(order, *self.setting)
        inverse = np.linalg.pinv(law.score_factor)
        moments = np.zeros((2, self.split))
        mass = 0.0
        for b in _blocks(self.weights.size):
            chi, _, weights, minimiser = self._points(order, law, b)
            weights = np.where(minimiser, weights, 0.0)
            u = inverse @ (chi - law.score_mean[:, None])
            moments += np.stack([u @ weights, (u * u) @ weights])
            mass += float(weights.sum())
        mean, square = moments / mass
        self.center, self.scale = mean, np.sqrt(np.maximum(square - mean * mean, 1e-4))

    def response(self, order: Array) -> Response:
        """Second derivatives of M, integrated in prox coordinates where they are bounded."""
        law = field_factor(order, *self.setting)
        total = np.zeros(4)
        for b in _blocks(self.weights.size):
            chi, at, weights, minimiser = self._points(order, law, b)
            part = _response_integrands(order, self.setting, at, chi)
            total += part @ np.where(minimiser, weights, 0.0)
        return Response(total[:3], float(total[3]))


class Ensemble:
    """Several independently shifted sets of nodes as one channel; `members` keeps the last averages of each."""

    name = "prox"

    def __init__(self, channels: list[ProxChannel]) -> None:
        self.channels = channels
        self.weights = channels[0].weights
        self.members: list[Averages] = []

    def averages(self, order: Array, search: bool = False) -> Averages:
        """The mean over the members."""
        self.members = [c.averages(order, search) for c in self.channels]
        means = [np.mean([getattr(m, f) for m in self.members], axis=0) for f in Averages._fields]
        return Averages(means[0], *(float(m) for m in means[1:]))

    def response(self, order: Array) -> Response:
        """The mean over the members."""
        found = [c.response(order) for c in self.channels]
        return Response(np.mean([r.squares for r in found], axis=0), float(np.mean([r.trace for r in found])))


Channel = ProxChannel | ProxFreeChannel | Ensemble
