"""Staged derivatives, stable rewrites, sharing and scheduling: the kernels against differences of direct values."""

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from strategies import PARAMETERS, SMOOTH, activations, direct_loss, direct_sigma, samples, system_of

from replicode.codegen.interpret.oracle import evaluate
from replicode.codegen.ir import Kernel, Output
from replicode.codegen.lower import lower
from replicode.theory.language.nodes import W, X
from replicode.theory.model import DEFAULT_MODEL, Y

DIGITS = 90
STEP = mpf(10) ** -20  # truncation 1e-40, rounding of a second difference 1e-50
TOLERANCE = mpf(10) ** -30


def _kernels(text, tokens):
    return {k.name: k for k in lower(system_of(text, tokens)).kernels}


def _moved(point, *moves):
    shifted = list(point)
    for index, amount in moves:
        shifted[index] += amount
    return shifted


def _gradient(function, point):
    h = STEP
    return [(function(_moved(point, (i, h))) - function(_moved(point, (i, -h)))) / (2 * h) for i in range(len(point))]


def _hessian(function, point):
    h, size = STEP, len(point)
    found = mpmath.matrix(size, size)
    for i in range(size):
        for j in range(i + 1):
            corners = [(a, b, function(_moved(point, (i, a * h), (j, b * h)))) for a in (1, -1) for b in (1, -1)]
            found[i, j] = found[j, i] = mpmath.fsum(a * b * value for a, b, value in corners) / (4 * h * h)
    return found


def _close(found, expected):
    found, expected = list(found), list(expected)
    scale = 1 + max(abs(e) for e in expected)
    return all(abs(f - e) <= TOLERANCE * scale for f, e in zip(found, expected, strict=True))


def _vector(value, tokens):
    return value if isinstance(value, list) else [value] * tokens


def check(text, sample):
    tokens = len(sample[0])
    kernels = _kernels(text, tokens)
    with mpmath.workdps(DIGITS):
        values = {n: mpf(v) for n, v in PARAMETERS.items()}
        x, w = ([mpf(e) for e in column] for column in sample[:2])
        y, v_v = mpf(sample[2]), mpf(sample[3])
        run = {
            name: evaluate(kernels[name], {"x": x, "w": w}, {"y": y, "V_v": v_v}, values)
            for name in ("loss", "gradient", "hessian", "curvatures", "pullback", "sigma")
        }

        def loss(point):
            return direct_loss(text, point[:tokens], point[tokens:], y, v_v, values)

        def weighted(point):
            return mpmath.fdot(direct_sigma(text, point, values), w)

        sigmas = direct_sigma(text, x, values)
        gradient, hessian = _gradient(loss, x + w), _hessian(loss, x + w)
        shrunk = (y - mpmath.fdot(sigmas, w)) / (1 + v_v * mpmath.fdot(sigmas, sigmas))
        for name in ("sigma", "gradient"):
            assert _close(_vector(run[name]["sigmas"], tokens), sigmas)
        assert _close(_vector(run["pullback"]["slope"], tokens), _gradient(weighted, x))
        for name in ("loss", "gradient", "hessian"):
            assert _close([run[name]["value"]], [loss(x + w)])
        for name in ("gradient", "hessian"):
            assert _close(_vector(run[name]["slope"], tokens), gradient[:tokens])
        # The envelope theorem: d loss / d w_z = -G_z = -gain sigma.
        assert _close([-run["gradient"]["gain"] * s for s in sigmas], gradient[tokens:])
        assert _close([run["gradient"]["residual_loss"]], [shrunk**2 / 2])
        blocks = {"h": hessian[:tokens, :tokens], "c": hessian[:tokens, tokens:], "e": hessian[tokens:, tokens:]}
        for name, block in blocks.items():
            assert _close(run["curvatures"][name], block)
        assert _close(run["hessian"]["curvature"], blocks["h"])


@pytest.mark.parametrize("text", SMOOTH)
@pytest.mark.parametrize("tokens", [1, 3])
def test_kernels_of_known_activations(text, tokens):
    sample = ["0.3", "-0.7", "1.1"][:tokens], ["0.9", "0.2", "-1.3"][:tokens], "0.75", "0.6"
    check(text, sample)


@settings(max_examples=10)
@given(st.integers(1, 4).flatmap(samples), activations())
def test_kernels_of_random_activations(sample, text):
    check(text, sample)


@pytest.mark.parametrize("text", ["1 + mean(x)", "tanh(sum(x))", "L", "2*c + 0*x"])
def test_kernels_of_activations_alike_at_all_tokens(text):
    check(text, (["0.3", "-0.7"], ["0.9", "0.2"], "0.75", "0.6"))


def test_gradient_in_the_values():
    """gradient_w of the staged derivatives themselves, which no kernel prints."""
    text, tokens = "x*exp(x)/(1 + sum(exp(x)*sigmoid(x)))", 3
    staged = system_of(text, tokens).loss
    with mpmath.workdps(DIGITS):
        x, w = [mpf("0.3"), mpf("-0.7"), mpf("1.1")], [mpf("0.9"), mpf("0.2"), mpf("-1.3")]
        kernel = _plain_kernel(staged)
        found = evaluate(kernel, {"x": x, "w": w}, {"y": mpf("0.75"), "V_v": mpf("0.6")}, {})

        def loss(point):
            return direct_loss(text, point[:tokens], point[tokens:], mpf("0.75"), mpf("0.6"), {})

        expected = _gradient(loss, x + w)
        assert _close([found["value"]], [loss(x + w)])
        assert _close(found["x"], expected[:tokens])
        assert _close(found["w"], expected[tokens:])
        assert _close(found["xw"], _hessian(loss, x + w)[:tokens, tokens:])


def _plain_kernel(staged):
    """The staged derivatives as they stand: no rewrites, no sharing."""
    statements = (*staged.value_definitions, *staged.gradient_definitions, *staged.hessian_definitions)
    outputs = (
        Output("value", staged.value),
        Output("x", staged.gradient_x),
        Output("w", staged.gradient_w),
        Output("xw", staged.hessian_xw),
    )
    return Kernel("plain", "", (X, W), (Y, DEFAULT_MODEL.values.V), statements, outputs)
