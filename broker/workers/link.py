"""What workers tell each other: msgpack arrays over a Unix socket, the first element saying which kind one is.

Worker 0 keeps groups, locks and offsets for all. A worker sends it whole requests about them, who went away, offsets
that came with pulls, and what clients answer to worker 0's requests; worker 0 sends answers, frames for a worker's
clients, and what groups subscribe to.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

import msgpack

LONGEST_MESSAGE = 2**31 - 1
PEER_CREDENTIALS = struct.Struct("3i")


class Kind(IntEnum):
    """The first element of a message, and what follows it."""

    REQUEST = 1
    """number, connection, local host and port, peer host and port, then the fields of a `Command`"""
    LOST = 2
    """connection"""
    COMMIT = 3
    """group, topic, queue id, offset"""
    REPLY = 4
    """connection, remark, then the fields of a `Command` that answers a request of ours"""
    PULLED = 5
    """pairs of (group, topic, queue id) and (second, offset)"""
    ANSWER = 11
    """number, code, remark, fields, body"""
    PUSH = 12
    """connection, frame"""
    GROUP = 13
    """name, consume type, message model, where to begin, JSON of the subscriptions"""
    GONE = 14
    """name"""


def make_listening_socket() -> socket.socket:
    """The socket on which worker 0 hears the others, under a name that the kernel chooses and nobody else can take."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind("")
    listening.listen(128)
    listening.setblocking(False)
    return listening


def is_ours(connection: socket.socket) -> bool:
    """Whether the other end is a process of the same user: the name is open to all of the machine."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    return bool(PEER_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


class Link(asyncio.Protocol):
    """One end of a connection between two workers; `take` gets each message."""

    def __init__(self, take: Callable[["Link", list[Any]], None], lost: Callable[["Link"], None]) -> None:
        self._take, self._lost = take, lost
        self._unpacker = msgpack.Unpacker(max_buffer_size=LONGEST_MESSAGE)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the other end is gone."""
        self._transport = None
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Hand on what is complete."""
        self._unpacker.feed(data)
        for message in self._unpacker:
            self._take(self, message)

    def send(self, *message: Any) -> None:
        """Send a message, unless the other end is gone."""
        if self._transport is not None:
            self._transport.write(msgpack.packb(message))

    def close(self) -> None:
        """Send what was told to be sent, then close."""
        if self._transport is not None:
            self._transport.close()
