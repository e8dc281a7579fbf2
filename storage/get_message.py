"""What a pull reads: from one offset of a queue on, the messages that a filter lets through, up to the broker's limits.

Statuses, order of checks, limits and the offset to go on from are those of the broker's getMessage (store-format
§5.4), with two differences that keep answers exact: a record that is damaged, or is no message of the queue, is left
out like one that cannot be read, and only a record whose segment is missing makes the pull jump to the next segment.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from protocol.errors import FilterEvaluationError
from protocol.java_hash import java_hash
from protocol.message_layout import locate
from protocol.properties import TAGS, property_value
from storage.commit_log import CommitLog
from storage.consume_queue import ConsumeQueue
from storage.consume_queue_ext import LARGEST_ADDRESS
from storage.filter.base import MessageFilter
from storage.filter.choice import CHOICE_OF_EVERYTHING, Choice
from storage.filter.expression import ExpressionFilter
from storage.filter.property_block import PropertyBlock
from storage.kernels import pull as kernel
from storage.queues.queue import FILLER_SIZE, Queue, Unit
from storage.queues.queue_end import refuse_long_scan
from storage.queues.queue_store import QueueStore
from storage.residency import current_tick

LARGEST_FILTER_SCAN: Final = 16_000
"""Bytes of units that one pull looks through (`maxFilterMessageSize`), unless it asks for more messages than that."""
TRANSFER_BYTES: Final = 262_144
TRANSFER_COUNT: Final = 32
"""One pull returns no more from memory (`maxTransferBytesOnMessageInMemory`, `maxTransferCountOnMessageInMemory`)."""
SMALLEST_PULL: Final = 100
PATIENT_SCAN: Final = 4096
"""Units that a thread which may not wait goes through in one pull."""


class GetMessageStatus(IntEnum):
    """How a pull ended; the names are remarks of the answer."""

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
class GetMessageResult:
    """What a pull found; `records` are whole records, slices of the log's maps, in the queue's order."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview]


def get_message(
    queue_store: QueueStore,
    commit_log: CommitLog,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    max_bytes: int,
    message_filter: MessageFilter | None = None,
) -> GetMessageResult:
    """Read messages of one queue from `queue_offset` on; without a filter all of them.

    The first message is returned however long it is. A queue that does not exist is an empty one: a broker makes it
    when it is asked for. Raises Cold on a thread that may not wait for the disk.
    """
    queue = queue_store.queue(topic, queue_id)
    if queue is None or not queue.max_offset:
        return GetMessageResult(
            GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0 if queue is None else queue.min_offset, 0, []
        )
    minimum, end = queue.min_offset, queue.max_offset
    outside = _outside(queue_offset, minimum, end)
    if outside is not None:
        return GetMessageResult(*outside, minimum, end, [])
    stop = queue_offset + scanned_units(max_messages, queue.unit_size)
    refuse_long_scan(min(stop, end) - queue_offset, f"a pull of {max_messages} messages", PATIENT_SCAN)
    limits = _Limits(stop, max_messages, returned_bytes(max_bytes))
    choice = CHOICE_OF_EVERYTHING if message_filter is None else message_filter.choice
    if isinstance(queue, ConsumeQueue) and choice is not None:
        result = _pull(commit_log, queue, queue_offset, limits, choice, message_filter)
        if result is not None:
            return result
    units = queue.walk(queue_offset, stop - queue_offset)
    if units is None:
        following = queue.next_file_offset(queue_offset)
        return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, following, minimum, end, [])
    return _collect(_Messages(commit_log, queue, message_filter), units, limits, queue_offset)


def scanned_units(max_messages: int, unit_size: int) -> int:
    """How many units a pull of so many messages looks through at most."""
    return -(-max(LARGEST_FILTER_SCAN, max_messages * unit_size) // unit_size)


def returned_bytes(max_bytes: int) -> int:
    """Bytes of records that a pull returns at most if it asks for so many, its first record aside."""
    return min(max(max_bytes, SMALLEST_PULL), TRANSFER_BYTES)


def _outside(queue_offset: int, minimum: int, end: int) -> tuple[GetMessageStatus, int] | None:
    """Status and offset to go on from for a pull that starts at no message of the queue."""
    if queue_offset < minimum:
        return GetMessageStatus.OFFSET_TOO_SMALL, minimum
    if queue_offset == end:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, end
    if queue_offset > end:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, end
    return None


@dataclass(frozen=True, slots=True)
class _Limits:
    """Where a pull ends: before the unit of `stop`, and before more messages or bytes than this."""

    stop: int
    messages: int
    record_bytes: int


class _Scratch(threading.local):
    """What the kernel writes to; one a thread."""

    def __init__(self) -> None:
        self.results = np.zeros(kernel.RESULTS, np.int64)
        self.numbers = self.results.data


_scratch = _Scratch()


def _pull(
    commit_log: CommitLog,
    queue: ConsumeQueue,
    queue_offset: int,
    limits: _Limits,
    choice: Choice,
    message_filter: MessageFilter | None,
) -> GetMessageResult | None:
    """The whole pull by the kernel; None where it met something odd, or no unit, and has to be made by hand."""
    place = queue.place(queue_offset, limits.stop - queue_offset)
    if place is None:
        return None
    file, position, count = place
    file.require_hot(position, count * queue.unit_size)
    name, numbers = queue.name, _scratch.numbers
    _scratch.results[: kernel.FIRST_PAIR] = 0
    passed = kernel.ASKS
    while passed == kernel.ASKS:
        passed = kernel.pull(
            commit_log.catalog, file.address + position, count, choice.address, name.queue_id, name.topic_address,
            name.topic_size, limits.messages, limits.record_bytes, _scratch.results, current_tick(),
        )  # fmt: skip
        if passed == kernel.ASKS and not _answer(commit_log, numbers, message_filter):
            return None
    if isinstance(message_filter, ExpressionFilter):
        message_filter.evaluations.done += numbers[kernel.DECIDED_AT]
    if passed == kernel.STOPPED_COLD:
        raise commit_log.cold(numbers[kernel.STOPPED_AT])
    if passed == kernel.ODD:
        return None
    found = numbers[kernel.FOUND_AT]
    pairs = numbers[kernel.FIRST_PAIR : kernel.FIRST_PAIR + 2 * found].tolist()
    records = list(map(commit_log.slice, pairs[::2], pairs[1::2]))
    status = GetMessageStatus.FOUND if found else GetMessageStatus.NO_MATCHED_MESSAGE
    return GetMessageResult(status, queue_offset + passed, queue.min_offset, queue.max_offset, records)


def _answer(commit_log: CommitLog, numbers: memoryview, message_filter: MessageFilter | None) -> bool:
    """Decide the message that the kernel asks about; False if it is to be delivered and is not intact."""
    place = kernel.FIRST_PAIR + 2 * numbers[kernel.FOUND_AT]
    record = commit_log.slice(numbers[place], numbers[place + 1])
    if message_filter is None or not _match_properties(message_filter, record):
        return True
    if commit_log.record_at(numbers[place]) is None:
        return False
    numbers[kernel.FOUND_AT] += 1
    numbers[kernel.TOTAL_AT] += len(record)
    return True


def _collect(messages: "_Messages", units: Iterable[Unit], limits: _Limits, queue_offset: int) -> GetMessageResult:
    """Walk over the units until a limit is reached; one unit always goes through, so that a pull moves on."""
    records: list[memoryview] = []
    count = total = 0
    status, next_offset = GetMessageStatus.NO_MATCHED_MESSAGE, queue_offset
    for offset, after, physical_offset, size, tags_code in units:
        if offset >= limits.stop:
            break
        if count and (
            count + after - offset > limits.messages or total + size > limits.record_bytes or count >= TRANSFER_COUNT
        ):
            break
        next_offset = after
        if 0 <= physical_offset < messages.skip_to:
            continue
        found = messages.find(physical_offset, size, tags_code)
        if found is GetMessageStatus.MESSAGE_WAS_REMOVING or physical_offset < 0 or size <= 0:
            found = messages.find_in_log(offset) or found
        if isinstance(found, memoryview):
            records.append(found)
            count += after - offset
            total += len(found)
        elif not records:
            status = found
    status = GetMessageStatus.FOUND if records else status
    return GetMessageResult(status, next_offset, messages.queue.min_offset, messages.queue.max_offset, records)


class _Messages:
    """The messages of one queue as one pull reads them; `skip_to` is where the log goes on behind a missing segment."""

    __slots__ = ("_filter", "_log", "queue", "skip_to")

    def __init__(self, commit_log: CommitLog, queue: Queue, message_filter: MessageFilter | None) -> None:
        self._log = commit_log
        self.queue = queue
        self._filter = None if message_filter is None or message_filter.matches_everything else message_filter
        self.skip_to = 0

    def find(self, physical_offset: int, size: int, tags_code: int) -> memoryview | GetMessageStatus:
        """The record of a unit, or what the pull's status becomes if nothing else is found."""
        chosen = self._filter
        if chosen is not None and not self._may_match(chosen, tags_code):
            return GetMessageStatus.NO_MATCHED_MESSAGE
        # What is not delivered need not be intact.
        is_evaluated = chosen is not None and chosen.needs_properties
        log = self._log
        record = log.unchecked_record_at(physical_offset) if is_evaluated else log.record_at(physical_offset)
        if record is None or size == FILLER_SIZE or not self.queue.name.owns(record):
            return self._unreadable(physical_offset)
        if chosen is not None and is_evaluated:
            if not _match_properties(chosen, record):
                return GetMessageStatus.NO_MATCHED_MESSAGE
            if log.record_at(physical_offset) is None:
                return GetMessageStatus.MESSAGE_WAS_REMOVING
        self.skip_to = 0
        return record

    def find_in_log(self, queue_offset: int) -> memoryview | GetMessageStatus | None:
        """The same for a unit that leads to no message of the queue, by what the log says; None where it has none."""
        physical_offset = self.queue.message_in_log(queue_offset)
        record = None if physical_offset is None else self._log.record_at(physical_offset)
        if record is None:
            return None
        self.skip_to = 0
        if self._filter is None:
            return record
        places = locate(record)
        tag = property_value(record[places.properties : places.total_size], TAGS)
        if not self._filter.matches_consume_queue_entry(java_hash(tag) if tag else 0, None):
            return GetMessageStatus.NO_MATCHED_MESSAGE
        if self._filter.needs_properties and not _match_properties(self._filter, record):
            return GetMessageStatus.NO_MATCHED_MESSAGE
        return record

    def _may_match(self, chosen: MessageFilter, tags_code: int) -> bool:
        """Ask the filter's first stage, with the extension unit where there is one."""
        if tags_code > LARGEST_ADDRESS:
            return chosen.matches_consume_queue_entry(tags_code, None)
        extension = self.queue.extension_at(tags_code)
        return chosen.matches_consume_queue_entry(None if extension is None else extension.tags_code, extension)

    def _unreadable(self, physical_offset: int) -> GetMessageStatus:
        if self._log.segment_of(physical_offset) is None:
            # Beyond the log's end nothing is missing: the unit is damaged, or left over.
            self.skip_to = self._log.next_segment_start(physical_offset) or 0
        return GetMessageStatus.MESSAGE_WAS_REMOVING


def _match_properties(chosen: MessageFilter, record: memoryview) -> bool:
    """Ask the filter's second stage; a message that it cannot evaluate does not match."""
    places = locate(record)
    try:
        return chosen.matches_commit_log(PropertyBlock(record[places.properties : places.total_size]))
    except FilterEvaluationError:
        return False
