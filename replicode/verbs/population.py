"""The population level of an activation on a task: its best risk, where it is reached, and the Bayes risk beside it.

The optimum over v is in closed form always; over k and the activation's free parameters it is the Nishimori point
where there is one, a closed form where the algebra finds it, and a bracketed numerical optimum in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import sympy as sp

from replicode.codegen.interpret.functions import numpy_function
from replicode.codegen.runtime.optimum import Optimum
from replicode.codegen.runtime.wording import told_apart
from replicode.codegen.threads import one_thread
from replicode.inputs.arguments import accuracy, not_negative
from replicode.inputs.asked import asked
from replicode.inputs.learned import LABELS, LOSS, learned, named
from replicode.inputs.radii import only_replica_symmetric
from replicode.inputs.spectrum import SpectrumLike, token_spectrum
from replicode.modules import call, module_for
from replicode.results import Result
from replicode.theory.budget import BudgetSpent, budget
from replicode.theory.derive.nishimori import NishimoriCondition, nishimori
from replicode.theory.derive.optimum import closed_optimum, limits, value_optimum
from replicode.theory.derive.population import A, B
from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.closed import closed_averages, hard_averages
from replicode.theory.language.activation import Activation, ActivationLike, activation
from replicode.theory.language.nodes import L
from replicode.theory.language.task import Task
from replicode.theory.language.task import task as task_of
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.limits import given_parameters
from replicode.theory.model import DEFAULT_MODEL, NOISE, NU, Model
from replicode.theory.properties.domain import check_domain

USUAL_DIGITS = 8
_LARGEST_NU = 1e4
_CLOSED_SHARE = 0.25
_METHODS = {
    "factorised": "one token at a time",
    "sampled": "nodes over all tokens",
    "by_threshold": "threshold integral, one token at a time",
}


@dataclass(frozen=True, repr=False)
class Population(Result):
    """Risks at the optimum; `error` bounds the error of excess_risk and of bayes_risk. None: not finite or none."""

    headline = ("excess_risk", "error", "closed_form", "method")
    bounded = ("test_risk", "excess_risk", "bayes_risk")

    excess_risk: float
    test_risk: float
    bayes_risk: float
    order_parameters: Mapping[str, float]
    parameters: Mapping[str, float]
    closed_form: str | None
    error: float
    A: str | None
    B: str | None
    nishimori: bool
    brackets: Mapping[str, tuple[float, float]]
    flat_directions: tuple[str, ...]
    limits: Mapping[str, str]
    method: str


def population(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    nu: float,
    noise: float = 0.0,
    digits: int | None = None,
    loss: str = LOSS,
    labels: str = LABELS,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Population:
    """The best population risk of attention with this activation; parameters that are not given are optimised.

    `model` says what is learned where that is not the default, a square loss on noisy values of the hidden token; so do
    `loss` and `labels`, of which squares and Gaussian labels are taken. A spectrum changes no number: overlaps are in
    its metric, and with infinite data no penalty is felt.
    """
    data = token_spectrum(spectrum, teacher)
    model = _squared(learned(model, loss, labels))
    spec = act
    act, setting, distribution = activation(act, given_parameters(parameters, more)), task_of(task), lengths(tokens)
    nu, noise = _checked_numbers(nu, noise, act.values)
    goal = accuracy(digits, USUAL_DIGITS)
    fixed = act.with_values()
    with budget("the population optimum"):
        check_domain(act)
        value = value_optimum(setting, model or DEFAULT_MODEL)
        if math.isinf(nu):
            setting.hard_limit()
        module, _ = module_for(fixed, setting, distribution, level="population")
        with one_thread():
            bayes = call(module, "location_gain", nu=nu)
        condition = nishimori(fixed, setting)
        if condition is not None and distribution.fixed is None and L in condition.a.free_symbols:
            condition = None
        if condition is not None:
            found, method = _nishimori_point(condition, fixed, nu, bayes.gain, bayes.error), "Nishimori condition"
        else:
            with one_thread():
                found = call(module, "optimum", nu=nu)
            method = _METHODS[(module.hard_averages if math.isinf(nu) else module.soft_averages).__name__]
    scale, own = float(value.scale), float(numpy_function(value.noise, (NOISE,))(noise))
    excess, error = scale * (1.0 - found.gain), scale * (found.error + bayes.error)
    forms: tuple[str | None, str | None] = (None, None)
    closed, bounds = None, dict[str, str]()
    # The numbers stand without a closed form, and do not wait long for one.
    with suppress(BudgetSpent), budget("the closed form", share=_CLOSED_SHARE):
        forms = _closed_forms(fixed, setting, nu, distribution)
        closed, bounds = _closed_excess(fixed, setting, nu, distribution, found, condition is not None, scale)
    m_v = float(numpy_function(value.m_v, (A, B))(found.A, found.B))
    return Population(
        excess_risk=excess,
        test_risk=excess + own,
        bayes_risk=scale * (1.0 - bayes.gain) + own,
        order_parameters={
            "m_k": math.inf if found.unbounded else found.m,
            "q_k": math.inf if found.unbounded else found.m**2 + found.tau**2,
            "m_v": m_v,
            "q_v": m_v**2,
        },
        parameters={**act.values, **found.parameters},
        closed_form=closed,
        error=error,
        A=forms[0],
        B=forms[1],
        nishimori=condition is not None,
        brackets=found.brackets,
        flat_directions=found.flat,
        limits=bounds,
        method=method,
        warnings=_warnings(found, excess, error, scale * (1.0 - bayes.gain), goal.worst, condition is not None),
        asked=asked(spec, task, distribution, act.values, model, nu=nu, noise=noise, digits=goal.digits)
        | named(loss, labels)
        | ({} if data is None else data.question()),
    )


def _squared(model: Model | None) -> Model | None:
    """A model whose least risk with infinite data is that of the squared error on a Gaussian label."""
    only_replica_symmetric(model, "infinite data")
    if model is None or (model.square and model.label_in_law):
        return model
    if not model.square:
        raise Refusal(
            f"loss {model.loss}: population finds the least squared error, and training with another loss on infinite "
            "data does not end there; solve has it at any alpha"
        )
    raise Refusal(
        f"labels {model.label}: the risk with infinite data is derived for labels linear in z and xi; solve has others "
        "at any alpha"
    )


def _checked_numbers(nu: float, noise: float, values: Mapping[str, float]) -> tuple[float, float]:
    signal, spread = not_negative("nu", nu, infinite=True), not_negative("noise", noise)
    if _LARGEST_NU < signal < math.inf:
        raise InputError("nu", nu, f"a number from 0 to {_LARGEST_NU:g}, or inf where the limit exists")
    for name, value in values.items():
        if not math.isfinite(value):
            raise InputError(f"param {name}", value, "a finite number")
    return signal, spread


def exact(value: float) -> sp.Expr:
    """The number as typed."""
    return sp.oo if value == math.inf else sp.Rational(repr(float(value)))


def _nishimori_point(condition: NishimoriCondition, act: Activation, nu: float, gain: float, error: float) -> Optimum:
    """k = c k* makes the estimator Bayes; parameters that c absorbs are flat directions and set to one."""
    free = tuple(sp.Symbol(p, real=True) for p in act.parameters)
    ones = [1.0] * len(free)
    total = float(numpy_function(1 / condition.a, (L, *free))(2.0, *ones))
    unbounded = math.isinf(nu) and condition.c.has(NU)
    c = math.inf if unbounded else float(numpy_function(condition.c, (NU, *free))(nu, *ones))
    return Optimum(
        m=c,
        tau=0.0,
        parameters=dict(zip(act.parameters, ones)),
        A=gain * total,
        B=gain * total**2,
        gain=gain,
        error=error,
        brackets={},
        flat=tuple(f"k and {p} together" for p in act.parameters),
        unbounded=unbounded,
    )


def _closed_forms(act: Activation, setting: Task, nu: float, distribution: Lengths) -> tuple[str | None, str | None]:
    if not math.isinf(nu):
        found = closed_averages(act, setting)
    elif distribution.fixed is not None:
        found = hard_averages(act, setting, distribution.fixed)
    else:
        return None, None
    a, b = (None if e is None else str(e) for e in (found.A, found.B))
    return a, b


def _closed_excess(
    act: Activation, setting: Task, nu: float, distribution: Lengths, found: Optimum, attained: bool, scale: float
) -> tuple[str | None, dict[str, str]]:
    """The closed form of the excess risk and its limits, where one was found that the numbers bear out."""
    if attained:
        plain = _closed_bayes(nu, distribution.fixed)
        return None if plain is None else str(exact(scale) * plain), {}
    if distribution.fixed is None or act.parameters or found.tau > 0.0 or found.unbounded:
        return None, {}
    closed = closed_optimum(act, setting, distribution.fixed, exact(nu), found.m, 1.0 - found.gain)
    if closed is None:
        return None, {}
    excess = exact(scale) * closed.excess
    return str(excess), {k: str(v) for k, v in limits(excess, closed.general).items()}


def _closed_bayes(nu: float, tokens: int | None) -> sp.Expr | None:
    """The Bayes excess where it is plain: one token or a location that is known, and one that nothing tells of."""
    if tokens == 1 or math.isinf(nu):
        return sp.S.Zero
    return 1 - sp.Rational(1, tokens) if nu == 0 and tokens is not None else None


def _warnings(
    found: Optimum, excess: float, error: float, bayes: float, tolerance: float, attained: bool
) -> tuple[str, ...]:
    told = []
    if error > tolerance:
        told.append("the error {} is above {}".format(*told_apart(error, tolerance)))
    if excess < bayes - 2.0 * error - 1e-14:
        told.append(f"the excess risk {excess:.12g} is below the Bayes value {bayes:.12g}: one of them is wrong")
    if found.unbounded and not attained:
        told.append("the risk still falls as |k| grows: the value is that of the largest |k| tried")
    return tuple(told)
