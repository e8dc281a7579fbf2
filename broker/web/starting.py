"""Answers HTTP while stores are being opened: `/healthz` says that the process lives, everything else that it starts.

The port is there from the first moment, so that a probe can tell a server that opens a large store from one that hangs.
A thread answers, since opening keeps the main one busy; it is gone before the event loop takes the port over, and
connections that come in between wait in the kernel's queue. Each connection has a second and 16 KiB, one after another.
With TLS, as later on, the first byte of a connection says whether it comes by it.
"""

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from broker.net.listeners import Listener
from broker.net.tls import FIRST_BYTE

CLIENT_SECONDS: Final = 1.0
HEADER_BYTES: Final = 16 * 1024
BACKLOG: Final = 64
PAUSE_SECONDS: Final = 0.05


@contextlib.contextmanager
def answering(listeners: Sequence[Listener], context: ssl.SSLContext | None = None) -> Iterator[None]:
    """Answer on bound sockets while the block runs, with a `context` by TLS too; without any nothing is done."""
    if not listeners:
        yield
        return
    sockets = [listener.socket for listener in listeners]
    for each in sockets:
        each.setblocking(False)
        each.listen(BACKLOG)
    wake, woken = socket.socketpair()
    arguments = (sockets, woken, time.monotonic(), context)
    thread = threading.Thread(target=_answer, args=arguments, name="starting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        wake.close()
        thread.join()
        woken.close()


def _answer(
    sockets: Sequence[socket.socket], woken: socket.socket, started: float, context: ssl.SSLContext | None
) -> None:
    while True:
        ready, _, _ = select.select([*sockets, woken], [], [])
        if woken in ready:
            return
        for each in ready:
            try:
                connection, _ = each.accept()
            except OSError:  # the client is gone already, or there is no descriptor for it now
                select.select([woken], [], [], PAUSE_SECONDS)
                continue
            with connection, contextlib.suppress(OSError):  # the client is gone, or takes too long
                _answer_one(connection, time.monotonic() - started, context)


def _answer_one(connection: socket.socket, seconds: float, context: ssl.SSLContext | None) -> None:
    deadline = time.monotonic() + CLIENT_SECONDS
    connection.settimeout(CLIENT_SECONDS)
    if context is not None and connection.recv(1, socket.MSG_PEEK) == bytes([FIRST_BYTE]):
        connection.settimeout(max(deadline - time.monotonic(), PAUSE_SECONDS))
        with context.wrap_socket(connection, server_side=True) as wrapped:  # the time is that of the whole handshake
            _answer_request(wrapped, seconds, deadline)
    else:
        _answer_request(connection, seconds, deadline)


def _answer_request(connection: socket.socket, seconds: float, deadline: float) -> None:
    request = b""
    while b"\r\n\r\n" not in request:
        left = deadline - time.monotonic()
        if left <= 0 or len(request) > HEADER_BYTES:
            return
        connection.settimeout(left)
        piece = connection.recv(4096)
        if not piece:
            return
        request += piece
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        status = "405 Method Not Allowed"
    else:
        status = "200 OK" if path == b"/healthz" else "503 Service Unavailable"
    body = f"starting: opening the store, {seconds:.0f} s so far\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    ).encode()
    connection.sendall(head if method == b"HEAD" else head + body)
    connection.shutdown(socket.SHUT_WR)
