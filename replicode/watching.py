"""Watching a solver at work: the residual of every iteration, told to whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

Told = Callable[[str], None]
_WATCHER: ContextVar[Told | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(told: Told) -> Iterator[None]:
    """Tell the residual of every iteration of the modules that are solved meanwhile."""
    token = _WATCHER.set(told)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def watched(module: ModuleType) -> Iterator[None]:
    """A generated module whose saddle-point map tells what it gives, while someone is watching."""
    told, applied = _WATCHER.get(), getattr(module, "evaluate", None)
    if told is None or applied is None:
        yield
        return
    count = 0

    def telling(*arguments: Any, **more: Any) -> Any:
        nonlocal count
        found = applied(*arguments, **more)
        count += 1
        nodes = getattr(arguments[0], "work", None) if arguments else None
        on = "" if nodes is None else f", {nodes:.0f} nodes"
        told(f"iteration {count}: residual {found.residual:.3e}{on}")
        return found

    module.evaluate = telling  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.evaluate = applied  # type: ignore[attr-defined]
