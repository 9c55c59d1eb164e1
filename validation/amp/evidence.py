"""The evidence of one sequence for message passing, from what is derived of a task.

Z(y, omega) = (1/L) sum_e gbar_e(omega_k) N(y; omega_v,e, V_y), gbar_e being the weight of location e averaged over
scores N(omega_k, V_k). A weight of the hidden token's own score leaves a function of one token. One normalised over
the locations leaves their chances gbar_e/L; a softmax of linear scores has those of the largest of noisy scores.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt
from types import ModuleType

import numpy as np
import sympy as sp

from replicode.codegen.interpret.functions import numpy_function
from replicode.codegen.loading import call
from replicode.codegen.runtime.bayes_rates import BayesOverlaps
from replicode.theory.errors import Refusal
from replicode.theory.language.nodes import TokenSum, X
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, NU, Model
from replicode.validation.amp.passing import Evidence
from replicode.validation.amp.ranked import chances, noise_of
from replicode.validation.bayes import bayes_module
from replicode.validation.data.sampling import Array

Chances = Callable[[Array, float], tuple[Array, Array]]

_FLOOR = 1e-300
_NARROWEST = 1e-14
_STEP = 1e-3
_ROWS = 1024


def evidence_of(
    setting: Task, tokens: int | str | Lengths, nu: float, noise: float, model: Model = DEFAULT_MODEL
) -> Evidence:
    """The evidence of a task; a Refusal where its weight both couples the scores and moves them."""
    module, slope = bayes_module(setting, tokens, model), sp.diff(setting.own, X)
    if nu == inf:
        return LocatedEvidence(module, noise, ranked_chances(setting.hard_limit() * inf))
    if not setting.log_weight.has(TokenSum):
        return OwnEvidence(module, nu, noise)
    if not setting.scores_unweighted:
        raise Refusal(f"message passing for task {setting.text}: its weight couples the scores and moves them")
    if slope.has(X, TokenSum):
        return LocatedEvidence(module, noise, averaged_chances(module, nu))
    return LocatedEvidence(module, noise, ranked_chances(float(numpy_function(slope, (NU,))(nu))))


class OwnEvidence:
    """log Z = log sum_l exp t_l - log L, t of one token: the posterior p is the softmax of t, the gradients p dt."""

    def __init__(self, module: ModuleType, nu: float, noise: float) -> None:
        self._module, self._noise = module, noise
        self._weight = call(module, "weight_at", nu=nu)

    def log_z_gradient(self, y: Array, omega_k: Array, omega_v: Array, V_k: float, V_v: float) -> tuple[Array, Array]:
        """The gradients of log Z in omega_k and omega_v."""
        log_weight, slope = self._averaged(omega_k, V_k)
        log_density, pull = _label_terms(self._module, y, omega_v, V_v, self._noise)
        p = softmax(log_weight + log_density)
        return p * slope, p * pull

    def location(self, omega_k: Array, V_k: float) -> Array:
        """p where no label is known: the softmax of log gbar."""
        return softmax(self._averaged(omega_k, V_k)[0])

    def excess(self, tokens: int) -> float:
        """E_w chi*_eps^2 - 1: where nothing is known, log gbar has the hidden score's cumulants for derivatives."""
        _, slope = self._averaged(np.array([[-_STEP, 0.0, _STEP]]), 1.0)
        return float(slope[0, 1] ** 2 + (slope[0, 2] - slope[0, 0]) / (2.0 * _STEP))

    def _averaged(self, omega_k: Array, V_k: float) -> tuple[Array, Array]:
        """log gbar and its slope, token by token."""
        log, slope = self._weight.log_average(omega_k.ravel(), BayesOverlaps(1.0 - V_k, V_k, 0.0, 1.0))
        return log.reshape(omega_k.shape), slope.reshape(omega_k.shape)


class LocatedEvidence:
    """sum_e g = L: the scores keep their base law, and gbar/L are the chances P of the locations."""

    def __init__(self, module: ModuleType, noise: float, located: Chances) -> None:
        self._module, self._noise, self._chances = module, noise, located

    def log_z_gradient(self, y: Array, omega_k: Array, omega_v: Array, V_k: float, V_v: float) -> tuple[Array, Array]:
        """sum_e p_e dlog P_e/domega_k, and p times the label's pull."""
        P, slopes = self._chances(omega_k, V_k)
        P = np.maximum(P, _FLOOR)
        log_density, pull = _label_terms(self._module, y, omega_v, V_v, self._noise)
        p = softmax(np.log(P) + log_density)
        return np.einsum("ne,nel->nl", p / P, slopes), p * pull

    def location(self, omega_k: Array, V_k: float) -> Array:
        """P."""
        return self._chances(omega_k, V_k)[0]

    def excess(self, tokens: int) -> float:
        """The scores keep their law."""
        return 0.0


def ranked_chances(slope: float) -> Chances:
    """P_e (N, L) and its slopes (N, L, L) where eps has the law softmax(slope chi*), or its limit."""

    def located(omega_k: Array, V_k: float) -> tuple[Array, Array]:
        tokens = omega_k.shape[1]
        if slope == 0.0:
            return np.full(omega_k.shape, 1.0 / tokens), np.zeros((*omega_k.shape, tokens))
        sign = float(np.sign(slope))
        P, slopes = chances(sign * omega_k, noise_of(abs(slope), sqrt(max(V_k, _NARROWEST)), tokens))
        return P, sign * slopes

    return located


def averaged_chances(module: ModuleType, nu: float) -> Chances:
    """The same for any weight normalised over the locations, by the averages of the Bayes theory."""

    def located(omega_k: Array, V_k: float) -> tuple[Array, Array]:
        blocks = np.array_split(omega_k, max(1, len(omega_k) // _ROWS))
        found = [module.location_weights(block, nu, V_k) for block in blocks]
        value, gradient = (np.concatenate([f[i] for f in found]) for i in (0, 1))
        # sum_e gbar does not depend on omega_k, whatever constant the weight comes with.
        total = value.sum(axis=1)
        return value / total[:, None], gradient / total[:, None, None]

    return located


def _label_terms(module: ModuleType, y: Array, omega_v: Array, V_v: float, noise: float) -> tuple[Array, Array]:
    """The log-density of the label at every token, and its slope in omega_v."""
    gap, spread = y[:, None] - omega_v, module.label_variance(V_v, noise)
    return module.label_log_density(gap, spread), module.label_slope(gap, spread)


def softmax(t: Array) -> Array:
    """exp(t)/sum exp(t) along the last axis."""
    weights = np.exp(t - t.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
