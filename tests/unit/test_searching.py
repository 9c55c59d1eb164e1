"""Where critical points are searched for on the way to a fixed point: a toy map that depends on where that was."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from replicode.codegen.runtime import searching
from replicode.codegen.runtime.fixedpoint import Evaluation, Linearised, from_free, to_free
from replicode.codegen.runtime.places import ordered

TARGET = to_free(ordered(0.5, 0.8, 1.2))
SLOPE, STALE = 0.3, 0.05


def evaluated(channel, order, problem, search=False):
    """The map of a channel that keeps a part of what it saw where it searched."""
    free = to_free(order)
    channel.home = free if search else channel.home
    channel.searches += search
    image = from_free(TARGET + SLOPE * (free - TARGET) + STALE * (channel.home - TARGET))
    return Evaluation(order, image, order, None)


def test_minima_are_searched_for_again_where_the_iteration_ends(monkeypatch):
    monkeypatch.setattr(searching, "evaluate", evaluated)
    near = Linearised(np.eye(TARGET.size) / (1.0 - SLOPE), np.zeros((0, TARGET.size)))
    request = SimpleNamespace(problem=None, budget=SimpleNamespace(spend=lambda *_: None))

    def settled(away):
        channel = SimpleNamespace(home=None, searches=0, work=1.0)
        found = searching._settled(channel, from_free(TARGET + away), near, request, 1e-6)
        return found, channel.searches, np.abs(to_free(found.last.order) - TARGET).max()

    found, searches, off = settled(0.2)
    assert found.converged and searches > 1
    assert off < 2e-4  # one search alone leaves 0.014
    found, searches, off = settled(0.5 * searching.SEARCHED_AFRESH)
    assert found.converged and searches == 1 and off < 1e-4
