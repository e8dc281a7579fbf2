"""Which pulls the fast lane knows: those of which two were answered on the ordinary way since anything changed.

A consumer asks the same again and again but for the offset. What the ordinary way found out for such a pull holds until
the store's snapshot or the members of the groups change; then everything is forgotten. What is remembered is said in
:mod:`broker.kernels.known_pulls`. All of this is the event loop's.
"""

import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from broker.broker_service import BrokerService
from broker.consumers.pulled_offsets import Place, Pulled
from broker.dispatcher import ClientConnection
from broker.found_pulls import KEPT, FoundPull
from broker.kernels import known_pulls as kernel
from broker.kernels import plain_request as places
from broker.processors.pull_message import found_fields, limits_of
from protocol.command import Command, Response, encode_response
from protocol.errors import StoreError
from protocol.frame import PREFIX
from protocol.headers import PullMessageRequestHeader
from storage.consume_queue import ConsumeQueue
from storage.filter.choice import BY_EXPRESSION, BY_TAG, EVERYTHING, Choice
from storage.get_message import PATIENT_SCAN, GetMessageStatus, returned_bytes, scanned_units
from storage.mapped_file import MappedFile
from storage.message_store import Snapshot
from storage.residency import Cold

ROWS = 4096
SLOTS = 4 * ROWS
FILES = 1024
"""Queue files that are kept mapped for the rows; as many as are open besides."""

SEEN = 16 * ROWS
"""Kinds of pulls of which it is remembered that one was answered, by their hashes."""

LONGEST_SUBSCRIPTION = 4096
"""Characters of a subscription that is kept in a row."""

UNBOUNDED = 1 << 60
COSTS = {EVERYTHING: 0, BY_TAG: 1, BY_EXPRESSION: 64}
"""What going through a unit costs, in sixteenths of a step along an index's chain: not all who ask pay for it alone."""

PADDING = 8
"""Bytes before the texts of a row: a hash is made of eight bytes at a time, also of those before a short text."""

MARKS = (1_234_567_890_123_456_701, 1_234_567_890_123_456_702, 1_234_567_890_123_456_703, 1_234_567_890)
"""Numbers by which their places in an answer's header are found, in the kernel's order; the opaque is the last."""

TEXT_PLACES = (
    (places.TOPIC_AT, kernel.ROW_TOPIC),
    (places.GROUP_AT, kernel.ROW_GROUP),
    (places.SUBSCRIPTION_AT, kernel.ROW_SUBSCRIPTION),
    (places.TYPE_AT, kernel.ROW_TYPE),
)
NUMBER_PLACES = (
    (places.CODE, kernel.ROW_CODE),
    (places.QUEUE_ID, kernel.ROW_QUEUE_ID),
    (places.MAX_MESSAGES, kernel.ROW_MAX_MESSAGES),
    (places.MAX_BYTES, kernel.ROW_MAX_BYTES),
    (places.SYS_FLAG, kernel.ROW_SYS_FLAG),
    (places.SUB_VERSION, kernel.ROW_SUB_VERSION),
)
"""Where a request has what stands in a row."""


class Known(NamedTuple):
    """Whose pulls a row is for, and what must live as long as it."""

    header: PullMessageRequestHeader
    choice: Choice
    texts: npt.NDArray[np.uint8]


class KnownPulls:
    """The rows of the pulls that may take the lane; `address` is where the kernel finds them."""

    def __init__(self, service: BrokerService, commits: int, longest_header: int) -> None:
        """One call answers ``commits`` pulls at most; no answer's header is longer than ``longest_header`` bytes."""
        self._service = service
        self._longest_header = longest_header
        self._slots = np.zeros(SLOTS, np.int32)
        self._rows = np.zeros((ROWS, kernel.ROW_LENGTH), np.int64)
        self._commits = np.zeros((commits, 2), np.int64)
        self._memory = np.zeros(kernel.OF_LENGTH, np.int64)
        self._memory[kernel.OF_SLOTS] = self._slots.ctypes.data
        self._memory[kernel.OF_MASK] = SLOTS - 1
        self._memory[kernel.OF_ROWS] = self._rows.ctypes.data
        self._memory[kernel.OF_COMMITS] = self._commits.ctypes.data
        self._numbers = self._memory.data
        self.address: int = self._memory.ctypes.data
        self._request = np.zeros(places.LENGTH, np.int64)
        self._headers: dict[tuple[int, int], tuple[npt.NDArray[np.uint8], list[int]]] = {}
        self._known: list[Known] = []
        self._files: dict[int, MappedFile] = {}
        self._snapshot_end: weakref.ref[Snapshot] | None = None
        self._seen: set[int] = set()
        self._group_changes = service.clients.changes
        self._found: deque[FoundPull] = deque(maxlen=KEPT)
        service.found_pulls = self._found
        self._pulled = service.pulled
        self._pulled.of_lane = self.pulled

    def prepare(self, snapshot: Snapshot) -> None:
        """Take in what was answered on the ordinary way, or forget everything that need not hold any more."""
        service = self._service
        if service.clients.changes != self._group_changes or service.polls.is_stopping:
            self._group_changes = service.clients.changes
            self.forget()
        while self._found:
            pull = self._found.popleft()
            is_current = pull.snapshot() is snapshot and pull.group_changes == self._group_changes
            if is_current and not service.polls.is_stopping and self._is_seen(pull.header):
                # What would have to wait, or is gone, is for the ordinary way; here it would cost the connection.
                with suppress(Cold, StoreError):
                    self._take_in(pull, snapshot)

    def forget(self) -> None:
        """Know no pull any more."""
        if self._known:
            self._pulled.take(self.pulled(0))
            self._slots[:] = 0
            self._known.clear()
            self._files = {}
        self._seen.clear()

    def pulled(self, second: int) -> list[tuple[Place, Pulled]]:
        """Where the pulls of each row go on that was used from a second of the monotonic clock on."""
        known = list(self._known)
        ends = self._rows[: len(known), kernel.ROW_PULLED : kernel.ROW_PULLED + 2].tolist()
        return [
            ((row.header.consumer_group, row.header.topic, row.header.queue_id), (tick, offset))
            for row, (offset, tick) in zip(known, ends, strict=True)
            if tick and tick >= second
        ]

    def hand_on_commits(self, connection: ClientConnection | None) -> None:
        """Remember the offsets that the pulls of the last call committed, all of one connection; None has no group."""
        count = self._numbers[kernel.OF_COMMIT_COUNT]
        if count:
            self._numbers[kernel.OF_COMMIT_COUNT] = 0
            for number, offset in self._commits[:count].tolist():
                header = self._known[number].header
                if connection is not None:
                    commit = self._service.commits.commit
                    commit(connection, header.consumer_group, header.topic, header.queue_id, offset)

    def _is_seen(self, header: PullMessageRequestHeader) -> bool:
        """Whether a pull like this one was answered before: a row that is used once costs more than it saves."""
        key = hash((header.queue_id, header.queue_offset >> kernel.RUN_SHIFT, header.topic, header.consumer_group))
        if key in self._seen:
            return True
        if len(self._seen) == SEEN:
            self._seen.clear()
        self._seen.add(key)
        return False

    def _take_in(self, pull: FoundPull, snapshot: Snapshot) -> None:
        """Make a row for pulls like this one, if there is none."""
        header = pull.header
        queue = snapshot.queues.queue(header.topic, header.queue_id)
        if not isinstance(queue, ConsumeQueue) or not pull.choice.address:
            return
        place = queue.place(header.queue_offset, UNBOUNDED)
        scan = scanned_units(limits_of(header, self._service.options)[0], queue.unit_size)
        if place is None or scan > PATIENT_SCAN or len(header.subscription or "") > LONGEST_SUBSCRIPTION:
            return
        if len(self._known) == ROWS or len(self._files) == FILES:
            self.forget()
        known = Known(header, pull.choice, _joined(header))
        self._fill_request(pull.code, known)
        pull_hash = kernel.hash_pull(self._request)
        slot = -1 - kernel.find_row(self.address, self._request, pull_hash)
        if slot >= 0:
            self._write_row(self._rows[len(self._known)], pull, queue, place)
            self._rows[len(self._known), kernel.ROW_HASH] = pull_hash
            self._hold(place[0], snapshot)
            self._known.append(known)
            self._slots[slot] = len(self._known)

    def _hold(self, file: MappedFile, snapshot: Snapshot) -> None:
        """Keep a file mapped as long as the snapshot lives: one that is gone then is not to wait for a request."""
        if not self._files:
            files = self._files
            self._snapshot_end = weakref.ref(snapshot, lambda _: files.clear())
        self._files[id(file)] = file

    def _fill_request(self, code: int, known: Known) -> None:
        """Make the request that the kernel would make of such a pull."""
        header, request = known.header, self._request
        at = known.texts.ctypes.data + PADDING
        for (place, _), text in zip(TEXT_PLACES, _texts(header), strict=True):
            size = places.ABSENT if text is None else len(text)
            request[place], request[place + 1] = at, size
            at += max(size, 0)
        request[places.CODE] = code
        request[places.QUEUE_ID] = header.queue_id
        request[places.QUEUE_OFFSET] = header.queue_offset
        request[places.MAX_MESSAGES] = header.max_msg_nums
        request[places.MAX_BYTES] = places.ABSENT if header.max_msg_bytes is None else header.max_msg_bytes
        request[places.SYS_FLAG] = header.sys_flag
        request[places.SUB_VERSION] = header.sub_version

    def _write_row(
        self, row: npt.NDArray[np.int64], pull: FoundPull, queue: ConsumeQueue, place: tuple[MappedFile, int, int]
    ) -> None:
        file, position, count = place
        header, choice = pull.header, pull.choice
        messages, record_bytes = limits_of(header, self._service.options)
        run = header.queue_offset >> kernel.RUN_SHIFT << kernel.RUN_SHIFT
        file_first = header.queue_offset - position // queue.unit_size
        # The kernel sees no unit in front of the first one of a file, nor behind the last.
        first = file_first + int(queue.starts_out_of_order(file_first))
        end = header.queue_offset + count
        end -= int(end < queue.max_offset and queue.ends_out_of_order(end))
        for place_in_request, place_in_row in NUMBER_PLACES:
            row[place_in_row] = self._request[place_in_request]
        for place_in_request, place_in_row in TEXT_PLACES:
            row[place_in_row : place_in_row + 2] = self._request[place_in_request : place_in_request + 2]
        row[kernel.ROW_FIRST : kernel.ROW_HEADER] = (
            *(max(run, first, queue.min_offset), min(run + kernel.RUN_UNITS, end), end),
            *(file_first, file.address, file.heat_address, file.descriptor, file.size),
            *(scanned_units(messages, queue.unit_size), messages, returned_bytes(record_bytes)),
            *(choice.address, queue.min_offset, queue.max_offset, COSTS[choice.kind]),
        )
        parts = self._header_parts(pull.topic_sys_flag, pull.group_sys_flag)
        row[kernel.ROW_HEADER : kernel.ROW_HEADER + len(parts)] = parts
        row[kernel.ROW_PULLED : kernel.ROW_PULLED + 2] = 0

    def _header_parts(self, topic_sys_flag: int, group_sys_flag: int) -> list[int]:
        """Address and length of each part of an answer's header, as the ordinary way renders it."""
        made = self._headers.get((topic_sys_flag, group_sys_flag))
        if made is None:
            fields = found_fields(*MARKS[:3], topic_sys_flag, group_sys_flag)
            response = Response(0, GetMessageStatus.FOUND.name, fields)
            header = encode_response(Command(code=0, opaque=MARKS[3]), response)[PREFIX.size :]
            if len(header) + PREFIX.size > self._longest_header:
                raise AssertionError(f"a header of {len(header)} bytes")
            memory = np.frombuffer(header, np.uint8)
            made = memory, [number for part in _parts(header) for number in (memory.ctypes.data + part[0], part[1])]
            self._headers[topic_sys_flag, group_sys_flag] = made
        return made[1]


def _texts(header: PullMessageRequestHeader) -> Iterator[bytes | None]:
    """The texts of a pull in the order of TEXT_PLACES."""
    for text in (header.topic, header.consumer_group, header.subscription, header.expression_type):
        yield None if text is None else text.encode("utf-8", "surrogatepass")


def _joined(header: PullMessageRequestHeader) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes(PADDING) + b"".join(text or b"" for text in _texts(header)), np.uint8)


def _parts(header: bytes) -> Iterator[tuple[int, int]]:
    """Position and length of what stands before, between and behind the marks."""
    start = 0
    for mark in MARKS:
        digits = b"%d" % mark
        position = header.index(digits, start)
        yield start, position - start
        start = position + len(digits)
    yield start, len(header) - start
