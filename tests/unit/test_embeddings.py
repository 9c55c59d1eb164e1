"""Real tokens: pools, diagnostics, and the three columns, on pools made here."""

import json
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.cli import main
from replicode.theory.errors import InputError
from replicode.validation.data.pool import effective_sample, pool_of, read_pool
from replicode.validation.studies import embeddings as study_of

DIM = 12
POINT = {"tokens": 2, "alpha": 3.0, "noise": 0.3}
HEAVY = 0.5


@cache
def made(spread=0.0, size=1500):
    """Tokens with a power-law covariance in a turned basis, a mean, and log-normal radii."""
    rng = np.random.default_rng(7)
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    radii = np.exp(spread * rng.standard_normal((size, 1)))
    return radii * rng.standard_normal((size, DIM)) * np.arange(1, DIM + 1) ** -0.5 @ turn + 3.0


@pytest.fixture
def file(tmp_path):
    def written(array):
        path = tmp_path / f"tokens_{len(array)}.npy"
        np.save(path, array)
        return str(path)

    return written


def test_a_pool_is_centred_and_whitened(file):
    pool = read_pool(file(made()))
    assert pool.rows.mean(axis=0) == pytest.approx(np.zeros(DIM), abs=1e-12)
    assert pool.rows.T @ pool.rows / pool.size == pytest.approx(np.eye(DIM), abs=1e-10)
    expected = np.linalg.eigvalsh(np.cov(made().T, bias=True))[::-1]
    assert pool.s == pytest.approx(expected / expected.mean()) and (pool.radii**2).mean() == pytest.approx(1)


def test_a_degenerate_direction():
    flat = np.column_stack([made(), made()[:, 0]])
    pool = pool_of(flat)
    assert pool.s[-1] == 0 and (pool.rows[:, -1] == 0).all() and np.isfinite(pool.rows).all()
    assert pool.s.mean() == pytest.approx(1) and pool.dim == DIM + 1


def test_diagnostics():
    """Gaussian tokens have none; exp(spread xi) as radius has E r^4/(E r^2)^2 - 1 = exp(4 spread^2) - 1."""
    calm, wild = (pool_of(made(spread, 20_000)) for spread in (0.0, HEAVY))
    assert abs(calm.radial_kurtosis) < 0.02
    assert wild.radial_kurtosis == pytest.approx(np.exp(4 * HEAVY**2) - 1, rel=0.2)
    assert pool_of(made(HEAVY, 20_000), "rows").radial_kurtosis < 0.1
    assert abs(calm.neighbour_dependence) < 0.01
    walk = np.repeat(made(0.0, 3000), 2, axis=0)
    assert pool_of(walk).neighbour_dependence == pytest.approx(0.5, abs=0.02)
    assert effective_sample(np.zeros(7)) == pytest.approx(7) and effective_sample(np.r_[0, [-50] * 9]) == pytest.approx(
        1
    )


BAD = [
    (np.zeros((10, 3)), "columns"),
    (np.zeros(10), "one token a row"),
    (np.zeros((4, 8)), "more rows than columns"),
    (np.zeros((40, 8)), "all the same|tokens"),
    (np.r_[made()[:40], [[np.nan] * DIM]], "finite"),
    (np.array([["a"] * 8] * 20), "one token a row"),
]


@pytest.mark.parametrize(("array", "words"), BAD)
def test_bad_arrays(array, words):
    with pytest.raises(InputError, match=words):
        pool_of(array)


def _run(*arguments):
    return CliRunner().invoke(main, ["validate", "softmax", *arguments, "--json"])


COMMAND = ("--task", "max", "--tokens", "2", "--alpha", "3", "--nu", "inf", "--noise", "0.3")


def test_bad_input_on_the_command_line(file, tmp_path):
    (tmp_path / "text.npy").write_text("no numbers")
    cases = [
        ("--embeddings", str(tmp_path / "nowhere.npy")),
        ("--embeddings", str(tmp_path / "text.npy")),
        ("--embeddings", file(made()[:60])),
        ("--embeddings", file(made()), "--normalise", "columns"),
        ("--embeddings", file(made()), "--radial", "wide"),
        ("--embeddings", file(made()), "--spectrum", "power:1:12"),
        ("--embeddings", file(made()), "--dim", "12"),
        ("--embeddings", file(made()), "--tokens", "1:0.5,2:0.5"),
        ("--embeddings", file(made()), "--loss", "absolute"),
        ("--embeddings", file(made()), "--labels", "sign"),
        ("--normalise", "rows"),
        ("--radial", "empirical"),
    ]
    for case in cases:
        done = _run(*COMMAND, *case)
        assert done.exit_code == 2 and done.stdout == "" and done.stderr.count("\n") == 1, (case, done.stderr)


def test_a_tilted_pool_is_refused_where_too_few_tokens_count(file):
    path = file(made())
    done = _run("--embeddings", path, "--tokens", "2", "--alpha", "3", "--nu", "40", "--noise", "0.3")
    assert done.exit_code == 1 and "effective sample" in done.stderr


def test_three_columns(file):
    done = _run("--embeddings", file(made()), *COMMAND, "--seeds", "6")
    found = json.loads(done.stdout)
    assert done.exit_code in (0, 1) and found["verdict"] in ("agrees", "undecided")
    for q in ("test_risk", "train_loss", "m_k", "q_v"):
        assert abs(found["difference"][q]["z"]) < 5
        assert found["real"][q]["sem"] > 0 and found["surrogate"][q]["mean"] != found["real"][q]["mean"]
    assert found["diagnostics"]["tilted_sample"] is None and abs(found["diagnostics"]["radial_kurtosis"]) < 0.1
    assert found["dim"] == DIM and found["asked"]["radial"] == "gaussian" and len(found["asked"]["spectrum_hash"]) == 64


def test_a_spiked_task_tilts_the_pool():
    report = rc.validate_embeddings("softmax", made(), task="spiked", nu=0.3, seeds=2, **POINT)
    assert 0.5 < report.diagnostics["tilted_sample"] < 1


@pytest.mark.full
def test_the_elliptical_law_mends_what_radii_break():
    """Radii of exp(0.5 xi): the Gaussian theory is off by several per cent, the elliptical one is not."""
    tokens = made(HEAVY, 6000)
    point = {**POINT, "alpha": 30.0, "task": "max", "nu": np.inf, "seeds": 30}
    plain = rc.validate_embeddings("softmax", tokens, **point)
    mended = rc.validate_embeddings("softmax", tokens, radial="empirical", **point)
    assert any("not Gaussian" in w for w in plain.warnings) and not any("not Gaussian" in w for w in mended.warnings)
    assert abs(plain.difference["m_k"]["z"]) > 5 > max(abs(row["z"]) for row in mended.difference.values())


def test_no_test_token_was_trained_on(monkeypatch):
    """Every row that trains is used once, and none of them is in the test sequences."""
    seen, drawn = [], study_of.PoolTokens.draw

    def noted(self, rng, count, replace=False):
        dataset = drawn(self, rng, count, replace)
        seen.append((replace, {row.tobytes() for row in dataset.batches[0].X.reshape(-1, DIM)}))
        return dataset

    monkeypatch.setattr(study_of.PoolTokens, "draw", noted)
    rc.validate_embeddings("softmax", made(), task="max", nu=np.inf, seeds=2, **POINT)
    groups = [[rows for replace, rows in seen[i : i + 11]] for i in (0, 11)]
    for train, *tests in groups:
        assert len(train) == 2 * 3 * DIM and len(tests) == 10
        assert not any(train & test for test in tests)
