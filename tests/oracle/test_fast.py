"""The compiled module against the NumPy module of the same system, and its refusals."""

import shutil

import numpy as np
import pytest
from strategies import PARAMETERS, SMOOTH, system_of

import replicode.codegen.compiled.fast
from replicode.codegen.compiled.fast import c_source, compiled
from replicode.codegen.compiled.native import accelerated, compiler, machine
from replicode.codegen.compiler import generate
from replicode.codegen.loading import load_source
from replicode.theory.errors import InputError, Refusal
from replicode.verbs.solve import solve

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")

ORDER = np.array([0.5, 0.4, 0.6, 0.7, 0.6, 0.5])
ACCURACY = 1e-13
CASES = [
    *(("exp(x)/sum(exp(x))", tokens) for tokens in (2, 3, 6)),
    ("1 + erf(c + x)", 3),
    ("exp(x)/(1 + sum(exp(x)))", 2),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def pair(request):
    system = system_of(*request.param)
    source = generate(system).source
    return load_source(source, "plain"), accelerated(load_source(source, "fast"), compiled(c_source(system)))


def _params(module):
    return module.parameter_values({p: float(PARAMETERS[p]) for p in module.PARAMETERS})


def _close(found, expected):
    assert np.shape(found) == np.shape(expected)
    assert np.abs(np.asarray(found) - expected).max() <= ACCURACY * max(1.0, np.abs(expected).max())


def _samples(module, count, spread=1.5):
    draw = np.random.default_rng(3)
    shape = module.KERNELS[0].tokens, count
    return spread * draw.normal(size=shape), draw.normal(size=shape), draw.normal(size=count)


@pytest.mark.parametrize("name", ["loss", "gradient", "hessian", "curvatures"])
@pytest.mark.parametrize("spread", [1.5, 300.0])
def test_kernels(pair, name, spread):
    plain, fast = pair
    fields = *_samples(plain, 257, spread), 0.6, _params(plain)
    found, expected = getattr(fast, name)(*fields), getattr(plain, name)(*fields)
    for f, e in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, expected)], strict=True):
        _close(f, e)


def test_prox(pair):
    plain, fast = pair
    w_chi, w_z, y = _samples(plain, 300)
    found, failed = fast.prox(w_chi, fast.Fields(w_chi, w_z, y), (0.8, 0.6), plain.Setting(0.0, 0.0, _params(plain)))
    expected, _ = plain.prox(w_chi, plain.Fields(w_chi, w_z, y), (0.8, 0.6), plain.Setting(0.0, 0.0, _params(plain)))
    assert failed == 0
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_prox_free_averages(pair):
    plain = pair[0]
    setting = plain.Setting(2.0, 0.3, _params(plain))
    if sum(plain.dimensions(setting)) > 7:
        pytest.skip("too many dimensions for nodes in the prox point")
    channels = [m.ProxFreeChannel.at_level(1, setting) for m in pair]
    for channel in channels:
        channel.adapt(ORDER)
    expected, found = (channel.averages(ORDER) for channel in channels)
    for f, e in zip(found, expected, strict=True):
        _close(f, e)


def test_nothing_finite_stays_not_finite(pair):
    plain, fast = pair
    x, w, y = _samples(plain, 5)
    x[0, 2] = np.nan
    assert np.isnan(fast.loss(x, w, y, 0.6, _params(plain))[2])
    assert np.isfinite(np.delete(fast.loss(x, w, y, 0.6, _params(plain)), 2)).all()


@pytest.mark.parametrize("text", SMOOTH)
def test_every_activation_is_emitted_or_refused_by_name(text):
    """A refusal says which function is missing."""
    try:
        assert "void hessian_at" in c_source(system_of(text, 2))
    except InputError as refusal:
        assert "no compiled form" in str(refusal)


def test_solve(monkeypatch, tmp_path):
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path))
    point = {"tokens": 2, "alpha": 4, "nu": 2, "noise": 0.3, "lambda_k": 2, "lambda_v": 0.5}
    plain, fast = (solve("softmax", **point, digits=6, backend=b) for b in ("numpy", "fast"))
    assert abs(plain.test_risk - fast.test_risk) <= 1e-12
    assert fast.warnings == plain.warnings == ()


@pytest.mark.parametrize("backend", ["gpu", ""])
def test_unknown_backends(backend):
    with pytest.raises(InputError, match="numpy or fast"):
        solve("softmax", tokens=2, alpha=4, nu=2, backend=backend)


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")
    for function in (compiler, machine):
        with pytest.raises(InputError, match="needs a C compiler"):
            function()


def test_a_compiler_that_fails():
    with pytest.raises(Refusal, match=r"the C compiler .* failed .*unknown type name"):
        replicode.codegen.compiled.fast.compiled("this is not C")


@pytest.mark.parametrize("text, tokens", [("exp(x)/sum(exp(x))", 3), ("1/(1 + exp(-x))", 2)])
def test_prox_free_averages_are_those_of_the_prox(text, tokens):
    module = generate(system_of(text, tokens)).load()
    setting = module.Setting(2.0, 0.3, _params(module))
    free, plain = module.ProxFreeChannel.at_level(2, setting), module.ProxChannel.at_level(2, setting)
    free.adapt(ORDER)
    found, expected = free.averages(ORDER), plain.averages(ORDER)
    np.testing.assert_allclose(found.rates, expected.rates, atol=2e-4)
    assert found.envelope == pytest.approx(expected.envelope, abs=2e-4)
    assert found.train_loss == pytest.approx(expected.train_loss, abs=2e-4)
    assert found.mass == pytest.approx(1.0, abs=2e-4)
