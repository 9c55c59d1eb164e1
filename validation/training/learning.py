"""The learning problem in numbers: label, output, loss, risk and penalty of a `Model` as NumPy functions.

Each is printed from the model's own expression, with the derivatives that training needs. A loss whose slope jumps is
trained by stages on its own envelope, min_u (u - f)^2/(2 tau) + loss(y, u), with ever smaller tau (`roundings`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from replicode.codegen.interpret.functions import numpy_function
from replicode.theory.derive.pieces import envelope_slopes, jumps
from replicode.theory.language.nodes import W
from replicode.theory.model import LABEL_NOISE, LAMBDA, NOISE, SIGMA, THETA, F, Model, Y
from replicode.theory.properties.loss import is_smooth

Numeric = Callable[..., Any]
ROUNDINGS = (0.1, 0.01, 1e-3, 1e-4)


@dataclass(frozen=True)
class Learning:
    """Functions of (z*, noise, xi), (sigma, z), (y, f) and (theta, lambda); `_by_` names what they are derived in.

    `branches` are the values of the label and their chances, each a function of (z*, noise, xi).
    """

    branches: tuple[tuple[Numeric, Numeric], ...]
    output: Numeric
    output_by_sigma: Numeric
    output_by_value: Numeric
    loss: Numeric
    loss_by_output: Numeric
    risk: Numeric
    penalty: Numeric
    penalty_slope: Numeric
    penalty_curvature: Numeric

    def label(self, z: Any, noise: float, rng: np.random.Generator) -> Any:
        """The labels drawn for the values z* of hidden tokens; where there are branches, by their chances."""
        xi = rng.standard_normal(z.shape)
        values = [value(z, noise, xi) for value, _ in self.branches]
        if len(values) == 1:
            return values[0]
        chances = np.cumsum([chance(z, noise, xi) + np.zeros_like(z) for _, chance in self.branches], axis=0)
        drawn = (rng.random(z.shape) * chances[-1] >= chances[:-1]).sum(axis=0)
        return np.choose(drawn, [v + np.zeros_like(z) for v in values])


def roundings(model: Model) -> tuple[float | None, ...]:
    """The widths of the envelopes to train on in turn: none, unless the slope of the loss jumps."""
    return ROUNDINGS if not is_smooth(model.loss) and jumps(model) else (None,)


def _rounded(model: Model, tau: float | None) -> tuple[sp.Expr, sp.Expr]:
    """The loss and its slope, or those of its envelope."""
    if tau is None:
        return model.loss, sp.diff(model.loss, F)
    width = sp.Float(tau)
    slope, _ = envelope_slopes(model, F, width)
    return width * slope**2 / 2 + model.loss.subs(F, F - width * slope), slope


@lru_cache(maxsize=16)
def learning(model: Model, rounding: float | None = None) -> Learning:
    """The functions of a model."""
    token, pair, weight = (SIGMA, W), (Y, F), (THETA, LAMBDA)
    told = (model.values.teacher, NOISE, LABEL_NOISE)
    pairs = [(model.label, sp.S.One)] if isinstance(model.label, sp.Expr) else list(model.label.args)
    loss, slope = _rounded(model, rounding)
    return Learning(
        branches=tuple((numpy_function(value, told), numpy_function(chance, told)) for value, chance in pairs),
        output=numpy_function(model.output, token),
        output_by_sigma=numpy_function(sp.diff(model.output, SIGMA), token),
        output_by_value=numpy_function(sp.diff(model.output, W), token),
        loss=numpy_function(loss, pair),
        loss_by_output=numpy_function(slope, pair),
        risk=numpy_function(model.risk, pair),
        penalty=numpy_function(model.penalty, weight),
        penalty_slope=numpy_function(sp.diff(model.penalty, THETA), weight),
        penalty_curvature=numpy_function(sp.diff(model.penalty, THETA, 2), weight),
    )
