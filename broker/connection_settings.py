"""What all connections of one server share, and the answer to what is no command."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from broker.config import FRAME_LIMIT
from broker.costs import Costs
from broker.dispatcher import Dispatcher
from broker.fast_lane import FastLane
from broker.limits import DEFAULT_LIMITS
from protocol.codes import ResponseCode
from protocol.command import Command, Response
from protocol.errors import ProtocolError
from protocol.frame import Frame

if TYPE_CHECKING:
    from broker.connection import Connection


@dataclass(slots=True)
class ConnectionSettings:
    """What all connections of a server share.

    `frame_limit` in bytes, `open` the connections there are, each with what tells how much its client has not read.
    `all_closed` is set while there are none. Without `fast_lane` every request goes the ordinary way. `lost` is told of
    each connection that is gone, `replied` of what clients answer to requests of ours. `costs` of all connections
    together.
    """

    dispatcher: Dispatcher
    frame_limit: int = FRAME_LIMIT
    fast_lane: FastLane | None = None
    costs: Costs = field(default_factory=lambda: Costs(DEFAULT_LIMITS, time.monotonic))
    open: "dict[Connection, Callable[[], int]]" = field(default_factory=dict)
    all_closed: asyncio.Event = field(default_factory=asyncio.Event)
    lost: "Callable[[Connection], None] | None" = None
    replied: "Callable[[Connection, Command], None] | None" = None

    def __post_init__(self) -> None:
        self.all_closed.set()

    def add(self, connection: "Connection", unsent: Callable[[], int]) -> None:
        """Count a new connection in; `unsent` says how many bytes wait for its client to read them."""
        self.open[connection] = unsent
        self.all_closed.clear()

    def discard(self, connection: "Connection") -> None:
        """Count a lost connection out."""
        self.open.pop(connection, None)
        self.costs.forget(connection)
        if not self.open:
            self.all_closed.set()
        if self.lost is not None:
            self.lost(connection)


class _OnlyOpaque(msgspec.Struct):
    opaque: int = 0


_decode_opaque = msgspec.json.Decoder(_OnlyOpaque, strict=False).decode


def answer_unreadable(frame: Frame, error: ProtocolError) -> tuple[Command, Response]:
    """The answer to a header that is no command: to its `opaque` where that can be read, else to 0."""
    opaque = 0
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        opaque = _decode_opaque(frame[1]).opaque
    if not -(2**31) <= opaque < 2**31:
        opaque = 0
    return Command(code=0, opaque=opaque), Response(ResponseCode.SYSTEM_ERROR, remark=str(error))
