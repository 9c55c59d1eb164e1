"""Is replica symmetry right? The de Almeida-Thouless matrix, derived from fluctuations that leave the RS saddle.

Fluctuations of the overlaps that are not symmetric under permutations of the replicas (the replicon sector) see the
second derivatives of the prior and of the channel only. Per block b the prior gives V_b^2, and the channel, for a pair
of blocks, the average of the squared response dG/dw of the fields' gains; RS is stable while the matrix T of their
products has a spectral radius below one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.derive.replica import BETA, CHANNEL_V, ReplicaMatrix, Step, in_parts
from replicode.theory.derive.saddle import Reduction, SaddleSystem
from replicode.theory.derive.spectrum import at_two_coordinates, squared_mean, squared_susceptibility
from replicode.theory.model import ALPHA, Block, Model

_REPLICAS = 4
_TOKENS = 2


@dataclass(frozen=True)
class StabilitySystem:
    """T_bb' = alpha V_b^2 R_bb', with R_bb' the average over sequences of sum_ll' (dG_l^b / dw_l'^b')^2.

    `responses` are -dG/dw, the second derivatives of M, in the blocks H, C, E of those of the loss, for any length.
    """

    system: SaddleSystem
    matrix: sp.ImmutableMatrix
    replicon: sp.Expr
    responses: Mapping[str, str]
    steps: tuple[Step, ...]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Those of the saddle-point system."""
        return self.system.reductions

    def equations(self) -> dict[str, sp.Expr]:
        """T entry by entry, and its spectral radius."""
        blocks = self.system.model.blocks
        entries = [f"T_{a.name}{b.name}" for a in blocks for b in blocks]
        return dict(zip(entries, self.matrix, strict=True)) | {"replicon": self.replicon}


def responses_of(model: Model) -> sp.ImmutableMatrix:
    """The symbols R_bb' of the averaged squared responses, the same for bb' and b'b."""
    names = [b.name for b in model.blocks]
    return sp.ImmutableMatrix(
        [[sp.Symbol(f"R_{min(a, b)}{max(a, b)}", nonnegative=True) for b in names] for a in names]
    )


@cache
def stability_matrix(model: Model) -> sp.ImmutableMatrix:
    """T, from the vanishing of the replicon Hessian's determinant."""
    curvature = [sp.Symbol(f"p_{b.name}", positive=True) for b in model.blocks]
    squared = {p: squared_response(model, b) for p, b in zip(curvature, model.blocks, strict=True)}
    return sp.ImmutableMatrix((sp.diag(*curvature) * (ALPHA * responses_of(model))).subs(squared))


def squared_response(model: Model, block: Block) -> sp.Expr:
    """beta^2 times the prior's second variation: V^2, or the mean over the coordinates of their squared responses."""
    return squared_susceptibility(model, block) if model.structured else replicon_of_prior(block.V / BETA) * BETA**2


def replicon_of_prior(chi: sp.Expr) -> sp.Expr:
    """d^2/dt^2 of -log det((a I + b J) - t delta)/2 over tr delta^2 / 2, delta a replicon direction, a = 1/chi.

    The second variation of -log det/2 is tr[(A^-1 delta)^2]/2.
    """
    a, b = sp.symbols("rs_a rs_b", positive=True)
    moved = ReplicaMatrix(a, b, sp.Integer(_REPLICAS)).inverse().explicit(_REPLICAS) * replicon_direction()
    return sp.cancel((moved * moved).trace() / (replicon_direction() ** 2).trace()).subs(a, 1 / chi)


def replicon_direction() -> sp.Matrix:
    """A symmetric fluctuation of four replicas with no diagonal, whose lines add up to zero."""
    return sp.Matrix([[0, 1, -1, 0], [1, 0, 0, -1], [-1, 0, 0, 1], [0, -1, 1, 0]])


def derive_stability(system: SaddleSystem) -> StabilitySystem:
    """The stability of a derived saddle-point system."""
    matrix = stability_matrix(system.model)
    if not system.model.has_scores:
        told = {"R_vv": "E sum_ll' E^2"}
        return StabilitySystem(system, matrix, matrix[0, 0], told, _steps(system, matrix))
    root = sp.sqrt((matrix[0, 0] - matrix[1, 1]) ** 2 + 4 * matrix[0, 1] * matrix[1, 0])
    responses = {
        "R_kk": "E sum_ll' [H (I + V_k H)^-1]^2",
        "R_kv": "E sum_ll' [(I + V_k H)^-1 C]^2",
        "R_vv": "E sum_ll' [E - V_k C^T (I + V_k H)^-1 C]^2",
    }
    replicon = (matrix[0, 0] + matrix[1, 1] + root) / 2
    return StabilitySystem(system, matrix, replicon, responses, _steps(system, matrix))


def _steps(system: SaddleSystem, matrix: sp.ImmutableMatrix) -> tuple[Step, ...]:
    parts = {
        "Fluctuations outside the replica-symmetric saddle": _fluctuations(system),
        "The response of the prox": _responses(system.model) if system.model.has_scores else [],
        "The de Almeida-Thouless matrix": _verdict(system, matrix),
    }
    return in_parts(parts, lambda side: at_two_coordinates(side, system.model), same=True)


def _fluctuations(system: SaddleSystem) -> list[Step]:
    """Second variations of prior and channel in a replicon direction, where everything is explicit."""
    a, b, t = sp.symbols("rs_a rs_b t", positive=True)
    c, d = system.model.square_curvature(), sp.Symbol("d_w", positive=True)
    delta = replicon_direction()
    size = (delta**2).trace()
    prior = ReplicaMatrix(a, b).explicit(_REPLICAS) - t * delta
    overlaps = ReplicaMatrix(CHANNEL_V / BETA, d).explicit(_REPLICAS) + t * delta
    channel = sp.eye(_REPLICAS) + BETA * c * overlaps
    ruled = BETA * c / (1 + c * CHANNEL_V)
    return [
        Step(
            "the replicated prior in a replicon direction: the second variation of -log det/2 sees 1/a^2 alone, the "
            "square of the susceptibility V/beta",
            sp.diff(-sp.log(prior.det(method="berkowitz")) / 2, t, 2).subs(t, 0),
            size / (2 * a**2),
        ),
        Step(
            "the channel where it is Gaussian: its second variation is (beta d^2M/dw^2)^2, here with M = c w^2/(2 (1 + "
            "c V)); in general the square is averaged over the fields and summed over pairs of tokens",
            sp.diff(-sp.log(channel.det(method="berkowitz")) / 2, t, 2).subs(t, 0),
            size * ruled**2 / 2,
        ),
    ]


def _responses(model: Model) -> list[Step]:
    """d^2 M of a loss quadratic in (chi, w_z) with blocks H, C, E, by minimising it: two tokens, all entries free."""
    v = model.scores.V
    h11, h12, h22 = sp.symbols("H_11 H_12 H_22", real=True)
    h = sp.Matrix([[h11, h12], [h12, h22]])
    c = sp.Matrix(2, 2, sp.symbols("C_11 C_12 C_21 C_22", real=True))
    e = sp.Matrix([[sp.Symbol("E_11", real=True), 0], [0, sp.Symbol("E_22", real=True)]])
    w, z, chi = (sp.Matrix(sp.symbols(f"{n}_1 {n}_2", real=True)) for n in ("w_chi", "w", "x"))
    loss = ((chi.T * h * chi) / 2 + chi.T * c * z + (z.T * e * z) / 2)[0]
    objective = ((chi - w).T * (chi - w))[0] / (2 * v) + loss
    prox = sp.solve([sp.diff(objective, x) for x in chi], list(chi), dict=True)[0]
    envelope = objective.subs(prox, simultaneous=True)
    inverse = (sp.eye(_TOKENS) + v * h).inv()
    formulas = {
        ("k", "k"): (w[0], w[1], (h * inverse)[0, 1]),
        ("k", "v"): (w[0], z[1], (inverse * c)[0, 1]),
        ("v", "v"): (z[0], z[1], (e - v * c.T * inverse * c)[0, 1]),
    }
    named = {"k": "w_chi", "v": "w_z"}
    texts = {("k", "k"): "H (I + V_k H)^-1", ("k", "v"): "(I + V_k H)^-1 C", ("v", "v"): "E - V_k C^T (I + V_k H)^-1 C"}
    return [
        Step(
            f"second derivatives of M in ({named[a]}, {named[b]}) at the prox are {texts[a, b]}, with H, C, E those of "
            "the loss in (chi, chi), (chi, w_z), (w_z, w_z): one entry, two tokens",
            sp.diff(envelope, first, second),
            formula,
        )
        for (a, b), (first, second, formula) in formulas.items()
    ]


def _verdict(system: SaddleSystem, matrix: sp.ImmutableMatrix) -> list[Step]:
    """The two second variations together, and ridge regression, where RS is always stable."""
    model, responses = system.model, responses_of(system.model)
    identity, values = sp.eye(len(model.blocks)), model.values
    v = model.blocks.index(values)
    prior = sp.diag(*[squared_response(model, b) / BETA**2 for b in model.blocks])
    hessian = sp.Matrix(sp.BlockMatrix([[prior, -identity], [-identity, ALPHA * BETA**2 * responses]]))
    c = model.square_curvature()
    ridge = c / (1 + c * values.V)
    return [
        Step(
            "the Hessian in the fluctuations of overlaps and conjugates of both blocks: singular where det(I - T) = 0",
            hessian.det(method="berkowitz"),
            (-1) ** len(model.blocks) * (identity - matrix).det(),
        ),
        *(_mixed_sector(model, matrix) if model.has_scores else []),
        _squares(model, values) if model.structured else _ridge(matrix[v, v].subs(responses[v, v], ridge**2), model),
    ]


def _ridge(entry: sp.Expr, model: Model) -> Step:
    """T of ridge regression."""
    c, v = model.square_curvature(), model.values.V
    return Step(
        "one token with sigma = 1 (ridge regression): dG/dw = -c/(1 + c V_v), and T is below one wherever V_v is a "
        "solution",
        entry,
        ALPHA * (c * v / (1 + c * v)) ** 2,
    )


def _squares(model: Model, block: Block) -> Step:
    """The prior's second variation, coordinate by coordinate."""
    return Step(
        "structured tokens: the square of the response is averaged over the coordinates, here two; it is minus the "
        "derivative of tau",
        squared_response(model, block),
        squared_mean(model, block),
    )


def _mixed_sector(model: Model, matrix: sp.ImmutableMatrix) -> list[Step]:
    """The symmetry of T."""
    k, v = (model.blocks.index(b) for b in (model.scores, model.values))
    words = "T_kv/tau_k' = T_vk/tau_v'" if model.structured else "T_kv/V_k^2 = T_vk/V_v^2"
    return [
        Step(
            f"the mixed sector is symmetric: {words}, so that three averages suffice",
            matrix[k, v] / squared_response(model, model.scores),
            matrix[v, k] / squared_response(model, model.values),
        )
    ]
