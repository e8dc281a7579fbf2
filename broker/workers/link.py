"""Messages between workers: msgpack arrays over a Unix socket, whose first element is their kind.

Worker 0 keeps groups, locks and offsets for all. A worker sends it whole requests about them, who went away, offsets
that came with pulls, what accounts lacked, and what clients answer to worker 0's requests; worker 0 sends answers,
frames for a worker's clients, and what groups subscribe to.
"""

import asyncio
import logging
import os
import reprlib
import socket
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

import msgpack

from protocol.errors import RocketLensError

logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 2**31 - 1
"""Bytes of a message that the other end takes."""

PEER_CREDENTIALS = struct.Struct("3i")


class LinkKind(IntEnum):
    """The first element of a message, and what follows it."""

    REQUEST = 1
    """number, connection, local host and port, peer host and port, then the fields of a `Command`"""
    LOST = 2
    """connection"""
    COMMIT = 3
    """connection, local host and port, peer host and port, group, topic, queue id, offset"""
    REPLY = 4
    """connection, remark, then the fields of a `Command` that answers a request of ours"""
    PULLED = 5
    """pairs of (group, topic, queue id) and (second, offset)"""
    DENIED = 6
    """pairs of what an account lacked and how often"""
    ANSWER = 11
    """number, code, remark, fields, body"""
    PUSH = 12
    """connection, frame"""
    GROUP = 13
    """name, consume type, message model, where to begin, JSON of the subscriptions"""
    GONE = 14
    """name"""


class Unsendable(RocketLensError):
    """A message has something in it that cannot be handed to another worker."""


def pack(*message: Any) -> bytes:
    """The bytes of a message. Raises `Unsendable`, so that what is wrong with one request concerns no other.

    Texts may hold lone surrogates, of a file's name perhaps; integers are Java's, of 64 bits at most.
    """
    try:
        packed: bytes = msgpack.packb(message, unicode_errors="surrogatepass")
    except (OverflowError, TypeError, ValueError) as error:
        raise Unsendable(f"this cannot be handed to another worker process: {error}") from error
    if len(packed) > LONGEST_MESSAGE:
        raise Unsendable(f"{len(packed)} bytes are more than can be handed to another worker process")
    return packed


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
    """One end of a connection between two workers; `take` gets each message.

    No message can end it: one that cannot be sent, or that `take` fails at, is logged and left out.
    """

    def __init__(self, take: Callable[["Link", list[Any]], None], lost: Callable[["Link"], None]) -> None:
        self._take, self._lost = take, lost
        self._unpacker = msgpack.Unpacker(max_buffer_size=LONGEST_MESSAGE, unicode_errors="surrogatepass")
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the other end is gone."""
        self._transport = None
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Hand on what is complete."""
        self._unpacker.feed(data)
        for message in self._unpacker:
            try:
                self._take(self, message)
            except Exception:
                logger.exception("a message from another worker could not be processed: %s", reprlib.repr(message))

    def send(self, *message: Any) -> None:
        """Send what needs no answer, unless the other end is gone."""
        try:
            self.write(pack(*message))
        except Unsendable:
            logger.exception("another worker was not notified: %s", reprlib.repr(message))

    def write(self, packed: bytes) -> None:
        """Send a message that `pack` made, unless the other end is gone."""
        if self._transport is not None:
            self._transport.write(packed)

    def close(self) -> None:
        """Send what is still to be sent, then close."""
        if self._transport is not None:
            self._transport.close()
