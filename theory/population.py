"""The population risk E (y - f)^2 of a fixed estimator, from its seven overlaps.

Given all scores chi the remaining fields are Gaussian, so the risk is an average over the scores alone of an explicit
integrand in sigma; on the manifold where the three cross overlaps vanish it is linear in A = E sigma_eps and
B = E sum sigma^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from theory.gaussian import FieldLaw
from theory.model import CHI_STAR, NOISE, Z_STAR, M, Q
from theory.task import Task

K_VSTAR = sp.Symbol("k_vstar", real=True)
V_KSTAR = sp.Symbol("v_kstar", real=True)
K_V = sp.Symbol("k_v", real=True)
CROSS_OVERLAPS = (K_VSTAR, V_KSTAR, K_V)

CHI_EPS, CHI_IDLE = sp.Symbol("chi_eps", real=True), sp.Symbol("chi_l", real=True)
SIGMA_EPS, SIGMA_IDLE = sp.Symbol("sigma_eps", real=True), sp.Symbol("sigma_l", real=True)
_Z = sp.Symbol("z", real=True)
BIAS_IDLE = sp.Symbol("bias_idle", real=True)
A, B = sp.symbols("A B", real=True)


@dataclass(frozen=True)
class PopulationRisk:
    """risk = E[hidden + sum over idle tokens of idle], bias_idle being itself the sum of `bias` over idle tokens."""

    score_mean: sp.Expr
    score_variance: sp.Expr
    idle_score_variance: sp.Expr
    hidden: sp.Expr
    idle: sp.Expr
    bias: sp.Expr
    on_manifold: sp.Expr


def token_covariance(chi: sp.Symbol) -> FieldLaw:
    """The base law of (chi*, z*, chi, z) of one token, off the manifold."""
    covariance = sp.ImmutableMatrix(
        [
            [1, 0, M["k"], V_KSTAR],
            [0, 1, K_VSTAR, M["v"]],
            [M["k"], K_VSTAR, Q["k"], K_V],
            [V_KSTAR, M["v"], K_V, Q["v"]],
        ]
    )
    return FieldLaw((CHI_STAR, Z_STAR, chi, _Z), sp.ImmutableMatrix.zeros(4, 1), covariance)


def population_risk(setting: Task) -> PopulationRisk:
    """Derive the integrand by conditioning every token's (z*, z) on its score."""
    hidden = token_covariance(CHI_EPS).reweighted(CHI_STAR, *setting.hidden_score()).marginal(Z_STAR, CHI_EPS, _Z)
    idle = token_covariance(CHI_IDLE).marginal(CHI_IDLE, _Z)
    given, idle_given = hidden.given(CHI_EPS), idle.given(CHI_IDLE)
    weights = sp.Matrix([1, -SIGMA_EPS])
    variance = (weights.T * given.covariance * weights)[0]
    bias = (weights.T * given.mean)[0]
    hidden_part = NOISE**2 + sp.expand(variance) + (bias - BIAS_IDLE) ** 2
    idle_part = SIGMA_IDLE**2 * idle_given.covariance[0, 0]
    flat = dict.fromkeys(CROSS_OVERLAPS, sp.S.Zero)
    bias_idle = SIGMA_IDLE * idle_given.mean[0]
    manifold = _on_manifold(hidden_part.subs({**flat, BIAS_IDLE: 0}), idle_part.subs(flat))
    position = hidden.fields.index(CHI_EPS)
    return PopulationRisk(
        score_mean=hidden.mean[position],
        score_variance=hidden.covariance[position, position],
        idle_score_variance=idle.covariance[0, 0],
        hidden=hidden_part,
        idle=idle_part,
        bias=bias_idle,
        on_manifold=manifold,
    )


def _on_manifold(hidden: sp.Expr, idle: sp.Expr) -> sp.Expr:
    """The risk in A = E sigma_eps and B = E sum_l sigma_l^2; both parts are polynomials in sigma."""
    linear = sp.Poly(hidden, SIGMA_EPS)
    square = linear.coeff_monomial(SIGMA_EPS**2)
    if sp.simplify(square - idle.coeff(SIGMA_IDLE, 2)) != 0:
        raise AssertionError("hidden and idle tokens must weigh sigma^2 alike")
    return linear.coeff_monomial(1) + linear.coeff_monomial(SIGMA_EPS) * A + square * B
