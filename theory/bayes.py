"""The Bayes-optimal estimator at finite samples: free entropy, saddle-point equations and test risk.

With m = q and V = 1 - q (Nishimori) the channel is Z(y, w) = (1/L) sum_e gbar_e(w_chi) N(y; w_z_e, V_v + noise^2),
gbar_e being the task's weight averaged over chi* ~ N(w_chi, V_k). Where the weight belongs to the hidden token alone,
Z is a sum over tokens of exp(t), and everything is a one-token function of t: the posterior p = exp(t)/sum exp(t), and
the gradients of log Z, p times those of t.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from theory.errors import Refusal
from theory.expectation import closed_form
from theory.gaussian import gaussian_from_log_weight, is_quadratic
from theory.model import ALPHA, BLOCKS, NOISE, QH, Q, Y
from theory.nodes import TokenSum, X
from theory.task import Task, task

W_CHI, W_Z = sp.Symbol("w_chi", real=True), sp.Symbol("w_z", real=True)
SPREAD = sp.Symbol("V_y", positive=True)
ENTROPY = sp.Function("ElogZ")(*[Q[b] for b in BLOCKS])


@dataclass(frozen=True)
class BayesSystem:
    """One-token functions and scalar equations of the Bayes-optimal theory of a task.

    `exponent` is t(w_chi, w_z) given y, with V_y = V_v + noise^2; `prior` is log gbar, the part of it that a fresh
    sequence shows; `rates` are the squared gradients of t in w_chi and w_z; the hidden token's w_chi is
    N(hidden_mean, hidden_variance).
    """

    task: Task
    exponent: sp.Expr
    prior: sp.Expr
    rates: dict[str, sp.Expr]
    hidden_mean: sp.Expr
    hidden_variance: sp.Expr
    free_entropy: sp.Expr
    update: dict[sp.Symbol, sp.Expr]
    label_variance: sp.Expr


def derive_bayes(setting: str | Task) -> BayesSystem:
    """The Bayes-optimal system of a task whose weight is Gaussian in the hidden token's score."""
    setting = task(setting)
    if setting.log_weight.has(TokenSum) or not is_quadratic(setting.log_weight):
        raise Refusal(f"the Bayes-optimal theory of task {setting.text} is not available: its weight is not Gaussian")
    prior = _log_average(setting)
    exponent = prior - (Y - W_Z) ** 2 / (2 * SPREAD)
    mean, variance = gaussian_from_log_weight(setting.log_weight)
    entropy = _free_entropy()
    return BayesSystem(
        task=setting,
        exponent=exponent,
        prior=prior,
        rates={"k": sp.diff(exponent, W_CHI) ** 2, "v": sp.diff(exponent, W_Z) ** 2},
        hidden_mean=sp.expand(Q["k"] * mean),
        hidden_variance=sp.expand(Q["k"] ** 2 * variance + Q["k"] - Q["k"] ** 2),
        free_entropy=entropy,
        update={Q[b]: sp.solve(sp.diff(entropy, QH[b]), Q[b])[0] for b in BLOCKS},
        label_variance=1 - Q["v"] + NOISE**2,
    )


def _log_average(setting: Task) -> sp.Expr:
    """log gbar(w) = log E[g(chi*)] over chi* ~ N(w, V_k), normalised so that E[g] = 1."""
    weight = sp.exp(setting.own)
    averaged = closed_form(weight, ((X, W_CHI, 1 - Q["k"]),))
    total = closed_form(weight, ((X, sp.S.Zero, sp.S.One),))
    if averaged is None or total is None:
        raise Refusal(f"the average of the weight of task {setting.text} has no closed form")
    return sp.expand(sp.expand_log(sp.log(averaged), force=True) - sp.expand_log(sp.log(total), force=True))


def _free_entropy() -> sp.Expr:
    """Phi = sum_b [-q qh/2 + (qh - log(1 + qh))/2] + alpha E log Z: the prior is the Gaussian channel of strength qh.

    The evidence of theta* ~ N(0, 1) seen through B = qh theta* + sqrt(qh) xi is exp(B^2/(2 (1 + qh)))/sqrt(1 + qh), and
    E[B^2] = qh^2 + qh.
    """
    field, strength = sp.Symbol("field", real=True), sp.Symbol("strength", positive=True)
    theta = sp.Symbol("theta", real=True)
    evidence = closed_form(sp.exp(field * theta - strength * theta**2 / 2), ((theta, sp.S.Zero, sp.S.One),))
    if evidence is None:
        raise AssertionError("a Gaussian integral")
    log_evidence = sp.expand(sp.expand_log(sp.log(evidence), force=True))
    average = closed_form(log_evidence, ((field, sp.S.Zero, strength**2 + strength),))
    if average is None:
        raise AssertionError("a Gaussian average of a square")
    prior = sp.simplify(average)
    return sp.Add(*[-Q[b] * QH[b] / 2 + prior.subs(strength, QH[b]) for b in BLOCKS]) + ALPHA * ENTROPY
