"""Which channel integrates what: the routes to a fixed point, to averages at any point, and to a first look.

Prox-free nodes are tried first, while the dimension allows and no fold matters. Where the scores have one dimension,
what folds add is subtracted, or the folds are cut out. Else a global prox is taken on scrambled nodes. The linker
writes the table ROUTES of a module: without the folds where no length has such rows, between kinks where there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from replicode.codegen.runtime.channel import Averages, Channel, Ladder, ProxChannel, node_dimensions
from replicode.codegen.runtime.fields import dimensions
from replicode.codegen.runtime.fixedpoint import Converged, beside
from replicode.codegen.runtime.folds import FoldedChannel
from replicode.codegen.runtime.gaps import GapChannel
from replicode.codegen.runtime.kernel import Array
from replicode.codegen.runtime.lengths import Setting
from replicode.codegen.runtime.mixture import mixed, mixed_ladder, parts_of
from replicode.codegen.runtime.nodes import lattice, level_count, sobol
from replicode.codegen.runtime.population import LATTICE_DIMENSIONS
from replicode.codegen.runtime.proxfree import ProxFreeChannel, symmetries
from replicode.codegen.runtime.refinement import slow_error
from replicode.codegen.runtime.searching import POORLY_SEARCHED, searched_state
from replicode.codegen.runtime.states import (
    FINEST_GAPS,
    FOLD_WEIGHT,
    LEVEL_SAFETY,
    LOG2_SOBOL,
    NEGLIGIBLE_FOLD,
    NEXT_LEVEL,
    _by_newton,
    _ensemble,
    _ensemble_work,
    _errors,
    _iterated,
    _levels,
    _numbers,
    _Request,
    _residual_tolerance,
    _rough,
    _State,
)

LARGEST_SUBTRACTED = 2e-3
LARGEST_SIGNED = 5e-3  # the folded mass beyond which the signed fixed point may be far from that with a prox
FELT_FOLD = 1e-7
SMOOTH_ERROR = 1e-3
COARSE_DEFECT = 0.02
COARSE_STEPS = 100
SLOPE_GAPS = (0, 1)


class Routes(NamedTuple):
    """What a module has for each of these: by a fixed point from a start, by averages and second rates at any point.

    `whole` has the nodes at which these rates are derived, where there are any. `coarse` is a channel on few nodes, and
    `branch` is where these lead from another start than that of a known point.
    """

    state: Callable[[Array, _Request], _State]
    averages: Callable[[Array, Setting, float], Averages]
    whole: Callable[[Array, Setting, float], Channel | None]
    coarse: Callable[[Setting], Channel]
    branch: Callable[[Array, Array, _Request], Converged]


def smooth_state(start: Array, request: _Request) -> _State:
    """Prox-free while the dimension allows and no fold matters; else the prox."""
    if request.dimensions > LATTICE_DIMENSIONS:
        return _ensemble(start, request)
    smooth = _levels(mixed_ladder(request.settings, _smooth), start, request)
    without_scores = not any(dimensions(s)[0] for s in request.settings)
    return smooth if without_scores or _folds_do_not_matter(smooth, request) else _jumping(smooth, start, request)


def searched_folds_state(start: Array, request: _Request) -> _State:
    """Prox-free while no fold matters; else with what the folds change, searched for; the prox where that fails."""
    if request.dimensions > LATTICE_DIMENSIONS:
        return _ensemble(start, request)
    smooth = _levels(mixed_ladder(request.settings, _smooth), start, request)
    if not any(dimensions(s)[0] for s in request.settings) or _folds_do_not_matter(smooth, request):
        return smooth
    begun = smooth.last.order
    if not smooth.converged or smooth.last.averages.folded_mass > LARGEST_SIGNED:
        begun = _rough(start, request).last.order
    found = searched_state(begun, request)
    known = [s for s in (found, smooth) if s.converged]
    if not known or min(s.error for s in known) > max(request.tol, POORLY_SEARCHED):
        least = min((s.error for s in known), default=np.inf)
        found = _jumping(smooth, start, request._replace(known=least))
        known += [s for s in (found,) if s.converged]
    return min(known, key=lambda s: s.error, default=found)


def prox_state(start: Array, request: _Request) -> _State:
    """Where M has kinks: a global prox on lattices that get finer, or on scrambled nodes."""
    if request.dimensions > LATTICE_DIMENSIONS:
        return _ensemble(start, request)
    found = _levels(mixed_ladder(request.settings, _proxes), start, request)
    return found if found.converged else _ensemble(start, request)


def _proxes(setting: Setting) -> Ladder:
    return ProxChannel.at_level(0, setting)


def prox_averages(order: Array, setting: Setting, count: float) -> Averages:
    """Averages at a point that need not be a solution, by a global prox."""
    dim = node_dimensions(setting)
    nodes = lattice(dim, count, 0) if dim <= LATTICE_DIMENSIONS else sobol(dim, int(np.log2(count)), 0)
    return ProxChannel(nodes, setting).averages(order)


def folded_state(start: Array, request: _Request) -> _State:
    """The same, but less the folds, or these cut out, before the prox is taken."""
    if not all(_cuttable(s) for s in request.settings):
        return smooth_state(start, request)
    smooth = _levels(mixed_ladder(request.settings, _smooth), start, request, LARGEST_SUBTRACTED)
    taken, smooth = _folds_seen_to(smooth, request)
    if taken.converged and taken.error <= request.tol:
        return taken
    if _folds_do_not_matter(smooth, request):
        return smooth
    rows = mixed_ladder(request.settings, _cut)
    cut = _levels(rows, smooth.last.order if smooth.converged else start, request)._replace(seen=[rows], rows=rows)
    found = [s for s in (cut, smooth, taken) if s.converged]
    return min(found, key=lambda s: s.error) if cut.converged else _jumping(smooth, start, request)


def _folds_do_not_matter(smooth: _State, request: _Request) -> bool:
    """Whether the error is what is asked for, or owes little to the folds."""
    folded = FOLD_WEIGHT * smooth.last.averages.folded_mass
    good = max(request.tol, min(0.5 * (smooth.error - folded), NEGLIGIBLE_FOLD * FOLD_WEIGHT))
    return smooth.converged and folded <= good and smooth.error <= max(request.tol, SMOOTH_ERROR)


def _jumping(smooth: _State, start: Array, request: _Request) -> _State:
    """The fixed point with a global prox, unless that without one is known better, or good enough."""
    if smooth.converged and not request.budget.affords(_ensemble_work(LOG2_SOBOL[0], request), smooth.error):
        return smooth
    found = _ensemble(smooth.last.order if smooth.converged else start, request)
    if not smooth.converged:
        return found
    averages = found.last.averages._replace(folded_mass=smooth.last.averages.folded_mass)
    found = found._replace(last=found.last._replace(averages=averages))
    return found if found.error <= smooth.error else smooth


def _folds_seen_to(smooth: _State, request: _Request) -> tuple[_State, _State]:
    """Folds that were left for later: with what they add subtracted where that matters, and counted in the error."""
    mass = smooth.last.averages.folded_mass
    if not smooth.converged or mass >= LARGEST_SUBTRACTED:
        return smooth, smooth
    if mass > FELT_FOLD:
        rows = mixed_ladder(request.settings, _cut)
        smooth = smooth._replace(seen=[rows], rows=rows)
    counted = _with_folds(smooth, request)
    relevant = smooth.error < FOLD_WEIGHT * mass and request.tol < counted.error
    return _without_gaps(smooth, request) if relevant else counted, counted


def _with_folds(state: _State, request: _Request) -> _State:
    """The state with what its folds may do counted in the errors."""
    folded = FOLD_WEIGHT * state.last.averages.folded_mass
    sizes = np.maximum(1.0, np.abs(_numbers(state.last, request)))
    return state._replace(errors=state.errors + folded * sizes)


def _without_gaps(state: _State, request: _Request) -> _State:
    """The fixed point with what folds add subtracted, on rows that get finer until the error is what is asked for."""
    assert state.refined is not None
    channel, near, slopes, gap = state.refined
    order, iterations = state.last.order, state.iterations
    numbers = [_numbers(state.last, request)]
    for fineness in range(-1, FINEST_GAPS + 1):
        rows = _less_gaps(channel, fineness, request)
        found = _by_newton(rows, order, near, request, _residual_tolerance(request))
        order, iterations = found.last.order, iterations + found.iterations
        numbers.append(_numbers(found.last, request))
        opened = gap + slow_error(numbers, LEVEL_SAFETY, channel.slack)
        errors = _errors(found.last, near, slopes, request, opened, 0.0)
        if errors[0] <= request.tol or not request.budget.affords(3.0 * NEXT_LEVEL * rows.work, float(errors[0])):
            break
    method = state.method.replace(channel.name, GapChannel.name, 1)
    # What is subtracted is small, and known well enough on few rows for derivatives; without folds it is nothing.
    few = [_less_gaps(channel, fineness, request) for fineness in SLOPE_GAPS]
    on = state.on if state.last.averages.folded_mass < FELT_FOLD else few
    return _State(found.last, iterations, found.converged, errors, state.seen, method, on=on, rows=state.rows)


def _less_gaps(channel: Ladder, fineness: int, request: _Request) -> Channel:
    """The same nodes, less the gaps on rows of some fineness."""
    parts = {s.tokens: part for s, (_, part) in zip(request.settings, parts_of(channel), strict=True)}

    def less_gaps(setting: Setting) -> Channel:
        part = parts[setting.tokens]
        return GapChannel(part, fineness) if isinstance(part, ProxFreeChannel) else part

    return mixed(request.settings, less_gaps)


def _smooth(setting: Setting) -> Ladder:
    """Prox-free where there are scores to minimise over; else the prox is the field itself."""
    return (ProxFreeChannel if dimensions(setting)[0] else ProxChannel).at_level(0, setting)


def _cuttable(setting: Setting) -> bool:
    return not dimensions(setting)[0] or FoldedChannel.applies(setting)


def _cut(setting: Setting) -> Ladder:
    """The folds cut out, where there are scores."""
    return FoldedChannel(0, setting) if dimensions(setting)[0] else _smooth(setting)


def smooth_averages(order: Array, setting: Setting, count: float) -> Averages:
    """Averages at a point that need not be a solution, on one fine set of nodes."""
    dim = node_dimensions(setting)
    if dim > LATTICE_DIMENSIONS:
        return ProxChannel(sobol(dim, int(np.log2(count)), 0), setting).averages(order)
    explicit = _explicit_averages(order, setting, count)
    return explicit or ProxChannel(lattice(dim, min(count, 50_000.0), 0), setting).averages(order)


def folded_averages(order: Array, setting: Setting, count: float) -> Averages:
    """The same with the folds cut out, where the scores have one dimension."""
    if not FoldedChannel.applies(setting):
        return smooth_averages(order, setting, count)
    level = max(0, round(np.log(count / 20_000.0) / np.log(3.0)))
    return _explicit_averages(order, setting, count) or FoldedChannel(min(level, 2), setting).averages(order)


def _explicit_averages(order: Array, setting: Setting, count: float) -> Averages | None:
    """The prox-free averages, unless there are no scores or folds matter."""
    if not dimensions(setting)[0]:
        return None
    flips = symmetries(setting)
    smooth = ProxFreeChannel(lattice(node_dimensions(setting), count * 2.0 ** len(flips), 0, flips), setting)
    smooth.adapt(order)
    found = smooth.averages(order)
    return found if _whole(found) else None


def _whole(found: Averages) -> bool:
    """Whether nothing is folded or missing that matters."""
    return FOLD_WEIGHT * (found.folded_mass + abs(found.mass - 1.0)) < NEGLIGIBLE_FOLD


def whole_channel(order: Array, setting: Setting, count: float) -> Channel | None:
    """Nodes at which E[M] has second derivatives at a point that need not be a solution; none where the prox jumps."""
    dim = node_dimensions(setting)
    if dim > LATTICE_DIMENSIONS:
        return None
    if not dimensions(setting)[0]:
        return ProxChannel(lattice(dim, min(count, 50_000.0), 0), setting)
    smooth = ProxFreeChannel(lattice(dim, count, 0), setting)
    smooth.adapt(order)
    return smooth if _whole(smooth.averages(order)) else None


def never_whole(order: Array, setting: Setting, count: float) -> Channel | None:
    """Where the rates have no derived derivatives."""
    return None


def smooth_branch(start: Array, known: Array, request: _Request) -> Converged:
    """Where coarse nodes lead from a start; the prox decides unless nodes without it lead to the known solution."""
    if request.dimensions <= LATTICE_DIMENSIONS:
        smooth = mixed_ladder(request.settings, _smooth)
        smooth.adapt(start)
        found = _iterated(smooth, start, request, 1e-5, COARSE_STEPS, known=known)
        defect = found.last.averages.folded_mass + abs(found.last.averages.mass - 1.0)
        if found.converged and defect < COARSE_DEFECT and beside(found.last.order, known):
            return found
    return coarse_branch(start, known, request)


def coarse_branch(start: Array, known: Array | None, request: _Request, tol: float = 1e-5) -> Converged:
    """Where few nodes lead from a start."""
    return _iterated(mixed(request.settings, ROUTES.coarse), start, request, tol, COARSE_STEPS, known=known)


def coarse_prox(setting: Setting) -> Channel:
    """The prox on few nodes."""
    dim = node_dimensions(setting)
    nodes = lattice(dim, level_count(dim, 0), 0) if dim <= LATTICE_DIMENSIONS else sobol(dim, 10, 0)
    return ProxChannel(nodes, setting)


ROUTES = Routes(folded_state, folded_averages, whole_channel, coarse_prox, smooth_branch)
