"""HTTP while stores are being opened: `/healthz` says that the process lives, everything else that it starts.

The port is there from the first moment, so that a probe can tell a server that opens a large store from one that hangs.
It is the same server as later on, in an event loop of its own on a thread, since opening keeps the main one busy. Both
are gone before the main loop takes the port over; connections that come in between wait in the kernel's queue.
"""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.net.listeners import Listener, listen
from broker.security.watched_files import Watched
from broker.web._http_server import HttpServer

if TYPE_CHECKING:  # a server that starts answers before it has loaded that
    from starlette.types import Receive, Scope, Send


@contextlib.contextmanager
def answering(listeners: Sequence[Listener], context: Watched[ssl.SSLContext] | None = None) -> Iterator[None]:
    """Answer on bound sockets while the block runs, with a `context` by TLS too; without any nothing is done.

    Raises `CannotListen` when an address went to somebody else since it was bound.
    """
    if not listeners:
        yield
        return
    for listener in listeners:
        listen(listener)
    server = HttpServer(Starting(), context)

    async def start() -> None:
        server.start([listener.socket.dup() for listener in listeners])  # the server closes its own

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="starting", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result()
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Starting:
    """The application of a server that has no store yet."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    async def __call__(self, scope: "Scope", _receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        status = 405 if scope["method"] not in ("GET", "HEAD") else 200 if scope["path"] == "/healthz" else 503
        body = f"starting: opening the store, {time.monotonic() - self._started:.0f} s so far\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"retry-after", b"1"),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
