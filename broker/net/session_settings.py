"""What all sessions of one server share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from broker.config import FRAME_LIMIT
from broker.metrics.metrics_meter import Meter
from broker.net.budget import BudgetedConnection, ConnectionBudget
from broker.net.scheduler import Scheduler
from broker.service.dispatcher import ClientConnection, Dispatcher
from protocol.command import Command, Response
from protocol.errors import StoreError

AnswerCheck: TypeAlias = "Callable[[Command, ClientConnection, Response], Response]"
"""Takes the answer to a client's request and returns the answer that the client gets."""

LEFT_OVER: Final = 0
NOT_TAKEN: Final = 1
TURN_OVER: Final = 2
WANTS_MORE: Final = 3
"""Why a lane stopped where it did, see :meth:`Lane.answer`."""


class SessionClient(ClientConnection, BudgetedConnection, Protocol):
    """The client as processors and the budget see it; a session only passes it on, and names it in the log."""


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
    answer to our own requests. `budget` is that of all connections together, and `scheduler` decides whose burst goes
    on next. `meter` counts what the sessions do; with None nothing is counted. Each of `checks` in turn sees an answer
    before it leaves, and may replace it; a server with checks has no lane. `http_port` is the one that speaks HTTP.
    `cut` says what is answered instead of anything after a file of the store was cut under its map, or None; it gets
    how often files had been cut when the answer was begun, or None.
    """

    dispatcher: Dispatcher
    budget: ConnectionBudget
    scheduler: Scheduler
    frame_limit: int = FRAME_LIMIT
    lane: Lane | None = None
    replied: Callable[[ClientConnection, Command], None] | None = None
    meter: Meter | None = None
    checks: tuple[AnswerCheck, ...] = ()
    http_port: int | None = None
    cut: Callable[[int | None], StoreError | None] = lambda _since: None
