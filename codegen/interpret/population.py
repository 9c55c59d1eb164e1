"""Numerical population level: A and B at given overlaps, and the optimum over k and the activation's parameters.

`averager` chooses how A and B are computed from what the activation and the task are like; `best` hands them to the
search of `replicode.codegen.runtime.optimum`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp

from replicode.codegen.interpret.averages import Law, TokenAverages
from replicode.codegen.interpret.functions import Array, numpy_function
from replicode.codegen.interpret.hardmax import HardTokenAverages
from replicode.codegen.interpret.sampled import SampledAverages
from replicode.codegen.runtime import optimum
from replicode.codegen.runtime.inputs import OutOfReach
from replicode.codegen.runtime.optimum import CHECK, COARSE, FINE, AverageFunction, Optimum
from replicode.codegen.threads import one_thread
from replicode.theory.errors import Refusal
from replicode.theory.gaussian.sequence import WeightedAverages, at_teacher, weighted_averages
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L
from replicode.theory.language.task import Task
from replicode.theory.lengths import Lengths
from replicode.theory.model import NU
from replicode.theory.properties.symbolic import properties, row_sum

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

    def averages(m: float, tau: float, values: Mapping[str, float], fineness: float) -> tuple[float, float]:
        evaluator = TokenAverages(Law(m, m * m + tau * tau, hidden), {NU: nu, **_by_symbol(values)}, fineness)
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
        return np.array([float(numpy_function(total / L, (NU, L))(nu, float(n))) for n in lengths.tokens])
    return TokenAverages(Law(1.0, 1.0, hidden), {NU: nu}, FINE).value(products.normalisation, lengths.tokens)


def _hard(products: WeightedAverages, sign: int, lengths: Lengths) -> AverageFunction:
    def averages(m: float, tau: float, values: Mapping[str, float], fineness: float) -> tuple[float, float]:
        law = Law(m, m * m + tau * tau, None)
        a = HardTokenAverages(law, sign, _by_symbol(values), fineness).hard_value(products.A, lengths.tokens)
        hidden = Law(law.m, law.q, (0.0, 1.0))
        b = TokenAverages(hidden, _by_symbol(values), fineness).value(products.B, lengths.tokens)
        return float(a @ lengths.weights), float(b @ lengths.weights)

    return averages


def _sampled(act: Activation, setting: Task, nu: float, hard: int | None, lengths: Lengths) -> AverageFunction:
    nodes = SampledAverages(act, setting, hard, properties(act).smooth)
    products = weighted_averages(Activation("constant", sp.S.One), setting) if hard is None else None
    hidden = None if products is None else _hidden(products, nu, lengths)

    def averages(m: float, tau: float, values: Mapping[str, float], fineness: float) -> tuple[float, float]:
        level = {COARSE: 0, CHECK: 1}.get(fineness, 2)
        law = Law(m, m * m + tau * tau, hidden)
        a, b = nodes.averages(
            law, {NU: nu if hard is None else 0.0, **_by_symbol(values)}, lengths.tokens, level, 1 + level
        )
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
    mean, variance = (float(numpy_function(e, (NU, L))(nu, float(lengths.tokens[0]))) for e in products.gaussian)
    if not variance > 0.0:
        raise Refusal(f"at nu = {nu} the weight of the task has no finite average")
    return mean, variance


def _by_symbol(values: Mapping[str, float]) -> dict[sp.Symbol, float]:
    return {sp.Symbol(name, real=True): value for name, value in values.items()}


@one_thread()
def best(averages: AverageFunction, free: Sequence[str], fixed: Mapping[str, float]) -> Optimum:
    """The optimum over m_k, q_k >= m_k^2 and the free parameters."""
    try:
        return optimum.best(averages, free, fixed)
    except OutOfReach as problem:
        raise Refusal(str(problem)) from None
