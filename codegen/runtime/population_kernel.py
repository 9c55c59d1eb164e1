"""The seam between the population level and what is derived of it: averages as sums of products over the tokens.

A function of one token's scores x and chi_star is given as its sign and the logarithm of its size, with the scores x
at which it has kinks. A row is a product: its coefficient, the functions of distinct tokens, the hidden one first, what
every other token carries, and inverse powers of sums, each as offset, body and power; last, whether L is in none of its
functions. A table has the rows of A, those of B and those of the mean weight.
"""

from __future__ import annotations

from typing import Any

from replicode.codegen.runtime.kernel import Array


def token_function(
    x: Array, chi_star: Array, nu: float, L: float, params: Array
) -> tuple[Array | float, Array | float, tuple[float, ...]]:
    """The sign, the logarithm of the size, and the kinks of a function of one token."""
    return 1.0, 0.0, ()


def token_number(nu: float, L: float, params: Array) -> float:
    """A number that belongs to all tokens."""
    return 1.0


def activation_products() -> tuple[Any, ...]:
    """The products of the activation's averages, weighted as the task does."""
    return (), (), ()


def winner_products() -> tuple[Any, ...]:
    """The same without a weight, for the limit in which the hidden token is that of the largest score."""
    return (), (), ()


def posterior_products() -> tuple[Any, ...]:
    """The same of the posterior of the location at the teacher's own scores."""
    return (), (), ()


def teacher_law(nu: float) -> tuple[float, float] | None:
    """Mean and variance of the hidden token's chi_star, where the weight leaves it Gaussian."""
    return None


def mean_weight(nu: float, L: float) -> float | None:
    """The sum of the weight over the locations over their number, where the scores do not change it."""
    return 1.0


def location_logs(chi: Array, nu: float, L: float) -> Array:
    """The logarithm of the weight of every location at the teacher's scores."""
    return chi
