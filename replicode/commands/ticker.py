"""A sign of life: on a terminal, the seconds that a command has taken, while nothing else tells how far it is."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

QUIET_FOR = 2.0


class Ticker:
    """Writes one line over and over on standard error, from two seconds of silence on; wipes it at the end."""

    def __init__(self, what: str, on: bool) -> None:
        self._what, self._on = what, on and sys.stderr.isatty()
        self._began = self._heard = time.monotonic()
        self._over, self._shown = threading.Event(), False

    def __enter__(self) -> Ticker:
        if self._on:
            threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._wipe()

    def heard(self) -> None:
        """Something else was told just now."""
        self._wipe()
        self._heard = time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(1.0):
            if time.monotonic() - self._heard > QUIET_FOR:
                self._shown = True
                sys.stderr.write(f"\r\x1b[K{self._what}: {time.monotonic() - self._began:.0f} s")
                sys.stderr.flush()

    def _wipe(self) -> None:
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
