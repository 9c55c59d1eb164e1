"""The learning problem in numbers: label, output, loss, risk and penalty of a `Model` as NumPy functions.

Each is printed from the model's own expression, with the derivatives that training needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy as sp

from replicode.codegen.averages import compiled
from replicode.theory.language.nodes import W
from replicode.theory.model import LABEL_NOISE, LAMBDA, NOISE, SIGMA, THETA, F, Model, Y

Numeric = Callable[..., Any]


@dataclass(frozen=True)
class Learning:
    """Functions of (z*, noise, xi), (sigma, z), (y, f) and (theta, lambda); `_by_` names what they are derived in."""

    label: Numeric
    output: Numeric
    output_by_sigma: Numeric
    output_by_value: Numeric
    loss: Numeric
    loss_by_output: Numeric
    risk: Numeric
    penalty: Numeric
    penalty_slope: Numeric
    penalty_curvature: Numeric


@lru_cache(maxsize=16)
def learning(model: Model) -> Learning:
    """The functions of a model."""
    token, pair, weight = (SIGMA, W), (Y, F), (THETA, LAMBDA)
    return Learning(
        label=compiled(model.label, (model.values.teacher, NOISE, LABEL_NOISE)),
        output=compiled(model.output, token),
        output_by_sigma=compiled(sp.diff(model.output, SIGMA), token),
        output_by_value=compiled(sp.diff(model.output, W), token),
        loss=compiled(model.loss, pair),
        loss_by_output=compiled(sp.diff(model.loss, F), pair),
        risk=compiled(model.risk, pair),
        penalty=compiled(model.penalty, weight),
        penalty_slope=compiled(sp.diff(model.penalty, THETA), weight),
        penalty_curvature=compiled(sp.diff(model.penalty, THETA, 2), weight),
    )
