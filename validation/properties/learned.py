"""Properties of a loss and of a label, with an activation: laws that hold for every one of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from replicode.theory.model import Model
from replicode.validation.properties.verdict import Verdict, not_applicable
from replicode.validation.training.learning import learning

Array = np.ndarray[Any, np.dtype[Any]]
FIELDS = 200
V_V = 0.7
REACH, GRID = 8.0, 1601
ACCURACY = 1e-9
STEP = 1e-5
ROUGH = 0.1  # the share of fields between which a kink may lie
DRAWN = 200_000
QUANTILE = 4.9  # false alarm 1e-6
NOISE = 0.4
PHYSICS = {"alpha": 2.3, "nu": 1.4, "noise": 0.35, "lambda_k": 0.7, "lambda_v": 1.2}
POINT = {"m_k": 0.35, "q_k": 0.6, "V_k": 0.08, "m_v": 0.5, "q_v": 0.8, "V_v": 0.08}  # few folds at so small V
CONJUGATES = {"mh_k": 0.6, "qh_k": 0.5, "Vh_k": 0.8, "mh_v": -0.9, "qh_v": 1.1, "Vh_v": 1.4}
NODES, MOVE = (8_000, 32_000), 4e-3
ALLOWED, WORST = 3.0, 0.05
MOST_DIMENSIONS = 5


def learned_properties(module: ModuleType, model: Model, parameters: dict[str, float]) -> dict[str, Verdict]:
    """All of them, by name; `parameters` are those of the activation."""
    values = np.array([parameters[p] for p in module.PARAMETERS])
    return {
        "loss: the values are eliminated": _envelope(module, model, values),
        "loss: slope of the envelope": _slope(module, model, values),
        "labels: moments": _moments(module, model),
        "loss and labels: residual is the gradient": _gradient(module, parameters),
    }


def _fields(module: ModuleType, model: Model) -> tuple[Array, Array, Array]:
    """Random scores, value fields and labels of one length."""
    rng, tokens = np.random.default_rng(14), module.KERNELS[0].tokens
    x, w = rng.normal(0.0, 0.8, (2, tokens, FIELDS))
    y = learning(model).label(rng.standard_normal(FIELDS), NOISE, rng)
    return x, w, np.asarray(y, dtype=float)


def _envelope(module: ModuleType, model: Model, values: Array) -> Verdict:
    """No output u is better than that of the prox, and the envelope is what it costs there."""
    x, w, y = _fields(module, model)
    value, _, sigma, gain, own = module.KERNELS[0].gradient(x, w, y, V_V, values)
    field, size = (sigma * w).sum(axis=0), (sigma * sigma).sum(axis=0)
    cost = learning(model).loss
    prox = field + V_V * size * gain
    there = 0.5 * V_V * size * gain**2 + cost(y, prox)
    reach = REACH * np.sqrt(V_V * size) * np.linspace(-1.0, 1.0, GRID)[:, None]
    tried = field + reach
    with np.errstate(all="ignore"):
        costs = np.where(size > 0.0, reach**2 / (2.0 * V_V * size), 0.0) + cost(y, tried)
    gaps = np.abs(value - there), np.abs(own - cost(y, prox)), np.maximum(value - costs.min(axis=0), 0.0)
    gap = max(float((g / (1.0 + np.abs(value))).max()) for g in gaps)
    return Verdict("passed") if gap <= ACCURACY else Verdict("failed", f"relative deviation {gap:.2g}")


def _slope(module: ModuleType, model: Model, values: Array) -> Verdict:
    """The slope in the scores against differences; between some fields a kink may lie."""
    if not _has_scores(module):
        return not_applicable("the activation sees no scores")
    x, w, y = _fields(module, model)
    kernel = module.KERNELS[0]
    slope = kernel.gradient(x, w, y, V_V, values)[1]
    far = np.zeros(FIELDS)
    for i in range(len(x)):
        move = np.zeros_like(x)
        move[i] = STEP
        up, down = (kernel.loss(x + s * move, w, y, V_V, values) for s in (1.0, -1.0))
        far = np.maximum(far, np.abs((up - down) / (2.0 * STEP) - slope[i]) / (1.0 + np.abs(slope[i])))
    missed = float((far > 1e-6).mean())
    return Verdict("passed") if missed < ROUGH else Verdict("failed", f"wrong at {missed:.0%} of the fields")


def _moments(module: ModuleType, model: Model) -> Verdict:
    """E y^2 and E y z* of the generated module against labels as they are drawn for training."""
    found = module.label_moments(NOISE) if hasattr(module, "label_moments") else ()
    if not found:
        return not_applicable("the label is one of the Gaussian fields")
    rng = np.random.default_rng(15)
    z = rng.standard_normal(DRAWN)
    y = np.asarray(learning(model).label(z, NOISE, rng), dtype=float)
    far = [
        abs(float(sample.mean()) - moment) / (float(sample.std()) / np.sqrt(DRAWN) + 1e-9)
        for sample, moment in zip((y * y, y * z), found)
    ]
    return Verdict("passed") if max(far) < QUANTILE else Verdict("failed", f"{max(far):.1f} standard errors away")


def _gradient(module: ModuleType, parameters: dict[str, float]) -> Verdict:
    """Every component against a difference of the free energy, as far as two sets of nodes agree."""
    sampled = getattr(module, "LABEL_NORMALS", 0)
    if 2 * module.KERNELS[0].tokens + sampled > MOST_DIMENSIONS:
        return not_applicable("too many dimensions for a few nodes")
    names = (*module.ORDER_NAMES, *module.CONJUGATE_NAMES)
    at = {name: {**POINT, **CONJUGATES}[name] for name in names}

    def called(function: Any, nodes: int, **moved: float) -> Any:
        here = {**at, **moved}
        order, conjugates = ({n: here[n] for n in group} for group in (module.ORDER_NAMES, module.CONJUGATE_NAMES))
        return function(order, conjugates, **PHYSICS, nodes=nodes, **parameters)

    def slope(name: str, nodes: int) -> float:
        enough = nodes if name in POINT else 50  # E[M] has no conjugates
        far, down, up, away = (
            called(module.free_energy, enough, **{name: at[name] + h * MOVE}) for h in (-2, -1, 1, 2)
        )
        return float(8.0 * (up - down) - (away - far)) / (12.0 * MOVE)

    def both(nodes: int) -> tuple[Array, Array]:
        return np.asarray(called(module.residual, nodes)), np.array([slope(name, nodes) for name in names])

    (coarse, rough), (fine, slopes) = (both(nodes) for nodes in NODES)
    known = np.abs(fine - coarse) + np.abs(slopes - rough) + 1e-4
    if float(known.max()) > WORST:
        return not_applicable(f"{NODES[1]} nodes leave {float(known.max()):.1g} open")
    gap = float((np.abs(fine - slopes) / known).max())
    return Verdict("passed") if gap <= ALLOWED else Verdict("failed", f"{gap:.1f} times what the nodes leave open")


def _has_scores(module: ModuleType) -> bool:
    return "m_k" in module.ORDER_NAMES
