"""The prior of structured tokens as means over the coordinates: their symbols, and what one coordinate adds to each.

The free energy holds tau and kappa of each block as functions of the strength and of Vh. Every equation derived from it
has these functions and their derivatives, which are means over the eigenvalues of the covariance. Handed on are the
symbols that stand for them in emitted code, and the terms that are averaged.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from replicode.theory.derive.replica import prior_free_energy, spectral_functions
from replicode.theory.model import Block, Model

STRENGTH, WIDTH = sp.Symbol("strength", nonnegative=True), sp.Symbol("width", real=True)
COORDINATE_SQUARE = sp.Symbol("c_i", nonnegative=True)
_DERIVATIVES = {"": "", "d": "Vh", "d2": "Vh Vh", "l": "strength", "dl": "Vh strength"}


@cache
def trace_symbols(model: Model) -> dict[sp.Expr, sp.Symbol]:
    """tau and kappa of every block with the derivatives that equations have, by the symbols of these means."""
    return {expr: symbol for block in model.blocks for expr, symbol in _of_block(block)}


def _of_block(block: Block) -> list[tuple[sp.Expr, sp.Symbol]]:
    return [
        (_derived(function, by, block), sp.Symbol(f"{prefix}{function.func.__name__}", real=True))
        for function in spectral_functions(block)
        for prefix, by in _DERIVATIVES.items()
    ]


def _derived(expr: sp.Expr, by: str, block: Block) -> sp.Expr:
    return sp.diff(expr, *[getattr(block, name) for name in by.split()]) if by else expr


def placed(expr: sp.Expr, model: Model) -> sp.Expr:
    """The expression in the symbols of the means."""
    return expr.xreplace(trace_symbols(model)) if model.structured else expr


@cache
def coordinate_terms(model: Model) -> tuple[sp.Expr, ...]:
    """What one coordinate adds to the means of a block, in the order of its symbols; all blocks have the same."""
    first, *others = [_terms(model, block) for block in model.blocks]
    if any(other != first for other in others):
        raise AssertionError("the blocks of a model have one penalty")
    return first


def _terms(model: Model, block: Block) -> tuple[sp.Expr, ...]:
    names = {block.strength: STRENGTH, block.Vh: WIDTH, block.teacher_square: COORDINATE_SQUARE}
    parts = [_derived(part, by, block) for part in _parts(model, block) for by in _DERIVATIVES.values()]
    return tuple(sp.factor(part).xreplace(names) for part in parts)


def squared_susceptibility(model: Model, block: Block) -> sp.Expr:
    """The mean over the coordinates of the square of tau's term: minus the derivative of tau."""
    (tau, _), (part, _) = spectral_functions(block), _parts(model, block)
    multiple = sp.cancel(part**2 / sp.diff(part, block.Vh))
    if not multiple.is_number:
        raise AssertionError("the square of a resolvent is a multiple of its derivative")
    return multiple * sp.diff(tau, block.Vh)


def penalised_norms(free_energy: sp.Expr, model: Model) -> dict[sp.Symbol, sp.Expr]:
    """The squared norms that the penalties weigh, k.k/D without weights p_i: twice the derivative of f in lambda.

    f is stationary in everything else.
    """
    return {sp.Symbol(f"norm2_{b.name}"): 2 * sp.diff(free_energy, b.strength) for b in model.blocks}


def at_two_coordinates(expr: sp.Expr, model: Model) -> sp.Expr:
    """The expression with every mean written out for two coordinates, in functions that are SymPy's own."""
    if not model.structured:
        return expr
    means = {
        function: mean_of_two(part)
        for block in model.blocks
        for function, part in zip(spectral_functions(block), _parts(model, block), strict=True)
    }
    return expr.xreplace(means)


def _parts(model: Model, block: Block) -> tuple[sp.Expr, sp.Expr]:
    spectral = prior_free_energy(model, block).spectral
    assert spectral is not None
    return spectral.tau, spectral.kappa


def coordinate_mean(part: sp.Expr) -> sp.Expr:
    """The mean over all coordinates, as it is shown."""
    return sp.Function("mean_i")(part)


def mean_of_two(part: sp.Expr) -> sp.Expr:
    """The mean of what belongs to one coordinate, for two coordinates."""
    return sp.Add(*[part.xreplace(_numbered(part, i)) for i in (1, 2)]) / 2


def _numbered(part: sp.Expr, number: int) -> dict[sp.Symbol, sp.Symbol]:
    """What belongs to one coordinate, by that coordinate's number."""
    own = [s for s in part.free_symbols if s.name.endswith("_i")]
    return {s: sp.Symbol(f"{s.name.removesuffix('_i')}_{number}", positive=True) for s in own}


def squared_mean(model: Model, block: Block) -> sp.Expr:
    """The mean over two coordinates of the square of tau's term."""
    return mean_of_two(_parts(model, block)[0] ** 2)
