"""The derived Jacobian as it is generated, against differences of what it is the derivative of."""

from itertools import pairwise

import numpy as np
import pytest
from generated import module_of

PARAMETERS = {"c": 0.3}
POINT = np.array([0.35, 0.6, 0.3, 0.5, 0.8, 0.3])
CALM = np.array([0.2, 0.2, 0.05, 0.3, 0.3, 0.1])  # where five dimensions converge to nine digits
CASE = {"alpha": 2.3, "nu": 1.4, "noise": 0.35, "lambda_k": 0.7, "lambda_v": 1.2}


def _setting(module, nu=1.4, noise=0.35):
    return module.Setting(nu, noise, np.array([PARAMETERS[p] for p in module.PARAMETERS]))


def _fine(module, order, setting, nodes):
    dim = sum(module.dimensions(setting))
    if not module.dimensions(setting)[0]:
        return module.ProxChannel(module.lattice(dim, nodes, 0), setting)
    channel = module.ProxFreeChannel(module.lattice(dim, nodes, 0, module.symmetries(setting)), setting)
    channel.adapt(order)
    return channel


def _differences(function, point, step=2e-3):
    """Fourth-order central differences, column by column."""
    columns = []
    for i, size in enumerate(point):
        move = np.zeros(point.size)
        move[i] = step * min(1.0, abs(size))
        near, far = ((function(point + h * move) - function(point - h * move)) / (2 * h * move[i]) for h in (1, 2))
        columns.append((4 * near - far) / 3)
    return np.stack(columns, axis=1)


CASES = [
    ("softmax", "spiked", 2, POINT, 2e4),
    ("softmax", "x**2/5 + sqrt(nu)*x", 2, POINT, 2e4),
    ("softmax", "spiked", 3, CALM, 6e5),
    ("linear", "spiked", 2, CALM, 6e5),
    ("sigmoid", "spiked", 2, CALM, 6e5),
    ("erf", "spiked", 2, CALM, 6e5),
    ("softplus", "spiked", 2, POINT, 1e5),
    ("softmax", "spiked", 1, POINT, 2e3),
    ("linear", "spiked", 1, CALM, 2e4),
]


@pytest.mark.parametrize(("activation", "task", "tokens", "order", "nodes"), CASES)
def test_second_rates_are_differences_of_the_rates(activation, task, tokens, order, nodes):
    module = module_of(activation, task, tokens)
    channel = _fine(module, order, _setting(module), nodes)
    found = module.second_rates(channel, order)
    expected = _differences(lambda p: channel.averages(p).rates, order)
    assert np.abs(found - expected).max() < 1e-8 * max(1.0, np.abs(expected).max())
    assert np.abs(found - found.T).max() < 1e-12


def test_through_folds_it_is_the_derivative_of_the_signed_averages():
    module = module_of("softmax")
    order = np.array([1.2, 1.9, 1.5, 0.8, 0.75, 1.2])
    channel = _fine(module, order, _setting(module, 2.0, 0.3), 2e5)
    assert channel.averages(order).folded_mass > 1e-4
    expected = _differences(lambda p: channel.averages(p).rates, order)
    assert module.second_rates(channel, order) == pytest.approx(expected, abs=1e-7)


def test_lengths_are_averaged():
    module = module_of("softmax", tokens="1:0.5,2:0.5")
    settings = module.settings_of(1.4, 0.35, np.array([]))
    channel = module.mixed(settings, lambda s: _fine(module, POINT, s, 2e4))
    expected = _differences(lambda p: channel.averages(p).rates, POINT)
    assert module.second_rates(channel, POINT) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("activation", "tokens"), [("softmax", 1), ("softmax", 2), ("sigmoid", 2)])
def test_the_map_linearised(activation, tokens):
    """Newton's matrix and the slopes of all reported numbers against differences on the same fine nodes."""
    module = module_of(activation, tokens=tokens)
    problem = module.Problem(2.3, 20.0, 10.0)
    channel = _fine(module, CALM, _setting(module), 6e5 if activation == "sigmoid" else 2e4)
    at = module.evaluate(channel, CALM, problem)
    found = module.linearised(channel, at, problem)

    def moved(free):
        now = module.evaluate(channel, module.from_free(free), problem)
        return np.concatenate([module.to_free(now.image), module.reported(now, problem)])

    slopes = _differences(moved, module.to_free(CALM))
    assert found.evaluations == 1
    assert np.linalg.inv(found.newton) == pytest.approx(np.eye(6) - slopes[:6], abs=1e-6)
    assert found.slopes == pytest.approx(slopes[6:], abs=1e-6)


def test_where_folds_weigh_errors_get_the_larger_of_both():
    module = module_of("softmax")
    problem, order = module.Problem(4.0, 0.1, 0.1), np.array([1.2, 1.9, 1.5, 0.8, 0.75, 1.2])
    channel = module.ProxFreeChannel.at_level(0, _setting(module, 2.0, 0.3))
    channel.adapt(order)
    at = module.evaluate(channel, order, problem)
    assert at.averages.folded_mass > module.NOTICED_FOLD
    found, other = module.linearised(channel, at, problem), module.differenced(channel, at, problem)
    for gap in np.eye(6):
        assert (found.reach(gap) >= other.reach(gap)).all() and (found.reach(gap) >= np.abs(found.newton @ gap)).all()
    assert (np.abs(found.slopes) >= np.abs(other.slopes)).all()


def test_jumping_and_weighted_channels_keep_differences():
    module = module_of("softmax", "spiked")
    setting = _setting(module)
    channels = [module.FoldedChannel(0, setting), module.ProxChannel.at_level(0, setting)]
    assert all(module.second_rates(c, POINT) is None for c in channels)
    weighted = module_of("softmax", "max")
    assert weighted.linearised is weighted.differenced and not hasattr(weighted, "second_rates")


def _called(function, unknowns, case, nodes):
    named = {n: float(u) for n, u in zip(UNKNOWNS, unknowns, strict=True)}
    points = ({n: named[n] for n in names} for names in (UNKNOWNS[:6], UNKNOWNS[6:]))
    return function(*points, **case, nodes=nodes)


UNKNOWNS = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v", "mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v")
CONJUGATES = np.array([0.6, 0.5, 0.8, -0.9, 1.1, 1.4])


@pytest.mark.parametrize(
    ("activation", "task", "tokens", "nodes", "accuracy"),
    [
        ("softmax", "spiked", 2, 3e4, 1e-8),
        ("softmax", "spiked", "1:0.5,2:0.5", 3e4, 1e-8),
        ("softmax", "max", 2, 3e4, 1e-5),
    ],
)
def test_jacobian_is_that_of_the_residual(activation, task, tokens, nodes, accuracy):
    module = module_of(activation, task, tokens)

    point = np.concatenate([np.where(np.arange(6) % 3 == 2, 0.2, POINT), CONJUGATES])
    found = _called(module.jacobian, point, CASE, nodes)
    expected = _differences(lambda p: _called(module.residual, p, CASE, nodes), point)
    assert found.shape == (12, 12) and np.abs(found - found.T).max() < 1e-12
    assert found == pytest.approx(expected, abs=accuracy)


def test_newton_on_the_twelve_equations():
    """From a point one percent away, residual and jacobian alone lead to the solution, ever faster."""
    module = module_of("softmax")
    case = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 2.0, "lambda_v": 0.5}
    solution = module.solve(**case, tol=1e-10)
    exact = np.array([*solution.order_parameters.values(), *solution.conjugates.values()])
    unknowns = exact * (1.0 + 0.01 * np.cos(np.arange(12.0)))
    sizes = []
    for _ in range(4):
        gradient = _called(module.residual, unknowns, case, 3e4)
        sizes.append(np.abs(gradient).max())
        unknowns = unknowns - np.linalg.solve(_called(module.jacobian, unknowns, case, 3e4), gradient)
    assert all(later < 10.0 * earlier**2 + 1e-11 for earlier, later in pairwise(sizes)), sizes
    assert unknowns == pytest.approx(exact, abs=1e-9)


def test_the_map_s_newton_step_is_that_of_the_twelve_equations():
    module = module_of("softmax")
    problem, case = (
        module.Problem(4.0, 2.0, 0.5),
        {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 2.0, "lambda_v": 0.5},
    )
    order = np.array([*module.solve(**case, tol=1e-8).order_parameters.values()]) * (
        1.0 + 1e-6 * np.cos(np.arange(6.0))
    )
    channel = _fine(module, order, _setting(module, 2.0, 0.3), 3e4)
    at = module.evaluate(channel, order, problem)
    full = module.free_energy_hessian(order, at.conjugates, *problem.numbers, module.second_rates(channel, order))
    gradient = module.free_energy_gradient(order, at.conjugates, *problem.numbers, at.averages.rates)
    step = -np.linalg.solve(full, gradient)[:6]
    free = module.to_free(order)
    moved = module.from_free(free + module.linearised(channel, at, problem).newton @ (module.to_free(at.image) - free))
    assert moved - order == pytest.approx(step, abs=1e-10)
