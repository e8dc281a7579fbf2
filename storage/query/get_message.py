"""Reads for a pull: from one offset of a queue on, the messages that pass a filter, up to the broker's limits.

Statuses, order of checks, limits and the offset to go on from are those of the broker's getMessage (store-format
§5.4), with differences that keep answers exact. A record that is damaged is left out like one that cannot be read.
Only a record whose segment is missing makes the pull jump to the next segment. Messages whose units are damaged or lost
are taken from the log if it has them (:mod:`storage.queue.unit_reader`).
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, cast

from protocol.errors import BeingSearched, StoreError
from protocol.message_layout import locate
from storage.files.mapped_file import MappedFile
from storage.files.waiting import Lookup, current_tick, long_scan, plainly
from storage.filter.base import CHOICE_OF_EVERYTHING, MessageFilter
from storage.filter.expression import ExpressionFilter
from storage.kernels.pulls import ODD, RECORD_COLD, UNITS_COLD, Choice, pull
from storage.queue.consume_queue_ext import LARGEST_ADDRESS
from storage.queue.queue import SourceQueue, UnitRange
from storage.queue.queue_store import QueueStore
from storage.queue.unit_reader import Missing, UnitReader
from storage.queue.unit_struct import Unit

LARGEST_FILTER_SCAN: Final = 16_000
"""Bytes of units that one pull scans (`maxFilterMessageSize`), unless it asks for more messages than they hold."""
TRANSFER_BYTES: Final = 262_144
TRANSFER_COUNT: Final = 32
"""Most bytes and messages that one pull returns (`maxTransferBytesOnMessageInMemory`,
`maxTransferCountOnMessageInMemory`)."""
SMALLEST_PULL: Final = 100
PATIENT_SCAN: Final = 4096
"""Units that a pull scans before it asks for a thread that may wait."""
PATIENT_STEPS: Final = 1 << 18
"""Steps of an expression that a pull evaluates before it asks for such a thread: a millisecond or two."""


class GetMessageStatus(IntEnum):
    """How a pull ended; the names are the remarks of answers."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages that a pull skipped, because their units are damaged or lost and the log has no intact copy.

    There are `count` of them, in queue offsets from `first` up to `stop`.
    """

    count: int
    first: int
    stop: int

    def __add__(self, later: "Lost | None") -> "Lost":
        """Join these messages with later ones."""
        return self if later is None else Lost(self.count + later.count, self.first, later.stop)

    def __str__(self) -> str:
        are = "1 message is" if self.count == 1 else f"{self.count} messages are"
        return f"{are} lost at queue offsets {self.first} to {self.stop - 1}: damaged in the queue and not in the log"


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """The result of a pull; `records` are whole records, slices of the log's maps, in the queue's order."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview]
    lost: Lost | None = None


def get_message_lookup(
    queue_store: QueueStore,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    max_bytes: int,
    message_filter: MessageFilter | None = None,
) -> Lookup[GetMessageResult]:
    """Read messages of one queue from `queue_offset` on; without a filter all of them.

    The first message is returned however long it is. A queue that does not exist is treated as an empty one, since a
    broker creates it when it is asked for. Raises BeingSearched while the log is searched for the message of
    `queue_offset`, and StoreError where it cannot be found out what the queue holds there. While it is searched for the
    queue's end, `max_offset` is one more than is known to be there.
    """
    queue, is_whole = yield from queue_store.readable_lookup(topic, queue_id, queue_offset)
    if queue is None or not queue.max_offset:
        return GetMessageResult(
            GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0 if queue is None else queue.min_offset, 0, []
        )
    minimum, end = queue.min_offset, queue.max_offset
    outside = _outside(queue_offset, minimum, end)
    if outside is not None:
        return GetMessageResult(*outside, minimum, end, [])
    part = queue.source_at(queue_offset)
    if part is None:
        behind = next(each.stop for each in queue.parts if queue_offset < each.stop)
        lost = Lost(behind - queue_offset, queue_offset, behind)
        return GetMessageResult(GetMessageStatus.MESSAGE_WAS_REMOVING, behind, minimum, end + (not is_whole), [], lost)
    stop = queue_offset + scanned_units(max_messages, part.unit_size)
    if min(stop, end) - queue_offset > PATIENT_SCAN:
        yield long_scan(f"a pull of {max_messages} messages")
    limits = _Limits(stop, max_messages, returned_bytes(max_bytes))
    choice = CHOICE_OF_EVERYTHING if message_filter is None else message_filter.choice
    if choice is not None and choice.cost * (min(stop, end) - queue_offset) > PATIENT_STEPS:
        yield long_scan("messages to be decided by a long expression")
    result = None
    units = None if choice is None else (yield from part.units_at(queue_offset, stop - queue_offset))
    if units is not None and choice is not None:
        result = yield from _pull(part, units, queue_offset, limits, choice, message_filter)
    if result is None:
        result = yield from _collect(_Messages(part, message_filter), limits, queue_offset)
    if part is queue and is_whole:
        return result
    # Before an end that is being searched, who reads up to the end is to ask for what may come behind it, too.
    return replace(result, min_offset=minimum, max_offset=end + (not is_whole))


get_message = plainly(get_message_lookup)


def scanned_units(max_messages: int, unit_size: int) -> int:
    """Return the most units of `unit_size` bytes that a pull of `max_messages` messages scans."""
    return -(-max(LARGEST_FILTER_SCAN, max_messages * unit_size) // unit_size)


def returned_bytes(max_bytes: int) -> int:
    """Return the most bytes of records after the first one that a pull returns if it asks for `max_bytes`."""
    return min(max(max_bytes, SMALLEST_PULL), TRANSFER_BYTES)


def _outside(queue_offset: int, minimum: int, end: int) -> tuple[GetMessageStatus, int] | None:
    """Return status and offset to go on from for a pull outside of the queue's range, None for one inside."""
    if queue_offset < minimum:
        return GetMessageStatus.OFFSET_TOO_SMALL, minimum
    if queue_offset == end:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, end
    if queue_offset > end:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, end
    return None


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of a pull: the unit before which it ends, and the most messages and bytes of records."""

    stop: int
    messages: int
    record_bytes: int


def _pull(
    queue: SourceQueue,
    units: UnitRange,
    queue_offset: int,
    limits: _Limits,
    choice: Choice,
    message_filter: MessageFilter | None,
) -> Lookup[GetMessageResult | None]:
    """Make the whole pull by the kernel; None if it met damage."""
    asked = (
        queue.log.view,
        *units,
        queue.queue_id,
        queue.name.topic_bytes,
        choice,
        queue_offset,
        limits.stop - queue_offset,
        limits.messages,
        limits.record_bytes,
    )
    pulled = pull(*asked, current_tick())
    if pulled.passed in (UNITS_COLD, RECORD_COLD):
        if isinstance(message_filter, ExpressionFilter):
            message_filter.evaluations.done += pulled.decided
        yield cast(MappedFile, pulled.cold_file).cold(pulled.cold_position, pulled.cold_length)
        pulled = pull(*asked, 0)
    if isinstance(message_filter, ExpressionFilter):
        message_filter.evaluations.done += pulled.decided
    if pulled.passed == ODD:
        return None
    status = GetMessageStatus.FOUND if pulled.records else GetMessageStatus.NO_MATCHED_MESSAGE
    return GetMessageResult(status, queue_offset + pulled.passed, queue.min_offset, queue.max_offset, pulled.records)


def _collect(messages: "_Messages", limits: _Limits, queue_offset: int) -> Lookup[GetMessageResult]:
    """Walk over the units until a limit is reached; at least one is processed, so that the offset moves on."""
    records: list[memoryview] = []
    count = total = 0
    status, next_offset = GetMessageStatus.NO_MATCHED_MESSAGE, queue_offset
    try:
        while (unit := (yield from messages.reader.unit_at(next_offset, limits.stop))) is not None:
            offset, after, *_ = unit
            if count and (
                count + after - offset > limits.messages
                or total + messages.reader.record_bytes(unit) > limits.record_bytes
                or count >= TRANSFER_COUNT
            ):
                break
            found, after = yield from messages.find(unit)
            if isinstance(found, memoryview):
                if count and total + len(found) > limits.record_bytes:
                    break
                records.append(found)
                count += after - offset
                total += len(found)
            elif not records and found is not None:
                status = found
            next_offset = after
    except (BeingSearched, StoreError):
        if next_offset == queue_offset:
            raise
    status = GetMessageStatus.FOUND if records else status
    queue = messages.queue
    return GetMessageResult(status, next_offset, queue.min_offset, queue.max_offset, records, messages.lost)


Found = memoryview | GetMessageStatus | None
"""A record that is delivered, or the pull's status if no record is found at all; with None the status does not change.
"""

STATUSES: Final = {
    Missing.UNWANTED: GetMessageStatus.NO_MATCHED_MESSAGE,
    Missing.UNREADABLE: GetMessageStatus.MESSAGE_WAS_REMOVING,
    Missing.LOST: GetMessageStatus.MESSAGE_WAS_REMOVING,
    Missing.SKIPPED: None,
}


class _Messages:
    """The messages of one queue as one pull reads them; `lost` are those that it skipped and that the log lacks."""

    __slots__ = ("_filter", "lost", "queue", "reader")

    def __init__(self, queue: SourceQueue, message_filter: MessageFilter | None) -> None:
        self.queue = queue
        self.reader = UnitReader(queue)
        self._filter = None if message_filter is None or message_filter.matches_everything else message_filter
        self.lost: Lost | None = None

    def find(self, unit: Unit) -> Lookup[tuple[Found, int]]:
        """Return the result for a unit, and the queue offset after it. Raises BeingSearched."""
        chosen = self._filter
        wants = None if chosen is None else self._may_match
        # Checksums are verified only for records that are delivered.
        is_evaluated = chosen is not None and chosen.needs_properties
        found, (offset, after, physical_offset, *_) = yield from self.reader.message(
            unit, wants, is_checked=not is_evaluated
        )
        if isinstance(found, Missing):
            if found is Missing.LOST:
                lost = Lost(after - offset, offset, after)
                self.lost = lost if self.lost is None else self.lost + lost
            return STATUSES[found], after
        if chosen is not None and is_evaluated:
            if not _match_properties(chosen, found):
                return GetMessageStatus.NO_MATCHED_MESSAGE, after
            if (yield from self.queue.log.record_at_lookup(physical_offset)) is None:
                return GetMessageStatus.MESSAGE_WAS_REMOVING, after
        return found, after

    def _may_match(self, tags_code: int) -> Lookup[bool]:
        """Evaluate the filter's first stage, with the extension unit where there is one."""
        assert self._filter is not None
        if tags_code > LARGEST_ADDRESS:
            return self._filter.matches_consume_queue_entry(tags_code, None)
        extension = yield from self.queue.extension_at(tags_code)
        code = None if extension is None else extension.tags_code
        return self._filter.matches_consume_queue_entry(code, extension)


def _match_properties(chosen: MessageFilter, record: memoryview) -> bool:
    """Evaluate the filter's second stage, by the properties of a record."""
    places = locate(record)
    return chosen.matches_commit_log(record[places.properties : places.total_size])
