"""A connection is closed so that what was written last arrives."""

import asyncio
import socket
import time
from typing import cast

import pytest

from broker.net.writing import LINGER_SECONDS, close_gently

pytestmark = pytest.mark.asyncio

ANSWER = b"what was asked for" * 100_000
"""More than the client's socket takes, so that its end does not arrive before the client reads."""
UNREAD = bytes(1 << 20)
"""More than a loop reads at once."""


class Closing(asyncio.Protocol):
    """Answers the first bytes, reads nothing further, and closes gently."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._transport.pause_reading()
            self._transport.write(ANSWER)
            asyncio.get_running_loop().call_later(0.2, self._end)

    def _end(self) -> None:
        close_gently(self._transport, may_be_half_closed=True)
        # Another process has the core.
        time.sleep(self._seconds)


@pytest.mark.parametrize("seconds", [0, LINGER_SECONDS + 0.1])
async def test_an_answer_arrives_though_requests_are_left_unread(seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Closing(seconds), "127.0.0.1", 0)

    def ask() -> bytes:
        with socket.create_connection(server.sockets[0].getsockname()) as connection:
            connection.settimeout(60)
            connection.sendall(UNREAD)
            time.sleep(LINGER_SECONDS + 1)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    async with server:
        assert await asyncio.to_thread(ask) == ANSWER
