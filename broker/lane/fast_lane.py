"""The fast lane: one call of compiled code answers all plain requests at the front of a read.

broker/kernels/lane.pyx says what it answers, and that its answers equal those of the ordinary way. This module gives it
what holds for a snapshot: the headers of its answers, as the ordinary way renders them. A lane belongs to one thread,
the event loop.
"""

import weakref

from broker.kernels import lane as kernel
from broker.lane._known_pulls import KnownPulls
from broker.metrics.metrics_meter import LANE_CODES
from broker.net.scheduler import TURN_BYTES, TURN_FRAMES
from broker.net.session_settings import LEFT_OVER, NOT_TAKEN, TURN_OVER, WANTS_MORE
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import ClientConnection
from broker.service.processors.pull_message import FoundPull
from broker.service.processors.query_message import (
    HEADER_RESERVE,
    MAXIMUM_BY_KEY,
    MAXIMUM_BY_UNIQUE_KEY,
    disclose,
    found,
    found_fields,
)
from protocol.codes import RequestCode, SerializeType
from protocol.command import Response
from protocol.kernels.responses import OPAQUE, ResponseTemplate
from storage.files.waiting import current_tick
from storage.store.message_store import Snapshot

STOPS = (LEFT_OVER, NOT_TAKEN, TURN_OVER, WANTS_MORE)

CURSOR = '"rocketlensCursor":"'
CURSOR_IN_REMARK = "the next page is at lastKey "
"""The texts before the numbers in an answer's header."""


class FastLane:
    """Answers plain views, key queries and known pulls, for servers that send records as they are stored."""

    def __init__(self, service: BrokerService, frame_limit: int | None = None) -> None:
        """``frame_limit`` in bytes, as for the connections; None for that of the service."""
        if (kernel.MAXIMUM_BY_KEY, kernel.MAXIMUM_BY_UNIQUE_KEY) != (MAXIMUM_BY_KEY, MAXIMUM_BY_UNIQUE_KEY):
            raise AssertionError("the lane and QueryMessageProcessor cap answers differently")
        if (kernel.LEFT_OVER, kernel.NOT_TAKEN, kernel.TURN_OVER, kernel.WANTS_MORE) != STOPS:
            raise AssertionError("the lane and its sessions number differently why it stops")
        self._store = store = service.store
        frame_limit = service.options.frame_limit if frame_limit is None else frame_limit
        self._known = KnownPulls(service)
        self._found = self._known.found
        self._lane = kernel.Lane(self._known.table, frame_limit, frame_limit - HEADER_RESERVE, TURN_FRAMES, TURN_BYTES)
        self._answer = self._lane.answer
        self._view_header = ResponseTemplate(SerializeType.JSON, Response())
        self._follow(store.snapshot)

    def answer(
        self, data: bytes, start: int = 0, stop: int | None = None, connection: ClientConnection | None = None
    ) -> tuple[bytes, int, int]:
        """Answer the requests from position ``start`` of ``data`` to ``stop``, up to the first not for the lane.

        Returns the answers, the position up to which all is answered, and why it stopped there. LEFT_OVER: nothing
        follows, or a frame with wrong lengths. NOT_TAKEN: a whole frame follows that is to be answered on the ordinary
        way. TURN_OVER: more can be answered, but not in this turn. WANTS_MORE: part of a frame follows.

        Offsets that come with pulls are taken from the client of ``connection``, if it is a member of their group.
        """
        snapshot = self._store.snapshot
        if snapshot is not self._followed():
            self._follow(snapshot)
        if self._found or self._known.is_stale:
            self._known.prepare(snapshot)
        answered = self._answer(snapshot.view, data, start, len(data) if stop is None else stop, current_tick())
        if self._lane.commit_count:
            self._known.hand_on(self._lane.take_commits(), connection)
        return answered

    def learn(self, pull: FoundPull) -> None:
        """Take notice of a pull that the ordinary way has answered; on any thread."""
        self._found.append(pull)

    @property
    def answered(self) -> dict[RequestCode, int]:
        """Requests that the lane has answered, by their code."""
        return dict(zip(LANE_CODES, self._lane.counts, strict=False))

    def counts(self) -> list[int]:
        """What the lane has done so far: requests by LANE_CODES, then what its key queries cost."""
        return list(self._lane.counts)

    def _follow(self, snapshot: Snapshot) -> None:
        """Answer from another snapshot from now on; it is not kept alive, or files that are gone would be."""
        self._known.forget()
        fields = found_fields(*snapshot.index.last_update)
        self._lane.follow(
            self._view_header,
            ResponseTemplate(SerializeType.JSON, found(fields, {})),
            ResponseTemplate(SerializeType.JSON, found(fields, disclose(0, None)), (CURSOR, OPAQUE, CURSOR_IN_REMARK)),
            snapshot.incomplete is None and snapshot.queues.tier is None,
            not snapshot.index.untagged,
            snapshot.cuts,
        )
        self._followed = weakref.ref(snapshot)
