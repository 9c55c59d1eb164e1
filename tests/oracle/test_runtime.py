"""The run-time of generated modules: nodes, prox, folds and solver, each number had in two ways."""

from __future__ import annotations

import numpy as np
import pytest
from generated import module_of
from scipy import integrate, optimize, special

from replicode.codegen.compiler import generate
from replicode.theory.derive.saddle import derive


@pytest.fixture(scope="module")
def softmax():
    return module_of("softmax", "spiked", 2)


@pytest.fixture(scope="module")
def softmax3():
    return module_of("softmax", "spiked", 3)


@pytest.fixture(scope="module")
def linear():
    return module_of("linear", "spiked", 2)


NONE = np.array([])
ORDER = np.array([0.4, 0.5, 0.6, 0.7, 0.8, 0.5])


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 7])
def test_lattice_integrates_gaussian_moments(softmax, dim):
    nodes, weights = softmax.lattice(dim, softmax.level_count(dim, 3), 3)
    accuracy = {1: 1e-12, 2: 1e-12, 3: 1e-10, 5: 1e-5, 7: 1e-3}[dim]
    assert (nodes**2) @ weights == pytest.approx(np.ones(dim), rel=accuracy)
    assert np.cos(nodes.sum(axis=0)) @ weights == pytest.approx(np.exp(-dim / 2), rel=10 * accuracy)


def test_lattice_beats_gauss_hermite_on_a_sharp_integrand(softmax):
    nodes, weights = softmax.lattice(1, 1200, 0)
    exact = integrate.quad(lambda z: np.logaddexp(5 * z, -5 * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi), -12, 12)[0]
    assert np.logaddexp(5 * nodes[0], -5 * nodes[0]) @ weights == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_factorisation_solves(softmax, size):
    rng = np.random.default_rng(size)
    a = rng.normal(size=(size, size, 7))
    a = np.einsum("ikn,jkn->ijn", a, a) + 0.1 * np.eye(size)[:, :, None]
    right = rng.normal(size=(size, 7))
    found = softmax.solve_factored(*softmax.factor(a), right)
    assert np.einsum("ijn,jn->in", a, found) == pytest.approx(right, abs=1e-9)
    pivots = softmax.factor(a)[1]
    assert pivots.prod(axis=0) == pytest.approx(np.linalg.det(a.transpose(2, 0, 1)), rel=1e-9)


def test_global_prox_beats_a_dense_scan(softmax):
    """At a V_k where the prox jumps, no point of a fine scan along the one free direction is lower."""
    setting = softmax.Setting(0.5, 0.3, NONE)
    order = np.array([0.3, 0.6, 6.0, 0.5, 0.9, 2.0])
    at = softmax.fields(softmax.field_factor(order, setting), softmax.lattice(3, 1500, 0)[0])
    chi, failed, jumped = softmax.global_prox(at.w_chi, at, (6.0, 2.0), setting)
    best = softmax.objective(chi, at, (6.0, 2.0), setting)
    direction = np.array([[1.0], [-1.0]]) / np.sqrt(2.0)
    scan = np.min(
        [softmax.objective(at.w_chi + t * direction, at, (6.0, 2.0), setting) for t in np.linspace(-15, 15, 1501)],
        axis=0,
    )
    assert failed == 0 and jumped > 0
    assert (best <= scan + 1e-9).all()


@pytest.mark.parametrize("task", ["spiked", "x**2/5 + sqrt(nu)*x"])
@pytest.mark.parametrize("activation", ["softmax", "linear", "softplus"])
def test_prox_and_prox_free_averages_agree(activation, task):
    module = module_of(activation, task, 2)
    setting = module.Setting(1.5, 0.3, NONE)
    order = np.array([0.3, 0.3, 0.15, 0.5, 0.5, 0.3])
    dim = sum(module.dimensions(setting))
    free = module.ProxFreeChannel(module.lattice(dim, 40_000 * 3 ** max(dim - 4, 0), 0), setting)
    free.adapt(order)
    other = module.ProxChannel(module.lattice(dim, 20_000, 1), setting)
    one, two = free.averages(order), other.averages(order)
    scale = np.abs(two.rates).max()
    assert one.rates == pytest.approx(two.rates, abs=2e-4 * scale)
    assert one.envelope == pytest.approx(two.envelope, rel=1e-4)
    assert free.response(order).trace == pytest.approx(other.response(order).trace, rel=1e-3)


def test_folds_are_cut_where_the_convex_envelope_says(softmax):
    """Bitangents of random rows against the jump of a brute-force global prox along each."""
    setting = softmax.Setting(0.5, 0.3, NONE)
    order = np.array([0.3, 0.6, 6.0, 0.5, 0.9, 2.0])
    frame = softmax.frame_at(order, setting)
    values = frame.law.value_factor @ np.random.default_rng(5).normal(size=(2, 40))
    rows = softmax._Rows(order, setting, frame, values)
    on = rows.grid(120)
    nodes, folded = rows.nodes(on), rows.folded(on)
    assert (folded > 0).sum() >= 3
    u = np.linspace(-12.0, 12.0, 6001)
    line = rows.line(np.arange(40)[:, None], np.broadcast_to(u, (40, u.size)))
    for row in np.flatnonzero(folded > 1e-4):
        taus = np.linspace(-4.0, 4.0, 4001)
        chosen = u[np.argmin(line.psi[row][None, :] - taus[:, None] * u[None, :], axis=1)]
        jump = int(np.argmax(np.diff(chosen)))
        kept = np.sort(nodes.u[nodes.row == row])
        inside = kept[(kept > chosen[jump] + 0.02) & (kept < chosen[jump + 1] - 0.02)]
        assert inside.size == 0
        assert kept[kept <= chosen[jump] + 0.02].max() == pytest.approx(chosen[jump], abs=0.02)


@pytest.mark.parametrize("scale", [1.0001, 1.01, 1.1])
def test_narrow_gaps_against_a_dense_hull(softmax, scale):
    """A row that just folds: its values scaled from where its lowest rate is 0; ends on a grid of steps of 1e-4."""
    setting, order = softmax.Setting(0.5, 0.3, NONE), np.array([0.3, 0.6, 6.0, 0.5, 0.9, 2.0])
    frame = softmax.frame_at(order, setting)
    direction = frame.law.value_factor @ np.array([[1.0], [0.5]])

    def row(size):
        return softmax._Rows(order, setting, frame, size * direction)

    def lowest(size):
        u = np.linspace(-10.0, 10.0, 20001)
        return row(size).line(np.zeros(u.size, dtype=int), u).rate.min()

    onset = optimize.brentq(lowest, 0.1, 10.0, xtol=1e-9)
    rows = row(scale * onset)
    on = rows.grid(60)
    found, narrow = (
        rows.gaps(on, np.array([0])),
        rows._narrow_gaps(np.array([0]), on.u[0, np.argmin(on.line.rate, axis=1)], on.step),
    )
    middle = 0.5 * (narrow.begin + narrow.end)[0]
    u = middle + np.arange(-2.0, 2.0, 1e-4)
    line = rows.line(np.zeros(u.size, dtype=int), u)
    (left,), (right,) = softmax._hull_gaps(u[None], line.psi[None])[1:]
    ends = narrow if scale < 1.05 else found
    assert [ends.begin[0], ends.end[0]] == pytest.approx(
        [left, right], abs=3e-4 + 0.1 * (right - left) * (scale < 1.05)
    )


@pytest.mark.parametrize(("regularisation", "digits"), [(1.0, 11), (0.5, 10), (0.2, 7)])
def test_gaps_subtracted_or_folds_cut_out(softmax, regularisation, digits):
    """The signed integral less its gaps is that over the contact set."""
    found = softmax.solve(4.0, 2.0, 0.3, regularisation, regularisation, tol=1e-7)
    order = np.array(list(found.order_parameters.values()))
    setting = softmax.Setting(2.0, 0.3, NONE)
    smooth = softmax.ProxFreeChannel.at_level(5, setting)
    smooth.adapt(order)
    signed, less = (c.averages(order) for c in (smooth, softmax.GapChannel(smooth, 2)))
    cut = softmax.FoldedChannel(3, setting).averages(order)
    assert less.rates == pytest.approx(cut.rates, abs=10.0**-digits)
    assert less.envelope == pytest.approx(cut.envelope, abs=10.0**-digits)
    assert less.unconverged < 10.0**-digits
    assert np.abs(signed.rates - cut.rates).max() > 10.0 * np.abs(less.rates - cut.rates).max()


def test_ten_digits_where_folds_matter(softmax):
    """Folds of 1e-10 subtracted, against the folds cut out, whose rows share nothing with them but the bitangents."""
    found = softmax.solve(4.0, 2.0, 0.3, 1.0, 1.0, tol=1e-11)
    assert "subtracted" in found.method and found.error <= 1e-11
    task = softmax._Request((softmax.Setting(2.0, 0.3, NONE),), softmax.Problem(4.0, 1.0, 1.0), 1e-11)
    order = np.array(list(found.order_parameters.values()))
    cut = softmax._levels(softmax.mixed_ladder(task.settings, softmax._cut), order, task)
    risk, _ = softmax._risk(cut.last.order, task)
    assert abs(risk - found.test_risk) <= found.error + cut.error < 3e-11


def test_the_replicon_where_folds_begin(softmax):
    """Rules graded towards where folds begin: few lines of values give what more and finer ones do."""
    found = softmax.solve(4.0, 2.0, 0.3, 0.3, 0.3, tol=1e-5)
    order = np.array(list(found.order_parameters.values()))
    few, many = (softmax.FoldedChannel(level, softmax.Setting(2.0, 0.3, NONE)).response(order) for level in (0, 1))
    assert np.abs(few.squares - many.squares).max() < 1e-4 * many.squares.max()
    assert (few.scatter < 0.002 * few.squares).all()
    assert found.replicon == pytest.approx(0.34166, abs=found.errors["replicon"])
    assert found.errors["replicon"] < 1e-3


@pytest.mark.parametrize(
    "regularisation, replicon",
    [(0.03, 1.5375), (0.1, 1.1105), *(pytest.param(*p, marks=pytest.mark.full) for p in ((0.02, 1.60), (0.05, 1.434)))],
)
def test_the_replicon_has_no_tails(softmax, regularisation, replicon):
    """Where the prox jumps often: values of five times as many lines with rules three times as fine."""
    found = softmax.solve(3.0, 0.5, 0.3, regularisation, regularisation, tol=1e-2)
    assert found.errors["replicon"] < 0.1 * found.replicon
    assert abs(found.replicon - replicon) < found.errors["replicon"] + 0.02


@pytest.mark.parametrize(
    ("alpha", "noise", "regularisation", "replicon"),
    [
        (4.0, 0.1, 0.1, 0.6415),
        *(pytest.param(*p, marks=pytest.mark.full) for p in ((8.0, 0.3, 0.05, 1.0422), (8.0, 0.3, 0.01, 1.597))),
    ],
)
def test_the_replicon_is_known_to_five_per_cent(softmax, alpha, noise, regularisation, replicon):
    """Points at which the first rows know it to 8 to 12 %, against rows of five levels more."""
    found = softmax.solve(alpha, 1.0, noise, regularisation, regularisation, tol=1e-3)
    assert found.errors["replicon"] <= 0.05 * found.replicon
    assert abs(found.replicon - replicon) < found.errors["replicon"]


def test_three_methods_agree_where_the_prox_folds(softmax):
    """Folds subtracted, global prox on Sobol nodes: the same risk within their errors; and theory.md's fold mass."""
    arguments = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 0.1, "lambda_v": 0.1}
    cut = softmax.solve(**arguments, tol=1e-5)
    assert "folds subtracted" in cut.method
    assert cut.folded_mass == pytest.approx(4e-4, rel=0.1)
    assert cut.jump_weight == pytest.approx(0.0147, rel=0.1)
    task = softmax._Request((softmax.Setting(2.0, 0.3, NONE),), softmax.Problem(4.0, 0.1, 0.1), 3e-3)
    order = np.array([cut.order_parameters[n] for n in softmax.ORDER_NAMES])
    jumping = softmax._ensemble(order, task)
    risk, _ = softmax._risk(jumping.last.order, task)
    assert abs(risk - cut.test_risk) <= jumping.error + cut.error
    assert jumping.error < 3e-3


@pytest.mark.parametrize(
    ("alpha", "nu", "regularisation", "replicon", "jump"),
    [(4.0, 2.0, 1.0, 0.1634, 0.0), (3.0, 0.5, 0.5, 0.3375, 2e-4), (3.0, 0.5, 0.1, 1.11, 0.095)],
)
def test_stability_of_known_points(softmax, alpha, nu, regularisation, replicon, jump):
    """Converged values, with folds and without."""
    found = softmax.solve(alpha, nu, 0.3, regularisation, regularisation, tol=1e-5)
    assert found.replicon == pytest.approx(replicon, abs=found.errors["replicon"] + 0.005 * replicon)
    assert not any("either side of 1" in w for w in found.warnings)
    assert found.jump_weight == pytest.approx(jump, rel=0.05, abs=3e-5)
    assert found.rs_stable is (replicon < 1.0)


def test_replica_symmetry_is_called_broken_at_low_regularisation(softmax):
    found = softmax.solve(3.0, 0.5, 0.3, 0.02, 0.02, tol=1e-2)
    assert found.converged and not found.rs_stable
    assert found.test_risk == pytest.approx(2.275, abs=0.01)


@pytest.mark.full
def test_two_routes_agree_where_replica_symmetry_breaks(softmax):
    """Folds cut out against the global prox on Sobol nodes, each with its error; both converge, neither is trusted."""
    cut = softmax.solve(3.0, 0.5, 0.3, 0.02, 0.02, tol=1e-3)
    assert cut.converged and "folds cut out" in cut.method and not cut.rs_stable
    task = softmax._Request((softmax.Setting(0.5, 0.3, NONE),), softmax.Problem(3.0, 0.02, 0.02), 1e-3)
    with np.errstate(all="ignore"):
        jumping = softmax._ensemble(softmax._start("informed", task), task)
    risk, _ = softmax._risk(jumping.last.order, task)
    assert jumping.converged and jumping.error < 0.2
    assert abs(risk - cut.test_risk) <= jumping.error + cut.error


def test_minima_where_sigma_has_no_slope():
    """(1+x)^2 over its sum is 0/0 at (-1, -1), where many proxes end: M is at most the loss at w, rates stay finite."""
    module = generate(derive("poly2", "nu*tanh(x)", 2)).load()
    values = (0.3123, 0.1862, 0.6036, 0.6412, 0.8205, 0.5057)
    order = dict(zip(module.ORDER_NAMES, values, strict=True))
    conjugates = dict.fromkeys(module.CONJUGATE_NAMES, 0.5)
    energies = [module.free_energy(order, conjugates, 4.0, 2.0, 0.3, 1.0, 1.0, nodes=n) for n in (3e4, 2e5)]
    assert energies[0] == pytest.approx(energies[1], rel=1e-3)
    assert np.abs(module.residual(order, conjugates, 4.0, 2.0, 0.3, 1.0, 1.0)).max() < 2.0
    setting = module.Setting(2.0, 0.3, NONE)
    nodes = module.ProxChannel(module.sobol(module.node_dimensions(setting), 12, 0), setting)
    at = module.fields(module.field_factor(np.array(values), setting), nodes.zeta)
    found = nodes.averages(np.array(values))
    weights = next(nodes._weighted(np.array(values), at))[1]
    loss = setting.kernel.loss(at.w_chi, at.w_z, at.y, values[5], setting.params)
    assert found.envelope < loss[: weights.size] @ weights / weights.sum()


def test_slow_iterations_are_no_branches():
    """Ridge regression with next to no penalty: the residual is small long before the fixed point."""
    module = module_of("softmax", "spiked", 1)
    found = module.solve(1.0, 2.0, 0.3, 1.0, 1e-8, tol=1e-3)
    assert found.error <= 1e-3
    assert found.test_risk == pytest.approx(450.045046, abs=found.error)
    assert not any("branch" in w for w in found.warnings)


def test_ridge_regression_at_one_token():
    """L = 1 softmax is ridge regression, whose saddle point is closed."""
    module = module_of("softmax", "spiked", 1)
    found = module.solve(1.0, 2.0, 0.0, 1.0, 0.1, tol=1e-11)
    assert found.order_parameters["m_v"] == pytest.approx(0.729844, abs=1e-6)
    assert found.order_parameters["q_v"] == pytest.approx(0.615861, abs=1e-6)

    def gap(v):
        return 1.0 / (0.1 + 1.0 / (1.0 + v)) - v

    v = optimize.brentq(gap, 1e-6, 1e3, xtol=1e-14)
    assert found.order_parameters["V_v"] == pytest.approx(v, abs=1e-9)
    assert found.order_parameters["m_v"] == pytest.approx(v / (1.0 + v), abs=1e-9)


@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_energy_identity(activation, softmax, linear):
    module = {"softmax": softmax, "linear": linear}[activation]
    found = module.solve(3.0, 2.0, 0.3, 0.7, 1.3, tol=1e-4)
    q_k, q_v = found.order_parameters["q_k"], found.order_parameters["q_v"]
    assert found.energy == pytest.approx(3.0 * found.train_loss + (0.7 * q_k + 1.3 * q_v) / 2, rel=1e-5)


EDGES = [
    {"alpha": 1e-3, "nu": 2.0},
    {"alpha": 1e4, "nu": 2.0},
    {"alpha": 4.0, "nu": 0.0},
    {"alpha": 4.0, "nu": 1e3},
    {"alpha": 4.0, "nu": 2.0, "noise": 0.0, "lambda_k": 1e3, "lambda_v": 1e3},
]


@pytest.mark.parametrize("arguments", EDGES, ids=str)
def test_edges_give_finite_numbers(softmax, arguments):
    found = softmax.solve(**arguments, tol=1e-4)
    numbers = [found.test_risk, found.energy, found.train_loss, *found.order_parameters.values()]
    assert np.isfinite(numbers).all() and found.converged and found.error <= 1e-4
    for b in ("k", "v"):
        m, q, v = (found.order_parameters[f"{name}_{b}"] for name in ("m", "q", "V"))
        assert q >= m * m and v > 0


def test_no_signal_leaves_the_keys_unaligned(softmax):
    assert abs(softmax.solve(4.0, 0.0, 0.3, tol=1e-6).order_parameters["m_k"]) < 1e-7


def test_error_covers_a_finer_solution(softmax3, linear):
    """What a coarse solve states as its error holds against a finer one."""
    for module, coarse, fine in ((softmax3, 1e-3, 3e-6), (linear, 1e-3, 1e-6)):
        one, two = (module.solve(4.0, 2.0, 0.3, 1.0, 1.0, tol=t) for t in (coarse, fine))
        assert abs(one.test_risk - two.test_risk) <= one.error + two.error
        assert two.error < one.error


def test_many_tokens_by_sobol_nodes():
    module = module_of("sigmoid", "spiked", 6)
    found = module.solve(3.0, 2.0, 0.3, 1.0, 1.0, tol=1e-2)
    assert found.converged and "Sobol" in found.method and found.error < 2e-2


def test_population_risk_of_softmax_by_ordinary_quadrature(softmax):
    def density(z):
        return np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

    def first(z):
        return special.expit(0.7 * np.sqrt(2.0) + np.sqrt(2 * 0.8) * z)

    a = integrate.quad(lambda z: first(z) * density(z), -12, 12)[0]
    b = integrate.quad(lambda z: (first(z) ** 2 + (1 - first(z)) ** 2) * density(z), -12, 12)[0]
    expected = 1 + 0.09 - 2 * 0.9 * a + 1.1 * b
    assert softmax.population_risk(0.7, 0.8, 0.9, 1.1, 2.0, 0.3) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "value"), [("q_k", 0.1), ("V_k", 0.0), ("V_v", -1.0), ("q_v", float("nan"))])
def test_unphysical_points_are_refused(softmax, name, value):
    order = dict(zip(softmax.ORDER_NAMES, ORDER, strict=True)) | {name: value}
    conjugates = dict.fromkeys(softmax.CONJUGATE_NAMES, 0.5)
    with pytest.raises(ValueError, match=name):
        softmax.residual(order, conjugates, 4.0, 2.0, 0.3, 1.0, 1.0)


def test_halved_lattices_average_even_functions():
    nodes = module_of("softmax", "spiked", 2)
    (s, a, b), weights = nodes.lattice(3, 5000.0, 3, ((1, 2),))
    assert weights.size < 0.6 * nodes.lattice(3, 5000.0, 3)[1].size
    for value, expected in ((a * b, 0.0), (a**2, 1.0), (s**2 * b**2, 1.0), (np.cos(s) * np.cos(a + b), np.exp(-1.5))):
        assert value @ weights == pytest.approx(expected, abs=1e-4)
    (s, a, b), weights = nodes.lattice(3, 20000.0, 3, ((0, 1), (2, 1)))
    assert weights.size < 0.3 * nodes.lattice(3, 20000.0, 3)[1].size
    for value, expected in ((np.cos(s) * np.cos(b) * (1 + a**2), 2.0 * np.exp(-1.0)), (s * a * b, 0.0), (b**4, 3.0)):
        assert value @ weights == pytest.approx(expected, abs=1e-6)


EXCHANGES = [("softmax", "spiked", 3), ("softmax", "max", 3), ("sigmoid", "x**2/4", 3)]


@pytest.mark.parametrize(("activation", "task", "tokens"), EXCHANGES)
def test_idle_tokens_may_be_exchanged(activation, task, tokens):
    """A quarter of the nodes, by the signs of the values and of the difference of two idle tokens, stands for all."""
    module = module_of(activation, task, tokens)
    setting = module.Setting(1.3, 0.3, module.parameter_values({}))
    dim, order = module.node_dimensions(setting), np.array([0.4, 0.5, 0.1, 0.7, 0.8, 0.2])  # hardly any folds
    quarter, whole = (
        module.ProxFreeChannel(module.lattice(dim, 250_000.0, 0, flips), setting)
        for flips in (module.symmetries(setting), ())
    )
    assert quarter.weights.size < 0.35 * whole.weights.size
    quarter.adapt(order)
    whole.center, whole.scale = quarter.center, quarter.scale
    few, all_of_them = quarter.averages(order), whole.averages(order)
    np.testing.assert_allclose(few.rates, all_of_them.rates, atol=3e-6)
    assert few.envelope == pytest.approx(all_of_them.envelope, abs=3e-6)
    np.testing.assert_allclose(quarter.response(order).squares, whole.response(order).squares, rtol=1e-4)
