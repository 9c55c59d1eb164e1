"""Progress on standard error: how far, how long still, and the value and error of the last point."""

from __future__ import annotations

import sys
import time
from shutil import get_terminal_size
from typing import TextIO

LINES = 20  # of a log


class Progress:
    """One line that is written over on a terminal or in a notebook, some twenty lines in a log."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.done, self.first = total, 0, 0.0
        self.stream = sys.stderr if stream is None else stream
        self.overwrite = self.stream.isatty() or "ipykernel" in sys.modules

    def step(self, text: str) -> None:
        """One more is done."""
        self.done += 1
        self.first = self.first or time.monotonic()
        line = f"{self.done}/{self.total} {self._left()}; {text}"
        if self.overwrite:
            width = get_terminal_size().columns - 1
            print(f"\r{line[:width]:<{width}}", end="", file=self.stream, flush=True)
        elif self.done % max(1, self.total // LINES) == 0 or self.done == self.total:
            print(line, file=self.stream, flush=True)

    def close(self) -> None:
        """Leave the line that was written over."""
        if self.overwrite and self.done:
            print(file=self.stream, flush=True)

    def _left(self) -> str:
        """The time left at the pace since the first point, before which workers start and modules are derived."""
        if self.done == 1:
            return "done"
        pace = (time.monotonic() - self.first) / (self.done - 1)
        return f"({_duration(pace * (self.total - self.done))} left)"


def _duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
