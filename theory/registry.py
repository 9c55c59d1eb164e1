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
