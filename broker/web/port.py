"""The HTTP port: uvicorn in the server's own event loop, and bounds on what its clients can cost.

uvicorn waits without end for a request that comes byte by byte, and for a client that does not read. Here a request
and its answer have :data:`REQUEST_SECONDS` together, and there are :data:`CONNECTIONS` connections at most. When there
are so many, the connection is closed that has kept us waiting longest, for a request or for its answer to be read, so
that a probe of our health finds room whatever others send. Only where all are being answered a new one is refused.

A request is read strictly, so that no proxy before us takes it for another one than we do: it has no body, however
announced (nothing here takes one), whole line ends, no folded header, and its target is a path.

With TLS the first byte of a connection decides what it is, as on the other port: probes may come without TLS, and what
else does is refused by the site. Connections whose handshake is not done are bounded likewise, and as many.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from broker.limits import DEFAULT_LIMITS
from broker.net.budget import ConnectionBudget
from broker.net.listeners import Listener, listen
from broker.net.reception import Reception
from broker.security.watched_files import Watched
from broker.web.site import Site

REQUEST_SECONDS: Final = 20.0
"""From the start of a connection, or the end of the answer before, to the end of the answer."""

CONNECTIONS: Final = 64

HEADER_BYTES: Final = 16 * 1024
"""Bytes of a request line and its headers, in one piece or many; more are answered 400."""

VERSIONS: Final = (b"1.0", b"1.1")

_PLACES = itertools.count(1)
"""In which order connections began to wait for their clients; a loop's clock is too coarse for that."""

IDLE_SECONDS: Final = 5
STOP_SECONDS: Final = 1


class StrictRequests(h11.Connection):
    """Reads requests as h11 does, but bounds those that come in one piece too, and takes none that is ambiguous."""

    def next_event(self) -> Any:
        """Return what comes next. Raises `h11.RemoteProtocolError` for what is no request, or too long a one."""
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            refusal = _refusal_of(event, head)
            if refusal is not None:
                raise h11.RemoteProtocolError(refusal, error_status_hint=400)
        return event


def _refusal_of(request: h11.Request, head: bytes) -> str | None:
    """Say why a request with these bytes of request line and headers is not taken; None where it is."""
    if len(head) > HEADER_BYTES:
        return f"more than {HEADER_BYTES} bytes of headers"
    if request.http_version not in VERSIONS:
        return "no version of HTTP that is spoken here"
    lines = head.split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or line[:1] in (b" ", b"\t") for line in lines):
        return "a line end that is not whole, or a folded header"
    if not request.target.startswith(b"/"):
        return "a target that is no path"
    # By the bytes: h11 makes one length of several that are alike.
    fields = [line.partition(b":") for line in lines[1:]]
    lengths = [value.strip() for name, _, value in fields if name.lower() == b"content-length"]
    if lengths not in ([], [b"0"]) or any(name == b"transfer-encoding" for name, _ in request.headers):
        return "a body, or more than one length"
    return None


class BoundedProtocol(H11Protocol):
    """One connection, which is closed when it takes too long."""

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what uvicorn makes a protocol of."""
        super().__init__(*args, **kwargs)
        self.conn = StrictRequests(h11.SERVER, HEADER_BYTES)
        self._place = 0

    @property
    def waits_for_client(self) -> bool:
        """Whether the client is to go on: to send a whole request, or to read its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection, unless there are too many at work."""
        if len(self.connections) >= CONNECTIONS:
            (self._slowest() or transport).abort()
        super().connection_made(transport)
        self._begin()

    def _slowest(self) -> asyncio.Transport | None:
        """Count out the connection whose client has kept us waiting longest; None where none does."""
        waiting = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.waits_for_client]
        slowest = min(waiting, key=lambda each: each._place, default=None)
        if slowest is None:
            return None
        self.connections.discard(slowest)
        return slowest.transport

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
        self._place = next(_PLACES)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop it. With a `reception` that accepts its connections."""

    reception: Reception | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on sockets that listen."""
        if self.reception is None:
            await super().startup(sockets)
            return
        config, self.servers = self.config, []
        for each in sockets or ():
            self.reception.listen(
                each,
                lambda _header: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state={}
                ),
            )
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class WebPort:
    """Serves a `site` on bound sockets, with a `context` by TLS; all methods are the event loop's."""

    def __init__(
        self, site: Site, listeners: Sequence[Listener], context: Watched[ssl.SSLContext] | None = None
    ) -> None:
        self.site = site
        self.context = context
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
            "timeout_keep_alive": IDLE_SECONDS,
            "timeout_graceful_shutdown": STOP_SECONDS,
        }
        self._server = _Server(uvicorn.Config(site.application(), **settings))
        self._server.reception = None if context is None else _reception(context)
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
        if self._server.reception is not None:
            self._server.reception.close()
        if self._task is not None:
            await self._task
        self.site.close()


def _reception(context: Watched[ssl.SSLContext]) -> Reception:
    """Accepts connections with TLS and without; those beyond the bound replace the one that waits longest."""
    limits = replace(DEFAULT_LIMITS, connections=CONNECTIONS, idle_seconds=int(REQUEST_SECONDS))
    return Reception(
        ConnectionBudget(limits, time.monotonic),
        context=context,
        is_enforcing=False,
        proxies=(),
        count_open=lambda: 0,  # those with a transport are bounded by their protocol
        replaces_oldest=True,
    )
