"""Generated modules, derived once in a run however many tests and files ask for them.

Deriving and generating takes one or two seconds, most of what many tests cost. A module is read, never changed: tests
that patch one use `monkeypatch`, which takes it back.
"""

from functools import cache

from replicode.modules import module_for


@cache
def module_of(activation, task="spiked", tokens=2):
    """The module of an activation given as text, at a number of tokens or a law of lengths given as text."""
    return module_for(activation, task, tokens)[0]


@cache
def step_module_of(activation, task="spiked", tokens=2):
    """The module of one step of replica symmetry breaking."""
    return module_for(activation, task, tokens, level="1rsb")[0]


def bayes_gain(task, nu, tokens):
    """E_w[p_eps] of the posterior p of the location at infinite data, with its error."""
    return module_for("linear", task, tokens, level="population")[0].location_gain(nu)
