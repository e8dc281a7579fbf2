"""The asyncio side of a client's connection: moves bytes between its socket and its session, which decides everything.

After each report to the session :meth:`SessionTransport._carry_out` does what that left behind, in this order: it
writes, starts what waits, hands on who is to be replied to later, and follows the session's state.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from broker.endpoint import Endpoint
from broker.metrics.metrics_meter import Meter
from broker.net._pending_requests import PendingRequest
from broker.net._proxy_protocol import ProxyHeader
from broker.net._session import FINISHED, LOST, OPEN, Session
from broker.net.session_settings import SessionSettings
from broker.net.writing import close_gently, write_pieces
from broker.service.dispatcher import Answer, ClientConnection
from broker.service.pending_reply import Outcome, PendingReply
from storage.files.waiting import Unfinished

NO_HEADER = ProxyHeader(0)


class OpenConnections:
    """The open connections of one server.

    `lost` is called with each that is gone. `all_closed` is set while there are none.
    """

    def __init__(self, lost: Callable[[ClientConnection], None] | None = None, meter: Meter | None = None) -> None:
        self.all_closed = asyncio.Event()
        self.all_closed.set()
        self.unsent: dict[SessionTransport, Callable[[], int]] = {}
        """For each open connection what says how many bytes wait for its client to read them."""
        self._lost = lost
        self._meter = meter

    def __len__(self) -> int:
        return len(self.unsent)

    def __iter__(self) -> "Iterator[SessionTransport]":
        return iter(list(self.unsent))

    def add(self, connection: "SessionTransport", unsent: Callable[[], int]) -> None:
        """Count a new connection in."""
        self.unsent[connection] = unsent
        if self._meter is not None:
            self._meter.connected()
        self.all_closed.clear()

    def discard(self, connection: "SessionTransport") -> None:
        """Count a lost connection out."""
        self.unsent.pop(connection, None)
        if not self.unsent:
            self.all_closed.set()
        if self._lost is not None:
            self._lost(connection)


class SessionTransport(asyncio.Protocol):
    """The protocol object of one connection.

    `local_address` is our address as this client reached it, `peer_address` the client's own; for a client behind a
    proxy both are from the PROXY `header`. `port_distance` is what to add to the local port to get the main port, for
    connections to the VIP port.
    """

    local_address: Endpoint
    peer_address: Endpoint
    _transport: asyncio.Transport

    def __init__(
        self,
        settings: SessionSettings,
        connections: OpenConnections,
        port_distance: int = 0,
        header: ProxyHeader | None = None,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._budget = settings.budget
        self._meter = settings.meter
        self._port_distance = port_distance
        self._header = header or NO_HEADER
        self._is_tls = False
        self._peer_ended = False
        self._state = OPEN
        self.session = Session(settings, self)

    # ------------------------------------------------------------------ what processors and the budget see

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return self.session.state is not LOST

    @property
    def owes_rest(self) -> bool:
        """Whether its client has begun a request and is to send the rest, and nothing of it waits for us."""
        return self.session.owes_rest

    def push(self, frame: bytes) -> None:
        """Send a frame that answers nothing; not to a client that is gone or does not read."""
        self.session.push(frame)
        self._carry_out()

    def drop(self, reason: str) -> None:
        """Close at once and say why."""
        if self._meter is not None:
            self._meter.dropped()
        self._budget.complain("%s: %s; connection closed", self.peer_address, reason)
        self._transport.abort()

    # ------------------------------------------------------------------ what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember both addresses; they cannot be asked for once the client is gone."""
        # uvloop's transports are no subclass of asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        limits = self._budget.limits
        transport.set_write_buffer_limits(high=limits.unsent_bytes_per_connection)
        host, port = self._header.destination or Endpoint.of_socket(transport.get_extra_info("sockname"))
        self.local_address = Endpoint(host, port + self._port_distance)
        self.peer_address = self._header.source or Endpoint.of_socket(transport.get_extra_info("peername"))
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        if len(self._connections) >= limits.connections:
            self.session.connection_lost()
            self.drop("there are as many connections already as the limit (connections) allows")
            return
        self._connections.add(self, transport.get_write_buffer_size)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what waits: the client is gone."""
        self.session.connection_lost()
        self._budget.forget(self)
        self._connections.discard(self)

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks; called in the middle of a write, or later."""
        self.session.pause_writing()
        self._follow_state()

    def resume_writing(self) -> None:
        """The client has read most of what it was sent."""
        self.session.resume_writing()
        self._send_due()
        self.go_on()

    def eof_received(self) -> bool:
        """The client will ask no more, but may still read; whether its connection is to stay open for that."""
        self._peer_ended = True
        self.session.receive_eof()
        self._carry_out()
        # TLS knows no half-closed connections.
        return not (self._state is FINISHED or self._is_tls)

    def data_received(self, data: bytes) -> None:
        """Answer all frames that are complete, in one write."""
        answers = self.session.receive_data(data)
        if answers is None:
            self._carry_out()
        else:
            self._transport.write(answers)

    # ------------------------------------------------------------------ what the server calls

    def go_on(self) -> None:
        """Use a turn."""
        self.session.go_on()
        self._carry_out()

    def end(self) -> None:
        """Read nothing further, finish what is in flight, then close."""
        self.session.end()
        self._carry_out()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._transport.abort()

    def sweep(self) -> None:
        """Close after some calls in a row without a sign of life."""
        if self.session.is_idle(self._transport.get_write_buffer_size()):
            self._transport.abort()

    def send_replies(self, replies: list[PendingReply], outcome: Outcome) -> None:
        """Send one answer to several requests."""
        self.session.reply(replies, outcome)
        self._send_due()
        self.go_on()

    # ------------------------------------------------------------------ what the session wants

    def _carry_out(self) -> None:
        session = self.session
        answers = session.answers
        if answers.output:
            write_pieces(self._transport, *answers.take_output())
        if answers.started:
            self._start_requests()
        if answers.replies:
            self._hand_on_replies()
        if session.state is not OPEN or self._state is not OPEN:
            self._follow_state()

    def _send_due(self) -> None:
        """Write replies as long as the client reads; each write may find that it does not."""
        while self.session.send_due():
            self._carry_out()

    def _start_requests(self) -> None:
        for request in self.session.answers.take_started():
            future: asyncio.Future[Any]
            if isinstance(request.work, Unfinished):
                finish = self._settings.dispatcher.finish_in_pool
                future = finish(request.command, self, request.work, request.visit.warm)
            else:
                future = asyncio.ensure_future(request.work)
            request.begin(future)
            future.add_done_callback(partial(self._resolve, request))

    def _resolve(self, request: PendingRequest, future: asyncio.Future[Answer]) -> None:
        if future.cancelled():
            self.session.resolve(request, None)
        else:
            error = future.exception()
            self.session.resolve(request, future.result() if error is None else error)
        self._carry_out()

    def _hand_on_replies(self) -> None:
        """Have each reply sent here; one that is there already comes at once."""
        for reply, command in self.session.answers.take_replies():
            reply.deliver_to(self, command)

    def _follow_state(self) -> None:
        """Read on or not, join the line for a turn, or close, as the session's state says."""
        before, state = self._state, self.session.state
        self._state = state
        if state is LOST:
            return
        if self.session.wants_turn:
            self._settings.scheduler.join(self)
        if state is before:
            return
        if state is OPEN:
            self._transport.resume_reading()
        elif before is OPEN:
            self._transport.pause_reading()
        if state is FINISHED:
            if self.session.farewell:
                self._transport.write(self.session.farewell)
            close_gently(self._transport, may_be_half_closed=not (self._peer_ended or self._is_tls))
