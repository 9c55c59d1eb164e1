"""The routes of the explorer, on starlette: the page, jobs, their events as they come, and the files they made."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from replicode.serve.guard import Guard
from replicode.serve.jobs import Busy, Job, Jobs
from replicode.serve.requests import checked
from replicode.theory.errors import InputError
from replicode.theory.registry import ACTIVATIONS, TASKS

STATIC = {
    "/": ("replicode.serve", "index.html", "text/html"),
    "/explorer.js": ("replicode.serve", "explorer.js", "text/javascript"),
    "/explorer.css": ("replicode.serve", "explorer.css", "text/css"),
    "/page.css": ("replicode.reports", "page.css", "text/css"),
    "/chart.js": ("replicode.reports", "chart.js", "text/javascript"),
}
MOST_LISTENERS = 24
BEAT = 10.0


def application(port: int, jobs: Jobs) -> Guard:
    """The explorer behind its guard."""
    explorer = Explorer(jobs)
    routes = [
        *(Route(path, explorer.static) for path in (*STATIC, "/vega.js")),
        Route("/api/registered", explorer.registered),
        Route("/api/jobs", explorer.submit, methods=["POST"]),
        Route("/api/jobs/{key}", explorer.cancel, methods=["DELETE"]),
        Route("/api/jobs/{key}/events", explorer.events),
        Route("/api/jobs/{key}/file", explorer.file),
    ]
    return Guard(Starlette(routes=routes, lifespan=explorer.lifespan), port)


class Explorer:
    """The answers of the routes."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.vega: str | None = None
        self.vega_lock = asyncio.Lock()
        self.listeners = 0

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Abandoned jobs are looked for while the server runs, and all are ended with it."""
        self.jobs.prepare()
        watch = asyncio.create_task(self.jobs.look_after())
        try:
            yield
        finally:
            self.jobs.close()
            watch.cancel()

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        if request.url.path == "/vega.js":
            return Response(await self._vega(), media_type="text/javascript")
        package, name, kind = STATIC[request.url.path]
        return Response(files(package).joinpath("static", name).read_text(encoding="utf-8"), media_type=kind)

    async def _vega(self) -> str:
        """The charts' library, made by another process: it takes a JavaScript engine that we do not want to keep."""
        async with self.vega_lock:
            if self.vega is None:
                code = "import sys; from replicode.reports.charts import bundle; sys.stdout.write(bundle())"
                made = await asyncio.to_thread(
                    subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8"
                )
                self.vega = made.stdout
        return self.vega

    async def registered(self, _: Request) -> Response:
        """The names that stand for activations and tasks."""
        names = {name: found.content for name, found in ACTIVATIONS.items() if isinstance(found.content, str)}
        return JSONResponse({"activations": names, "tasks": list(TASKS)})

    async def submit(self, request: Request) -> Response:
        """A new job, or what is wrong with the request."""
        try:
            kind, arguments = checked(json.loads(await request.body()))
        except (ValueError, RecursionError):
            return JSONResponse({"message": "request: not JSON"}, 400)
        except InputError as problem:
            return JSONResponse({"message": str(problem)}, 400)
        try:
            job = self.jobs.submit(kind, arguments)
        except Busy:
            return JSONResponse({"message": "too many jobs are waiting; try again in a while"}, 429)
        return JSONResponse({"job": job.key}, 202)

    async def cancel(self, request: Request) -> Response:
        """The end of a job; there is none to end where it is not known any more."""
        job = self._job(request)
        if job is None:
            return JSONResponse({"message": "no such job"}, 404)
        self.jobs.cancel(job)
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        """Server-sent events of a job, from the one that the page has seen last."""
        job = self._job(request)
        if job is None:
            return JSONResponse({"message": "no such job"}, 404)
        if self.listeners >= MOST_LISTENERS:
            return JSONResponse({"message": "too many pages listen"}, 429)
        last = request.headers.get("last-event-id", "")
        first = int(last) + 1 if last.isdigit() and len(last) < 9 else 0
        return StreamingResponse(self._stream(job, first), media_type="text/event-stream")

    async def _stream(self, job: Job, first: int) -> AsyncIterator[str]:
        self.listeners += 1
        job.listeners += 1
        try:
            seen = first
            while True:
                job.news.clear()
                for name, content in job.events[seen:]:
                    yield f"id: {seen}\nevent: {name}\ndata: {content}\n\n"
                    seen += 1
                if job.ended and seen >= len(job.events):
                    return
                if seen < len(job.events):  # another page has read the same news
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(job.news.wait(), BEAT)
                    continue
                yield ": still there\n\n"
        finally:
            self.listeners -= 1
            job.listeners -= 1
            job.left = time.monotonic()

    async def file(self, request: Request) -> Response:
        """The file that a job made."""
        job = self._job(request)
        if job is None or job.file is None:
            return JSONResponse({"message": "no such file"}, 404)
        name, kind, content = job.file
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=kind, headers=headers)

    def _job(self, request: Request) -> Job | None:
        return self.jobs.known.get(request.path_params["key"])


def listen(port: int) -> Any:
    """A socket on loopback; an InputError where the port is taken."""
    import socket

    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as problem:
        found.close()
        raise InputError("port", port, f"a port of this machine that is free, or 0 for any ({problem})") from None
    return found
