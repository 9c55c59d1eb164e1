"""Prox-free averages: at nodes in the prox point chi the field w = chi + V_k grad loss is explicit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codegen.runtime.channel import RATES, Averages, Response, Setting, _blocks, _integrands, _response_integrands
from codegen.runtime.fields import FieldFactor, Fields, dimensions, field_factor, fields
from codegen.runtime.kernel import SHIFT_INVARIANT, TOKENS, Array, hessian
from codegen.runtime.linear import add_identity, factor
from codegen.runtime.nodes import lattice, level_count
from codegen.runtime.prox import prox

ADAPTING_NODES = 1000.0


class ScoreFrame(NamedTuple):
    """Coordinates tau of the score field, w = mean + factor tau, and of the prox point, chi = origin + span u.

    Where sigma is shift invariant, chi is kept orthogonal to (1, .., 1); the prox of w is that of its projection.
    """

    law: FieldFactor
    origin: Array
    span: Array
    inverse: Array
    basis: Array

    @staticmethod
    def of(law: FieldFactor) -> ScoreFrame:
        """The frame of a field law."""
        project = np.eye(TOKENS) - (1.0 / TOKENS if SHIFT_INVARIANT else 0.0)
        span = project @ law.score_factor
        return ScoreFrame(law, project @ law.score_mean, span, np.linalg.pinv(span), np.linalg.qr(span)[0])

    def point(self, u: Array) -> Array:
        """chi at the coordinates u."""
        return np.asarray(self.origin[:, None] + self.span @ u)

    def coordinates(self, w: Array) -> Array:
        """tau of a field, up to what the prox does not see."""
        return np.asarray(self.inverse @ (w - self.origin[:, None]))

    def field(self, tau: Array) -> Array:
        """w_chi at the coordinates tau."""
        return np.asarray(self.law.score_mean[:, None] + self.law.score_factor @ tau)


class ProxFreeChannel:
    """Averages at nodes in the prox point chi: w = chi + V_k grad loss is explicit, so nothing is minimised.

    E[F] = int dchi det(I + V_k Hess loss) p_w(w(chi)) F. The determinant is signed, which keeps the integrand analytic
    and cancels most of what a fold adds; the weight where it is not positive definite is the folded mass, and where
    that matters the integral is not to be trusted.
    """

    name = "prox-free"
    slack = 0.1
    cuts_folds = False

    def __init__(self, nodes: tuple[Array, Array], setting: Setting) -> None:
        self.zeta, self.weights = nodes
        self.setting = setting
        self.split = dimensions(setting.params)[0]
        self.center = np.zeros(self.split)
        self.scale = np.ones(self.split)

    def _points(self, order: Array, frame: ScoreFrame, b: slice) -> tuple[Array, Fields, Array, Array]:
        """chi and the fields of a block, its quadrature weights with the Jacobian, and whether chi is a minimiser."""
        t = self.zeta[: self.split, b]
        chi = frame.point(self.center[:, None] + self.scale[:, None] * t)
        values = frame.law.value_factor @ self.zeta[self.split :, b]
        w_z, y = values[:-1], values[-1]
        _, slope, curvature = hessian(chi, w_z, y, order[5], self.setting.params)
        tau = frame.coordinates(chi + order[2] * slope)
        reduced = np.einsum("la,lmn,mb->abn", frame.basis, curvature, frame.basis, optimize=True)
        _, pivots = factor(add_identity(order[2] * reduced))
        density = 0.5 * ((t * t).sum(axis=0) - (tau * tau).sum(axis=0))
        weights = self.weights[b] * np.prod(self.scale) * np.exp(density) * pivots.prod(axis=0)
        return chi, Fields(frame.field(tau), w_z, y), weights, np.asarray((pivots > 0.0).all(axis=0))

    def _frame(self, order: Array) -> ScoreFrame:
        return ScoreFrame.of(field_factor(order, *self.setting))

    def averages(self, order: Array, search: bool = False) -> Averages:
        """All averages at these order parameters; `search` has no meaning here."""
        frame = self._frame(order)
        total = np.zeros(RATES + 2)
        mass = folded = 0.0
        for b in _blocks(self.weights.size):
            chi, at, weights, minimiser = self._points(order, frame, b)
            folded += float(np.abs(weights[~minimiser]).sum())
            mass += float(weights.sum())
            total += _integrands(order, self.setting, at, chi) @ weights
        return Averages(total[:RATES], float(total[RATES]), float(total[RATES + 1]), mass, folded, 0.0)

    @staticmethod
    def at_level(level: int, setting: Setting) -> ProxFreeChannel:
        """On the lattice of a level."""
        dim = sum(dimensions(setting.params))
        return ProxFreeChannel(lattice(dim, level_count(dim, level), level), setting)

    def size(self, level: int) -> float:
        """How many nodes a level has."""
        return level_count(sum(dimensions(self.setting.params)), level)

    def refined(self, level: int) -> ProxFreeChannel:
        """The same on the lattice of another level, centre and scale handed on."""
        finer = ProxFreeChannel.at_level(level, self.setting)
        finer.center, finer.scale = self.center, self.scale
        return finer

    def adapt(self, order: Array) -> None:
        """Centre and scale the nodes on the law of the prox point, seen on a few proxes."""
        frame = self._frame(order)
        zeta, weights = lattice(len(self.zeta), ADAPTING_NODES, 7)
        at = fields(frame.law, zeta)
        chi, _ = prox(at.w_chi, at, (float(order[2]), float(order[5])), self.setting.params)
        u = frame.coordinates(chi)
        mean = u @ weights
        self.center, self.scale = mean, np.sqrt(np.maximum((u * u) @ weights - mean * mean, 1e-4))

    def response(self, order: Array) -> Response:
        """Second derivatives of M, integrated in prox coordinates where they are bounded."""
        frame = self._frame(order)
        total = np.zeros(4)
        for b in _blocks(self.weights.size):
            chi, at, weights, minimiser = self._points(order, frame, b)
            part = _response_integrands(order, self.setting, at, chi)
            total += part @ np.where(minimiser, weights, 0.0)
        return Response(total[:3], float(total[3]))
