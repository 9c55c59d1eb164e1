"""Spectra as users name them, and training on structured tokens."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.cli import main
from replicode.inputs.spectrum import token_spectrum
from replicode.modules import module_for
from replicode.theory.errors import InputError, Refusal
from replicode.theory.lengths import lengths
from replicode.theory.model import STRUCTURED_MODEL
from replicode.validation.data.sampling import Sampler
from replicode.validation.data.scores import GaussianScores
from replicode.validation.data.spectrum import Coordinates
from replicode.validation.module import GeneratedAttention
from replicode.validation.properties.structured import spectrum_properties
from replicode.validation.statistics.controls import controls_of
from replicode.validation.statistics.measure import measure
from replicode.validation.training.attention import fields
from replicode.validation.training.online import one_pass
from replicode.validation.training.train import Informed, Random, train

S = np.array([4.0, 2.0, 1.0, 0.5, 0.0])


@pytest.fixture
def file(tmp_path):
    def written(name, array):
        path = tmp_path / name
        if name.endswith(".npy"):
            np.save(path, array)
        else:
            path.write_text("# columns\n" + "\n".join(" ".join(map(repr, map(float, np.atleast_1d(r)))) for r in array))
        return str(path)

    return written


def test_power_laws():
    found = token_spectrum("power:1.5:8")
    s = np.arange(1.0, 9) ** -1.5
    assert found.columns[:, 0] == pytest.approx(s / s.mean())
    assert found.columns[:, 1] == pytest.approx(found.columns[:, 0])
    assert token_spectrum("power:0:3").coordinates.c_k == pytest.approx(np.ones(3))


@pytest.mark.parametrize("name", ["s.npy", "s.txt"])
def test_files_of_one_two_and_three_columns(file, name):
    one = token_spectrum(file(name, S))
    assert (one.columns[:, 0] == S).all() and one.coordinates.dim == 5 and one.coordinates.s.size == 4
    assert one.coordinates.c_k == pytest.approx(5 * S[:4] / S.sum())
    two = token_spectrum(file(name, np.c_[S, [1, 0, 3, 0, 0]]))
    assert (
        two.coordinates.c_k == pytest.approx([1.25, 0, 3.75, 0]) and (two.coordinates.c_v == two.coordinates.c_k).all()
    )
    three = token_spectrum(file(name, np.c_[S, [1, 0, 3, 0, 0], [0, 1, 1, 0, 0]]))
    assert three.coordinates.c_v == pytest.approx([0, 2.5, 2.5, 0])
    assert len({one.digest, two.digest, three.digest}) == 3
    assert token_spectrum(S).digest == one.digest


def test_teachers(file):
    assert token_spectrum(S, "white").coordinates.c_k == pytest.approx([1.25] * 4)
    assert token_spectrum(S, "top:40").coordinates.c_k == pytest.approx([5 * 4 / 6, 5 * 2 / 6, 0, 0])
    assert token_spectrum(S[::-1], "top:20").columns[:, 1] == pytest.approx([0, 0, 0, 0, 4.0])
    weights = token_spectrum(S, file("t.txt", np.array([[1, 0], [1, 0], [0, 1], [0, 0], [0, 0]])))
    assert weights.coordinates.c_v == pytest.approx([0, 0, 5, 0])


BAD = [
    ({"spectrum": "power:1:0"}, "whole number"),
    ({"spectrum": "power:-1:9"}, "power:A:D"),
    ({"spectrum": "power:nan:9"}, "power:A:D"),
    ({"spectrum": "power:1:2:3"}, "power:A:D"),
    ({"spectrum": "no_such_file"}, "no such file"),
    ({"spectrum": [[1.0], [2.0, 3.0]]}, "columns"),
    ({"spectrum": np.ones((2, 2, 2))}, "rows of 1 to 3"),
    ({"spectrum": []}, "rows of 1 to 3"),
    ({"spectrum": [1.0, -1.0]}, "at least 0"),
    ({"spectrum": [0.0, 0.0]}, "above 0"),
    ({"spectrum": [1.0, np.inf]}, "finite"),
    ({"spectrum": [1.0, 2.0], "teacher": "top:101"}, "top:P"),
    ({"spectrum": [1.0, 2.0], "teacher": "top:x"}, "top:P"),
    ({"spectrum": [1.0, 2.0], "teacher": "grey"}, "no such file"),
    ({"spectrum": [[1.0, 1.0]], "teacher": "white"}, "in its columns"),
    ({"spectrum": None, "teacher": "white"}, "unless a spectrum"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_spectra(arguments, words):
    with pytest.raises(InputError, match=words):
        token_spectrum(**arguments)


def test_wrong_numbers_of_weights(file):
    with pytest.raises(InputError, match="5 of them"):
        token_spectrum(S, file("t.txt", np.ones(3)))


def _run(*arguments):
    return CliRunner().invoke(main, [*arguments, "--json"])


POINT = ("--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "0.3", "--digits", "4")


def test_solve_on_the_command_line():
    done = _run("solve", "softmax", *POINT, "--spectrum", "power:1:100")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [found[n] for n in ("test_risk", "norm2_k", "norm2_v")] == pytest.approx(
        [0.485925, 0.189142, 0.432046], abs=1e-4
    )
    assert found["effective_rank"] == pytest.approx(16.4582, abs=1e-4)
    assert found["bayes_risk"] == pytest.approx(0.3570624, abs=1e-6)
    assert found["asked"]["spectrum"] == "power:1:100" and found["asked"]["teacher"] == "isotropic"
    assert len(found["asked"]["spectrum_hash"]) == 64 and found["warnings"] == []
    plain = json.loads(_run("solve", "softmax", *POINT).stdout)
    assert not {"norm2_k", "effective_rank"} & set(plain) and plain["asked"]["spectrum"] is None


def test_bad_input_on_the_command_line(file):
    for values in ([1.0, -1.0], [0.0, 0.0], [1.0, float("nan")]):
        done = _run("solve", "softmax", *POINT, "--spectrum", file("bad.npy", np.array(values)))
        assert done.exit_code == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and "spectrum" in done.stderr
    assert _run("solve", "softmax", *POINT[:-1], "14", "--spectrum", "power:1:9").exit_code == 1


def test_derive_and_generate(tmp_path):
    done = _run("derive", "softmax", "--tokens", "2", "--spectrum", "power:1:9")
    assert done.exit_code == 0 and "tau_k" in json.loads(done.stdout)["free_energy"]
    path = tmp_path / "module.py"
    assert _run("generate", "softmax", "--tokens", "2", "--spectrum", "power:1:9", "-o", str(path)).exit_code == 0
    assert "coordinate_terms" in path.read_text()


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_teachers_are_exact(copies):
    """Norm sqrt(D), orthogonal, with the weight of every eigenvalue as given (nearly, for a single copy)."""
    spectrum = token_spectrum("power:1:40", "isotropic")
    law = Coordinates.of(spectrum.coordinates).at(40 * copies)
    k, v = law.teachers(np.random.default_rng(1))
    assert [k @ k, v @ v, k @ v] == pytest.approx([law.dim, law.dim, 0], abs=1e-9)
    weights = (k**2).reshape(40, copies).mean(axis=1)
    assert weights == pytest.approx(law.c_k)
    assert (v**2).reshape(40, copies).mean(axis=1) == pytest.approx(law.c_v, rel=1e-9 if copies > 1 else 0.1)


def test_teachers_that_can_not_be_orthogonal():
    law = Coordinates.of(token_spectrum("power:3:40").coordinates)
    with pytest.raises(Refusal, match="at least 80"):
        law.teachers(np.random.default_rng(0))
    law.at(80).teachers(np.random.default_rng(0))


def _attention(spectrum):
    module = module_for("softmax", "spiked", 2, model=STRUCTURED_MODEL)[0]
    return GeneratedAttention(module, 2.0, 0.3, np.zeros(0), STRUCTURED_MODEL, Coordinates.of(spectrum.coordinates))


def test_training_by_an_objective_written_out():
    """Loss of sigma(X k) X v with X = G sqrt(s), plus lambda |k|^2/2: stationary at what training found."""
    spectrum = token_spectrum(np.r_[np.linspace(3.0, 0.2, 19), 0.0])
    attention, rng = _attention(spectrum), np.random.default_rng(3)
    dataset = attention.setting(3.0).sampler(40, rng).draw(rng)
    lambdas = 0.7, 0.4
    ends = [train(dataset, attention, lambdas, start, rng) for start in (Random(), Informed(1.0, 1.1, 0.8, 0.7))]
    X = dataset.batches[0].X * dataset.coordinates.metric
    y = dataset.batches[0].y

    def objective(k, v):
        chi, z = X @ k / np.sqrt(40), X @ v / np.sqrt(40)
        sigma = np.exp(chi) / np.exp(chi).sum(axis=1, keepdims=True)
        residual = y - (sigma * z).sum(axis=1)
        return (residual**2).sum() / 2 + (lambdas[0] * k @ k + lambdas[1] * v @ v) / 2

    for end in ends:
        assert end.converged and end.objective == pytest.approx(objective(end.k, end.v), rel=1e-9)
        for _ in range(3):
            a, b = rng.standard_normal((2, 40))
            up, down = (objective(end.k + h * a, end.v + h * b) for h in (1e-5, -1e-5))
            assert abs(up - down) / 2e-5 < 1e-3
    assert ends[0].k == pytest.approx(ends[1].k, abs=1e-3)
    found = measure(dataset, ends[0], attention, lambdas, attention.risk)
    assert found["energy"] == pytest.approx(ends[0].objective / 40, rel=1e-9)
    assert found["q_k"] == pytest.approx((dataset.coordinates.metric**2 * ends[0].k ** 2).sum() / 40)
    star = dataset.batches[0]
    assert fields(star.X, dataset.k_star)[star.eps, np.arange(star.y.size)].mean() == pytest.approx(np.sqrt(2), abs=0.4)


def test_one_pass_descent_is_refused():
    spectrum = token_spectrum("power:1:20")
    sampler = Sampler(lengths(2), 20, 40, 0.3, (GaussianScores(1.0),), coordinates=Coordinates.of(spectrum.coordinates))
    rng = np.random.default_rng(0)
    with pytest.raises(Refusal, match="do not close"):
        one_pass(sampler.draw(rng), _attention(spectrum), (0.0, 0.0), Random(), rng, 0.1, [1.0])


def test_control_variates_have_mean_zero():
    """Tokens are whitened, so that they are as of isotropic ones; two-sided, false alarm 1e-3 of each."""
    spectrum = token_spectrum("power:1:10")
    attention = _attention(spectrum)
    controls, setting = controls_of(attention), attention.setting(4.0)
    rows = []
    for seed in range(60):
        rng = np.random.default_rng([5, seed])
        rows.append(list(controls.of(setting.sampler(40, rng).draw(rng)).values()))
    rows = np.array(rows)
    z = rows.mean(axis=0) / (rows.std(axis=0, ddof=1) / np.sqrt(len(rows)))
    assert np.abs(z).max() < 3.9


def test_validate_takes_multiples_of_the_dimension():
    point = dict(tokens=2, alpha=2.0, nu=2.0, noise=0.3, spectrum="power:1:25", dim=110, seeds=2)
    report = rc.validate("softmax", **point)
    assert report.dims == (25, 50, 100) and report.asked["spectrum"] == "power:1:25"


def test_properties_of_a_spectrum(monkeypatch):
    module = module_for("softmax", "spiked", 2, model=STRUCTURED_MODEL)[0]
    data = token_spectrum(S, "top:60")
    names = spectrum_properties(module, data.argument)
    assert len(names) == 3 and {v.outcome for v in names.values()} == {"passed"}
    terms = module.coordinate_terms
    monkeypatch.setattr(module, "coordinate_terms", lambda a, b, s, p, c: terms(a, b, s + 0.1, p, c))
    failed = [name for name, v in spectrum_properties(module, data.argument).items() if v.outcome == "failed"]
    assert failed == ["spectrum: scale of covariance and penalty", "spectrum: penalty of the covariance"]
    monkeypatch.setattr(module, "coordinate_terms", lambda *a: [1.01**i * t for i, t in enumerate(terms(*a))])
    assert spectrum_properties(module, data.argument)["spectrum: residual is the gradient"].outcome == "failed"


def test_the_bayes_optimal_level(tmp_path):
    """On the command line, derived, and generated: the module's script takes a spectrum and a teacher too."""
    point = ("--alpha", "4", "--nu", "2", "--noise", "0.3", "--spectrum", "power:1:9", "--teacher", "top:50")
    done = _run("bayes", "--tokens", "2", *point)
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["asked"]["teacher"] == "top:50" and found["test_risk"] < 0.35
    derived = _run("derive", "--level", "bayes", "--spectrum", "power:1:9")
    assert derived.exit_code == 0 and "psi_k" in json.loads(derived.stdout)["free_energy"]
    path = tmp_path / "module.py"
    made = ("generate", "--level", "bayes", "--tokens", "2", "--spectrum", "power:1:9", "-o", str(path))
    assert _run(*made).exit_code == 0
    ran = subprocess.run([sys.executable, "-I", path, *point, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["test_risk"] == pytest.approx(found["test_risk"], abs=1e-8)
    bad = subprocess.run(
        [sys.executable, "-I", path, *point[:6], "--spectrum", "power:x"], capture_output=True, text=True
    )
    assert bad.returncode == 2 and bad.stdout == "" and bad.stderr.startswith("spectrum: got 'power:x'")


def test_regression_on_structured_tokens():
    """One token, ridge: the equations of V and of the excess risk, written out for two teachers of one weight each."""
    s, lam, alpha, noise = np.array([2.0, 0.5]), 0.3, 1.5, 0.4
    found = rc.solve("1", tokens=1, alpha=alpha, noise=noise, lambda_v=lam, spectrum=np.c_[s, s], bayes=False)
    V = found.order_parameters["V_v"]
    vh = alpha / (1 + V)
    left, c = s / (lam + vh * s), 2 * s / s.sum()
    bias = (c * (lam / (lam + vh * s)) ** 2).mean()
    square = alpha * (left**2).mean() / (1 + V) ** 2
    assert left.mean() == pytest.approx(V, abs=1e-10)
    assert found.excess_risk == pytest.approx((bias + square * noise**2) / (1 - square), abs=1e-10)
    assert found.norm2_k is None and found.norm2_v > 0
