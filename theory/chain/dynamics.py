"""The way to the equations of one-pass SGD, written down as identities that can be evaluated on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, cast

import sympy as sp

from replicode.theory.chain.activation import explicit_tokens
from replicode.theory.derive.dynamics import (
    FIELD,
    OTHER_SLOPE,
    RESIDUAL,
    SLOPE,
    DynamicsSystem,
    covariance_of,
    label_weights,
    mean_of,
    overlap_pairs,
)
from replicode.theory.derive.gains import COVARIANCE, GAINS, LOADS_A, LOADS_B, MEAN_A, MEAN_B, NORMALS
from replicode.theory.derive.population import SIGMA_EPS, SIGMA_IDLE, A, B, population_risk
from replicode.theory.derive.replica import Step, in_parts
from replicode.theory.model import F
from replicode.theory.typeset.notation import builtin

DIR_A, DIR_B, STEP_A, STEP_B = sp.symbols("dir_a dir_b step_a step_b", real=True)
_LARGEST = 400


def dynamics_chain(system: DynamicsSystem) -> tuple[Step, ...]:
    """The step, the overlaps, the averages given the scores, and the flow as a descent of the risk."""
    parts: dict[str, Iterable[Step]] = {
        "A step of descent": [*(_gain(system) if system.polynomial else ()), *_slopes(system)],
        "The overlaps": _overlaps(system),
        "The fields given the scores": _given(system),
    }
    if system.polynomial:
        parts |= {
            "Averages given the scores: Isserlis": _isserlis(system),
            "The flow descends the population risk": _flow(system),
        }
    else:
        parts |= {"Averages given the scores: moments of the gain": _gained(system)}
    return in_parts(parts, builtin)


def _gain(system: DynamicsSystem) -> list[Step]:
    """The loss is a square: what a change of the output takes from it."""
    loss, curvature = system.model.loss, system.model.loss_curvature()
    fall = loss - loss.subs(F, F + STEP_A)
    return [
        Step(
            "a change of the output lowers the loss by G times it",
            fall,
            system.gain * STEP_A - curvature * STEP_A**2 / 2,
        )
    ]


def _slopes(system: DynamicsSystem) -> list[Step]:
    """df/dchi_j at a few tokens, from the staged derivatives that the generated code uses."""
    tokens = explicit_tokens(cast(Any, system), _LARGEST)
    output = sp.Add(*[s * w for s, w in zip(tokens.sigma, tokens.w, strict=True)])
    return [
        Step(f"the slope of the output in the score of token {j + 1}{tokens.shown}", sp.diff(output, x), slope)
        for j, (x, slope) in enumerate(zip(tokens.x, tokens.gradient, strict=True))
    ]


def _overlaps(system: DynamicsSystem) -> Iterator[Step]:
    moved = (DIR_A + STEP_A) * (DIR_B + STEP_B)
    yield Step(
        "a coordinate's part in an overlap after a step: along b, along a, and the product of both steps",
        moved - DIR_A * DIR_B,
        STEP_A * DIR_B + DIR_A * STEP_B + STEP_A * STEP_B,
    )
    for symbol, (one, two) in overlap_pairs(system.model).items():
        if symbol == one.block.q:
            continue
        norms = [d.block.q for d in (one, two) if not d.teacher]
        scale = sp.sqrt(sp.Mul(*norms))
        slopes = {s: sp.diff(symbol / scale, s) for s in (symbol, *norms)}
        change = sp.Add(*[slope * system.rates[s] for s, slope in slopes.items()])
        yield Step(f"with norms kept, {symbol} moves as its cosine does", scale * change, system.spherical[symbol])


def _given(system: DynamicsSystem) -> Iterator[Step]:
    """What the normals behind the scores carry, and the rest, add up to the law of the fields."""
    for name, given in (("the hidden token", system.hidden), ("an idle token", system.idle)):
        law = given.law
        for i, one in enumerate(law.fields):
            for j, two in enumerate(law.fields[: i + 1]):
                carried = sp.Add(*[row[i] * row[j] for row in given.loadings])
                rule = f"the covariance of {one} and {two} of {name}, carried by the scores and the rest"
                yield Step(rule, carried + given.covariance[i, j], law.covariance[i, j])


def _isserlis(system: DynamicsSystem) -> list[Step]:
    """Both averages against a rule of three nodes per normal, which is exact for polynomials of degree five."""
    curvature = system.model.loss_curvature()
    return [
        Step(
            "the average of G f_l h_l, all Gaussian, against Gauss-Hermite nodes 0, +-sqrt(3)",
            curvature * _by_nodes((RESIDUAL, SLOPE, FIELD), (1, 1, 1)),
            system.pull.xreplace(_loaded((RESIDUAL, SLOPE, FIELD))),
        ),
        Step(
            "the average of G^2 f_l f_j, likewise",
            curvature**2 * _by_nodes((RESIDUAL, SLOPE, OTHER_SLOPE), (2, 1, 1)),
            system.spread.xreplace(_loaded((RESIDUAL, SLOPE, OTHER_SLOPE))),
        ),
    ]


def _gained(system: DynamicsSystem) -> list[Step]:
    """E[G a b] for a G that is any sum of Hermite polynomials, against nodes that are exact for it."""
    sizes = sp.symbols("c_0 c_1 c_2 c_11 c_12 c_22", real=True)
    one, two = NORMALS
    polynomials = (sp.S.One, one, two, one**2 - 1, one * two, two**2 - 1)
    norms = (1, 1, 1, 2, 1, 2)  # E of their squares
    gain = sp.Add(*[c * p for c, p in zip(sizes, polynomials, strict=True)])
    third, own_a, own_b = sp.symbols("u_3 a_3 b_3", real=True)
    a, b = (
        mean + sp.Add(*[c * u for c, u in zip((*loads, own), (*NORMALS, third), strict=True)])
        for mean, loads, own in ((MEAN_A, LOADS_A, own_a), (MEAN_B, LOADS_B, own_b))
    )
    covariance = sp.Add(*[x * y for x, y in zip((*LOADS_A, own_a), (*LOADS_B, own_b), strict=True)])
    moments = {m: n * c for m, n, c in zip(GAINS, norms, sizes, strict=True)}
    return [
        Step(
            "the average of G f_l h_l, G a sum of Hermite polynomials of both normals, against nodes 0, +-sqrt(3)",
            _over_nodes(gain * a * b, (one, two, third)),
            system.pull.xreplace({**moments, COVARIANCE: covariance}),
        )
    ]


def _loading(variable: int, normal: int) -> sp.Symbol:
    return sp.Symbol(f"load_{variable + 1}{normal + 1}", real=True)


def _loaded(variables: Sequence[sp.Symbol]) -> Mapping[sp.Symbol, sp.Expr]:
    """The covariances of variables that are means plus triangular combinations of normals."""
    found = {}
    for i, one in enumerate(variables):
        for j, two in enumerate(variables[: i + 1]):
            found[covariance_of(one, two)] = sp.Add(*[_loading(i, n) * _loading(j, n) for n in range(j + 1)])
    return found


def _by_nodes(variables: Sequence[sp.Symbol], powers: Sequence[int]) -> sp.Expr:
    """The average of a product of powers of variables that are means plus triangular combinations of normals."""
    normals = sp.symbols(f"u_:{len(variables)}", real=True)
    values = [
        mean_of(v) + sp.Add(*[_loading(i, n) * normals[n] for n in range(i + 1)]) for i, v in enumerate(variables)
    ]
    return _over_nodes(sp.Mul(*[x**p for x, p in zip(values, powers, strict=True)]), normals)


def _over_nodes(expr: sp.Expr, normals: Sequence[sp.Symbol]) -> sp.Expr:
    """The average of a polynomial over normals, by three nodes for each of them."""
    weights = {-sp.sqrt(3): sp.Rational(1, 6), sp.S.Zero: sp.Rational(2, 3), sp.sqrt(3): sp.Rational(1, 6)}
    return sp.Add(
        *[
            sp.Mul(*[weights[n] for n in nodes]) * expr.xreplace(dict(zip(normals, nodes, strict=True)))
            for nodes in product(weights, repeat=len(normals))
        ]
    )


def _flow(system: DynamicsSystem) -> list[Step]:
    """On the manifold, one hidden and one idle token: the pulls of v against the slopes of the risk in m_v and q_v."""
    model = system.model
    m, q = model.values.m, model.values.q
    of_label, _ = label_weights(model)
    flat = {mean_of(s): sp.S.Zero for s in (RESIDUAL, FIELD)} | {
        covariance_of(SLOPE, s): sp.S.Zero for s in (RESIDUAL, FIELD)
    }

    def pulled(sigma: sp.Expr, with_residual: sp.Expr) -> sp.Expr:
        return system.pull.xreplace(flat | {mean_of(SLOPE): sigma, covariance_of(FIELD, RESIDUAL): with_residual})

    risk = population_risk(system.task, model).on_manifold
    loss = (risk * model.loss_curvature() / (2 * model.risk_factor())).subs(
        {A: SIGMA_EPS, B: SIGMA_EPS**2 + SIGMA_IDLE**2}
    )
    along_teacher = pulled(SIGMA_EPS, of_label - SIGMA_EPS * m) + pulled(SIGMA_IDLE, -SIGMA_IDLE * m)
    along_itself = pulled(SIGMA_EPS, of_label * m - SIGMA_EPS * q) + pulled(SIGMA_IDLE, -SIGMA_IDLE * q)
    return [
        Step(
            "the pull of v along v* is minus the slope of the average loss in m_v, with what q_v adds",
            along_teacher,
            -sp.diff(loss, m) - 2 * m * sp.diff(loss, q),
        ),
        Step(
            "the pull of v along itself, twice, is minus the slopes times what the mobility has",
            2 * along_itself,
            -2 * m * sp.diff(loss, m) - 4 * q * sp.diff(loss, q),
        ),
    ]
