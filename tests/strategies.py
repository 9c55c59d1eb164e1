"""The strategies of validation/strategies.py, the systems derived from what they draw, and direct values in mpmath.

`direct_sigma` reads the text with Python's own parser and sums over the tokens in a loop, so that it shares nothing
with the language, the token algebra, lowering or the emitters that are compared with it.
"""

import ast
import operator
from dataclasses import replace
from functools import cache

import mpmath
from mpmath import mpf

from replicode.theory.activation import activation
from replicode.theory.lengths import lengths
from replicode.theory.properties import properties
from replicode.theory.saddle import derive, loss_derivatives
from replicode.validation.strategies import BUILT_IN, PARAMETERS, SMOOTH, activations, numbers, samples

__all__ = [
    "BUILT_IN",
    "PARAMETERS",
    "SMOOTH",
    "activations",
    "direct_loss",
    "direct_sigma",
    "numbers",
    "samples",
    "system_of",
]


@cache
def _base():
    return derive("linear", "spiked", 2)


@cache
def system_of(text, tokens):
    """`derive(text, "spiked", tokens)`, the parts that do not depend on the activation being derived only once."""
    act, base = activation(text), _base()
    staged = loss_derivatives(act.token_form(), base.values)
    return replace(base, activation=act, lengths=lengths(tokens), properties=properties(act), loss=staged)


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_CALLS = {
    "abs": abs,
    "sigmoid": lambda u: 1 / (1 + mpmath.exp(-u)),
    "softplus": lambda u: mpmath.log1p(mpmath.exp(u)),
}


def direct_sigma(text, scores, values):
    """sigma at every token, by reading the text as it stands."""
    tree = ast.parse(text, mode="eval").body
    names = {**{n: mpf(v) for n, v in values.items()}, "L": mpf(len(scores))}

    def at(node, x):
        match node:
            case ast.Constant():
                return mpf(ast.get_source_segment(text, node))
            case ast.Name(id="x"):
                return x
            case ast.Name():
                return names[node.id]
            case ast.UnaryOp():
                return -at(node.operand, x)
            case ast.BinOp(op=ast.Pow()):
                return at(node.left, x) ** at(node.right, x)
            case ast.BinOp():
                return _OPERATORS[type(node.op)](at(node.left, x), at(node.right, x))
            case ast.Call(func=ast.Name(id="sum" | "mean" as name)):
                total = mpmath.fsum(at(node.args[0], s) for s in scores)
                return total / len(scores) if name == "mean" else total
        function = _CALLS.get(node.func.id) or getattr(mpmath, node.func.id)
        return function(at(node.args[0], x))

    return [at(tree, s) for s in scores]


def direct_loss(text, x, w, y, v_v, values):
    """min over z of |z - w|^2/(2 V_v) + (y - sigma.z)^2/2, that is (y - sigma.w)^2/2 over 1 + V_v |sigma|^2."""
    sigmas = direct_sigma(text, x, values)
    residual = y - mpmath.fdot(sigmas, w)
    return residual**2 / (2 * (1 + v_v * mpmath.fdot(sigmas, sigmas)))
