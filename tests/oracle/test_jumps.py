"""Fixed points where the prox jumps much: Newton's method with jumps against an iteration that searches every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generated import module_of

from replicode.codegen.runtime.states import FELT_JUMP

BROKEN = {"alpha": 13.3, "nu": 1.42, "noise": 0.35, "lambda_k": 0.14, "lambda_v": 1.81}
EVEN = {"alpha": 10.7, "nu": 2.29, "noise": 0.98, "lambda_k": 2.0, "lambda_v": 1.28}
LOW = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 0.02, "lambda_v": 0.02}
BEGIN = {"m_k": 0.02, "q_k": 10.5, "V_k": 6.7, "m_v": 0.58, "q_v": 0.36, "V_v": 0.055}


def posed(module: Any, arguments: dict[str, float]) -> Any:
    alpha, nu, noise, *penalties = arguments.values()
    setting = module.Setting(nu, noise, module.parameter_values({}))
    return module._Request((setting,), module.Problem(alpha, *penalties), 1e-3)


def ordered(module: Any, values: dict[str, float]) -> np.ndarray:
    return np.array([values[name] for name in module.ORDER_NAMES])


def plain(module: Any, sets: Any, start: np.ndarray, request: Any, steps: int, damping: float) -> np.ndarray:
    """The damped iteration with a search at every step: the mean of the numbers over its last third."""
    order, found = start, []
    for _ in range(steps):
        now = module.evaluate(sets, order, request.problem, search=True)
        free = module.to_free(order)
        order = module.from_free(free + damping * (module.to_free(now.image) - free))
        found.append(module._numbers(now, request))
    return np.mean(found[-steps // 3 :], axis=0)


def test_newton_with_jumps_ends_where_the_plain_iteration_does():
    """On the same nodes; with slopes along minima that are followed it ends elsewhere."""
    module = module_of("1 + cos(x)/2", "max", 2)
    request, start = posed(module, BROKEN), ordered(module, BEGIN)
    with np.errstate(all="ignore"):
        sets = module._scrambled_sets(9, 0, 1.0, 8, request, True)
        other = plain(module, sets, start, request, 45, 0.3)
        begun, near = module._with_jumps(sets, start, request)
        found = module._on_scrambles(9, begun.last.order, near, request)
        few = module._scrambled(9, 8, request)
        without = module.linearised(few, module.evaluate(few, begun.last.order, request.problem), request.problem)
        followed = module._on_scrambles(9, start, without, request)
    assert found.converged and near.attracts
    apart, far = (np.abs(module._numbers(s.last, request) - other) / found.errors for s in (found, followed))
    assert (apart <= 0.1).all() and not (far <= 0.1).all()
    assert module._jumps_are_felt(found, request)


def test_jumps_that_are_not_felt_need_no_other_slopes():
    """What the jumps add to Vh_k is the difference of two ways to it, zero where nothing is folded."""
    module = module_of("softmax", "spiked", 2)
    arguments = {"alpha": 4.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
    request = posed(module, arguments)
    known = module.solve(**arguments, tol=1e-8)
    with np.errstate(all="ignore"):
        sets = module._scrambled_sets(11, 0, 1.0, 8, request, False)
        last = module.evaluate(sets, ordered(module, known.order_parameters), request.problem, search=True)
        gap, noise = module.jump_gap(sets.response(last.order), last, request.problem)
    assert abs(gap) < 5.0 * noise and noise < FELT_JUMP


def test_without_a_start_that_knows_the_teacher_the_random_one_is_taken():
    """An even activation whose best k with infinite data is 0: from there the iteration leads nowhere."""
    module = module_of("1/(1 + x**2)", "spiked", 2)
    before = {name: getattr(module, name) for name in ("LARGEST_LATTICE", "LOG2_FEW", "LOG2_SOBOL", "LOG2_MOST")}
    vars(module).update({"LARGEST_LATTICE": 30_000, "LOG2_FEW": 7, "LOG2_SOBOL": (7,), "LOG2_MOST": 7})
    try:
        found, other = (module.solve(**EVEN, tol=1e-2, init=init, stability=False) for init in ("informed", "random"))
    finally:
        vars(module).update(before)
    assert found.converged and found.test_risk == other.test_risk
    assert [w for w in found.warnings if w.startswith("start: ")]
    assert not [w for w in other.warnings if w.startswith("start: ")]


@pytest.mark.full
def test_low_regularisation_beyond_the_fixed_point_of_followed_minima():
    """Softmax at three tokens, lambda 0.02: 4.22 +- 0.24 with slopes along followed minima, and that was wrong."""
    module = module_of("softmax", "spiked", 3)
    found = module.solve(**LOW, tol=None)
    request = posed(module, LOW)
    with np.errstate(all="ignore"):
        sets = module._scrambled_sets(12, 50, 1.0, 4, request, True)
        other = plain(module, sets, ordered(module, found.order_parameters), request, 60, 0.7)
    assert found.converged
    names = ("test_risk", *module.REPORTED)
    values = found._asdict() | found.order_parameters | found.conjugates
    errors = found.errors | {"test_risk": found.error}
    for name, value in zip(names, other, strict=True):
        assert abs(values[name] - value) <= 2.0 * errors[name], name
