"""Tokens with radii: against Gaussian tokens in other units, against samples, and what is refused."""

import json
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.cli import main
from replicode.codegen.compiler import generate
from replicode.modules import module_for
from replicode.theory.derive.saddle import derive
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.losses import model_of
from replicode.theory.language.nodes import RADIUS
from replicode.theory.model import Model

RADII = np.array([0.6, 1.28])
ORDER = np.array([0.6, 0.55, 0.4, 0.8, 0.8, 0.3])
MODEL = Model(radius=RADIUS)


@cache
def module_of(loss="quadratic"):
    model = model_of(loss, "gaussian")
    return module_for("softmax", "max", 2, model=Model(radius=RADIUS, loss=model.loss))[0]


def setting(nu, radii=RADII):
    module = module_of()
    return module.settings_of(nu, 0.3, np.empty(0))[0]._replace(radii=np.asarray(radii, dtype=float))


@pytest.mark.parametrize("nu", [2.0, np.inf])
def test_a_radius_of_all_tokens_is_a_matter_of_units(nu):
    """Radius c is another signal, noise and penalty: c nu, noise/c, lambda_k/c^4, lambda_v/c^2; c^2 times the loss."""
    c, plain = 1.2, module_for("softmax", "max", 2)[0]
    found = module_of().solve(4.0, nu, 0.3, radii=[c], tol=None)
    other = plain.solve(4.0, c * nu, 0.3 / c, c**-4, c**-2, tol=1e-4)
    assert found.converged and found.test_risk == pytest.approx(c**2 * other.test_risk, abs=found.error)
    scales = {"m_k": 1 / c, "q_k": c**-2, "V_k": c**-4, "m_v": 1.0, "q_v": 1.0, "V_v": c**-2}
    for name, scale in scales.items():
        expected = scale * other.order_parameters[name]
        assert found.order_parameters[name] == pytest.approx(expected, abs=found.errors[name]), name
    assert found.train_loss == pytest.approx(c**2 * other.train_loss, abs=found.errors["train_loss"])
    assert found.energy == pytest.approx(c**2 * other.energy, abs=found.errors["energy"])
    assert found.replicon == pytest.approx(other.replicon, abs=0.01)


def test_kernels_by_their_formulas():
    """(y - U)^2/(2 (1 + V N)) with U = sum r sigma(r c) zeta, N = sum r^2 sigma(r c)^2; slopes by differences."""
    rng, kernels = np.random.default_rng(1), module_of().KERNELS[0]
    c, zeta, r, y = rng.standard_normal((2, 5)), rng.standard_normal((2, 5)), rng.uniform(0.3, 2, (2, 5)), np.ones(5)

    def loss(c, zeta):
        rate = r * np.exp(r * c) / np.exp(r * c).sum(axis=0)
        return (y - (rate * zeta).sum(axis=0)) ** 2 / (2 * (1 + 0.7 * (rate * rate).sum(axis=0)))

    at = c, zeta, y, 0.7, np.empty(0), r
    value, slope, rates, gain, _ = kernels.gradient(*at)
    assert value == pytest.approx(loss(c, zeta)) and kernels.loss(*at) == pytest.approx(loss(c, zeta))
    for i, way in enumerate(np.eye(2)[:, :, None]):
        h = 1e-5 * way
        assert slope[i] == pytest.approx((loss(c + h, zeta) - loss(c - h, zeta)) / 2e-5, abs=1e-9)
        assert -gain * rates[i] == pytest.approx((loss(c, zeta + h) - loss(c, zeta - h)) / 2e-5, abs=1e-9)
        near = [kernels.gradient(c + s * h, zeta, *at[2:])[1] for s in (1, -1)]
        assert kernels.hessian(*at)[2][i] == pytest.approx((near[0] - near[1]) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("nu", [2.0, np.inf])
def test_rates_are_the_gradient_of_the_envelope(nu):
    """Two radii: V by differences on the same nodes, exactly; m and q, by Stein's lemma, within their scatter."""
    module = module_of()
    channels = [module.radial_scrambled(12, seed, setting(nu)) for seed in range(6)]
    rates = np.array([channel.averages(ORDER).rates for channel in channels])
    for place in range(6):
        moves = [ORDER + h * np.eye(6)[place] for h in (1e-3, -1e-3)]
        up, down = (np.array([channel.averages(m).envelope for channel in channels]) for m in moves)
        gaps = (up - down) / 2e-3 - rates[:, place]
        bound = 1e-5 if place in (2, 5) else 6 * gaps.std(ddof=1) / np.sqrt(gaps.size)
        assert abs(gaps.mean()) < bound < 0.05, place


@pytest.mark.parametrize("nu", [2.0, np.inf])
def test_the_risk_is_that_of_samples(nu):
    rng, n = np.random.default_rng(2), 400_000
    found, error = module_of().radial_risk(ORDER, (setting(nu),), 0.0)
    r = rng.choice(RADII, size=(2, n))
    star, noise, zeta, more = rng.standard_normal((4, 2, n))
    chi = r * (0.6 * star + np.sqrt(0.55 - 0.36) * noise)
    z = r * (0.8 * zeta + np.sqrt(0.8 - 0.64) * more)
    ranks = r * star if np.isinf(nu) else nu * r * star + rng.gumbel(size=(2, n))
    eps = ranks.argmax(axis=0)
    y = (r * zeta)[eps, np.arange(n)] + 0.3 * rng.standard_normal(n)
    losses = (y - (np.exp(chi) / np.exp(chi).sum(axis=0) * z).sum(axis=0)) ** 2
    assert found == pytest.approx(losses.mean(), abs=5 * losses.std() / np.sqrt(n) + error) and error < 1e-3


def test_any_loss():
    """Huber's beyond all residuals is the square."""
    loose, square = (module_of(loss).solve(3.0, 2.0, 0.3, radii=RADII, tol=None) for loss in ("huber:50", "quadratic"))
    assert loose.test_risk == pytest.approx(square.test_risk, abs=1e-6) and loose.converged


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"task": "spiked"}, "tilts the law of the radii"),
        ({"labels": "sign"}, "leaves the fields Gaussian"),
        ({"act": "relu"}, "has kinks"),
        ({"rsb": 1}, "one step of breaking with radii"),
        ({"digits": 20}, "with radii"),
    ],
)
def test_what_is_not_derived_is_refused(arguments, said):
    given = {"act": "softmax", "task": "max", "tokens": 2, "alpha": 4, "nu": 2, "radii": RADII, **arguments}
    with pytest.raises(Refusal, match=said):
        rc.solve(**given)


def test_other_levels_are_refused():
    for verb in (rc.bayes, rc.population, rc.dynamics, rc.validate):
        more = {"alpha": 4.0} if verb in (rc.bayes, rc.validate) else {"rate": 0.1, "time": 1.0}
        more = {} if verb is rc.population else more
        acts = () if verb is rc.bayes else ("softmax",)
        with pytest.raises((Refusal, InputError), match="radi"):
            verb(*acts, task="max", tokens=2, nu=2.0, model=MODEL, **more)


def test_bad_radii(tmp_path):
    line = ["solve", "softmax", "--task", "max", "--tokens", "2", "--alpha", "4", "--nu", "2"]
    files = {"none": "", "zero": "1\n0\n", "negative": "1\n-2\n", "nan": "nan\n", "words": "one\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for given in [*(str(tmp_path / name) for name in files), str(tmp_path / "nowhere")]:
        done = CliRunner().invoke(main, [*line, "--radii", given])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "radii" in done.stderr, (given, done.stderr)
    with pytest.raises(InputError, match="backend"):
        rc.solve("softmax", task="max", tokens=2, alpha=4, nu=2, radii=RADII, backend="fast")
    with pytest.raises(ValueError, match="radii"):
        module_for("softmax", "max", 2)[0].solve(4.0, 2.0, radii=RADII)
    with pytest.raises(ValueError, match="radii"):
        module_of().solve(4.0, 2.0)


def test_a_generated_file_stands_alone(tmp_path):
    path, radii = tmp_path / "radial.py", tmp_path / "radii.txt"
    path.write_text(generate(derive("softmax", "max", 2, MODEL)).source)
    np.savetxt(radii, RADII)
    command = [
        sys.executable,
        str(path),
        "--alpha",
        "4",
        "--nu",
        "2",
        "--noise",
        "0.3",
        "--radii",
        str(radii),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    found = rc.solve("softmax", task="max", tokens=2, alpha=4, nu=2, noise=0.3, radii=RADII)
    assert json.loads(done.stdout)["test_risk"] == found.test_risk and found.bayes_risk is None
    assert found.asked["radii_count"] == 2 and len(found.asked["radii_hash"]) == 64


@pytest.mark.parametrize("radii, named", [([1.0, np.nan, 2.0], "nan"), ([2.0, -1.0], "-1.0"), (["a"], "list")])
def test_bad_radii_are_named(radii, named):
    with pytest.raises(InputError, match=f"radii: got .?{named}"):
        rc.solve("softmax", task="max", tokens=2, alpha=4, nu=2, radii=radii)
