"""Hypothesis strategies for what the engine is given: activations, tasks, lengths, settings and points.

Everything is drawn as text or plain numbers, as a user would type it, so that a failing example can be pasted into the
command line. `hypothesis` comes with the test extra; nothing else in the package imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

BUILT_IN: Mapping[str, str] = {
    "softmax": "exp(x)/sum(exp(x))",
    "linear": "1 + x",
    "erf": "1 + erf(c + x)",
    "softplus": "softplus(x)/sum(softplus(x))",
    "sigmoid": "sigmoid(x)",
}
SMOOTH: tuple[str, ...] = (
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
BOUNDED: tuple[str, ...] = (
    "exp(x)/sum(exp(x))",
    "exp(x)/(1 + sum(exp(x)))",
    "sigmoid(x)",
    "1 + tanh(c*x)",
    "1 + erf(c + x)",
    "exp(x)/sum(exp(x)) + 0.01*x",
    "(1 + x**2)/sum(1 + x**2)",
    "sigmoid(x)/sum(sigmoid(x))",
)
PARAMETERS: Mapping[str, str] = {"c": "0.6", "a": "-0.4"}
TASKS: tuple[str, ...] = ("spiked", "max", "x**2/4", "sqrt(nu)*x - x**2/5", "x - x**4/10")

_LEAVES = st.sampled_from(["x", "x", "c*x", "x/2", "(a + x)", "exp(x)", "exp(-x)", "exp(2*x)", "exp(c*x)", "2**x"])
_OVERALL = st.sampled_from(["x", "exp(x)", "sigmoid(c*x)", "(1 + x)", "softplus(x)", "erfc(x)", "1/(1 + exp(-x))"])
_FUNCTIONS = st.sampled_from(["tanh", "erf", "sigmoid", "softplus", "cos", "sin", "erfc"])
_OUTER = st.sampled_from(["sqrt(1 + ({0})**2)", "log(1 + ({0})**2)", "(1 + ({0})**2)**c", "({0})**3", "exp(tanh({0}))"])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    call = st.tuples(_FUNCTIONS, inner).map(lambda t: f"{t[0]}({t[1]})")
    pairs = st.tuples(inner, st.sampled_from("+-*"), inner).filter(lambda t: t[1] != "-" or t[0] != t[2])
    product = pairs.map(lambda t: f"({t[0]}){t[1]}({t[2]})")
    ratio = st.tuples(inner, inner).map(lambda t: f"({t[0]})/(1 + mean(({t[1]})**2))")
    local = st.tuples(inner, inner).map(lambda t: f"({t[0]})/(2 + sin({t[1]}))")
    total = st.tuples(st.sampled_from(["sum", "mean"]), inner).map(lambda t: f"{t[0]}({t[1]})/L")
    return st.one_of(call, product, ratio, local, total, st.tuples(_OUTER, inner).map(lambda t: t[0].format(t[1])))


def activations(max_leaves: int = 3) -> st.SearchStrategy[str]:
    """Texts of smooth activations: a factor of the token's own score times a random expression with nested sums."""
    body = st.recursive(_LEAVES, _compound, max_leaves=max_leaves)
    return st.tuples(_OVERALL, body).map(lambda t: f"{t[0]}*({t[1]})")


def normalised() -> st.SearchStrategy[str]:
    """Texts of positive activations that sum to one: kernels k(x)/sum(k(x)), softmax among them."""
    kernels = st.sampled_from(
        ["exp(x)", "exp(c*x)", "softplus(x)", "sigmoid(x)", "1 + x**2", "exp(tanh(x))", "erfc(-x)"]
    )
    mixed = st.tuples(kernels, kernels).map(lambda t: f"({t[0]} + {t[1]})")
    return st.one_of(kernels.map(lambda k: f"({k})"), mixed).map(lambda k: f"{k}/sum{k}")


def tasks() -> st.SearchStrategy[str]:
    """Registered tasks, and log-weights of one score that grow more slowly than x^2/2."""
    slope, curvature = st.integers(-15, 15), st.integers(-20, 4)
    quadratic = st.tuples(slope, curvature).map(lambda t: f"{t[0]}/10*x + ({t[1]}/10)*x**2")
    return st.one_of(st.sampled_from(TASKS), quadratic)


def token_counts(largest: int = 4) -> st.SearchStrategy[int]:
    """Numbers of tokens."""
    return st.integers(1, largest)


def lengths(largest: int = 4) -> st.SearchStrategy[str]:
    """Numbers of tokens and distributions of them, such as 2 or 1:0.25,3:0.75."""
    pair = st.lists(token_counts(largest), min_size=2, max_size=2, unique=True).map(sorted)
    mixed = st.tuples(pair, st.integers(1, 9)).map(lambda t: f"{t[0][0]}:{t[1] / 10},{t[0][1]}:{1 - t[1] / 10}")
    return st.one_of(token_counts(largest).map(str), mixed)


def parameters() -> st.SearchStrategy[dict[str, float]]:
    """Values of the parameters a and c of the activations drawn here."""
    return st.fixed_dictionaries({name: st.integers(-12, 12).map(lambda i: i / 10) for name in PARAMETERS})


def settings() -> st.SearchStrategy[dict[str, float]]:
    """Arguments of `solve` where replica symmetry is not in doubt: moderate signal, penalties of order one."""
    return st.fixed_dictionaries(
        {
            "alpha": st.floats(0.5, 6.0),
            "nu": st.floats(0.3, 4.0),
            "noise": st.floats(0.1, 0.8),
            "lambda_k": st.floats(1.0, 4.0),
            "lambda_v": st.floats(0.5, 2.0),
        }
    )


@st.composite
def order_parameters(draw: st.DrawFn) -> dict[str, float]:
    """Physical points: q > m^2, and V > 0 small enough that the prox of a moderate activation does not jump."""
    point: dict[str, float] = {}
    for b in ("k", "v"):
        m, spread, width = (draw(st.integers(0, 100)) / 100 for _ in range(3))
        m -= 0.5
        point |= {f"m_{b}": m, f"q_{b}": m * m + 0.2 + 0.6 * spread, f"V_{b}": 0.1 + 0.2 * width}
    return point


def numbers(low: int = -1500, high: int = 1500) -> st.SearchStrategy[str]:
    """Thousandths as text, which reads the same at every precision."""
    return st.integers(low, high).map("{}e-3".format)


@st.composite
def samples(draw: st.DrawFn, tokens: int) -> tuple[list[str], list[str], str, str]:
    """One sample (x, w, y, V_v) of an activation's fields, as text."""
    column = st.lists(numbers(), min_size=tokens, max_size=tokens)
    return draw(column), draw(column), draw(numbers()), draw(numbers(100, 2000))
