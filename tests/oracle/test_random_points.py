"""Whether the stated error covers: random points solved coarsely, against finer nodes, other scrambles, another route.

The reference of a deterministic rule, and of folds that are searched, is the same point asked for with a thirtieth of
its error, on more nodes; test_folds.py has another way to the latter. That of a Sobol solution has other scrambles,
four times the nodes and a denser search for minima. Points whose prox folds are among them and are not excused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from generated import module_of

from replicode.verbs.solve import solve

ACTIVATIONS = (
    "softmax",
    "linear",
    "erf",
    "softplus",
    "sigmoid",
    "softmax1",
    "tanh(x) + 1",
    "poly2",
    "exp(x)/(1 + sum(exp(x))) + 1/L",
    "1/(1 + x**2)",
    "x + 2",
    "1 + cos(x)/2",
    "exp(-x**2/4)*(1 + x)",
)
TASKS = ("spiked", "spiked", "x**2/4", "sqrt(nu)*x", "max")
COUNT = 200
TOLERANCE = 1e-3
OTHER_SCRAMBLES = 1000
DENSE_NEAR = tuple(np.linspace(0.05, 0.5, 8))
DENSE_FAR = tuple(np.linspace(0.55, 1.0, 8))
MORE = 4  # doublings of a Sobol set that stands in for a lattice which finds folds
COVERAGE = 0.99
SLOW = (1, 2, 5, 7, 8, 9)  # of the first ten: left to the test of all
REFUSED = 3
PHYSICS = ("alpha", "nu", "noise", "lambda_k", "lambda_v")


class Effort(NamedTuple):
    """Largest lattices and Sobol sets of the solution, and of its reference."""

    lattice: int
    log2_sobol: int

    def coarse(self) -> dict[str, Any]:
        sizes = {"LOG2_FEW": self.log2_sobol, "LOG2_SOBOL": (self.log2_sobol,), "LOG2_MOST": self.log2_sobol}
        return {"LARGEST_LATTICE": self.lattice} | sizes

    def fine(self) -> dict[str, Any]:
        return self.coarse() | {"LARGEST_LATTICE": 4 * self.lattice}

    def few_folds(self) -> dict[str, Any]:
        """Of folds that are searched, with the same lattices."""
        return {"LOG2_SETS": (5, 6), "LARGEST_SIGNED_LATTICE": self.lattice}

    def more_folds(self) -> dict[str, Any]:
        return {"LOG2_SETS": (9, 10), "LARGEST_SIGNED_LATTICE": 4 * self.lattice}


QUICK, WHOLE = Effort(30_000, 7), Effort(250_000, 9)


class Point(NamedTuple):
    activation: str
    task: str
    tokens: int
    arguments: dict[str, float]


class Reference(NamedTuple):
    """The test risk and all other numbers that get an error, with the errors of the reference itself."""

    numbers: np.ndarray
    errors: np.ndarray

    @property
    def error(self) -> float:
        return float(self.errors[0])


def stated(module: Any, solution: Any) -> Reference:
    """What a solution states."""
    values = solution.order_parameters | solution.conjugates | solution._asdict()
    names = ("test_risk", *module.REPORTED)
    errors = {**solution.errors, "test_risk": solution.error}
    return Reference(*(np.array([float(part[name]) for name in names]) for part in (values, errors)))


@lru_cache(maxsize=1)
def points() -> list[Point]:
    rng = np.random.default_rng(20240607)

    def scale(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")

    found = []
    for _ in range(COUNT):
        activation, task = rng.choice(ACTIVATIONS), rng.choice(TASKS)
        arguments = {
            "alpha": scale(0.3, 20.0),
            "nu": round(rng.uniform(0.0, 6.0), 2),
            "noise": round(rng.uniform(0.0, 1.0), 2),
            "lambda_k": scale(0.02, 5.0),
            "lambda_v": scale(0.02, 5.0),
        }
        arguments |= {"c": round(rng.uniform(-1.0, 1.0), 2)} if activation == "erf" else {}
        found.append(Point(str(activation), str(task), int(rng.integers(2, 4)), arguments))
    return found


@contextmanager
def patched(module: Any, **changes: Any) -> Iterator[None]:
    """The module with other constants for a while."""
    before = {name: getattr(module, name) for name in changes}
    vars(module).update(changes)
    try:
        yield
    finally:
        vars(module).update(before)


def sobol_reference(module: Any, found: Any, point: Point, effort: Effort) -> Reference:
    """Fixed point on other scrambles of the largest Sobol sets, from the solution found, of the map with its jumps."""
    given = dict(point.arguments)
    physics = [given.pop(name) for name in PHYSICS]
    setting = module.Setting(physics[1], physics[2], module.parameter_values(given))
    task = module._Request((setting,), module.Problem(physics[0], *physics[3:]), TOLERANCE)
    order = np.array([found.order_parameters[name] for name in module.ORDER_NAMES])
    with np.errstate(all="ignore"), patched(module, NEAR=DENSE_NEAR, FAR=DENSE_FAR):
        sets = module._scrambled_sets(effort.log2_sobol, OTHER_SCRAMBLES, 1.0, module.SCRAMBLES, task, True)
        begun, near = module._with_jumps(sets, order, task)
        order = begun.last.order
        state = module._on_scrambles(effort.log2_sobol + 2, order, near, task, OTHER_SCRAMBLES)
        errors = state.errors if state.converged else np.full(1 + len(module.REPORTED), np.inf)
        return Reference(module._numbers(state.last, task), errors)


def checked(point: Point, effort: Effort = WHOLE) -> tuple[Any, Reference]:
    """A coarse solution and its reference."""
    module = module_of(point.activation, point.task, point.tokens)
    searched = hasattr(module, "SearchedChannel")
    with patched(module, **effort.coarse(), **(effort.few_folds() if searched else {})):
        found = module.solve(**point.arguments, tol=TOLERANCE)
    if not found.converged:
        return found, Reference(np.full(1, np.nan), np.full(1, np.inf))
    if found.method.startswith("prox, "):
        return found, sobol_reference(module, found, point, effort)
    with patched(module, **effort.fine(), **(effort.more_folds() if searched else {})):
        finer = module.solve(**point.arguments, tol=max(found.error / 30.0, 1e-11))
    if finer.method.startswith("prox, "):
        return found, sobol_reference(module, finer, point, effort._replace(log2_sobol=effort.log2_sobol + MORE))
    return found, stated(module, finer)


def distances(point: Point, found: Any, reference: Reference) -> np.ndarray:
    """How far all numbers are off, over their errors, as far as the reference can tell."""
    numbers, errors = stated(module_of(point.activation, point.task, point.tokens), found)
    return np.abs(numbers - reference.numbers) / (errors + np.minimum(reference.errors, errors))


def covers(point: Point, found: Any, reference: Reference) -> bool:
    """Whether all errors hold."""
    return bool((distances(point, found, reference) <= 1.0).all())


@pytest.mark.parametrize("index", [i for i in range(10) if i not in SLOW])
def test_the_error_covers(index):
    """The first that the generator gives, as they come; what does not converge says so."""
    point = points()[index]
    found, reference = checked(point, QUICK)
    if not found.converged:
        assert found.warnings
        return
    assert np.isfinite(found.error) and covers(point, found, reference)
    assert all(np.isfinite(e) and e >= 0.0 for e in found.errors.values())


def test_the_errors_of_slow_levels_cover():
    """Steps from level to level that grow once more, of exp at low regularisation."""
    point = Point("exp", "spiked", 2, dict(zip(PHYSICS, (0.4304, 5.028, 0.3131, 1.77, 0.1129), strict=True)))
    found, reference = checked(point)
    assert found.error <= TOLERANCE and covers(point, found, reference)


@pytest.mark.full
def test_minima_are_searched_where_the_iteration_ends():
    """A point whose iteration begins where few samples have several minima, and ends where many have."""
    found, reference = checked(points()[57])
    assert found.converged and covers(points()[57], found, reference)


def test_no_error_is_known_where_nothing_converged():
    """An even activation whose scores run away from a start without signal."""
    arguments = dict(zip(PHYSICS, (7.24, 1.599, 0.6944, 0.01793, 0.3431), strict=True))
    module = module_of("1 + cos(x)/2", "spiked", 1)
    with patched(module, **Effort(3_000, 5).coarse(), LARGEST_WORK=1e6):
        found = module.solve(**arguments, init="random", tol=TOLERANCE)
    assert not found.converged and found.warnings[0].startswith("not converged")
    assert found.error == np.inf and all(found.errors[n] == np.inf for n in (*module.REPORTED, "replicon"))


@pytest.mark.full
def test_the_errors_of_all_points_cover():
    """Deterministic rules never miss, Sobol bounds cover at least 99 %; what does not converge is rare and says so."""
    missed: dict[str, list[Point]] = {"lattice": [], "Sobol": []}
    sobol = refused = 0
    for point in points():
        found, reference = checked(point)
        if not found.converged:
            assert found.warnings
            refused += 1
            continue
        kind = "Sobol" if "Sobol" in found.method else "lattice"  # the former where errors are t bounds
        sobol += kind == "Sobol"
        if np.isfinite(reference.error) and not covers(point, found, reference):
            missed[kind].append(point)
    assert refused <= REFUSED
    assert not missed["lattice"]
    assert len(missed["Sobol"]) <= (1.0 - COVERAGE) * sobol


def folded_point(seed: int) -> dict[str, float]:
    """Softmax at two tokens, regularised so little that folds matter."""
    rng = np.random.default_rng(seed)
    low, high = np.log([2.0, 0.5, 0.1, 0.08, 0.08]), np.log([10.0, 6.0, 1.0, 1.0, 1.0])
    values = np.exp(rng.uniform(low, high))
    return dict(zip(PHYSICS, map(float, values), strict=True))


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.full) for s in range(1, 12))])
def test_folds_subtracted_cover(seed):
    """Seven digits with the folds subtracted, against rows of which only the contact set is integrated."""
    module, point = module_of("softmax", "spiked", 2), folded_point(seed)
    found = module.solve(**point, tol=1e-7)
    assert found.converged
    setting = module.Setting(point["nu"], point["noise"], module.parameter_values({}))
    task = module._Request((setting,), module.Problem(point["alpha"], point["lambda_k"], point["lambda_v"]), 1e-8)
    order = np.array([found.order_parameters[name] for name in module.ORDER_NAMES])
    with np.errstate(all="ignore"):
        cut = module._levels(module.mixed_ladder(task.settings, module._cut), order, task)
        risk, _ = module._risk(cut.last.order, task)
    assert abs(found.test_risk - risk) <= found.error + min(cut.error, found.error)
    assert cut.error < 1e-5


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_ten_digits_are_among_twenty(seed):
    """Softmax at two tokens where nothing folds, against decimal arithmetic."""
    rng = np.random.default_rng(seed)
    values = [rng.uniform(2.0, 6.0), rng.uniform(1.0, 4.0), rng.uniform(0.2, 0.5), *rng.uniform([4.0, 0.5], [8.0, 1.0])]
    arguments = dict(zip(PHYSICS, map(float, values), strict=True))
    found = module_of("softmax", "spiked", 2).solve(**arguments, tol=1e-10)
    exact = solve("softmax", tokens=2, **arguments, digits=20)
    assert found.error <= 1e-10
    assert abs(found.test_risk - float(exact.test_risk)) <= found.error
