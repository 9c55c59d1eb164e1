"""Jobs: each in a process of its own, which is killed when it is cancelled, abandoned, or takes too long.

A few run at a time, a few more wait, and the rest are turned away. What a process tells is kept as numbered events, so
that a page that lost its connection reads on from where it was. Finished jobs are forgotten, the oldest first; their
work is not: nodes of curves, modules and equations are in the cache.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from replicode.serve import work

WORKERS = 2
MOST_WAITING = 12
MOST_FINISHED = 24
MOST_EVENTS = 2000
MOST_FILE_BYTES = 32 * 2**20
SECONDS = 600.0
ABANDONED = 10.0
LOOK = 0.2
ENDS = ("done", "failed", "cancelled")


class Busy(Exception):
    """Too many jobs are waiting."""


@dataclass(eq=False)
class Job:
    """One piece of work: its events so far as (name, JSON), the file that it made, and whether it is over."""

    key: str
    kind: str
    arguments: Mapping[str, Any]
    events: list[tuple[str, str]] = field(default_factory=list)
    file: tuple[str, str, bytes] | None = None
    ended: bool = False
    cancelled: bool = False
    listeners: int = 0
    left: float = field(default_factory=time.monotonic)
    process: Any = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Jobs:
    """The jobs of a server; all but `_run` and what it calls is done in the server's own thread."""

    def __init__(self, workers: int = WORKERS, seconds: float = SECONDS, warm: bool = True) -> None:
        self.workers, self.seconds = workers, seconds
        self.known: dict[str, Job] = {}
        self.waiting: deque[Job] = deque()
        self.running: set[Job] = set()
        self.closed = False
        kinds = multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if "forkserver" in kinds else "spawn")
        if "forkserver" in kinds:
            warmed = ["replicode.serve.warm"] if warm else []
            self.context.set_forkserver_preload(["replicode.serve.preload", *warmed])

    def prepare(self) -> None:
        """Start the process that jobs are forked from, before the first is asked for."""
        if self.context.get_start_method() == "forkserver":
            from multiprocessing.forkserver import ensure_running

            threading.Thread(target=ensure_running, name="replicode prepare", daemon=True).start()

    def submit(self, kind: str, arguments: Mapping[str, Any]) -> Job:
        """A new job, running or waiting; Busy where too many wait."""
        if len(self.waiting) >= MOST_WAITING:
            raise Busy
        job = Job(secrets.token_urlsafe(12), kind, arguments)
        self.known[job.key] = job
        self.waiting.append(job)
        self._start()
        return job

    def cancel(self, job: Job) -> None:
        """The job's process is killed, or never started."""
        if job.ended:
            return
        job.cancelled = True
        if job in self.waiting:
            self.waiting.remove(job)
            self._end(job, "cancelled", {})
        elif job.process is not None:
            kill(job.process)

    def close(self) -> None:
        """Nothing runs any more."""
        self.closed = True
        for job in [*self.waiting, *self.running]:
            self.cancel(job)

    async def look_after(self) -> None:
        """Cancel what nobody listens to any more."""
        while not self.closed:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            for job in [*self.waiting, *self.running]:
                if not job.listeners and now - job.left > ABANDONED:
                    self.cancel(job)

    def _start(self) -> None:
        while self.waiting and len(self.running) < self.workers and not self.closed:
            job = self.waiting.popleft()
            self.running.add(job)
            arguments = (job, asyncio.get_running_loop())
            threading.Thread(target=self._run, args=arguments, name="replicode job", daemon=True).start()

    def _run(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """Start the process, hand on what it tells, and say how it ended."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=work.run, args=(theirs, job.kind, dict(job.arguments)), daemon=False)
        last: tuple[str, Any] = ("failed", {"message": "the process that computed it was lost"})
        try:
            process.start()
            theirs.close()
            job.process = process
            if job.cancelled:
                kill(process)
            last = self._heard(job, ours, loop) or last
        finally:
            kill(process)
            with suppress(AssertionError):  # it was never started
                process.join(1.0)
            ours.close()
            with suppress(RuntimeError):  # the server ends, and its loop with it
                loop.call_soon_threadsafe(self._finish, job, *last)

    def _heard(self, job: Job, ours: Any, loop: asyncio.AbstractEventLoop) -> tuple[str, Any] | None:
        """Every event but the last is handed on at once; the last is returned."""
        deadline = time.monotonic() + self.seconds
        while (left := deadline - time.monotonic()) > 0.0:
            try:
                if not ours.poll(min(left, 1.0)):
                    continue
                name, content = ours.recv()
            except (EOFError, OSError):
                return ("cancelled", {}) if job.cancelled else None
            if name in ENDS:
                return name, content
            loop.call_soon_threadsafe(self._tell, job, name, content)
        return "failed", {"message": f"given up after {self.seconds:g} s; what was computed is kept"}

    def _tell(self, job: Job, name: str, content: Any) -> None:
        if name == "file":
            job.file = content["name"], content["type"], content["content"]
        elif len(job.events) < MOST_EVENTS:
            job.events.append((name, json.dumps(content)))
            job.news.set()

    def _finish(self, job: Job, name: str, content: Any) -> None:
        self.running.discard(job)
        self._end(job, "cancelled" if job.cancelled else name, content)
        self._start()

    def _end(self, job: Job, name: str, content: Any) -> None:
        job.events.append((name, json.dumps(content)))
        job.ended, job.process = True, None
        job.news.set()
        self._forget()

    def _forget(self) -> None:
        finished = [j for j in self.known.values() if j.ended]
        room = MOST_FILE_BYTES
        for i, job in enumerate(reversed(finished)):
            room -= len(job.file[2]) if job.file else 0
            if i >= MOST_FINISHED or room < 0:
                del self.known[job.key]


def kill(process: Any) -> None:
    """End a process with all that it started, and wait until it is gone."""
    if process.pid is None:
        return
    with suppress(ProcessLookupError, PermissionError, AttributeError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError, ValueError):
        process.kill()
