"""Random smooth activations of the language, the systems derived from them, and their direct values in mpmath.

`direct_sigma` reads the text with Python's own parser and sums over the tokens in a loop, so that it shares nothing
with the language, the token algebra, lowering or the emitters that are compared with it.
"""

import ast
import operator
from dataclasses import replace
from functools import lru_cache

import mpmath
from hypothesis import strategies as st
from mpmath import mpf

from theory.activation import activation
from theory.lengths import lengths
from theory.properties import properties
from theory.saddle import derive, loss_derivatives

BUILT_IN = {
    "softmax": "exp(x)/sum(exp(x))",
    "linear": "1 + x",
    "erf": "1 + erf(c + x)",
    "softplus": "softplus(x)/sum(softplus(x))",
    "sigmoid": "sigmoid(x)",
}
SMOOTH = (
    *BUILT_IN.values(),
    "exp(x)/(1 + sum(exp(x)))",
    "exp(-x)/sum(exp(-x))",
    "exp(2*x)/sum(exp(2*x))",
    "exp(x)/(sum(exp(2*x)) + c**2)",
    "3*exp(x - mean(x))/L",
    "x*sum(x*exp(-x**2)/sum(exp(-x**2)))",
    "tanh(x - mean(tanh(x)))*exp(c*x)/sum(exp(c*x))",
    "(a + x)**2/sum((a + x)**2)",
    "sigmoid(x + 2*mean(x) + 3*mean(x**2))",
    "exp(x)/sqrt(sum(exp(2*x)))",
)
PARAMETERS = {"c": "0.6", "a": "-0.4"}

_LEAVES = st.sampled_from(["x", "x", "c*x", "x/2", "(a + x)", "exp(x)", "exp(-x)", "exp(2*x)", "exp(c*x)", "2**x"])
_OVERALL = st.sampled_from(["x", "exp(x)", "sigmoid(c*x)", "(1 + x)", "softplus(x)", "erfc(x)", "1/(1 + exp(-x))"])
_FUNCTIONS = st.sampled_from(["tanh", "erf", "sigmoid", "softplus", "cos", "sin", "erfc"])


def _compound(inner):
    call = st.tuples(_FUNCTIONS, inner).map(lambda t: f"{t[0]}({t[1]})")
    product = st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})")
    ratio = st.tuples(inner, inner).map(lambda t: f"({t[0]})/(1 + mean(({t[1]})**2))")
    local = st.tuples(inner, inner).map(lambda t: f"({t[0]})/(2 + sin({t[1]}))")
    total = st.tuples(st.sampled_from(["sum", "mean"]), inner).map(lambda t: f"{t[0]}({t[1]})/L")
    outer = st.sampled_from(
        ["sqrt(1 + ({0})**2)", "log(1 + ({0})**2)", "(1 + ({0})**2)**c", "({0})**3", "exp(tanh({0}))"]
    )
    return st.one_of(call, product, ratio, local, total, st.tuples(outer, inner).map(lambda t: t[0].format(t[1])))


def activations():
    """Texts of smooth activations: a factor of the token's own score times a random expression with nested sums."""
    body = st.recursive(_LEAVES, _compound, max_leaves=3)
    return st.tuples(_OVERALL, body).map(lambda t: f"{t[0]}*({t[1]})")


def numbers(low=-1500, high=1500):
    """Thousandths as text, which reads the same at every precision."""
    return st.integers(low, high).map("{}e-3".format)


@st.composite
def samples(draw, tokens):
    """One sample (x, w, y, V_v) of an activation's fields, as text."""
    column = st.lists(numbers(), min_size=tokens, max_size=tokens)
    return draw(column), draw(column), draw(numbers()), draw(numbers(100, 2000))


@lru_cache(maxsize=1)
def _base():
    return derive("linear", "spiked", 2)


def system_of(text, tokens):
    """`derive(text, "spiked", tokens)`, the parts that do not depend on the activation being derived only once."""
    act, base = activation(text), _base()
    staged = loss_derivatives(act.token_form(), base.values)
    return replace(base, activation=act, lengths=lengths(tokens), properties=properties(act), loss=staged)


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_CALLS = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sqrt": mpmath.sqrt,
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "cos": mpmath.cos,
    "sin": mpmath.sin,
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
        return _CALLS[node.func.id](at(node.args[0], x))

    return [at(tree, s) for s in scores]


def direct_loss(text, x, w, y, v_v, values):
    """min over z of |z - w|^2/(2 V_v) + (y - sigma.z)^2/2, that is (y - sigma.w)^2/2 over 1 + V_v |sigma|^2."""
    sigmas = direct_sigma(text, x, values)
    residual = y - mpmath.fdot(sigmas, w)
    return residual**2 / (2 * (1 + v_v * mpmath.fdot(sigmas, sigmas)))
