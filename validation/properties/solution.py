"""What holds at solutions of the saddle equations, and in the limits where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import mpmath
import numpy as np

from replicode.codegen.loading import call
from replicode.codegen.runtime.bayes_evolution import Branch
from replicode.codegen.runtime.bayes_solver import equilibrium
from replicode.codegen.runtime.optimum import FINE
from replicode.theory.calculus.numeric import Undefined
from replicode.theory.errors import Refusal
from replicode.theory.language.task import Task
from replicode.validation.bayes import bayes_module
from replicode.validation.properties.averages import PHYSICS, Physics, Saddle, ordered, quiet, resolution, saddles
from replicode.validation.properties.population import NOTHING, best_gain
from replicode.validation.properties.subject import Subject
from replicode.validation.properties.verdict import Verdict, above, every, near, not_applicable

BASE = replace(PHYSICS, lambda_k=2.0)
PENALTIES = (1.0, 3.0, 10.0)
MANY = (1000.0, 2000.0)
HEAVY = 1e4
TRIVIAL = 1e-3
SOLVED = 1e-3
REMAINDER = 0.25
FIRST_ORDER = 0.02
BAYES_DIGITS = 1e-5


def _solved(of: Subject) -> Sequence[Saddle] | Verdict:
    """A saddle without folds, at the least penalty of a few that has one, on two sets of nodes."""
    found: Sequence[Saddle] | Verdict = not_applicable("")
    for factor in PENALTIES:
        physics = replace(BASE, lambda_k=factor * BASE.lambda_k, lambda_v=factor * BASE.lambda_v)
        found = _saddles(of, physics)
        if not isinstance(found, Verdict):
            return found
    return found


def _saddles(of: Subject, physics: Physics) -> Sequence[Saddle] | Verdict:
    """Solved once for all properties of a subject."""
    kept = of.__dict__.setdefault("_kept_saddles", {})
    if physics not in kept:
        kept[physics] = saddles(of, physics)
    found: Sequence[Saddle] | Verdict = kept[physics]
    return found


def _gap(found: Sequence[Saddle], quantity: str) -> float:
    """How far two sets of nodes agree on a number."""
    coarse, fine = (getattr(s, quantity) for s in found)
    return float(abs(fine - coarse))


def stationarity(of: Subject) -> Verdict:
    """At a fixed point of the iteration the gradient of f vanishes in all twelve unknowns."""
    found = _solved(of)
    if isinstance(found, Verdict):
        return found
    module, at = of.modules(of.few), found[-1]
    if module is None:
        return not_applicable("no solver is generated for it")
    gradient = module.free_energy_gradient(at.order, at.conjugates, *at.physics.problem, at.averages.rates)
    sizes = 1.0 + float(np.abs(np.r_[at.order, at.conjugates]).max())
    return near("gradient of f", gradient, np.zeros_like(gradient), 1e-6 * sizes**2)


def energy_identity(of: Subject) -> Verdict:
    """At a saddle f = alpha E[loss at the prox] + lambda_k q_k/2 + lambda_v q_v/2, the objective's own two parts."""
    found = _solved(of)
    if isinstance(found, Verdict):
        return found
    module, at = of.modules(of.few), found[-1]
    if module is None:
        return not_applicable("no solver is generated for it")
    alpha, lambda_k, lambda_v = at.physics.problem
    energy = module.free_energy_value(at.order, at.conjugates, alpha, lambda_k, lambda_v, at.averages.envelope)
    parts = alpha * at.train_loss
    for block, weight in ((of.model.scores, lambda_k), (of.model.values, lambda_v)):
        penalty = float(of.model.penalty_curvature(block).subs(block.strength, weight))
        parts += penalty * at.order[of.model.index(block.q.name)] / 2
    off = resolution(found[0].order, at.order) + alpha * _gap(found, "train_loss")
    return near("energy", energy, parts, 1e-6 * (1.0 + abs(parts)) + 10.0 * off)


def solver_agrees(of: Subject) -> Verdict:
    """`solve` returns this saddle to within the error that it states, and its energy is the free energy there."""
    found = _solved(of)
    if isinstance(found, Verdict):
        return found
    module, at = of.modules(of.few), found[-1]
    if module is None:
        return not_applicable("no solver is generated for it")
    solution = quiet(lambda: module.solve(**vars(at.physics), tol=SOLVED, **of.parameters))
    if not (solution.converged and solution.error < 10.0 * SOLVED):
        return not_applicable(f"solve says: {'; '.join(solution.warnings)}")
    order = ordered(solution.order_parameters, of.model.order_parameters)
    off = resolution(found[0].order, at.order)
    if float(np.abs(np.subtract(order, at.order)).max()) > 0.1:
        return not_applicable("solve follows another branch")
    errors = [solution.errors[n] for n in ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")]
    energy = module.free_energy(
        solution.order_parameters, solution.conjugates, **vars(at.physics), nodes=30_000, **of.parameters
    )
    return every(
        [
            near("test risk", solution.test_risk, at.risk, solution.error + 10.0 * off + 1e-9),
            near("order parameters", order, at.order, 2.0 * max(errors) + 10.0 * off + 1e-9),
            near("energy", solution.energy, energy, solution.errors["energy"] + 10.0 * off + 1e-9),
        ]
    )


def infinite_data(of: Subject) -> Verdict:
    """alpha -> infinity: test and training risk meet at a minimum of the population risk over k and v.

    Both approach it like 1/alpha; two values of alpha take that term off, and a quarter of it is allowed for what is
    left. At the limit the risk is 1 + noise^2 - A^2/B, and k longer, shorter or turned away from k* is not better.
    """
    found = [_saddles(of, replace(PHYSICS, alpha=alpha)) for alpha in MANY]
    pairs = [s for s in found if not isinstance(s, Verdict)]
    if len(pairs) < len(MANY):
        return next(s for s in found if isinstance(s, Verdict))
    one, two = (p[-1] for p in pairs)
    noise = sum(_gap(p, "risk") + 2.0 * _gap(p, "train_loss") for p in pairs)
    if two.risk > 1.0 + PHYSICS.noise**2 - TRIVIAL:
        return not_applicable("the saddle that is reached predicts nothing")
    test, train = 2.0 * two.risk - one.risk, 4.0 * two.train_loss - 2.0 * one.train_loss
    steps = abs(two.risk - one.risk) + 2.0 * abs(two.train_loss - one.train_loss)
    m, q = ((2.0 * two.order - one.order)[of.model.index(s.name)] for s in (of.model.scores.m, of.model.scores.q))
    averages = of.infinite_data(of.few).averages_at

    def risk(size: float, turn: float) -> float:
        across = float(size * np.sqrt(max(q - m * m, 0.0) + turn * m * m))
        a, b = quiet(averages, float(size * m), across, PHYSICS.nu, NOTHING, FINE)
        return float(1.0 + PHYSICS.noise**2 - a * a / b)

    limit, allowed = risk(1.0, 0.0), REMAINDER * steps + 10.0 * noise + 1e-7
    neighbours = [("longer", risk(1.1, 0.0)), ("shorter", risk(0.9, 0.0)), ("turned", risk(1.0, 0.05))]
    return every(
        [
            near("test risk", test, limit, allowed),
            near("training risk", train, limit, allowed),
            *(above(f"risk of a k that is {name}", other, limit, allowed) for name, other in neighbours),
        ]
    )


def infinite_penalty(of: Subject) -> Verdict:
    """lambda -> infinity: the predictor is 0 and the risk 1 + noise^2, approached as -2 alpha sigma(0)^2 / lambda_v.

    To first order v = (alpha/lambda_v) sigma(0) v* and k = 0, where sigma is the same at every token.
    """
    heavy = replace(PHYSICS, lambda_k=HEAVY, lambda_v=HEAVY)
    try:
        level = float(of.direct([mpmath.mpf(0)] * of.few)[0])
    except Undefined:
        return not_applicable("sigma has no value where all scores vanish")
    found = _saddles(of, heavy)
    if isinstance(found, Verdict):
        return found
    first = 2.0 * PHYSICS.alpha * level**2 / HEAVY
    allowed = FIRST_ORDER * first + 1e-6 + 10.0 * _gap(found, "risk")
    return near("test risk", found[-1].risk, 1.0 + PHYSICS.noise**2 - first, allowed)


@lru_cache(maxsize=16)
def _bayes(setting: Task, tokens: int, alpha: float) -> Branch | None:
    """The Bayes-optimal branch at finite samples, None where the task is refused."""
    try:
        module = bayes_module(setting, tokens)
        with np.errstate(all="ignore"):
            found = call(module, "branches", alpha=alpha, nu=PHYSICS.nu, noise=PHYSICS.noise, tol=BAYES_DIGITS)
    except Refusal:
        return None
    best: Branch = equilibrium(found)
    return best


def finite_bayes_bound(of: Subject) -> Verdict:
    """At finite samples no trained attention beats Bayes: test risk >= Bayes risk at the same alpha."""
    found = _solved(of)
    if isinstance(found, Verdict):
        return found
    bayes = _bayes(of.task, of.few, BASE.alpha)
    if bayes is None or not bayes.converged:
        return not_applicable("the Bayes risk of the task is not known")
    allowed = bayes.error + 10.0 * _gap(found, "risk") + 1e-6
    return above("test risk", found[-1].risk, bayes.test_risk, allowed)


def bayes_monotony(of: Subject) -> Verdict:
    """More samples never hurt Bayes, and infinitely many leave the population's Bayes risk.

    R(2 alpha) <= R(alpha) <= 1 + noise^2, and R(2 alpha) >= 1 + noise^2 - E_w[p_eps].
    """
    few, more = (_bayes(of.task, of.few, alpha) for alpha in (BASE.alpha, 2.0 * BASE.alpha))
    if few is None or more is None or not (few.converged and more.converged):
        return not_applicable("the Bayes risk of the task is not known")
    allowed = few.error + more.error + 1e-9
    trivial = 1.0 + PHYSICS.noise**2
    best = best_gain(of.task, of.few)
    return every(
        [
            above("risk at alpha", few.test_risk, more.test_risk, allowed),
            above("trivial risk", trivial, few.test_risk, allowed),
            above("risk at 2 alpha", more.test_risk, trivial - best.gain, allowed + best.error),
        ]
    )
