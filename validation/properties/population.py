"""What holds of the risk at infinite data: its averages in independent ways, and what no estimator can beat."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType

import numpy as np

from replicode.codegen.interpret.functions import evaluated
from replicode.codegen.runtime.nodes import sobol
from replicode.codegen.runtime.optimum import CHECK, FINE
from replicode.codegen.runtime.population_solver import LocationGain
from replicode.theory.derive.nishimori import nishimori
from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.closed import closed_averages
from replicode.theory.gaussian.sequence import weighted_averages
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import L, X
from replicode.theory.language.task import Task
from replicode.theory.model import NU
from replicode.validation.properties.averages import PHYSICS, quiet
from replicode.validation.properties.subject import Subject, number, population_module
from replicode.validation.properties.verdict import Verdict, above, every, near, not_applicable

POINTS = 3
AGREED = 1e-8
UNRESOLVED = 1e-3
TWIN = 1e-6
HUGE = 50.0
OVERLAPS = np.array([0.35, 0.4, 0.4, 0.6, 0.25, -0.3, 0.15])
SCRAMBLES = 8
LOG2_SAMPLES = 16
SAMPLED = 5e-3
STANDARD_ERRORS = 5.0
NOTHING = np.zeros(0)  # the parameters of an activation whose values are written in


def _numerical(of: Subject, m: float, tau: float, tokens: int) -> tuple[float, float, float]:
    """A and B by nodes over one token at a time where they factorise, and a bound on their error."""
    averages = of.infinite_data(tokens).averages_at
    (a, b), (coarse, rough) = (quiet(averages, m, tau, PHYSICS.nu, NOTHING, f) for f in (FINE, CHECK))
    return a, b, 2.0 * max(abs(a - coarse), abs(b - rough)) + 1e-14


def averages_agree(of: Subject) -> Verdict:
    """A = E_w sigma_eps and B = E_w sum_l sigma_l^2 from the module, from factorised averages and in closed form.

    The module samples all scores of a sequence; the factorised averages take one token at a time, inverse powers of
    sums being Laplace integrals; the closed forms come from the rule table, where it has them.
    """
    module = of.modules(of.several)
    try:
        closed = closed_averages(of.settled, of.task)
    except Refusal:
        return not_applicable("the task has no population level")
    settings = None if module is None else module.settings_of(PHYSICS.nu, PHYSICS.noise, of.values(module))
    verdicts, seen = [], 0
    for m, tau in of.overlaps(POINTS):
        q = m * m + tau * tau
        a, b, error = _numerical(of, m, tau, of.several)
        if not error < UNRESOLVED:
            return not_applicable(f"the averages are resolved to {error:.1g} only")
        if module is not None:
            found = quiet(module.population_averages, m, q, settings, 1e-10)
            allowed = AGREED + error + found.error
            if found.error < UNRESOLVED:
                verdicts.append(near("A and B of the module", [found.A, found.B], [a, b], allowed * (1.0 + b)))
                seen += 1
        values = {of.model.scores.m: m, of.model.scores.q: q, NU: PHYSICS.nu, L: of.several}
        for name, form, value in (("A", closed.A, a), ("B", closed.B, b)):
            if form is not None:
                verdicts.append(near(f"closed form of {name}", number(form, values), value, (AGREED + error) * (1 + b)))
                seen += 1
    return every(verdicts) if seen else not_applicable("one way only to average it")


def risk_from_samples(of: Subject) -> Verdict:
    """The risk of seven overlaps is E (y - sigma(chi).z)^2, by sampling (chi*, z*, chi, z) of every token as they are.

    Off the manifold, so that every conditional law in the derivation counts; sigma and log g are evaluated as typed.
    """
    module = of.modules(of.few)
    if module is None:
        return not_applicable("no module is generated for it")
    found = quiet(_risk_of, module, of.parameters)
    sampled = np.array([_sampled_risk(of, seed) for seed in range(SCRAMBLES)])
    spread = float(sampled.std(ddof=1)) / np.sqrt(SCRAMBLES)
    if not spread < SAMPLED * abs(found):
        return not_applicable(f"samples leave a standard error of {spread:.1g}")
    allowed = STANDARD_ERRORS * spread + UNRESOLVED * abs(found)
    return near("risk", found, float(sampled.mean()) + PHYSICS.noise**2, allowed)


def _risk_of(module: ModuleType, parameters: Mapping[str, float]) -> float:
    return float(module.risk_of_overlaps(OVERLAPS, PHYSICS.nu, PHYSICS.noise, tol=1e-7, **parameters))


def _sampled_risk(of: Subject, seed: int) -> float:
    """E_w (z*_eps - sigma.z)^2 on one scrambled Sobol set, the weight being exp(log g) over its own mean."""
    tokens = of.few
    m_k, q_k, m_v, q_v, k_vstar, v_kstar, k_v = OVERLAPS
    covariance = [[1, 0, m_k, v_kstar], [0, 1, k_vstar, m_v], [m_k, k_vstar, q_k, k_v], [v_kstar, m_v, k_v, q_v]]
    nodes, _ = sobol(4 * tokens, LOG2_SAMPLES, seed)
    chi_star, z_star, chi, z = np.einsum(
        "ab,bln->aln", np.linalg.cholesky(np.array(covariance, dtype=float)), nodes.reshape(4, tokens, -1)
    )
    log = evaluated(Activation("weight", of.task.log_weight).token_form(), chi_star, {NU: PHYSICS.nu})[0]
    weights = np.exp(log - log.max())
    sigma = evaluated(of.settled.token_form(), chi, {})
    return float(weights @ (z_star[0] - (sigma * z).sum(axis=0)) ** 2 / weights.sum())


def hard_limit(of: Subject) -> Verdict:
    """nu -> infinity, where the task has that limit: A = E[sigma of the token that wins], by sampling the scores.

    The winner is the token of the largest log g at a huge nu, which ties nothing to the sign found by algebra.
    """
    try:
        of.task.hard_limit()
        averages = of.infinite_data(of.few).averages_at
    except (InputError, Refusal):
        return not_applicable("the task has no limit as nu grows")
    ((m, tau),) = of.overlaps(1)
    (a, _), (coarse, _) = (quiet(averages, m, tau, np.inf, NOTHING, f) for f in (FINE, CHECK))
    sampled = np.array([_winning_sigma(of, m, tau, seed) for seed in range(SCRAMBLES)])
    spread = float(sampled.std(ddof=1)) / np.sqrt(SCRAMBLES)
    if not spread < SAMPLED * (1.0 + abs(a)):
        return not_applicable(f"samples leave a standard error of {spread:.1g}")
    allowed = STANDARD_ERRORS * spread + abs(a - coarse) + UNRESOLVED * abs(a)
    return near("A at nu = inf", a, float(sampled.mean()), allowed)


def _winning_sigma(of: Subject, m: float, tau: float, seed: int) -> float:
    nodes, _ = sobol(2 * of.few, LOG2_SAMPLES, seed)
    stars, noise = np.split(nodes, 2)
    log = evaluated(Activation("weight", of.task.log_weight).token_form(), stars, {NU: HUGE})
    sigma = evaluated(of.settled.token_form(), m * stars + tau * noise, {})
    return float(np.take_along_axis(sigma, log.argmax(axis=0)[None], axis=0).mean())


def bayes_bound(of: Subject) -> Verdict:
    """At infinite data no estimator beats Bayes: 1 - A^2/B >= 1 - E_w[p_eps] at every (m_k, q_k)."""
    bayes = best_gain(of.task, of.few)
    verdicts = []
    for m, tau in ((1.0, 0.0), *of.overlaps(POINTS)):
        a, b, error = _numerical(of, m, tau, of.few)
        if not (error < UNRESOLVED * b and b > 0.0):
            return not_applicable("the averages are not resolved")
        gain = a * a / b
        slack = bayes.error + error * (2.0 * abs(a) + gain) / b + AGREED
        verdicts.append(above(f"excess risk at m_k = {m:.3g}", 1.0 - gain, 1.0 - bayes.gain, slack))
    return every(verdicts)


def nishimori_point(of: Subject) -> Verdict:
    """Where a sigma(c chi) = g / sum g identically, k = c k* makes attention Bayes-optimal at infinite data.

    Then a A = a^2 B = E_w[p_eps], since E_w[p_eps] = E_w[sum_l p_l^2] for any posterior p.
    """
    condition = nishimori(of.settled, of.task)
    if condition is None:
        return not_applicable("sigma is not the posterior of the location at any k")
    scale, size = (number(e, {NU: PHYSICS.nu, L: of.few}) for e in (condition.a, condition.c))
    bayes = best_gain(of.task, of.few)
    a, b, error = _numerical(of, size, 0.0, of.few)
    allowed = bayes.error + error * (scale + scale**2) + AGREED
    return near("a A and a^2 B", [scale * a, scale**2 * b], [bayes.gain] * 2, allowed)


def posterior_twin(of: Subject) -> Verdict:
    """The Nishimori identity of the location's posterior: E_w[p_eps] = E_w[sum_l p_l^2], for every task.

    `location_gain` computes both and counts their gap in its error.
    """
    if weighted_averages(Activation("posterior", of.task.posterior), of.task) is None:
        return not_applicable("the posterior's averages are sampled, which does not resolve them")
    found = best_gain(of.task, of.few)
    return every([near("E[p_eps] and E[sum p^2]", found.error, 0.0, TWIN), _between(found.gain, of.few)])


@lru_cache(maxsize=16)
def best_gain(setting: Task, tokens: int) -> LocationGain:
    """What Bayes takes off the risk at infinite data, computed once for all properties."""
    found: LocationGain = quiet(population_module(Activation("score", X), setting, tokens).location_gain, PHYSICS.nu)
    return found


def _between(gain: float, tokens: int) -> Verdict:
    """1/L <= E[p_eps] <= 1: guessing gains 1/L, and knowing the location 1."""
    return every([above("E[p_eps]", gain, 1.0 / tokens, AGREED), above("1 - E[p_eps]", 1.0 - gain, 0.0, AGREED)])
