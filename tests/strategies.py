"""The strategies of validation/strategies.py, the systems derived from what they draw, and direct values in mpmath.

`direct_sigma` reads the text with Python's own parser and sums over the tokens in a loop, so that it shares nothing
with the language, the token algebra, lowering or the emitters that are compared with it.
"""

import ast
import operator
from dataclasses import replace
from functools import cache

import mpmath
from hypothesis import strategies as st
from mpmath import mpf

from replicode.theory.derive.saddle import derive, loss_derivatives
from replicode.theory.language.activation import activation
from replicode.theory.lengths import lengths
from replicode.theory.properties.symbolic import properties
from replicode.validation.strategies import BUILT_IN, PARAMETERS, SMOOTH, activations, numbers, samples

__all__ = [
    "BUILT_IN",
    "PARAMETERS",
    "SMOOTH",
    "activations",
    "costly_texts",
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


def _joined(parts, sign):
    return sign.join(f"({p})" for p in parts)


_LETTERS = [c for c in "abcdfghijklmnopqrstuv" if c != "L"]
_SMALL = st.integers(0, 70).map(str)
_LINES = st.tuples(st.sampled_from(["x", "2*x", "x**2", "x + c", "sum(x)", "a*x"]), _SMALL).map(" + ".join)
_POWERS_OF_SUMS = st.tuples(
    st.lists(st.sampled_from(_LETTERS), min_size=2, max_size=12, unique=True), st.integers(2, 64)
).map(lambda t: f"({'+'.join(t[0])})**{t[1]}*x")
_PRODUCTS = st.lists(_LINES, min_size=2, max_size=60).map(lambda parts: _joined(parts, "*"))
_DIVISORS = st.lists(st.tuples(_SMALL, _SMALL), min_size=1, max_size=40).map(
    lambda parts: "x/" + _joined([f"x**2 + {a}*x + {a}**2 + 1 + {b}" for a, b in parts], "/")
)
_CALLED = [
    "exp",
    "log",
    "sqrt",
    "erf",
    "erfc",
    "tanh",
    "sigmoid",
    "softplus",
    "relu",
    "abs",
    "cos",
    "sin",
    "sum",
    "mean",
]


def _compound(inner):
    return st.one_of(
        st.tuples(st.sampled_from(_CALLED), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
        st.tuples(inner, st.sampled_from(["2", "3", "7", "64", "-1", "0.5", "c"])).map(lambda t: f"({t[0]})**{t[1]}"),
    )


_NESTED = st.recursive(st.sampled_from(["x", "x", "x", "c", "a", "L", "1", "0.3", "2"]), _compound, max_leaves=12)
_MIXED = st.lists(st.one_of(_NESTED, _POWERS_OF_SUMS, _DIVISORS), min_size=2, max_size=3).map(
    lambda parts: _joined(parts, "*")
)
# Text that is well formed and may cost SymPy dear: powers of long sums, long products, many divisors, deep nesting.
costly_texts = st.one_of(_POWERS_OF_SUMS, _PRODUCTS, _DIVISORS, _NESTED, _NESTED, _MIXED)
