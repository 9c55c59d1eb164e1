"""The derivation written down: from the replicated partition function to the saddle-point equations and their Jacobian.

Every `Step` is an exact identity of two expressions in SymPy's own functions and plain symbols, so that anyone can
evaluate both sides at random points; where a limit is taken, what it drops is written out. All of it is read off the
`SaddleSystem`: the algebra of replicas is checked at explicit sizes, the activation at explicit tokens, Price's and
Stein's theorems on exp(t.w), whose averages are closed.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from replicode.theory.chain.activation import (
    LARGEST_TWICE,
    envelope,
    explicit_tokens,
    one_output,
    prox,
    reductions,
    values,
)
from replicode.theory.chain.curvature import jacobian
from replicode.theory.chain.fields import law, weight
from replicode.theory.chain.replicas import gaussian_channel, matrices, prior, replicas
from replicode.theory.chain.saddle import channel, conjugates, equations
from replicode.theory.derive.location import location
from replicode.theory.derive.optimum import best_value
from replicode.theory.derive.population import (
    BIAS_IDLE,
    SIGMA_EPS,
    SIGMA_IDLE,
    A,
    B,
    PopulationSystem,
    at_length,
    probabilities,
)
from replicode.theory.derive.replica import Step, in_parts
from replicode.theory.derive.saddle import SaddleSystem, joint_laws
from replicode.theory.derive.spectrum import at_two_coordinates
from replicode.theory.lengths import Lengths
from replicode.theory.model import NOISE
from replicode.theory.typeset.notation import builtin


def chain(system: SaddleSystem) -> tuple[Step, ...]:
    """All steps in order, each under the heading of its part."""
    tokens = explicit_tokens(system)
    scored = system.model.has_scores
    explicit = scored and not system.values.steps
    parts: dict[str, Iterable[Step]] = {
        "Replicas": replicas(),
        "Replica-symmetric matrices": matrices(),
        "The prior": prior(system),
        "The channel: n -> 0 and Laplace where everything is Gaussian": gaussian_channel(system),
        "The values eliminated": one_output(system) if system.values.steps else values(system, tokens),
        "The prox of this activation": (
            [*prox(tokens), *envelope(explicit_tokens(system, LARGEST_TWICE))] if explicit else []
        ),
        "Reductions of this activation": reductions(system, tokens) if explicit else [],
        "Stationarity in the conjugates": conjugates(system),
        "The law of the fields": law(system),
        "Stationarity in the order parameters: Price and Stein": channel(system),
        "The saddle-point equations": equations(system),
        "Their Jacobian": jacobian(system),
    }
    return in_parts(parts, lambda side: builtin(at_two_coordinates(side, system.model)))


def population_chain(system: PopulationSystem) -> tuple[Step, ...]:
    """The way to the risk of a fixed estimator, on the manifold where the cross overlaps vanish."""
    risk, model = system.risk, system.model
    flat = {**dict.fromkeys(model.cross_overlaps, sp.S.Zero), BIAS_IDLE: sp.S.Zero}
    hidden, idle = risk.hidden.subs(flat), risk.idle.subs(flat)
    m, q = model.values.m, model.values.q
    best = best_value(risk.on_manifold, model)
    gaussian = system.task.gaussian
    steps = [
        *(weight(system.task, joint_laws(system.task, location(system.task), model)[0], model) if gaussian else ()),
        Step(
            "given the scores, z* - sigma z at the hidden token is Gaussian with the second moment",
            1 - 2 * SIGMA_EPS * m + SIGMA_EPS**2 * q + NOISE**2,
            hidden,
        ),
        Step(
            "risk of one sequence with one idle token, in A = sigma_eps and B = sigma_eps^2 + sigma_l^2",
            hidden + idle,
            risk.on_manifold.subs({A: SIGMA_EPS, B: SIGMA_EPS**2 + SIGMA_IDLE**2}),
        ),
        *(_over_lengths(risk.on_manifold, system.lengths) if system.lengths and not system.lengths.fixed else ()),
        Step(
            "the best values are proportional to the teacher's: at q_v = m_v^2 = (A/B)^2",
            risk.on_manifold.subs({m: best.m_v, q: best.q_v}, simultaneous=True),
            best.risk,
        ),
    ]
    return in_parts({"The population risk": steps})


def _over_lengths(risk: sp.Expr, law: Lengths) -> tuple[Step, ...]:
    """The risk is linear in A and B, so that a varying number of tokens enters by their averages."""
    parts = {s: [at_length(s, n) for n in law.tokens] for s in (A, B)}
    chances = probabilities(law)
    by_length = [risk.subs({A: a, B: b}) for a, b in zip(parts[A], parts[B], strict=True)]
    averaged = {s: sp.Add(*[p * e for p, e in zip(chances, named)]) for s, named in parts.items()}
    return (
        Step(
            f"the number of tokens is drawn with P(L) = {law}: its average falls on A and B",
            sp.Add(*[p * e for p, e in zip(chances, by_length)]),
            risk.subs(averaged),
        ),
    )
