"""The fast lane: one call of compiled code answers all plain requests at the front of a read.

What it answers, and that it answers as the ordinary way does, is said in :mod:`broker.kernels.fast_lane`. A lane
belongs to one thread, the event loop.
"""

import weakref
from typing import NamedTuple

import numpy as np

from broker.answer_rooms import AnswerRooms
from broker.broker_service import BrokerService
from broker.dispatcher import ClientConnection
from broker.kernels import fast_lane as kernel
from broker.known_pulls import KnownPulls
from broker.processors.query_message import HEADER_RESERVE, MAXIMUM_BY_KEY, MAXIMUM_BY_UNIQUE_KEY, found_fields
from protocol.codes import RequestCode
from protocol.command import Command, Response, encode_response
from protocol.frame import PREFIX
from storage.kernels.memory import address_of
from storage.message_store import Snapshot
from storage.residency import current_tick

LEFT_OVER, NOT_TAKEN, TURN_OVER, WANTS_MORE = kernel.LEFT_OVER, kernel.NOT_TAKEN, kernel.TURN_OVER, kernel.WANTS_MORE

LANE_CODES = (
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
)
"""What the lane answers, in the order in which it counts them."""

MARK = 1_234_567_890
"""An opaque by which the place of an opaque is found."""


class LaneAnswers(NamedTuple):
    """What the lane made of a read: answers to write, the position up to which all is answered, why it stopped there.

    LEFT_OVER: nothing follows, or a frame with wrong lengths. NOT_TAKEN: a whole frame follows that is to be answered
    on the ordinary way. TURN_OVER: more can be answered, but not in this turn. WANTS_MORE: part of a frame follows.
    """

    answers: bytes | memoryview
    position: int
    reason: int


class FastLane:
    """Answers plain views, key queries and known pulls, for servers that send records as they are stored."""

    def __init__(self, service: BrokerService, frame_limit: int | None = None) -> None:
        """``frame_limit`` in bytes, as for the connections; None for that of the service."""
        if (kernel.MAXIMUM_BY_KEY, kernel.MAXIMUM_BY_UNIQUE_KEY) != (MAXIMUM_BY_KEY, MAXIMUM_BY_UNIQUE_KEY):
            raise AssertionError("the lane and QueryMessageProcessor cap answers differently")
        self._store = store = service.store
        frame_limit = service.options.frame_limit if frame_limit is None else frame_limit
        self._known = KnownPulls(service, kernel.TURN_FRAMES, kernel.LONGEST_HEADER)
        room = kernel.TURN_BYTES + kernel.LONGEST_BODY + kernel.LONGEST_HEADER
        self._rooms = AnswerRooms(room)
        self._hits = np.zeros(kernel.HIT_BYTES * (MAXIMUM_BY_KEY + 1), dtype=np.uint8)
        self._headers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._table = np.zeros(kernel.TABLE_LENGTH, dtype=np.int64)
        self._counts = self._table.data[kernel.VIEWS : kernel.STRAYS + 1]
        self._table[kernel.OUTPUT] = self._rooms.address()
        self._table[kernel.HITS] = self._hits.ctypes.data
        self._table[kernel.KNOWN] = self._known.address
        self._table[kernel.FRAME_LIMIT] = frame_limit
        self._table[kernel.BODY_LIMIT] = frame_limit - HEADER_RESERVE
        self._put_header(kernel.VIEW_HEADER, Response())
        self._follow(store.snapshot)

    def answer(
        self, data: bytes, start: int = 0, stop: int | None = None, connection: ClientConnection | None = None
    ) -> LaneAnswers:
        """Answer the requests from position ``start`` of ``data`` to ``stop``, up to the first not for the lane.

        Offsets that come with pulls are taken from the client of ``connection``, if it is a member of their group.
        """
        stop = len(data) if stop is None else stop
        snapshot = self._store.snapshot
        if snapshot is not self._followed():
            self._follow(snapshot)
        self._known.prepare(snapshot)
        self._table[kernel.OUTPUT] = self._rooms.address()
        result = kernel.answer_frames(
            snapshot.catalog, self._table, address_of(data) + start, stop - start, current_tick()
        )
        self._known.hand_on_commits(connection)
        answers = self._rooms.take(result >> 8 & 0xFFFFFF)
        return LaneAnswers(answers, start + (result >> 32), result & 0xFF)

    @property
    def answered(self) -> dict[RequestCode, int]:
        """Requests that the lane has answered, by their code."""
        return dict(zip(LANE_CODES, self._counts.tolist(), strict=False))

    def counts(self) -> list[int]:
        """What the lane has done so far: requests by LANE_CODES, then what its key queries cost."""
        counts: list[int] = self._counts.tolist()
        return counts

    def _follow(self, snapshot: Snapshot) -> None:
        """Answer from another snapshot from now on; it is not kept alive, or files that are gone would be."""
        self._table[kernel.TAKES_QUERIES] = snapshot.incomplete is None
        self._table[kernel.TAKES_TAGS] = not snapshot.index.untagged
        self._known.forget()
        self._put_header(kernel.QUERY_HEADER, Response(ext_fields=found_fields(*snapshot.index.last_update)))
        self._followed = weakref.ref(snapshot)

    def _put_header(self, place: int, response: Response) -> None:
        """Note the header of a response, before and behind its opaque, as the ordinary way renders it."""
        header = encode_response(Command(code=0, opaque=MARK), response)[PREFIX.size :]
        opaque = b'"opaque":%d' % MARK
        before, _, behind = header.partition(opaque)
        parts = before + opaque[: -len(str(MARK))], behind
        if len(header) + PREFIX.size > kernel.LONGEST_HEADER:
            raise AssertionError(f"a header of {len(header)} bytes")
        arrays = np.frombuffer(parts[0], dtype=np.uint8), np.frombuffer(parts[1], dtype=np.uint8)
        self._headers[place] = arrays
        for number, array in enumerate(arrays):
            self._table[place + 2 * number] = array.ctypes.data
            self._table[place + 2 * number + 1] = array.size
