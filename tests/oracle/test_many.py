"""Many tokens: Hessians as outer products, nodes that are aligned with the tokens, and a search where it can matter."""

from __future__ import annotations

import numpy as np
import pytest
from generated import module_of

ORDER = np.array([0.5, 0.6, 1.0, 0.6, 0.7, 0.8])
ACTIVATIONS = ["softmax", "sigmoid", "linear", "tanh(x - mean(x))"]


def _setting(module, nu=2.0):
    (setting,) = module.settings_of(nu, 0.3, module.parameter_values({}))
    return setting


def _without_factors(setting):
    return setting._replace(kernel=setting.kernel._replace(hessian_factors=None, curvature_factors=None))


def _samples(module, log2=8):
    setting = _setting(module)
    channel = module.AlignedChannel.scrambled(log2, 3, setting)
    return setting, module.fields(channel._law(ORDER), channel.zeta)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_outer_products_are_the_whole_matrices(activation, scale):
    """The same proxes and responses by Woodbury's formula; its bound on the eigenvalues is one."""
    module = module_of(activation, "spiked", 16)
    setting, at = _samples(module)
    whole, order = _without_factors(setting), ORDER * np.where(np.arange(6) == module.V_K, scale, 1.0)
    V = float(order[module.V_K]), float(order[module.V_V])
    assert setting.kernel.hessian_factors is not None
    chi, failed = module.prox(at.w_chi, at, V, setting)
    assert failed == 0
    assert chi == pytest.approx(module.prox(at.w_chi, at, V, whole)[0], abs=1e-7)
    fast, slow = (module._response_integrands(order, s, at, chi) for s in (setting, whole))
    assert fast == pytest.approx(slow, rel=1e-7, abs=1e-9)
    point = chi, at.w_z, at.y, V[1], setting.params
    h = module.LowRank.of(setting.kernel.hessian_factors(*point)[2], at.y.size)
    matrices = np.eye(16) + V[0] * setting.kernel.hessian(*point)[2].transpose(2, 0, 1)
    least = np.linalg.eigvalsh(matrices)[:, 0]
    found = module.Woodbury.of(h, V[0])
    assert (found.least <= least + 1e-9).all()
    assert scale > 1.0 or (found.least[least > 0.7] > 0.3).mean() > 0.5
    safe = found.least > 0.0
    solved = np.linalg.solve(matrices, at.w_chi.T[:, :, None])[:, :, 0].T
    assert found.solve(at.w_chi)[:, safe] == pytest.approx(solved[:, safe], rel=1e-8, abs=1e-9)


def test_few_tokens_have_whole_matrices():
    assert _setting(module_of("softmax", "spiked", 8)).kernel.hessian_factors is None


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_aligned_fields_have_the_law_of_the_fields(activation, tokens):
    module = module_of(activation, "spiked", tokens)
    setting = _setting(module)
    aligned, reduced = module.aligned_factor(ORDER, setting), module.field_factor(ORDER, setting)
    for name in ("score_factor", "value_factor"):
        a, b = getattr(aligned, name), getattr(reduced, name)
        assert a @ a.T == pytest.approx(b @ b.T, abs=1e-12)
    rows = module.aligned_rows(setting)
    assert sorted(rows) == list(range(sum(module.aligned_dimensions(setting))))
    _, _, value = module.field_law(ORDER, setting)
    label = aligned.value_factor[:, rows[0] - tokens]
    assert rows[2] == 0 and (setting.row_sum or label == pytest.approx(value[:, -1] / np.sqrt(value[-1, -1])))


@pytest.mark.parametrize(("activation", "task"), [("softmax", "spiked"), ("sigmoid", "spiked"), ("softmax", "max")])
def test_aligned_averages_are_those_of_lattices(activation, task):
    """Eight scrambled sets against a lattice: within six standard errors, all rates."""
    module = module_of(activation, task, 3)
    setting = _setting(module)
    sets = [module.AlignedChannel.scrambled(9, seed, setting).averages(ORDER) for seed in range(8)]
    found = np.array([np.r_[s.rates, s.envelope, s.train_loss] for s in sets])
    exact = module.ROUTES.averages(ORDER, setting, 20_000)
    gap = found.mean(axis=0) - np.r_[exact.rates, exact.envelope, exact.train_loss]
    assert (np.abs(gap) < 6.0 * found.std(axis=0, ddof=1) / np.sqrt(8) + 2e-4).all()
    assert (np.abs(gap) < 0.01).all()


def test_a_screened_search_finds_what_a_whole_one_does():
    """Where some samples jump they have large objectives, and what a set tells of them is enough for the next."""
    module = module_of("softmax", "spiked", 4)
    setting = _setting(module)
    order = ORDER * np.where(np.arange(6) == module.V_K, 6.0, 1.0)
    channel = module.AlignedChannel.scrambled(10, 3, setting)
    found = channel.averages(order)
    assert found.jumped > 0.01 and 0.5 < channel.lowest < 1.0 and channel.worth_searching() > 1.0 - channel.lowest
    at, V = module.fields(channel._law(order), channel.zeta), (float(order[module.V_K]), float(order[module.V_V]))
    chi, _, jumped = module.global_prox(at.w_chi, at, V, setting)
    screened, _, left = module.screened_prox(at.w_chi, at, V, setting, 0.5)
    assert left.sum() == jumped and screened == pytest.approx(chi, abs=1e-9)


def test_sets_grow_to_what_is_asked_for(monkeypatch):
    module = module_of("softmax", "spiked", 5)
    monkeypatch.setattr(module, "LOG2_FEW", 7)
    monkeypatch.setattr(module, "LOG2_SOBOL", (7,))
    monkeypatch.setattr(module, "LOG2_MOST", 11)
    point = {"alpha": 4.0, "nu": 2.0, "noise": 0.3}
    rough, fine = module.solve(**point, tol=0.1), module.solve(**point, tol=2e-3)
    assert "of 128 nodes" in rough.method and "of 2048 nodes" in fine.method
    assert fine.error < 0.5 * rough.error and abs(fine.test_risk - rough.test_risk) < fine.error + rough.error
    assert "of 128 nodes" in module.solve(**point, tol=None).method
