"""Names and text that users choose, in emitted files: they meet no name of the module's own, and run no code."""

import ast
import re

import numpy as np
import pytest
import sympy as sp
from scipy import special
from strategies import system_of

from replicode.codegen.compiled.fast import c_source
from replicode.codegen.compiler import generate
from replicode.codegen.emit.numpy import kernel_function
from replicode.codegen.emit.printer import numpy_source
from replicode.codegen.lower import lower_length
from replicode.theory.derive.saddle import derive
from replicode.theory.errors import InputError
from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import X
from replicode.theory.language.task import Task

TAKEN = ["KERNELS", "TOKENS", "a_TOKENS", "np", "params", "t_0"]


def _sources(names, tokens):
    """The NumPy and C sources of an activation with these parameters, which then are called by their places."""
    text = " + ".join(f"{n}*tanh({n} + x)/{i + 2}" for i, n in enumerate(names))
    system = system_of(f"1 + {text}", tokens)
    ir = lower_length(system, tokens)
    printed = [kernel_function(k, system.activation.parameters, tokens, 0, None, ir.expansion) for k in ir.kernels]
    source = "\n".join([*printed, c_source(system) if tokens < 3 else ""])
    return re.sub(r"\bparam_(\w+)", lambda found: f"param_{names.index(found[1])}", source)


@pytest.mark.parametrize("tokens", [2, 5])
def test_a_parameter_may_be_called_like_anything_in_the_module(tokens):
    plain = [f"p{i}{'a' * (len(name) - 2)}" for i, name in enumerate(TAKEN)]  # as long, lest lines end elsewhere
    assert _sources(TAKEN, tokens) == _sources(plain, tokens)


def test_text_that_the_emitter_uses_is_not_replaced_in_names():
    module = generate(system_of("1 + erf(aTOKENS*x) + a2*x/5", 2)).load()
    x = np.array([[0.3], [-1.2]])
    params = np.array([{"aTOKENS": 0.7, "a2": 0.3}[p] for p in module.PARAMETERS])
    assert module.sigma(x, params) == pytest.approx(1 + special.erf(0.7 * x) + 0.06 * x)


CODE = "x); import os; os.abort("


@pytest.mark.parametrize("name", [CODE, "lambda", "S_1", "w_chi", "a b", "", "é", "x\n", "alpha", "exp", "_", "nu"])
def test_symbols_that_are_no_names_are_refused(name):
    symbol = sp.Symbol(name, real=True)
    for make in (Activation, Task):
        with pytest.raises(InputError):
            make("mine", X * sp.exp(symbol * X))


@pytest.mark.parametrize("symbol", [sp.Symbol("c"), sp.Symbol("c", positive=True), sp.Dummy("c", real=True)])
def test_symbols_with_other_assumptions_are_refused(symbol):
    with pytest.raises(InputError, match="real symbol"):
        Activation("mine", X + symbol)


def test_the_printer_prints_identifiers_only():
    for name in (CODE, "lambda", "a b", "é"):
        with pytest.raises(InputError, match="identifier"):
            numpy_source(sp.Symbol(name) + 1)


def test_text_in_the_header_is_escaped():
    hostile = 'my "best"\\N{DASH} """\nimport os; os.abort()\0 \\'
    system = derive(Activation(hostile, 1 + X), "spiked", 1)
    source = generate(system).source
    tree = ast.parse(source)
    assert hostile in ast.get_docstring(tree, clean=False)
    assert "os" not in {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    assert generate(system).load().METADATA["name"] == hostile
