"""The sockets a server listens on: bound before the store opens, so that a port in use is reported at once.

Bound is not yet listening: until `Server` starts them, a client that connects is refused.
"""

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.config import VIP_PORT_DISTANCE, CannotListen
from broker.endpoint import Endpoint

VIP_ATTEMPTS = 20
"""How often a free port with a free VIP port below it is looked for, when port 0 was asked for."""


BACKLOG = 1024
"""Connections the kernel may hold for us to accept."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound TCP socket; `port_distance` is 2 for a VIP port, the distance to the port it stands for."""

    socket: socket.socket
    port_distance: int = 0

    @property
    def endpoint(self) -> Endpoint:
        """The address it is bound to, with its real port."""
        return Endpoint.of_socket(self.socket.getsockname())


def bind_for_workers(
    endpoints: Iterable[Endpoint], *, vip: bool, count: int, is_shared: bool = False
) -> list[list[Listener]]:
    """Bind every address once for each of `count` workers, among which the kernel shares out the connections.

    `is_shared`: also where there is one, which other processes of ours bind besides.

    Raises `CannotListen` as `bind_listeners`, also for an address on which another server shares out connections.
    """
    alone = bind_listeners(endpoints, vip=vip)
    if count == 1 and not is_shared:
        return [alone]
    # That showed the addresses to be free, and which ports 0 stood for.
    places = [(listener.socket.family, listener.endpoint, listener.port_distance) for listener in alone]
    close_listeners(alone)
    bound: list[list[Listener]] = []
    try:
        for _ in range(count):
            bound.append([])
            for family, endpoint, distance in places:
                bound[-1].append(Listener(_bind(family, endpoint, is_shared=True), distance))
    except BaseException:
        close_listeners(listener for listeners in bound for listener in listeners)
        raise
    return bound


def bind_listeners(endpoints: Iterable[Endpoint], *, vip: bool = False) -> list[Listener]:
    """Bind every address, and with `vip` the port two below each; the VIP listeners come last.

    Raises `CannotListen` naming the address that cannot be had; then none stays bound.
    """
    bound: list[Listener] = []
    try:
        for endpoint in endpoints:
            for family, address in _addresses(endpoint):
                bound += _bind_with_vip(family, address) if vip else [Listener(_bind(family, address))]
    except BaseException:
        close_listeners(bound)
        raise
    return sorted(bound, key=lambda listener: listener.port_distance)


def listen(listener: Listener) -> None:
    """Have clients connect from now on. Raises `CannotListen` when the address went to somebody else meanwhile."""
    try:
        listener.socket.listen(BACKLOG)
    except OSError as error:
        raise cannot_listen(listener.endpoint, error) from error


def close_listeners(listeners: Iterable[Listener]) -> None:
    """Give the addresses back."""
    for listener in listeners:
        listener.socket.close()


def _addresses(endpoint: Endpoint) -> Iterator[tuple[int, Endpoint]]:
    """Yield (address family, address) for each IP a host name stands for."""
    try:
        found = socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {endpoint}: {error.strerror}") from error
    for family, _, _, _, address in dict.fromkeys(found):
        yield family, Endpoint.of_socket(address)


def _bind(family: int, endpoint: Endpoint, *, is_shared: bool = False) -> socket.socket:
    """Bind one address for ourselves alone, or for several of our processes.

    SO_REUSEADDR lets a restart have the port while old connections linger in TIME_WAIT; beside a socket that listens,
    Linux refuses it all the same. SO_REUSEPORT would let a second server start silently.
    """
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by accepted connections: a client that vanished is noticed even while its request waits.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if is_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(tuple(endpoint))
    except OSError as error:
        listening.close()
        raise cannot_listen(endpoint, error) from error
    return listening


def cannot_listen(endpoint: Endpoint, error: OSError) -> CannotListen:
    """Say in one sentence why an address cannot be listened on."""
    in_use = error.errno == errno.EADDRINUSE
    reason = "another process listens there" if in_use else os.strerror(error.errno or 0)
    return CannotListen(f"cannot listen on {endpoint}: {reason}")


def _bind_with_vip(family: int, endpoint: Endpoint) -> list[Listener]:
    """Bind an address and the port two below; for port 0 any free pair."""
    for attempt in range(1, VIP_ATTEMPTS + 1):
        main = Listener(_bind(family, endpoint))
        below = main.endpoint._replace(port=main.endpoint.port - VIP_PORT_DISTANCE)
        try:
            return [main, Listener(_bind(family, below), VIP_PORT_DISTANCE)]
        except CannotListen:
            main.socket.close()
            if endpoint.port or attempt == VIP_ATTEMPTS:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")
