"""`replicode serve`."""

from __future__ import annotations

import click

from replicode.commands import options
from replicode.commands.verb import Verb, as_json, print_json, say

PORT = "8765"
WORKERS = "2"


@click.command("serve", cls=Verb)
@options.whole("--port", "port", default=PORT, show_default=True, help="Port on 127.0.0.1; 0 for any that is free.")
@options.whole("--workers", "workers", default=WORKERS, show_default=True, help="Jobs at a time.")
@options.whole("--seconds", "seconds", default="600", show_default=True, help="The longest that a job may take.")
@click.option(
    "--warm/--no-warm", default=True, show_default=True, help="Derive once at the start: answers come sooner."
)
def command(port: int, workers: int, seconds: int, warm: bool) -> None:
    """The explorer: a page on this machine where activations are typed in and their theory appears."""
    from replicode.extras import needed
    from replicode.theory.limits import whole_number

    uvicorn = needed("uvicorn", "serve")
    for package in ("starlette.applications", "latex2mathml.converter", "vl_convert"):
        needed(package, "serve")
    from replicode.serve.app import application, listen
    from replicode.serve.jobs import Jobs

    longest = float(whole_number("seconds", seconds, 1, 86400))
    jobs = Jobs(whole_number("workers", workers, 1, 64), longest, warm)
    socket = listen(whole_number("port", port, 0, 65535))
    chosen = socket.getsockname()[1]
    address = f"http://127.0.0.1:{chosen}"
    say(f"explorer at {address} (Ctrl-C ends it; what was computed is kept)")
    if as_json():
        print_json("serve", {"address": address, "port": chosen})
    config = uvicorn.Config(
        application(chosen, jobs),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        limit_concurrency=128,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=32 * 1024,
        http="h11",
        ws="none",
    )
    with socket:
        uvicorn.Server(config).run(sockets=[socket])
