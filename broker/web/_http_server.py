"""HTTP for an ASGI application, and bounds on what its clients can cost; h11 reads and writes.

A request and its answer have :data:`REQUEST_SECONDS` together, and there are :data:`CONNECTIONS` connections at most.
When there are so many, the connection is closed that has kept us waiting longest, for a request or for its answer to be
read, so that a probe of our health finds room whatever others send. Only where all are being answered a new one is
refused. Requests of one connection are answered one after another; while one is, nothing is read behind the next.

With TLS the first byte of a connection decides what it is, as on the other port: probes may come without TLS, and what
else does is refused by the site. Connections that have sent nothing, or whose handshake is not done, are bounded
likewise, and as many.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import h11

from broker.limits import DEFAULT_LIMITS
from broker.net.budget import ConnectionBudget
from broker.net.reception import Reception
from broker.net.writing import close_gently, write_pieces
from broker.security.watched_files import Watched
from broker.web._strict_requests import StrictRequests

if TYPE_CHECKING:  # a server that starts answers before it has loaded that
    from starlette.types import ASGIApp, Message, Scope

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 20.0
"""Seconds from the start of a connection, or the end of the last answer, to the end of the next answer."""

CONNECTIONS: Final = 64

IDLE_SECONDS: Final = 5.0
"""How long a connection stays open for another request."""

STOP_SECONDS: Final = 1.0
"""How long answers may take to end when the server stops."""

_PLACES = itertools.count(1)
"""Numbers by which connections are ordered that wait for their clients; a loop's clock is too coarse for that."""


class HttpExchange:
    """One request and its answer, as an ASGI application sees them."""

    def __init__(self, connection: "HttpConnection", scope: "Scope", body: bytes) -> None:
        self.scope, self._body = scope, body
        self.is_over = asyncio.Event()
        self._connection = connection
        self._has_given_body = False

    async def receive(self) -> "Message":
        """Return the next event for the application: the body, which is mostly empty, then the disconnection."""
        if not self._has_given_body:
            self._has_given_body = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.is_over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: "Message") -> None:
        """Send a part of the answer once the client reads; nothing after the exchange has ended."""
        await self._connection.can_write.wait()
        if not self.is_over.is_set():
            self._connection.send(message)

    def end(self) -> None:
        """End the exchange once the application has returned: with 500 if it gave no answer; half of one is cut off."""
        if not self.is_over.is_set():
            self._connection.give_up()


class HttpConnection(asyncio.Protocol):
    """One connection of a server: a request and its answer at a time."""

    def __init__(self, server: "HttpServer") -> None:
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.place = 0
        """Its number among the connections that wait for their clients."""
        self._server = server
        self._http = StrictRequests(server.body_paths)
        self._request: h11.Request | None = None
        self._body = b""
        self._loop = asyncio.get_running_loop()
        self._exchange: HttpExchange | None = None
        self._unsent: list[bytes | memoryview] = []
        self._is_last = self._has_ended = False
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ what the loop says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection, unless there are too many at work."""
        self.transport = transport
        peer, own = (transport.get_extra_info(name) or ("", 0) for name in ("peername", "sockname"))
        self._ends = {
            "scheme": "http" if transport.get_extra_info("sslcontext") is None else "https",
            "client": tuple(peer[:2]),
            "server": tuple(own[:2]),
        }
        self._server.admit(self)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._server.forget(self)
        self._stop_timers()
        if self._exchange is not None:
            self._exchange.is_over.set()
        self.can_write.set()

    def data_received(self, data: bytes) -> None:
        """Read requests; bytes behind the last one are thrown away."""
        if self._has_ended or self.transport.is_closing():
            return
        if self._idle is not None:
            self._idle.cancel()
        self._http.receive_data(data)
        self._read()

    def pause_writing(self) -> None:
        """Have the application wait for a client that does not read."""
        self.can_write.clear()

    def resume_writing(self) -> None:
        """Have it go on."""
        self.can_write.set()

    # ------------------------------------------------------------------ what the server asks

    @property
    def waits_for_client(self) -> bool:
        """Whether the client is to go on: to send a whole request, or to read its answer."""
        return self._exchange is None or not self.can_write.is_set()

    def finish(self) -> None:
        """Close, behind the answer that is being given if there is one."""
        self._is_last = True
        if self._exchange is None:
            self.transport.close()

    # ------------------------------------------------------------------ one request

    def _read(self) -> None:
        """Take the next request; while one is being answered, bytes behind it wait and no more are read."""
        if self._exchange is None:
            try:
                request = self._next_request()
            except h11.RemoteProtocolError:
                self._answer_plainly(HTTPStatus.BAD_REQUEST, b"Invalid HTTP request received.")
                return
            if request is not None:
                self._exchange = HttpExchange(self, self._scope_of(request), self._body)
                self._request, self._body = None, b""
                self._server.answer(self._exchange)
        if self._exchange is not None and self._http.trailing_data[0]:
            self.transport.pause_reading()

    def _next_request(self) -> h11.Request | None:
        """Return the next request, with its body; None while bytes are missing. Raises `h11.RemoteProtocolError`."""
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._request = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            else:
                return self._request if isinstance(event, h11.EndOfMessage) else None

    def _scope_of(self, request: h11.Request) -> "Scope":
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode("ascii"),
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            **self._ends,
        }

    def send(self, message: "Message") -> None:
        """Write a part of the answer; its head goes out with the first bytes of its body."""
        if self.transport.is_closing():
            return
        if message["type"] == "http.response.start":
            self._begin_answer(message["status"], message.get("headers", ()))
            return
        body = message.get("body", b"")
        if body and not self._http.is_head:
            self._add(h11.Data(data=body))
        if message.get("more_body", False):
            self._write()
        else:
            self._end_answer()

    def give_up(self) -> None:
        """Close a connection whose answer the application does not finish."""
        if self.transport.is_closing():
            return
        if self._http.our_state is h11.SEND_RESPONSE:
            self._answer_plainly(HTTPStatus.INTERNAL_SERVER_ERROR, b"Internal Server Error")
        else:
            self.transport.abort()

    def _answer_plainly(self, status: HTTPStatus, text: bytes) -> None:
        """Answer with a text, and close."""
        self._is_last = True
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        self._begin_answer(status, headers)
        if not self._http.is_head:
            self._add(h11.Data(data=text))
        self._end_answer()

    def _begin_answer(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        last = [(b"connection", b"close")] * self._is_last
        head = [(b"date", _date(int(time.time()))), *headers, *last]
        self._add(h11.Response(status_code=status, headers=head, reason=HTTPStatus(status).phrase))

    def _end_answer(self) -> None:
        """Give the next request its time."""
        self._add(h11.EndOfMessage())
        self._write()
        if self._exchange is not None:
            self._exchange.is_over.set()
            self._exchange = None
        self._stop_timers()
        self._begin()
        if self._is_last or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._has_ended = True
            close_gently(self.transport, may_be_half_closed=self._ends["scheme"] == "http")
            return
        self._http.start_next_cycle()
        self._idle = self._loop.call_later(IDLE_SECONDS, self.transport.close)
        self.transport.resume_reading()
        self._read()

    def _begin(self) -> None:
        self.place = next(_PLACES)
        self._deadline = self._loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_timers(self) -> None:
        for timer in (self._deadline, self._idle):
            if timer is not None:
                timer.cancel()

    def _add(self, event: h11.Event) -> None:
        self._unsent += self._http.send_with_data_passthrough(event) or ()

    def _write(self) -> None:
        if self._unsent:
            write_pieces(self.transport, self._unsent, sum(map(len, self._unsent)))
            self._unsent = []


class HttpServer:
    """Answers by an `application`, with a `context` by TLS too; all methods are the event loop's."""

    def __init__(
        self,
        application: "ASGIApp",
        context: Watched[ssl.SSLContext] | None = None,
        body_paths: Collection[bytes] = (),
    ) -> None:
        self.body_paths = body_paths
        """Where a POST may have a body."""
        self.connections: set[HttpConnection] = set()
        self.reception = _reception(context)
        self._application = application
        self._answers: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on sockets that listen."""
        for each in sockets:
            self.reception.listen(each, lambda _header: HttpConnection(self))

    async def stop(self) -> None:
        """Finish what is being answered, for :data:`STOP_SECONDS` at most, and close, the sockets too."""
        await self.reception.close()
        for connection in list(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._is_empty.wait()
        for connection in list(self.connections):
            connection.transport.abort()
        for answer in self._answers:
            answer.cancel()
        if self._answers:
            await asyncio.wait(self._answers, timeout=STOP_SECONDS)
        await self._is_empty.wait()

    # ------------------------------------------------------------------ what connections report

    def admit(self, connection: HttpConnection) -> None:
        """Register a connection; beyond :data:`CONNECTIONS` the slowest is closed, or else this one."""
        if len(self.connections) >= CONNECTIONS:
            waiting = [each for each in self.connections if each.waits_for_client]
            closed = min(waiting, key=lambda each: each.place, default=connection)
            self.connections.discard(closed)
            closed.transport.abort()
        self.connections.add(connection)
        self._is_empty.clear()

    def forget(self, connection: HttpConnection) -> None:
        """Forget a connection that is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._is_empty.set()

    def answer(self, exchange: HttpExchange) -> None:
        """Have the application answer a request."""
        task = asyncio.get_running_loop().create_task(self._answer(exchange))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, exchange: HttpExchange) -> None:
        try:
            await self._application(exchange.scope, exchange.receive, exchange.send)
        except Exception:
            logger.exception("a request of %s could not be answered", exchange.scope["path"])
        exchange.end()


@functools.lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def _reception(context: Watched[ssl.SSLContext] | None) -> Reception:
    """Accepts connections, with TLS too if there is a context; those beyond the bound replace the oldest."""
    limits = replace(DEFAULT_LIMITS, connections=CONNECTIONS, idle_seconds=int(REQUEST_SECONDS))
    return Reception(
        ConnectionBudget(limits, time.monotonic),
        context=context,
        is_enforcing=False,
        proxies=(),
        count_open=lambda: 0,  # those with a transport are bounded by their protocol
        replaces_oldest=True,
    )
