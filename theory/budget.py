"""Limits of processor time and memory around symbolic work.

SymPy may take time and memory exponential in the length of a text. What is known beforehand is not tried
(`calculus/expansion.py`); for all else a thread watches the clock of the thread that works and the memory of the
process, and raises in the worker when one of them is spent. Unlike an alarm this works in every thread; unlike a child
process it costs no start, nothing has to travel back, and it is safe beside other threads. As with Ctrl-C a call into C
ends first; the language bounds numbers, so that none takes long.

The limits are 60 s and 2000 MB, or REPLICODE_SECONDS and REPLICODE_MEGABYTES.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from replicode.theory.errors import InputError, Refusal

SECONDS = 60.0
MEGABYTES = 2000.0

_LOOKS = 20  # per second, and at least as many in the time allowed
_STATM = Path("/proc/self/statm")


class BudgetSpent(Refusal):
    """Symbolic work was given up because a limit of processor time or memory was reached."""


class _Stop(BaseException):
    """Raised in the worker. Not an Exception, lest SymPy take it for one of its own."""


@dataclass(eq=False)
class _Limit:
    """What one budget allows, on the worker's clock and in bytes; `spent` names the limit that was reached."""

    seconds: float
    megabytes: float
    deadline: float
    ceiling: float
    spent: str = ""

    def look(self, now: float, memory: float) -> bool:
        if now > self.deadline:
            self.spent = f"{self.seconds:g} s of processor time"
        elif memory > self.ceiling:
            self.spent = f"{self.megabytes:g} MB of memory"
        return bool(self.spent)


class _Watch:
    """The nested budgets of one thread, and the thread that looks after them."""

    def __init__(self) -> None:
        self.worker = threading.get_ident()
        self.clock = _thread_clock()
        self.limits: list[_Limit] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def open(self, seconds: float, megabytes: float) -> _Limit:
        limit = _Limit(seconds, megabytes, self.clock() + seconds, _resident() + megabytes * 1e6)
        with self.lock:
            self.limits.append(limit)
        if len(self.limits) == 1:
            threading.Thread(target=self._look_after, name="replicode budget", daemon=True).start()
        return limit

    def close(self, limit: _Limit) -> None:
        """From here on nothing is raised for this limit, nor for those inside it."""
        with self.lock:
            del self.limits[self.limits.index(limit) :]
        if not self.limits:
            self.ended.set()

    def _look_after(self) -> None:
        with contextlib.ExitStack() as until_the_end:
            while not self.ended.wait(self._pause()):
                self._look(until_the_end)

    def _look(self, until_the_end: contextlib.ExitStack) -> None:
        """Raise in the worker where a limit is spent; again at every look, for a stop may be lost."""
        now, memory = self.clock(), _resident()
        with self.lock:
            if any([limit.look(now, memory) for limit in self.limits]) and self._stoppable():
                until_the_end.enter_context(_lost_stops_unsaid())
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.worker), ctypes.py_object(_Stop))

    def _stoppable(self) -> bool:
        """Whether the worker is where a stop can be raised: not while a budget is being opened or closed."""
        frame = sys._current_frames().get(self.worker)
        return frame is not None and frame.f_code.co_filename not in (__file__, contextlib.__file__)

    def _pause(self) -> float:
        return min([1.0, *[limit.seconds for limit in self.limits]]) / _LOOKS


@contextlib.contextmanager
def _lost_stops_unsaid() -> Iterator[None]:
    """A stop that falls into a finaliser or a callback of the collector is lost there; Python would print it."""
    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, _Stop):
            before(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before


_watches = threading.local()


@contextlib.contextmanager
def budget(
    step: str, seconds: float | None = None, megabytes: float | None = None, share: float = 1.0
) -> Iterator[None]:
    """Refuse, naming the step, when what runs inside spends its processor time or memory; also a decorator.

    A `share` is of the time that is allowed. Budgets nest: the outermost that is spent refuses.
    """
    allowed = (
        share * _limit("REPLICODE_SECONDS", SECONDS) if seconds is None else seconds,
        _limit("REPLICODE_MEGABYTES", MEGABYTES) if megabytes is None else megabytes,
    )
    outer: _Watch | None = getattr(_watches, "watch", None)
    watch, hook = outer or _Watch(), sys.getprofile()
    limit = watch.open(*allowed)
    _watches.watch = watch
    try:
        try:
            yield
        finally:
            _watches.watch = outer
            watch.close(limit)
            if sys.getprofile() is not hook:  # a stop fell into the clean-up of one that was set inside
                sys.setprofile(hook)
    except _Stop as stop:
        if any(other.spent for other in watch.limits):
            raise
        raise BudgetSpent(_message(step, limit, stop)) from None
    except MemoryError:
        raise BudgetSpent(f"{step}: the memory of this machine is spent; a simpler expression is allowed") from None


def _message(step: str, limit: _Limit, stop: _Stop) -> str:
    names = [(f.f_globals.get("__name__", ""), f.f_code.co_name) for f, _ in traceback.walk_tb(stop.__traceback__)]
    ours = [name for module, name in names if module.startswith("replicode.") and module != __name__]
    inside = [name for name in ours if not name.startswith("<")]
    where = f" in {inside[-1]}" if inside else ""
    return (
        f"{step}: the limit of {limit.spent} is spent{where}; allowed are simpler expressions, "
        "or a larger limit in REPLICODE_SECONDS or REPLICODE_MEGABYTES"
    )


def _limit(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0.0):
        raise InputError(variable, text, "a positive number")
    return value


def _thread_clock() -> Callable[[], float]:
    """The processor time of this thread, to be read by others; that of the process where there is no such clock."""
    try:
        clock = time.pthread_getcpuclockid(threading.get_ident())
    except (AttributeError, OSError):
        return time.process_time
    return lambda: time.clock_gettime(clock)


def _resident() -> float:
    """Bytes of memory in use; zero where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0
