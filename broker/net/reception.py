"""Accepts connections whose first bytes decide what they are: a PROXY header, TLS, or frames.

A loop's own server gives a connection to its protocol before a byte was read, and TLS can then no longer begin. So
connections are accepted here and looked at with MSG_PEEK; a PROXY header is taken out to its last byte and no further;
only then the loop makes a transport, with or without TLS (remoting-protocol §1.9). The HTTP port always accepts so, the
other one when TLS or PROXY headers are on; otherwise the loop's own server accepts there.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any, TypeAlias

from broker.config import Networks
from broker.endpoint import Endpoint
from broker.net._proxy_protocol import LONGEST_VERSION_2, BadProxyHeader, ProxyHeader, parse_proxy_header
from broker.net.budget import ConnectionBudget
from broker.net.tls import FIRST_BYTE
from broker.security.watched_files import Watched

ACCEPTED_AT_ONCE = 64
"""Connections accepted before others are served again."""

RETRY_SECONDS = 0.5
"""How long nothing is accepted when there are no descriptors left."""

MakeProtocol: TypeAlias = "Callable[[ProxyHeader | None], asyncio.Protocol]"


class Reception:
    """All connections of one server that have no transport yet.

    `context` None: no TLS. `is_enforcing`: nothing but TLS. Connections from `proxies` must begin with a PROXY header,
    one from elsewhere must not. `count_open` says how many connections have a transport. When there are as many
    connections as the limits allow, another one is refused; with `replaces_oldest` it takes the place of the one that
    has been without a transport for longest.
    """

    def __init__(
        self,
        budget: ConnectionBudget,
        *,
        context: Watched[ssl.SSLContext] | None,
        is_enforcing: bool,
        proxies: Networks,
        count_open: Callable[[], int],
        replaces_oldest: bool = False,
    ) -> None:
        self.budget = budget
        self.context, self.is_enforcing, self.proxies = context, is_enforcing, proxies
        # In the order in which they began to keep us waiting.
        self.arrivals: dict[Arrival, None] = {}
        self._count_open = count_open
        self._replaces_oldest = replaces_oldest
        self._listening: list[socket.socket] = []
        self._handovers: set[asyncio.Task[None]] = set()

    def listen(self, listening: socket.socket, make_protocol: MakeProtocol) -> None:
        """Accept connections of a socket that listens."""
        self._listening.append(listening)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening, make_protocol)

    async def close(self) -> None:
        """Accept no more, and close connections that have no transport yet; returns when none is being made."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        for arrival in list(self.arrivals):
            arrival.close()
        if self._handovers:
            await asyncio.wait(self._handovers)

    def hand_over(self, making: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have a transport be made."""
        task = asyncio.get_running_loop().create_task(making)
        self._handovers.add(task)
        task.add_done_callback(self._handovers.discard)
        return task

    def _accept(self, listening: socket.socket, make_protocol: MakeProtocol) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self.budget.complain("no connection can be accepted: %s", error)
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause(listening, make_protocol)
                return
            peer = Endpoint.of_socket(name)
            is_full = len(self.arrivals) + self._count_open() >= self.budget.limits.connections
            if is_full and self._replaces_oldest and self.arrivals:
                next(iter(self.arrivals)).close()
            elif is_full:
                self.budget.complain(
                    "%s: there are as many connections already as the limit (connections) allows", peer
                )
                accepted.close()
                continue
            accepted.setblocking(False)
            self.arrivals[Arrival(self, accepted, peer, make_protocol)] = None

    def _pause(self, listening: socket.socket, make_protocol: MakeProtocol) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def resume() -> None:
            if listening in self._listening:
                loop.add_reader(listening, self._accept, listening, make_protocol)

        loop.call_later(RETRY_SECONDS, resume)


class Arrival:
    """One accepted connection on its way to a transport."""

    def __init__(
        self, reception: Reception, accepted: socket.socket, peer: Endpoint, make_protocol: MakeProtocol
    ) -> None:
        self._reception, self._socket, self._peer, self._make_protocol = reception, accepted, peer, make_protocol
        self._limits = reception.budget.limits
        self._loop = asyncio.get_running_loop()
        self._eaten = b""
        self._header: ProxyHeader | None = None
        self._needs_header = any(ip_address(peer.host) in network for network in reception.proxies)
        self._handover: asyncio.Task[None] | None = None
        self._shakes_hands = self._is_closed = False
        self._loop.add_reader(accepted, self._look)
        # A client that has sent nothing may be idle for as long as any other.
        seconds = self._limits.handshake_seconds if self._needs_header else self._limits.idle_seconds
        self._timer = self._loop.call_later(seconds, self._give_up, "sent nothing in time")

    def close(self) -> None:
        """Close at once."""
        if self._handover is None:
            self._leave()
            self._socket.close()
            return
        self._is_closed = True
        self._reception.arrivals.pop(self, None)
        if self._shakes_hands:
            self._handover.cancel()

    def _look(self) -> None:
        """Decide by what has arrived; called again with every further byte."""
        try:
            data = self._socket.recv(LONGEST_VERSION_2 if self._needs_header else 1, socket.MSG_PEEK)
            if data and self._needs_header:
                self._eat(data)
                return
        except (BlockingIOError, InterruptedError):
            return
        except BadProxyHeader as error:
            self._give_up(str(error))
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        elif data[0] != FIRST_BYTE or self._reception.context is None:
            if self._reception.is_enforcing:
                self._give_up("does not use TLS, which is required (--tls-mode enforcing)")
            else:
                self._hand_over(None)
        else:
            self._hand_over(self._reception.context.current)

    def _eat(self, data: bytes) -> None:
        """Take a PROXY header out of the socket, as far as it has come."""
        header = parse_proxy_header(self._eaten + data)
        if header is None:
            # Taken at once: what stays would make the socket readable again and again.
            self._eaten += self._socket.recv(len(data))
            return
        self._socket.recv(header.length - len(self._eaten))
        self._header, self._needs_header = header, False
        self._timer.cancel()
        self._timer = self._loop.call_later(self._limits.idle_seconds, self._give_up, "sent nothing in time")

    def _hand_over(self, context: ssl.SSLContext | None) -> None:
        self._leave()
        self._reception.arrivals[self] = None
        self._shakes_hands = context is not None
        self._handover = self._reception.hand_over(self._connect(context))

    async def _connect(self, context: ssl.SSLContext | None) -> None:
        """Have the loop make a transport, after the handshake when there is one."""
        seconds = self._limits.handshake_seconds if context is not None else None
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(self._header), self._socket, ssl=context, ssl_handshake_timeout=seconds
            )
            if self._is_closed:  # meanwhile: without a handshake a transport is there in a turn of the loop
                transport.abort()
        except (OSError, asyncio.CancelledError) as error:
            # An SSLError and a TimeoutError are OSErrors.
            if context is not None and isinstance(error, OSError):
                self._reception.budget.complain("%s: TLS handshake failed: %s", self._client, error)
            self._socket.close()
        finally:
            self._reception.arrivals.pop(self, None)

    @property
    def _client(self) -> Endpoint:
        return self._header.source if self._header and self._header.source else self._peer

    def _give_up(self, reason: str) -> None:
        self._reception.budget.complain("%s: %s; connection closed", self._client, reason)
        self.close()

    def _leave(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._reception.arrivals.pop(self, None)
