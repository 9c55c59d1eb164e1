"""Second derivatives of E[M] in the six order parameters, in one pass over the nodes.

d^2 E[M] / da db = E[t_a^T (d^2 M/dw^2) t_b] + E[grad M . d^2 w/da db], with the derived displacements t of the fields.
In prox-free coordinates the weight holds the signed determinant of I + V_k H, whose inverse is in d^2 M: their product
is analytic through folds, and what comes out is the derivative of the averages as that route takes them.
"""

from __future__ import annotations

import numpy as np

from replicode.codegen.runtime.channel import Channel
from replicode.codegen.runtime.fields import FieldFactor, Fields, field_law
from replicode.codegen.runtime.kernel import SHIFT_INVARIANT, V_K, V_V, Array, bending, displacements
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.linear import add_identity, factor, solve_factored
from replicode.codegen.runtime.places import BLOCKS, RATES

Gains = tuple[Array, Array]
SCORE, VALUE = BLOCKS


def second_rates(channel: Channel, order: Array) -> Array | None:
    """The Hessian of E[M] on the nodes of a channel, or None where it is not derived, or jumps are looked for."""
    if (lengths := channel.smooth_nodes(order)) is None:
        return None
    total = np.zeros((RATES, RATES))
    for nodes in lengths:
        blind = blind_moves(order, nodes.setting, nodes.law)
        second = np.zeros((RATES, RATES))
        for block in nodes.blocks:
            second += second_sums(order, nodes.setting, *block, blind)
        total += nodes.share * (second * nodes.scale)
    return total if np.isfinite(total).all() else None


def blind_moves(order: Array, setting: Setting, law: FieldFactor) -> tuple[Array, Array]:
    """Displacements, linear in the fields, at what field_factor leaves out of these along the invariances of M.

    The fields at the nodes are conditional means; of a product of two displacements that misses the covariance, which
    is that of one standard deviation along the direction that M does not see: (1, .., 1), or (1, .., 1; row sum).
    """
    _, score, value = field_law(order, setting)
    width = [
        np.sqrt(max(full[0, 0] - part[0] @ part[0], 0.0)) if blind else 0.0
        for full, part, blind in (
            (score, law.score_factor, SHIFT_INVARIANT),
            (value, law.value_factor, bool(setting.row_sum)),
        )
    ]
    ones, none = np.ones((setting.tokens, 1)), np.zeros((setting.tokens, 1))
    label = np.array([width[1] * (setting.row_sum or 0.0)])
    away = _moves(order, setting, Fields(width[0] * ones, width[1] * ones, label), (none, none))
    home = _moves(order, setting, Fields(none, none, np.zeros(1)), (none, none))
    score_move, value_move = (a[:, :2] - h[:, :2] for a, h in zip(away, home, strict=True))
    if SHIFT_INVARIANT:
        score_move = score_move - score_move.mean(axis=0)  # d^2 M does not see the rest
    return score_move[:, : 2 * bool(score_move.any())], value_move[:, : 2 * bool(value_move.any())]


def _moves(order: Array, setting: Setting, at: Fields, gains: Gains) -> tuple[Array, Array]:
    """The displacements of both blocks: (tokens, 3, n) each."""
    score, value = displacements(order, setting.nu, setting.noise, *at, *gains)
    return np.stack(score, axis=1), np.stack(value, axis=1)


def second_sums(
    order: Array, setting: Setting, at: Fields, chi: Array, gains: Gains, weights: Array, blind: tuple[Array, Array]
) -> Array:
    """Weighted sums over nodes of both parts of d^2 M / da db: (6, 6).

    With A = (I + V_k H)^-1, d^2 M has the blocks kk = A H, kv = A C, vv = E - V_k C^T A C.
    """
    h, c, e = setting.kernel.curvatures(chi, at.w_z, at.y, order[V_V], setting.params)
    score, value = (_widened(*pair) for pair in zip(_moves(order, setting, at, gains), blind, strict=True))
    split = score.shape[1]
    pulled = np.concatenate([_applied(h, score), _applied(c, value)], axis=1)
    answer = solve_factored(*factor(add_identity(order[V_K] * h)), pulled)
    across = _paired(score * weights, answer)
    within = _paired(value * weights, _applied(e, value))
    within -= order[V_K] * _paired(pulled[:, split:] * weights, answer[:, split:])
    total = np.asarray(bending(order, setting.nu, setting.noise, weights, *at, *gains))
    total[np.ix_(SCORE, SCORE)] += _joined(across[:, :split])
    total[np.ix_(VALUE, VALUE)] += _joined(within)
    mixed_block = across[: len(SCORE), split : split + len(VALUE)]
    total[np.ix_(SCORE, VALUE)] += mixed_block
    total[np.ix_(VALUE, SCORE)] += mixed_block.T
    return total


def _widened(moves: Array, blind: Array) -> Array:
    """The displacements at all nodes, and beside them those that are the same at each."""
    return np.concatenate([moves, np.broadcast_to(blind, (*blind.shape[:2], moves.shape[2]))], axis=1)


def _applied(matrices: Array, columns: Array) -> Array:
    return np.asarray(np.einsum("ijn,jan->ian", matrices, columns))


def _paired(left: Array, right: Array) -> Array:
    """Sums over tokens and nodes of all products of columns."""
    return np.asarray(np.einsum("ian,ibn->ab", left, right))


def _joined(block: Array) -> Array:
    """The block of (m, q, V), with the part that the conditional means miss, which concerns m and q."""
    out = block[:3, :3].copy()
    extra = len(block) - 3
    out[:extra, :extra] += block[3:, 3:]
    return out
