"""What stands before every route: who asks, from which page, how much they send, and what the answer allows.

The explorer is for the browser of this machine. A foreign Host is DNS rebinding, a foreign Origin another page that is
open in the same browser; both are refused before anything is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

MOST_BYTES = 64 * 1024
BODY_SECONDS = 10.0
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class TooLarge(Exception):
    """A body beyond what is allowed."""


class Guard:
    """An application behind the checks; `port` is the one that it listens on."""

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse, or hand on with a bounded body and our headers on the answer."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope["method"], headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        try:
            body = await asyncio.wait_for(_body(receive), BODY_SECONDS) if scope["method"] == "POST" else b""
        except TooLarge:
            await _answer(send, 413, f"at most {MOST_BYTES} bytes are read")
            return
        except TimeoutError:
            await _answer(send, 408, "the body did not come")
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, _replayed(body, receive), guarded_send)

    def _refused(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """The status and the reason of a request that is not let in."""
        if headers.get("host", "").lower() not in self.hosts:
            return 421, "this server answers to its own address alone"
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://").lower() not in self.hosts:
            return 403, "requests of other pages are not answered"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests of other pages are not answered"
        if method not in ("GET", "HEAD", "POST", "DELETE"):
            return 405, "GET, HEAD, POST or DELETE"
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "application/json"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return 413, f"at most {MOST_BYTES} bytes are read"
        return None


async def _body(receive: Receive) -> bytes:
    """The whole body; those without a stated length are counted as they come."""
    found: bytes = b""
    while True:
        message = await receive()
        found += bytes(message.get("body", b""))
        if len(found) > MOST_BYTES:
            raise TooLarge
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return found


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever comes after it."""
    read = False

    async def next_message() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _answer(send: Send, status: int, reason: str) -> None:
    body = f"{reason}\n".encode()
    plain = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), "connection": "close"}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(plain | HEADERS)})
    await send({"type": "http.response.body", "body": body})
