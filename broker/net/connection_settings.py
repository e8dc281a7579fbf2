"""What all connections of one server share, and the answer to what is no command."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from broker.config import FRAME_LIMIT
from broker.lane.fast_lane import FastLane
from broker.limits import DEFAULT_LIMITS
from broker.metrics.metrics_meter import Meter
from broker.net.budget import Costs
from broker.net.scheduler import Turns
from broker.service.dispatcher import BUSY, ClientConnection, Dispatcher
from broker.service.long_work import PARSED_BODIES
from protocol.codes import ResponseCode
from protocol.command import Command, Response, decode_command, ext_fields_of
from protocol.errors import BadCommand, ProtocolError
from protocol.frame import PREFIX, FrameDecoder

if TYPE_CHECKING:
    from broker.net.connection import Connection

LONGEST_BEGINNING = 4096
"""Bytes of a frame's beginning that are put before the next read, for the fast lane; the decoder gets longer ones."""

OVERLOADED = Response(ResponseCode.SYSTEM_BUSY, remark=BUSY)
"""The answer to a request that would have to wait while the requests of all clients hold too much."""


AnswerCheck: TypeAlias = "Callable[[Command, ClientConnection, Response], Response]"
"""Makes of the answer to a request of a client the one that it gets."""


@dataclass(slots=True)
class ConnectionSettings:
    """What all connections of a server share.

    `frame_limit` in bytes, `open` the connections there are, each with what tells how much its client has not read.
    `all_closed` is set while there are none. Without `fast_lane` every request goes the ordinary way. `lost` is told of
    each connection that is gone, `replied` of what clients answer to requests of ours. `costs` of all connections
    together; whose burst goes on next is for `turns` to say. `meter` counts what they do, None nothing. `checks` are
    asked in turn what becomes of an answer before it leaves: there are some only where the fast lane is off.
    """

    dispatcher: Dispatcher
    frame_limit: int = FRAME_LIMIT
    fast_lane: FastLane | None = None
    costs: Costs = field(default_factory=lambda: Costs(DEFAULT_LIMITS, time.monotonic))
    open: "dict[Connection, Callable[[], int]]" = field(default_factory=dict)
    all_closed: asyncio.Event = field(default_factory=asyncio.Event)
    lost: "Callable[[Connection], None] | None" = None
    replied: "Callable[[Connection, Command], None] | None" = None
    meter: Meter | None = None
    turns: Turns = field(default_factory=Turns)
    checks: "tuple[AnswerCheck, ...]" = ()

    def __post_init__(self) -> None:
        self.all_closed.set()

    def add(self, connection: "Connection", unsent: Callable[[], int]) -> None:
        """Count a new connection in; `unsent` says how many bytes wait for its client to read them."""
        self.open[connection] = unsent
        if self.meter is not None:
            self.meter.connected()
        self.all_closed.clear()

    def discard(self, connection: "Connection") -> None:
        """Count a lost connection out."""
        self.open.pop(connection, None)
        self.costs.forget(connection)
        if not self.open:
            self.all_closed.set()
        if self.lost is not None:
            self.lost(connection)

    def checked(self, command: Command, connection: "Connection", response: Response) -> Response:
        """The answer to a request as it leaves, once all `checks` were asked."""
        for check in self.checks:
            response = check(command, connection, response)
        return response

    def is_for_decoder(self, data: bytes, position: int) -> bool:
        """Whether the part of a frame at `position` is too long to put before the next read, or to be one."""
        header_length = int.from_bytes(data[position + 5 : position + 8])
        is_too_long = header_length > self.costs.limits.header_bytes and len(data) - position >= PREFIX.size
        return is_too_long or len(data) - position > LONGEST_BEGINNING

    def new_decoder(self) -> FrameDecoder:
        """What cuts the bytes of one connection into frames."""
        limits = self.costs.limits
        return FrameDecoder(self.frame_limit, limits.header_bytes, limits.body_bytes, self.skips)

    def skips(self, serialize_type: int, header: bytes) -> bool:
        """Whether the body of a frame is not wanted, being longer than bodies that are read, and this one of them."""
        try:
            command = decode_command((serialize_type, header, b""))
        except ProtocolError:
            return False
        return command.code in PARSED_BODIES and not command.is_response

    def too_many_fields(self, command: Command) -> Response | None:
        """The answer to a request of too many fields."""
        limit = self.costs.limits.ext_fields
        try:
            count = len(ext_fields_of(command))
        except ProtocolError as error:
            return self.dispatcher.failure(command, error)
        if count <= limit:
            return None
        return Response(ResponseCode.SYSTEM_ERROR, f"{count} fields, more than the limit of {limit}")


def answer_unreadable(error: BadCommand) -> tuple[Command, Response]:
    """The answer to a header that is no command."""
    return Command(code=0, opaque=error.opaque), Response(ResponseCode.SYSTEM_ERROR, remark=str(error))
