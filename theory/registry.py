"""The registered names and what each stands for: text and numbers only, looked up without SymPy.

`register` of language/activation.py and `register_task` of language/task.py keep these tables.
"""

from __future__ import annotations

from typing import NamedTuple


class Registered(NamedTuple):
    """The definition of a name: text of the language, or SymPy's own form of what a function gave, and defaults."""

    content: str
    defaults: tuple[tuple[str, float], ...] = ()


ACTIVATIONS: dict[str, Registered] = {
    "softmax": Registered("exp(x)/sum(exp(x))"),
    "linear": Registered("1 + x"),
    "erf": Registered("1 + erf(c + x)", (("c", 0.0),)),
    "softplus": Registered("softplus(x)/sum(softplus(x))"),
    "sigmoid": Registered("sigmoid(x)"),
    "tanh": Registered("tanh(x)"),
    "relu": Registered("relu(x)"),
    "exp": Registered("exp(x)"),
    "softmax1": Registered("exp(x)/(1 + sum(exp(x)))"),
    "poly2": Registered("(1 + x)**2/sum((1 + x)**2)"),
    "poly4": Registered("(1 + x)**4/sum((1 + x)**4)"),
    "tempered": Registered("exp(beta*x)/sum(exp(beta*x))", (("beta", 1.0),)),
}
TASKS: dict[str, Registered] = {
    "spiked": Registered("sqrt(nu)*x - nu/2"),
    "max": Registered("nu*x - log(sum(exp(nu*x))) + log(L)"),
}


class Named(NamedTuple):
    """A loss or a label by name: its text, or texts of values and chances in turn, and the ranges of its parameters."""

    texts: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()


SIZES = (1e-3, 1e3)

LOSSES = {
    "quadratic": Named(("(y - f)**2/2",)),
    "absolute": Named(("abs(y - f)",)),
    "huber": Named(("((y - f)**2 - relu(abs(y - f) - delta)**2)/2",), ("delta",), (SIZES,)),
    "logistic": Named(("softplus(-y*f)",)),
    "hinge": Named(("relu(1 - y*f)",)),
}

LABELS = {
    "gaussian": Named(("z + noise*xi",)),
    "sign": Named(("sign(z + noise*xi)",)),
    "logit": Named(("1", "sigmoid(gamma*z)", "-1", "sigmoid(-gamma*z)"), ("gamma",), (SIZES,)),
    "probit": Named(("sign(gamma*z + xi)",), ("gamma",), (SIZES,)),
    "magnitude": Named(("abs(z) + noise*xi",)),
    "outliers": Named(("z + noise*xi", "1 - p", "z + size*xi", "p"), ("p", "size"), ((0.0, 1.0), (1e-6, 1e4))),
}
