"""The HTTP port: uvicorn in the server's own event loop, and bounds on what its clients can cost.

uvicorn waits without end for a request that comes byte by byte, and for a client that does not read. Here a request
and its answer have :data:`REQUEST_SECONDS` together, and there are :data:`CONNECTIONS` connections at most.
"""

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.listeners import Listener, listen
from broker.web.site import Site

REQUEST_SECONDS: Final = 20.0
"""From the start of a connection, or the end of the answer before, to the end of the answer."""

CONNECTIONS: Final = 64

HEADER_BYTES: Final = 16 * 1024
"""Bytes of a request line and its headers; more are answered 400."""

IDLE_SECONDS: Final = 5
STOP_SECONDS: Final = 1


class BoundedProtocol(H11Protocol):
    """One connection, which is closed when it takes too long."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection, unless there are too many."""
        if len(self.connections) >= CONNECTIONS:
            transport.abort()
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Give the next request its time."""
        self._end()
        if not self.transport.is_closing():
            self._begin()
        super().on_response_complete()

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class WebPort:
    """Serves a `site` on bound sockets; all methods are the event loop's."""

    def __init__(self, site: Site, listeners: Sequence[Listener]) -> None:
        self.site = site
        self._listeners = listeners
        settings: dict[str, Any] = {
            "loop": "none",
            "http": BoundedProtocol,
            "ws": "none",
            "lifespan": "off",
            # Ours is the log; what clients do wrong would fill it.
            "log_config": None,
            "log_level": "error",
            "access_log": False,
            "proxy_headers": False,
            "server_header": False,
            "h11_max_incomplete_event_size": HEADER_BYTES,
            "timeout_keep_alive": IDLE_SECONDS,
            "timeout_graceful_shutdown": STOP_SECONDS,
        }
        self._server = _Server(uvicorn.Config(site.application(), **settings))
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept connections. Raises `CannotListen` when an address went to somebody else since it was bound."""
        for listener in self._listeners:
            listen(listener)
        sockets = [listener.socket for listener in self._listeners]
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets))

    async def stop(self) -> None:
        """Finish what is being answered, for a second at most, and close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self.site.close()
