"""What all sessions of one server share, and the answers to what is no request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from broker.config import FRAME_LIMIT
from broker.metrics.metrics_meter import Meter
from broker.net.budget import ConnectionBudget
from broker.net.scheduler import Scheduler
from broker.service.dispatcher import BUSY, ClientConnection, Dispatcher
from broker.service.long_work import PARSED_BODIES
from protocol.codes import ResponseCode
from protocol.command import Command, Response, decode_command, ext_fields_of
from protocol.errors import BadCommand, ProtocolError
from protocol.frame import PREFIX, FrameDecoder

LONGEST_BEGINNING = 4096
"""Bytes of a frame's beginning that are put before the next read, for the fast lane; the decoder gets longer ones."""

OVERLOADED = Response(ResponseCode.SYSTEM_BUSY, remark=BUSY)
"""The answer to a request that would have to wait while the requests of all clients hold too much."""

AnswerCheck: TypeAlias = "Callable[[Command, ClientConnection, Response], Response]"
"""Makes of the answer to a request of a client the one that it gets."""

LEFT_OVER: Final = 0
NOT_TAKEN: Final = 1
TURN_OVER: Final = 2
WANTS_MORE: Final = 3
"""Why a lane stopped where it did, see :meth:`Lane.answer`."""


class Lane(Protocol):
    """A short way for plain requests; a server without one gives the same answers."""

    def answer(self, data: bytes, start: int, stop: int, connection: ClientConnection | None) -> tuple[bytes, int, int]:
        """Answer the requests from position `start` of `data` to `stop`, up to the first not for the lane.

        Returns the answers, the position up to which all is answered, and why it stopped there. LEFT_OVER: nothing
        follows, or a frame with wrong lengths. NOT_TAKEN: a whole frame follows that is to be answered on the ordinary
        way. TURN_OVER: more can be answered, but not in this turn. WANTS_MORE: part of a frame follows.
        """


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What all sessions of a server share.

    `frame_limit` in bytes. Without `lane` every request goes the ordinary way. `replied` is called with what clients
    answer to requests of ours. `budget` is that of all connections together, and `scheduler` says whose burst goes on
    next. `meter` counts what they do, None nothing. `checks` are asked in turn what becomes of an answer before it
    leaves: there are some only where there is no lane.
    """

    dispatcher: Dispatcher
    budget: ConnectionBudget
    scheduler: Scheduler
    frame_limit: int = FRAME_LIMIT
    lane: Lane | None = None
    replied: Callable[[ClientConnection, Command], None] | None = None
    meter: Meter | None = None
    checks: tuple[AnswerCheck, ...] = ()

    def checked(self, command: Command, connection: ClientConnection, response: Response) -> Response:
        """The answer to a request as it leaves, once all `checks` were asked."""
        for check in self.checks:
            response = check(command, connection, response)
        return response

    def is_for_decoder(self, data: bytes, position: int) -> bool:
        """Whether the part of a frame at `position` is too long to put before the next read, or to be one."""
        header_length = int.from_bytes(data[position + 5 : position + 8])
        is_too_long = header_length > self.budget.limits.header_bytes and len(data) - position >= PREFIX.size
        return is_too_long or len(data) - position > LONGEST_BEGINNING

    def new_decoder(self) -> FrameDecoder:
        """What cuts the bytes of one connection into frames."""
        limits = self.budget.limits
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
        limit = self.budget.limits.ext_fields
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
