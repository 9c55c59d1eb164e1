"""The emitted NumPy functions against the interpreter of the same kernels in mpmath, at ordinary and at huge scores."""

from functools import cache

import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from strategies import BUILT_IN, PARAMETERS, SMOOTH, activations, direct_loss, direct_sigma, samples, system_of

import replicode.codegen.lower.kernels
from replicode.codegen.compiler import generate
from replicode.codegen.emit.numpy import kernel_function
from replicode.codegen.interpret.oracle import evaluate
from replicode.codegen.loading import load_source
from replicode.codegen.lower import lower, lower_length, parameter_symbol
from replicode.codegen.rewrite.pair import logistic_rate
from replicode.codegen.rewrite.stable import StableForm
from replicode.theory.derive.saddle import derive
from replicode.theory.language.activation import activation

DIGITS = 30
ACCURACY = 1e-11  # relative to the largest entry of an output, or to 1 where derivatives cancel to less
VALUE_VARIANCE = "0.6"


def _emitted(module, x, w, y):
    """Every output of every emitted kernel, by kernel and position."""
    v_v = float(VALUE_VARIANCE)
    params = np.array([float(PARAMETERS[p]) for p in module.PARAMETERS])
    fields = x, w, y, v_v, params
    return {
        "sigma": [module.sigma(x, params)],
        "pullback": [module.pullback(x, w, params)],
        "loss": [module.loss(*fields)],
        "gradient": list(module.gradient(*fields)),
        "hessian": list(module.hessian(*fields)),
        "expansion": _whole(module.expansion(*fields), int(module.SHIFT_INVARIANT)),
        "curvatures": list(module.curvatures(*fields)),
    }


def _whole(expanded, first):
    """What `expansion` returns, its rows stacked and its symmetric matrix completed, without the first token."""
    value, slope, sigmas, gain, residual_loss, lines = expanded
    size = len(lines)
    full = [[lines[min(i, j)][abs(i - j)] for j in range(size)] for i in range(size)]
    shaped = [
        np.array([np.broadcast_to(e, gain.shape) for e in rows]).reshape(-1, gain.size) for rows in (slope, sigmas)
    ]
    matrix = np.array([[np.broadcast_to(e, gain.shape) for e in row] for row in full]).reshape(size, size, gain.size)
    assert len(slope) == shaped[1].shape[0] - first == size
    return [value, shaped[0], shaped[1], gain, residual_loss, matrix]


def _without_first(name, expected, first):
    """The oracle's slope and curvature without the tokens that `expansion` leaves out."""
    if name != "expansion":
        return expected
    value, slope, *others, curvature = expected
    return [value, slope[first:], *others, [row[first:] for row in curvature[first:]]]


def _interpreted(kernel, x, w, y):
    """The outputs of a kernel for one sample, as the emitter orders and broadcasts them."""
    values = {n: mpf(float(v)) for n, v in PARAMETERS.items()}
    scalars = {"y": mpf(y), "V_v": mpf(float(VALUE_VARIANCE))}
    found = evaluate(kernel, {"x": x, "w": w}, scalars, values)
    return [_array(name, value, len(x)) for name, value in found.items()]


def _array(name, value, tokens):
    if isinstance(value, mpmath.matrix):
        return value.tolist()
    if isinstance(value, list) or name not in ("slope", "sigmas"):
        return value
    return [value] * tokens


def _shape(value):
    return (len(value), *(_shape(value[0]) if value else ())) if isinstance(value, list) else ()


def _flat(value):
    return [e for part in value for e in _flat(part)] if isinstance(value, list) else [value]


def _agree(found, expected, scale=1.0):
    assert np.shape(found) == _shape(expected) or np.size(found) == len(_flat(expected)) == 0
    entries = _flat(expected)
    allowed = ACCURACY * max([scale, *(abs(e) for e in entries)])
    for f, e in zip(np.ravel(found), entries, strict=True):
        assert np.isfinite(f)
        assert abs(mpf(float(f)) - e) <= allowed


IMPORTS = "from __future__ import annotations\n\nimport numpy as np\nfrom scipy import special\n\n"


@cache
def kernels_alone(text, tokens, written_out=True):
    """The emitted kernels without the rest of the module, which costs more to derive than they do."""
    system = system_of(text, tokens)
    ir, parameters = lower_length(system, tokens), system.activation.parameters
    head = f"{IMPORTS}PARAMETERS = {parameters!r}\nSHIFT_INVARIANT = {system.properties.shift_invariant}\n\n"
    programs = [ir.expansion if written_out and k.name == "expansion" else None for k in ir.kernels]
    shape = tokens if written_out else None, ir.first
    functions = [kernel_function(k, parameters, *shape, None, p) for k, p in zip(ir.kernels, programs, strict=True)]
    source = head + "\n\n".join(functions)
    return load_source(source, "emitted_kernels"), ir.kernels


def check(module, kernels, columns, digits=DIGITS):
    """All samples at once in NumPy, one by one in the oracle."""
    x, w = (np.array([c[i] for c in columns], dtype=float).T for i in (0, 1))
    y = np.array([c[2] for c in columns], dtype=float)
    emitted = _emitted(module, x, w, y)
    for kernel in kernels:
        for n in range(y.size):
            with mpmath.workdps(digits):
                expected = _interpreted(kernel, x[:, n], w[:, n], y[n])
                expected = _without_first(kernel.name, expected, int(module.SHIFT_INVARIANT))
                for position, value in enumerate(expected):
                    _agree(emitted[kernel.name][position][..., n], value)


SAMPLES = [
    (["0.3", "-0.7", "1.1"], ["0.9", "0.2", "-1.3"], "0.75"),
    (["-1.9", "0.4", "2.1"], ["-0.1", "1.2", "0.3"], "-2.0"),
    (["0.0", "0.5", "-0.25"], ["1.0", "1.0", "-3.0"], "0.0"),
]


@pytest.mark.parametrize("text", BUILT_IN.values())
def test_whole_modules_of_the_built_in_activations(text):
    system = system_of(text, 2)
    check(generate(system).load(), lower(system).kernels, [(x[:2], w[:2], y) for x, w, y in SAMPLES])


@pytest.mark.parametrize("text", [*SMOOTH, "1 + atan(x)", "sinh(x)/5"])
def test_known_activations(text):
    check(*kernels_alone(text, 3), SAMPLES)


@pytest.mark.parametrize("text", SMOOTH)
def test_kernels_on_whole_token_vectors(text):
    """As they are emitted for many tokens."""
    module, kernels = kernels_alone(text, 3, written_out=False)
    check(module, [k for k in kernels if k.name == "expansion"], SAMPLES[:1])


@pytest.mark.parametrize("text", SMOOTH[:5])
def test_one_token(text):
    check(*kernels_alone(text, 1), [(x[:1], w[:1], y) for x, w, y in SAMPLES])


@settings(max_examples=8)
@given(st.integers(1, 4).flatmap(lambda tokens: st.lists(samples(tokens), min_size=2, max_size=3)), activations())
def test_random_activations(columns, text):
    check(*kernels_alone(text, len(columns[0][0])), columns)


ALIKE = ["1 + mean(x)", "tanh(sum(x))", "L", "log(sum(exp(x)))"]


@pytest.mark.parametrize("text", ALIKE)
def test_activations_alike_at_all_tokens(text):
    module, kernels = kernels_alone(text, 3)
    check(module, [k for k in kernels if k.name not in ("hessian", "curvatures")], SAMPLES)


@pytest.mark.parametrize("text", ALIKE)
def test_curvatures_of_activations_alike_at_all_tokens(text):
    module, kernels = kernels_alone(text, 3)
    check(module, [k for k in kernels if k.name in ("hessian", "curvatures")], SAMPLES)


def test_systems_of_the_strategies_are_the_derived_ones():
    text = "tanh(x)/(1 + mean(x**2))"
    assert generate(system_of(text, 2)) == generate(derive(text, "spiked", 2))


RATIOS = ("exp(x)/sum(exp(x))", "exp(2*x)/sum(exp(2*x))", "exp(x)/(1 + sum(exp(x)))", "exp(-x)/sum(exp(-x))")
KERNEL = "softplus(x)/sum(softplus(x))"
HIGH = [
    (["800", "799.25", "-5"], ["0.9", "0.2", "-1.3"], "0.75"),
    (["10000", "9999.5", "9998"], ["-0.1", "1.2", "0.3"], "-1.5"),
    (["-10000", "10000", "0.5"], ["1", "0.5", "-0.75"], "1"),
]
LOW = [
    (["-800", "-799.25", "-801.5"], ["0.4", "-0.3", "1.1"], "0.25"),
    (["-9999", "-10000", "-10001"], ["0.7", "0.1", "-1.1"], "0.5"),
]
HUGE = [
    *[(text, columns) for text in RATIOS for columns in (HIGH, LOW)],
    (KERNEL, HIGH),
    (KERNEL, LOW),
    ("cosh(x)/sum(cosh(x))", HIGH),
]


@pytest.fixture
def unstabilised(monkeypatch):
    """Kernels of a system without the stable rewrites, for the oracle only: mpmath's exponents have no bound."""

    def kernels(system):
        with monkeypatch.context() as patch:
            patch.setattr(replicode.codegen.lower.kernels, "stabilised", lambda form: StableForm(form))
            return lower(system).kernels

    return kernels


@pytest.mark.parametrize("text, columns", HUGE)
def test_huge_scores(text, columns, unstabilised):
    system = system_of(text, 3)
    check(kernels_alone(text, 3)[0], unstabilised(system), columns, digits=60)


@pytest.mark.parametrize("text", RATIOS)
def test_huge_scores_of_one_token(text, unstabilised):
    columns = [(x[:1], w[:1], y) for x, w, y in (*HIGH, *LOW)]
    check(kernels_alone(text, 1)[0], unstabilised(system_of(text, 1)), columns, digits=60)


PAIRS = {
    "exp(x)/sum(exp(x))": (0, 1),
    "exp(c*x)/sum(exp(c*x))": (0, parameter_symbol("c")),
    "exp(-x)/sum(exp(-x))": (0, -1),
    "2**x/sum(2**x)": (0, sp.log(2)),
    "x - mean(x)": (sp.Rational(1, 2), 0),
    "1 + exp(x)/sum(exp(x))": None,
}


@pytest.mark.parametrize("text", PAIRS)
def test_two_tokens_in_the_difference_of_their_scores(text, unstabilised):
    """Where sigma' is a constant or proportional to the product of the sigmas; at ordinary and at huge scores."""
    assert logistic_rate(activation(text)) == PAIRS[text]
    columns = [([*x[:1], x[i]], [*w[:1], w[i]], y) for x, w, y in (*SAMPLES, *HIGH, *LOW) for i in (1, 2)]
    check(kernels_alone(text, 2)[0], unstabilised(system_of(text, 2)), columns, digits=60)


@pytest.mark.parametrize("text, columns", HUGE)
def test_huge_scores_of_the_activation_itself(text, columns):
    """Relative to the largest sigma, however small, short of the smallest double."""
    module, _ = kernels_alone(text, 3)
    x = np.array([c[0] for c in columns], dtype=float).T
    found = module.sigma(x, np.array([]))
    with mpmath.workdps(60):
        for n in range(x.shape[1]):
            _agree(found[:, n], direct_sigma(text, [mpf(e) for e in x[:, n]], {}), scale=1e-290)


def test_the_loss_itself():
    """Once without any kernel in between, so that emitter and oracle can not err alike."""
    text = SMOOTH[-3]
    module, _ = kernels_alone(text, 3)
    x, w, y = ([mpf(float(e)) for e in SAMPLES[1][i]] if i < 2 else mpf(float(SAMPLES[1][2])) for i in range(3))
    values = {n: mpf(float(v)) for n, v in PARAMETERS.items()}
    params = np.array([float(PARAMETERS[p]) for p in module.PARAMETERS])
    arrays = (np.array(x, dtype=float)[:, None], np.array(w, dtype=float)[:, None], np.array([float(y)]))
    found = module.loss(*arrays, 0.6, params)
    with mpmath.workdps(DIGITS):
        _agree(found[0], direct_loss(text, x, w, y, mpf(0.6), values))
