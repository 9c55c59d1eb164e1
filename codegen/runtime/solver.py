"""The solver: a fixed point from a start, whether another has less energy, whether it is stable, as a Solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from replicode.codegen.runtime.channel import Channel, Response
from replicode.codegen.runtime.driver import spectral_radius
from replicode.codegen.runtime.fixedpoint import (
    REPORTED,
    SMALLEST_SPREAD,
    Budget,
    Converged,
    Evaluation,
    beside,
    evaluate,
    reported,
    runaways,
)
from replicode.codegen.runtime.inputs import (
    GOOD_ENOUGH,
    ArgumentError,
    asked_error,
    check_physical,
    check_setting,
    named,
    parameter_values,
    unknowns,
)
from replicode.codegen.runtime.kernel import (
    CONJUGATE_NAMES,
    ORDER_NAMES,
    VH_K,
    Array,
    noise_risk,
    stability_matrix,
)
from replicode.codegen.runtime.label import label_moments
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed
from replicode.codegen.runtime.places import BLOCKS, by_block
from replicode.codegen.runtime.population import LEAST_OVERLAP, overlap_start, settings_of
from replicode.codegen.runtime.prior import Problem, norms_at, radii_of, softness_at, spectrum_of, traces_at
from replicode.codegen.runtime.refinement import COVERAGE
from replicode.codegen.runtime.routes import ROUTES, coarse_branch
from replicode.codegen.runtime.sensitivity import ALL_PARAMETERS, slopes_of
from replicode.codegen.runtime.states import (
    LEVEL_SAFETY,
    _Request,
    _risk,
    _State,
    jump_gap,
)
from replicode.codegen.runtime.tested import tested
from replicode.codegen.runtime.wording import told_apart

STABLE_REPLICON = 1.0
STABLE_JUMP = 0.05
REPLICON_SHARE, FINER_ROWS = 0.05, (1, 2)  # how well the replicon is to be known; levels of rows to that end
UNCERTIFIED_JUMP = 0.01
COARSE_SAFETY = 3.0
QUICK_WORK = 3e7  # a few seconds
LARGEST_WORK = 6e8  # about a minute
NO_SIZE, INVISIBLE = 1e-60, 1e-9  # a block next to nothing, and a change of the risk that is
PAIRS = len(BLOCKS) * (len(BLOCKS) + 1) // 2
UNSEEN = Response(np.full(PAIRS, np.nan), np.nan, scatter=np.zeros(PAIRS))


class Solution(NamedTuple):
    """A solved saddle point; `error` bounds the absolute error of test_risk, `warnings` say what to distrust."""

    test_risk: float
    excess_risk: float
    train_loss: float
    energy: float
    order_parameters: dict[str, float]
    conjugates: dict[str, float]
    converged: bool
    iterations: int
    residual: float
    error: float
    rs_stable: bool
    replicon: float
    jump_weight: float
    folded_mass: float  # not a number where the method does not see it
    method: str
    bayes_risk: float | None
    warnings: tuple[str, ...]
    errors: dict[str, float]  # bounds on the order parameters, conjugates, train_loss, energy and replicon
    derivatives: dict[str, dict[str, float]] | None = None  # of quantities, by parameter, where asked for
    derivative_errors: dict[str, dict[str, float]] | None = None
    derivative_methods: dict[str, str] | None = None
    norm2_k: float | None = None  # these three are those of structured tokens
    norm2_v: float | None = None
    effective_rank: float | None = None
    test_loss: float | None = None  # of any loss but the square
    classification_error: float | None = None  # of labels of two values


def _begin(init: str | Mapping[str, float], request: _Request) -> Array:
    """Order parameters to start from: those given, or those that a word stands for."""
    if isinstance(init, str):
        return _start(init, request.problem.numbers, request.settings)
    given = unknowns(init, ORDER_NAMES)
    check_physical(given)
    return given


_start: Callable[[str, tuple[float, float, float], Sequence[Setting]], Array] = overlap_start


def solve(
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    *,
    init: str | Mapping[str, float] = "informed",
    tol: float | None = 1e-10,
    derivatives: bool | Sequence[str] = False,
    branches: bool = True,
    stability: bool = True,
    quick: bool = False,
    spectrum: Any = None,
    radii: Any = None,
    **parameters: float,
) -> Solution:
    """Solve the saddle-point equations; `tol` is the absolute error asked for on test_risk.

    With tol=None it is what a few seconds give, three digits at least where these can be had at all, and `quick` takes
    no more work than that for a `tol`. `derivatives` asks for those of every quantity in every parameter, or in those
    named. `init` may also be a mapping: the order parameters of a solution nearby, to start from. `branches` looks for
    another branch, of lower energy, and `stability` into whether replica symmetry holds, which is said where it is not
    done. A module of structured tokens takes a `spectrum`: rows of eigenvalues s_i, with one or two columns of
    teachers' weights t_i; one of tokens with radii takes the `radii` of a pool of tokens.
    """
    check_setting(alpha, nu, noise, lambda_k, lambda_v)
    aim, worst = asked_error(tol)
    if isinstance(init, str) and init not in ("informed", "random"):
        raise ArgumentError("init", init, "'informed', 'random', or a mapping of order parameters")
    wanted = _differentiated(derivatives)
    drawn = radii_of(radii)
    settings = tuple(s._replace(radii=drawn) for s in settings_of(nu, noise, parameter_values(parameters)))
    problem = admitted(Problem(float(alpha), float(lambda_k), float(lambda_v), spectrum_of(spectrum)), float(noise))
    limited = quick or tol is None
    request = _Request(settings, problem, aim, _budget(limited), not isinstance(init, str))
    worst = max(GOOD_ENOUGH, worst) if quick else worst
    with np.errstate(all="ignore"):  # what is not finite ends as not converged, and is said so
        begun = _begin(init, request)
        state = ROUTES.state(begun, request)
        notes: list[str] = []
        if not state.converged and init == "informed" and abs(by_block(begun)[0][0]) <= LEAST_OVERLAP:
            state, notes = _from_random(state, request._replace(budget=_budget(limited)))
        elif branches:
            notes = _lower_branch(state, init, request._replace(budget=_budget(limited)))
        found = _solution(state, request, worst, notes, stability)
        return _with_derivatives(found, state, request, wanted) if wanted else found


def _differentiated(asked: bool | Sequence[str]) -> tuple[str, ...]:
    """The parameters whose derivatives are asked for."""
    if isinstance(asked, bool):
        return ALL_PARAMETERS if asked else ()
    if unknown := sorted(set(asked) - set(ALL_PARAMETERS)):
        raise ArgumentError("derivatives", unknown, f"True, False or some of {', '.join(ALL_PARAMETERS)}")
    return tuple(asked)


def _with_derivatives(found: Solution, state: _State, request: _Request, wanted: Sequence[str]) -> Solution:
    """The solution with its derivatives, or a warning where there are none."""
    slopes = slopes_of(state, request, wanted)
    if slopes is None:
        return found._replace(warnings=(*found.warnings, "derivatives: none, the solution is not known well enough"))
    values, errors, method = slopes
    return found._replace(derivatives=values, derivative_errors=errors, derivative_methods=method)


def any_problem(problem: Problem, noise: float) -> Problem:
    """With scores, whether there is a minimum is seen on the way."""
    return problem


admitted: Callable[[Problem, float], Problem] = any_problem


def _budget(limited: bool) -> Budget:
    """All work that a solve may do; where it is limited, only a little once the error is good enough."""
    return Budget(LARGEST_WORK, QUICK_WORK, GOOD_ENOUGH) if limited else Budget(LARGEST_WORK)


def _from_random(failed: _State, request: _Request) -> tuple[_State, list[str]]:
    """The solution from the random start, with a warning: next to k = 0 the iteration may not get away from it."""
    found = ROUTES.state(_begin("random", request), request)
    if not found.converged:
        return failed, []
    return found, ["start: from the informed one, whose k is next to 0, nothing converged; this is from the random one"]


def _lower_branch(state: _State, init: str | Mapping[str, float], request: _Request) -> list[str]:
    """A warning when the other start ends, on coarse nodes, at a clearly lower energy."""
    if not state.converged:
        return []
    other = "random" if init == "informed" else "informed"
    found = ROUTES.branch(_begin(other, request), state.last.order, request)
    if not found.converged or beside(found.last.order, state.last.order):
        return []
    # Minima are searched for afresh where the iteration ended, and coarse nodes move the known solution too.
    found, home = (_settled_on_coarse(p.last.order, request) for p in (found, state))
    base = (home if home.converged else state).last.order
    if not found.converged or beside(found.last.order, base):
        return []
    here, there = (
        _energy(mixed(request.settings, ROUTES.coarse), order, request) for order in (base, found.last.order)
    )
    fine = float(reported(state.last, request.problem)[-1])
    if not there < here - 1e-3 * (abs(here) + abs(there)) - COARSE_SAFETY * abs(here - fine):
        return []
    risk, _ = _risk(found.last.order, request)
    return [
        f"another branch, from the {other} start, has lower energy ({there:.4g} < {here:.4g}), test risk {risk:.4g}"
    ]


def _settled_on_coarse(start: Array, request: _Request) -> Converged:
    """As far as the iteration goes, where it is so slow that a small residual is still far from the fixed point."""
    rough = coarse_branch(start, None, request)
    fine = coarse_branch(rough.last.order, None, request, tol=1e-9) if rough.converged else rough
    return fine if fine.converged else rough


def _energy(channel: Channel, order: Array, request: _Request) -> float:
    return float(reported(evaluate(channel, order, request.problem), request.problem)[-1])


def _solution(state: _State, request: _Request, worst: float, notes: list[str], looked: bool) -> Solution:
    """The Solution of a state, with stability and all warnings; `worst` is the largest error that needs none."""
    last = state.last
    risk, _ = _risk(last.order, request)
    if unresolved := _unresolved(risk, state, request):
        state, notes = state._replace(converged=False), [unresolved, *notes]
    responses = _responses(state, request) if looked else [UNSEEN]
    if not state.converged:  # far from a fixed point what is left of the residual tells no error
        state = state._replace(errors=np.full_like(state.errors, np.inf))
    error, errors = state.error, state.errors[1:]
    radius = _radius(responses[-1].squares, last, request)
    replicon, jump, shift = stability_of(radius, responses[-1], last, request, errors)
    replicon_error = _replicon_error(responses, last, request) if state.converged else np.inf
    stable = bool(state.converged and replicon < STABLE_REPLICON and shift < STABLE_JUMP)
    warnings = [] if state.converged or unresolved else [_not_converged(last)]
    if state.converged and not error <= worst:
        bound, asked = told_apart(error, worst)
        wanted = "asked for" if worst == request.tol else "of three digits"
        warnings.append(f"error: the bound {bound} is above the {asked} {wanted}")
    if state.searched and shift > UNCERTIFIED_JUMP:
        warnings.append(
            f"jumps: the error does not cover global minima that the search missed (jump weight {jump:.3g})"
        )
    if not looked:
        warnings.append("replica symmetry: not looked into")
    elif state.converged and not stable:
        warnings.append(f"replica symmetry: not to be trusted here (replicon {replicon:.3g}, jump weight {jump:.3g})")
    if state.converged and abs(replicon - STABLE_REPLICON) < replicon_error:
        warnings.append(
            f"replica symmetry: the replicon {replicon:.3g} +- {replicon_error:.2g} may be on either side of 1"
        )
    values, bounds = (named(REPORTED, found) for found in (reported(last, request.problem), errors))
    more = norms_at(last.conjugates, np.array([bounds[name] for name in CONJUGATE_NAMES]), request.problem)
    more |= tested(last.order, errors, request.settings) if state.converged else {}
    others: dict[str, Any] = {name: value for name, (value, _) in more.items()}
    bounds |= {"replicon": replicon_error} | {name: bound for name, (_, bound) in more.items() if bound}
    return Solution(
        test_risk=risk,
        excess_risk=risk - noise_risk(request.setting.noise, *label_moments(request.setting.noise)),
        train_loss=values["train_loss"],
        energy=values["energy"],
        order_parameters={name: values[name] for name in ORDER_NAMES},
        conjugates={name: values[name] for name in CONJUGATE_NAMES},
        converged=state.converged,
        iterations=state.iterations,
        residual=last.residual,
        error=error,
        rs_stable=stable,
        replicon=replicon,
        jump_weight=jump,
        folded_mass=last.averages.folded_mass,
        method=state.method,
        bayes_risk=None,
        warnings=tuple(warnings + notes),
        errors=bounds,
        **others,
    )


def _unresolved(risk: float, state: _State, request: _Request) -> str:
    """What is wrong where a block is as small as the least spread that the iteration knows, and its size matters.

    Where it does not, a block of no size at all has the same risk.
    """
    for m, q, _ in BLOCKS:
        if not state.converged or state.last.order[q] > 2.0 * SMALLEST_SPREAD:
            continue
        without = state.last.order.copy()
        without[[m, q]] = 0.0, NO_SIZE
        if abs(_risk(without, request)[0] - risk) > state.error + INVISIBLE:
            told = f"{ORDER_NAMES[q]} is below {SMALLEST_SPREAD:g}, the least that is resolved"
            return f"not converged: {told}; divide what multiplies the scores by a constant"
    return ""


def _not_converged(last: Evaluation) -> str:
    if away := runaways(last.order):
        told = "no solution of finite size was found from this start; init may name another"
        return f"not converged: {', '.join(away)} ran away, {told}"
    return f"not converged: the undamped residual {last.residual:.2g} stays above its tolerance"


def jumping_stability(
    radius: float, response: Response, last: Evaluation, request: _Request, errors: Array
) -> tuple[float, float, float]:
    """Spectral radius of the smooth de Almeida-Thouless matrix, and what the jumps of the prox weigh.

    The jumps are weighed twice: relative to Vh_k, or to the error to which it is known (`jump_weight`), and, for the
    verdict, as the relative change of V_k, which is 1/(lambda_k + Vh_k) of isotropic tokens, less three standard errors
    where nodes are random: jumps in a Vh_k that is itself negligible beside the regulariser do not break anything.
    """
    known = float(errors[REPORTED.index("Vh_k")])
    known = known if np.isfinite(known) else 0.0
    if not np.isfinite(radius):
        return np.inf, np.inf, 0.0
    gap, noise = jump_gap(response, last, request.problem)
    softness = softness_at(last.order, last.conjugates, request.problem)
    scale = max(abs(last.conjugates[VH_K]), known, 1e-4 / softness)
    return radius, float(abs(gap) / scale), float((abs(gap) - 3.0 * noise) * softness)


Stability = Callable[[float, Response, Evaluation, _Request, Array], tuple[float, float, float]]
stability_of: Stability = jumping_stability


def _radius(squares: Array, last: Evaluation, request: _Request) -> float:
    traces = traces_at(last.conjugates, request.problem)
    return spectral_radius(stability_matrix(last.order, request.problem.alpha, squares, *traces))


def _responses(state: _State, request: _Request) -> list[Response]:
    """Second rates at the solution, on finer rows until the replicon is known to REPLICON_SHARE of it."""
    last = state.last
    found = [channel.response(last.order) for channel in state.seen]
    if state.rows is None:
        return found
    for level in FINER_ROWS:
        if _replicon_error(found, last, request) <= REPLICON_SHARE * _radius(found[-1].squares, last, request):
            break
        found = [found[-1], state.rows.refined(level).response(last.order)]
    return found


def _replicon_error(responses: Sequence[Response], last: Evaluation, request: _Request) -> float:
    """What coarser nodes change, or a t bound from the scatter of random ones; the radius grows with the squares."""
    finest = responses[-1]
    quantile = float(special.stdtrit(finest.sets - 1, COVERAGE))
    radius, above = (_radius(finest.squares + t * finest.scatter, last, request) for t in (0.0, quantile))
    levels = abs(_radius(responses[0].squares, last, request) - radius) if len(responses) > 1 else 0.0
    return float(np.nan_to_num(LEVEL_SAFETY.steps * levels + above - radius, nan=np.inf))
