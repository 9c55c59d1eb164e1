"""Structured tokens: the derived prior against matrices, known values, and laws that hold for every spectrum."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import checker
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from replicode.cli import main
from replicode.codegen.compiler import generate
from replicode.derivations.present import as_json, derivation
from replicode.modules import module_for
from replicode.theory.derive.saddle import derive
from replicode.theory.derive.stability import derive_stability
from replicode.theory.errors import Refusal
from replicode.theory.model import ALPHA, STRUCTURED_MODEL, Model

CASE = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
REFERENCE = {
    "test_risk": 0.485925, "train_loss": 0.150148, "energy": 0.911184, "m_k": 0.598712, "q_k": 0.582196,
    "V_k": 0.484202, "m_v": 0.855764, "q_v": 0.840801, "V_v": 0.241242, "norm2_k": 0.189142, "norm2_v": 0.432046,
}  # fmt: skip
ORDER = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")
CONJUGATES = ("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v")
POINT = dict(zip(ORDER, (0.35, 0.6, 0.1, 0.5, 0.8, 0.1))) | dict(zip(CONJUGATES, (0.6, 0.5, 0.8, -0.9, 1.1, 1.4)))


@cache
def module_of(model=STRUCTURED_MODEL):
    return module_for("softmax", "spiked", 2, model=model)[0]


def power(exponent, dim):
    s = np.arange(1.0, dim + 1) ** -exponent
    return s / s.mean()


def numbers(solution):
    """Everything reported, by name."""
    fields = solution._asdict()
    return {**fields, **solution.order_parameters}


def same(one, two, names, accuracy=1e-7):
    for name in names:
        assert numbers(one)[name] == pytest.approx(numbers(two)[name], abs=accuracy), name


@pytest.fixture(scope="module")
def reference():
    return module_of().solve(**CASE, spectrum=power(1, 100), tol=1e-8)


def test_reference(reference):
    found = numbers(reference)
    assert {name: found[name] for name in REFERENCE} == pytest.approx(REFERENCE, abs=2e-6)
    assert reference.converged and not reference.warnings and reference.error < 1e-8
    assert reference.effective_rank == pytest.approx(16.458196, abs=1e-6)


def test_norms_and_energy(reference):
    """lambda norm2 = mh m + qh V - Vh q, and the energy is alpha train_loss plus half of it; lambda q is not."""
    o, c = reference.order_parameters, reference.conjugates
    parts = {b: c[f"mh_{b}"] * o[f"m_{b}"] + c[f"qh_{b}"] * o[f"V_{b}"] - c[f"Vh_{b}"] * o[f"q_{b}"] for b in "kv"}
    assert reference.norm2_k == pytest.approx(parts["k"], abs=1e-9)
    assert reference.norm2_v == pytest.approx(parts["v"], abs=1e-9)
    penalised = CASE["alpha"] * reference.train_loss + sum(parts.values()) / 2
    assert reference.energy == pytest.approx(penalised, abs=1e-8)
    assert abs(reference.norm2_k - o["q_k"]) > 0.3
    finer = module_of().solve(**CASE, spectrum=power(1, 100), tol=1e-11)
    for name in ("norm2_k", "norm2_v", "train_loss", "energy", "m_k", "V_v"):
        assert abs(numbers(reference)[name] - numbers(finer)[name]) <= reference.errors[name] + finer.errors[name]
        assert 0 < reference.errors[name] < 1e-5


def test_without_a_spectrum_it_is_the_default_module():
    plain, structured = (m.solve(**CASE, tol=1e-8) for m in (module_for("softmax", "spiked", 2)[0], module_of()))
    names = ("test_risk", "train_loss", "energy", "replicon", "jump_weight", *ORDER)
    same(plain, structured, names, 1e-9)
    assert structured.norm2_k == pytest.approx(plain.order_parameters["q_k"], abs=1e-8)
    assert plain.norm2_k is None and "norm2_k" not in plain.errors


@st.composite
def spectra(draw):
    """Eigenvalues between 0.05 and 4 with weights of two teachers, one eigenvalue zero now and then."""
    size = draw(st.integers(2, 6))
    numbers_ = st.lists(st.integers(1, 80), min_size=size, max_size=size)
    table = np.array([draw(numbers_) for _ in range(3)], dtype=float).T / 20
    if draw(st.booleans()):
        table = np.vstack([table, np.zeros(3)])
    return table


few = settings(max_examples=3, phases=[Phase.explicit, Phase.generate], deadline=None)


@few
@given(spectra(), st.sampled_from([0.1, 3.0, 40.0]))
def test_scale_of_the_covariance_and_of_the_penalty(table, scale):
    """(c Sigma, c lambda) is the same problem: the norms of the weights fall by c, all else stays."""
    scaled = table * [scale, 1, 1]
    one = module_of().solve(**CASE, spectrum=table, tol=1e-7)
    stronger = {**CASE, "lambda_k": scale, "lambda_v": scale}
    two = module_of().solve(**stronger, spectrum=scaled, tol=1e-7)
    same(one, two, ("test_risk", "train_loss", "energy", "replicon", *ORDER), 2e-7)
    assert two.norm2_k * scale == pytest.approx(one.norm2_k, rel=1e-6)


@few
@given(spectra())
def test_a_penalty_that_is_the_covariance_gives_isotropic_tokens(table):
    s = table[:, 0]
    if (s == 0).any():
        return
    found = module_of().solve(**CASE, spectrum={"columns": table, "penalty": s}, tol=1e-7)
    plain = module_of().solve(**CASE, tol=1e-7)
    same(found, plain, ("test_risk", "train_loss", "energy", "replicon", *ORDER), 1e-7)


def test_half_of_the_eigenvalues_zero():
    """D/2 coordinates of no use: isotropic tokens at twice the alpha and lambda, half the energy per dimension."""
    rank = module_of().solve(**CASE, spectrum=[1.0, 0.0], tol=1e-8)
    plain = module_of().solve(**{**CASE, "alpha": 8.0, "lambda_k": 2.0, "lambda_v": 2.0}, tol=1e-8)
    same(rank, plain, ("test_risk", "train_loss", "replicon", "m_k", "q_k", "m_v", "q_v"), 1e-8)
    assert rank.energy == pytest.approx(plain.energy / 2, abs=1e-8)
    assert rank.order_parameters["V_k"] == pytest.approx(plain.order_parameters["V_k"], abs=1e-8)


def test_no_penalty():
    """lambda_v = 0 is the limit, with an eigenvalue that is zero too: s/(lambda + Vh s) is 1/Vh or nothing."""
    spectrum = np.r_[power(1, 7), 0.0]
    one, two = (
        module_of().solve(**{**CASE, "lambda_v": weight}, spectrum=spectrum, tol=1e-7) for weight in (0.0, 1e-9)
    )
    assert one.converged and not one.warnings
    same(one, two, ("test_risk", "energy", "norm2_v", *ORDER), 1e-6)


@few
@given(spectra(), st.integers(0, 10**6))
def test_means_against_matrices(table, seed):
    """tau and kappa by the resolvent of the whitened penalty in a basis turned at random."""
    module, rng = module_of(), np.random.default_rng(seed)
    table = table[table[:, 0] > 0]
    size = len(table)
    turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
    sigma = turn @ np.diag(table[:, 0]) @ turn.T
    root = turn @ np.diag(table[:, 0] ** -0.5) @ turn.T
    conjugates = np.array([0.3, 0.2, 0.7, 0.5, 0.4, 1.9])
    strengths = 0.6, 1.3
    found = module.spectral_traces_at(conjugates, module.Problem(1.0, *strengths, module.spectral_spectrum_of(table)))
    for b, (strength, vh) in enumerate(zip(strengths, conjugates[[2, 5]], strict=True)):
        resolvent = np.linalg.inv(strength * root @ root + vh * np.eye(size))
        teacher = turn @ np.sqrt(size * table[:, 1 + b] / table[:, 1 + b].sum())
        tau, dtau, _, ltau, _, kappa, dkappa, _, _, _ = found[0][10 * b : 10 * b + 10]
        assert tau == pytest.approx(np.trace(resolvent) / size)
        assert dtau == pytest.approx(-np.trace(resolvent @ resolvent) / size)
        assert ltau == pytest.approx(-np.trace(resolvent @ np.linalg.inv(sigma) @ resolvent) / size)
        assert kappa == pytest.approx(teacher @ resolvent @ teacher / size)
        assert dkappa == pytest.approx(-teacher @ resolvent @ resolvent @ teacher / size)


def _called(function, point, table, nodes):
    parts = ({n: point[n] for n in names} for names in (ORDER, CONJUGATES))
    return function(*parts, **{**CASE, "lambda_k": 0.7}, nodes=nodes, spectrum=table)


def _slope(function, point, unknown, table, nodes, step=1e-3):
    moved = [_called(function, {**point, unknown: point[unknown] + h}, table, nodes) for h in (step, -step)]
    return (moved[0] - moved[1]) / (2 * step)


@few
@given(spectra(), st.sampled_from(ORDER))
def test_residual_is_the_gradient(table, order):
    """In the conjugates, which few nodes do for, and in one order parameter; the Jacobian is its derivative."""
    module = module_of()
    found = dict(zip((*ORDER, *CONJUGATES), _called(module.residual, POINT, table, 27_000), strict=True))
    for unknown in (order, *CONJUGATES):
        nodes = 27_000 if unknown == order else 50
        expected = _slope(module.free_energy, POINT, unknown, table, nodes)
        assert found[unknown] == pytest.approx(expected, rel=1e-5, abs=1e-5), unknown
    jacobian = _called(module.jacobian, POINT, table, 50)
    assert jacobian == pytest.approx(jacobian.T, abs=1e-12)
    for i, unknown in enumerate(CONJUGATES, 6):
        expected = _slope(module.residual, POINT, unknown, table, 50)
        assert jacobian[i] == pytest.approx(expected, rel=1e-5, abs=1e-5), unknown


def test_newton_has_the_derivatives_of_the_prior(reference):
    """The derived linearisation of the map is what differences give, at a solution."""
    module = module_of()
    at = np.array([reference.order_parameters[n] for n in ORDER])
    problem = module.Problem(4.0, 1.0, 1.0, module.spectral_spectrum_of(power(1, 100)))
    setting = module.Setting(2.0, 0.3, np.zeros(0))
    channel = module.ProxFreeChannel.at_level(1, setting)
    channel.adapt(at)
    last = module.evaluate(channel, at, problem)
    found, expected = (f(channel, last, problem) for f in (module.derived_or_differenced, module.differenced))
    np.testing.assert_allclose(found.newton, expected.newton, rtol=2e-3, atol=2e-3)


def test_every_step_of_the_chain():
    system = derive("softmax", "spiked", 2, STRUCTURED_MODEL)
    shown = json.loads(json.dumps(as_json(derivation(system))))
    shown["steps"] = [s for s in shown["steps"] if re.search(r"[spc]_(?:[kv]_)?[12i]\b", s["lhs"] + s["rhs"])]
    assert len(shown["steps"]) >= 10
    assert checker.failures(shown, points=1) == []
    assert any("mean over the coordinates" in s["rule"] for s in shown["steps"])
    stable = json.loads(json.dumps(as_json(derivation(derive_stability(system)))))
    assert checker.failures(stable, points=1) == []
    assert "tau_k" in stable["equations"]["T_kk"] and "V_k" not in stable["equations"]["T_kk"]


def test_only_an_eigenvalue_is_a_covariance():
    with pytest.raises(Refusal, match="covariance"):
        derive("softmax", "spiked", 2, Model(covariance=ALPHA))


BAD = {
    "eigenvalues and weights": [1.0, -1e-3],
    "at least one eigenvalue above 0": [0.0, 0.0],
    "finite numbers": [1.0, np.nan],
    "one, two or three columns": np.ones((3, 4)),
    "at least one weight above 0": [[1.0, 0.0], [2.0, 0.0]],
    "0 where s_i is 0": [[1.0, 1.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("words", BAD)
def test_bad_spectra(words):
    module = module_of()
    with pytest.raises(module.ArgumentError, match=words):
        module.solve(**CASE, spectrum=BAD[words])


def test_the_default_module_takes_no_spectrum():
    module = module_for("softmax", "spiked", 2)[0]
    with pytest.raises(module.ArgumentError, match="isotropic tokens"):
        module.solve(**CASE, spectrum=[1.0])


@pytest.mark.full
def test_a_generated_file_stands_alone(tmp_path):
    path = generate(derive("softmax", "spiked", 2, STRUCTURED_MODEL)).save(tmp_path / "structured.py")
    program = (
        "import runpy, numpy as np; m = runpy.run_path('structured.py'); s = 1/np.arange(1., 101); "
        "r = m['solve'](4, 2, .3, 1, 1, spectrum=s/s.mean()); print(r.test_risk, r.norm2_k)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=path.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [float(x) for x in done.stdout.split()] == pytest.approx([0.485925, 0.189142], abs=2e-6)


@pytest.mark.parametrize("level, said", [("dynamics", "does not close in m and q"), ("1rsb", "isotropic tokens alone")])
def test_levels_that_do_not_know_spectra(level, said):
    line = ["generate", "softmax", "--tokens", "2", "--level", level, "--spectrum", "power:1:10", "-o", "never.py"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 1 and said in done.stderr and not Path("never.py").exists()


def test_descent_on_structured_tokens_is_refused():
    line = ["dynamics", "softmax", "--tokens", "2", "--nu", "2", "--rate", "0.1", "--time", "1", "--spectrum"]
    for spectrum, status in (("power:1:10", 1), ("power:1", 2)):
        done = CliRunner().invoke(main, [*line, spectrum])
        assert done.exit_code == status and done.stdout == "" and "spectrum: " in done.stderr
