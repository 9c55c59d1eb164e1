"""The way to the Bayes-optimal equations, written down as identities that can be evaluated on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sympy as sp

from replicode.theory.derive.bayes import GAP, SPREAD, W_CHI, BayesSystem
from replicode.theory.derive.bayes_prior import FIELD, THETA_STAR, at_two_coordinates, coordinate_prior
from replicode.theory.derive.population import A
from replicode.theory.derive.replica import Step, in_parts
from replicode.theory.derive.spectrum import coordinate_mean, mean_of_two
from replicode.theory.gaussian.expectation import closed_form
from replicode.theory.language.nodes import X
from replicode.theory.model import ALPHA, NOISE
from replicode.theory.typeset.notation import average


def bayes_equations(system: BayesSystem) -> dict[str, sp.Expr]:
    """The fixed point: overlaps from their conjugates, these from the gradients of log Z, and the test risk."""
    found = {q.name: e for q, e in system.update.items()}
    slopes = {b: sp.Symbol(f"dlogZ_{b.name}", real=True) for b in system.model.blocks}
    found |= {b.qh.name: ALPHA * average([(slope, 2)]) for b, slope in slopes.items()}
    found |= {"test_risk": system.risk, "V_y": system.label_variance}
    closed = {"log_gbar": system.prior, "log_density": system.exponent}
    if system.model.structured:
        priors = {b.name: coordinate_prior(system.model, b).entropy for b in system.model.blocks}
        found |= {f"psi_{name}": coordinate_mean(entropy) for name, entropy in priors.items()}
    return found | {name: e for name, e in closed.items() if e is not None}


def bayes_chain(system: BayesSystem) -> tuple[Step, ...]:
    """Prior, laws at m = q, channel and risk."""
    parts: dict[str, Iterable[Step]] = {
        "The prior: a Gaussian channel of strength qh": _prior(system),
        "The fields where m = q": _fields(system),
        "The channel": _channel(system),
        "The test risk": _risk(system),
    }
    return in_parts(parts)


def _gaussian(integrand: sp.Expr, variable: sp.Symbol, mean: sp.Expr, variance: sp.Expr) -> sp.Expr:
    density = sp.exp(-((variable - mean) ** 2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)
    return sp.Integral(integrand * density, (variable, -sp.oo, sp.oo))


def _prior(system: BayesSystem) -> list[Step]:
    model = system.model
    one, law, variance = coordinate_prior(model, model.blocks[0]), "N(0, 1)", "qh^2 + qh"
    if model.structured:
        law, variance = "N(0, c), c the square of the teacher's whitened weight,", "c qh^2 + qh"
    return [
        Step(
            f"the evidence of theta ~ {law} seen through the field h = qh theta* + sqrt(qh) xi",
            _gaussian(one.seen, THETA_STAR, sp.S.Zero, one.variance),
            one.evidence,
        ),
        Step(
            f"its logarithm averaged over the field, whose variance is {variance}",
            _gaussian(one.log_evidence, FIELD, sp.S.Zero, one.field_variance),
            one.entropy,
        ),
        *[
            Step(
                f"stationarity of the free entropy in {b.qh}: {b.q}/2 is the derivative of the prior's part"
                + (", a mean over the coordinates, here two" if model.structured else ""),
                mean_of_two(coordinate_prior(model, b).known) / 2 if model.structured else system.update[b.q] / 2,
                at_two_coordinates(sp.diff(system.free_entropy + b.q * b.qh / 2, b.qh), model),
            )
            for b in model.blocks
        ],
        *_unknown(system),
    ]


def _unknown(system: BayesSystem) -> list[Step]:
    """V of structured tokens, without loss of digits where q is close to 1."""
    if not system.model.structured:
        return []
    coordinates = {b.name: coordinate_prior(system.model, b) for b in system.model.blocks}
    rule = "V = c - q of one coordinate ({}): as the mean of c is 1, the mean of V is 1 - q"
    return [Step(rule.format(name), one.variance - one.known, one.unknown) for name, one in coordinates.items()]


def _fields(system: BayesSystem) -> list[Step]:
    q_k, q_v = system.model.scores.q, system.model.values.q
    return [
        Step(
            "chi* given w_chi: the variance by the determinant of the joint law, m_k = q_k",
            (q_k - q_k**2) / q_k,
            system.score_variance,
        ),
        Step(
            "y given w_z of the hidden token: the variance by the determinant of the joint law, m_v = q_v",
            ((1 + NOISE**2) * q_v - q_v**2) / q_v,
            system.label_variance,
        ),
    ]


def _channel(system: BayesSystem) -> Iterator[Step]:
    density = sp.exp(-(GAP**2) / (2 * SPREAD)) / sp.sqrt(2 * sp.pi * SPREAD)
    yield Step("the label's density in the gap d = y - w_z", sp.exp(system.label.log_density), density)
    yield Step(
        "with the location revealed, qh_v/alpha is the average of the squared slope over the gap alone",
        _gaussian(system.label.slope**2, GAP, sp.S.Zero, SPREAD),
        1 / SPREAD,
    )
    if system.prior is not None:
        weight = sp.exp(system.task.own)
        total = closed_form(weight, ((X, sp.S.Zero, sp.S.One),))
        yield Step(
            "the hidden token's weight averaged over chi* given w_chi, with E[g] = 1",
            _gaussian(weight / total, X, W_CHI, system.score_variance),
            sp.exp(system.prior),
        )


def _risk(system: BayesSystem) -> Iterator[Step]:
    values, revealed = system.model.values, system.revealed.V_v
    q_v = values.q
    yield Step(
        "E (y - sum_l P_l w_z,l)^2 with E[sum P^2] = E[P_eps] = A (Nishimori) and E[y w_z] = E[w_z^2] = q_v",
        (1 + NOISE**2) - 2 * q_v * A + q_v * A,
        system.risk,
    )
    if revealed is not None:
        yield Step(
            "the values with every location revealed: V_v is a fixed point of V = 1 - q(alpha/(V + noise^2))",
            1 - system.update[q_v].subs(values.qh, ALPHA / (values.V + NOISE**2)).subs(values.V, revealed),
            revealed,
        )
