"""Messages here and there in the log, and all of its last ones: what the other pieces are held against."""

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import StoreError
from protocol.message_layout import locate
from storage.commit_log import CommitLog, Segment
from storage.kernels.records import check_shape, find_record, store_timestamp
from storage.queues.queue_record import LIGHT_PREFIX, dispatched_places

PLACES = 96
"""Places evenly over the log from which records are taken."""

RECORDS_A_PLACE = 4
SEARCHED_BYTES = 8 * 1024 * 1024
"""How far from a place its first record is looked for: no record of a standard broker is longer than 4 MiB."""

TAIL_BYTES = 8 * 1024 * 1024
"""Bytes at the end of the log all of whose records are taken."""

MOST_IN_TAIL = 50_000
UNQUEUED = (0x4, 0xC)
TRANSACTION_MASK = 0xC


@dataclass(frozen=True, slots=True)
class Sample:
    """One intact record: where it is, and to which unit of which queue it belongs if it is dispatched to one.

    ``light`` are light queues that it is dispatched to as well, each with its queue offset there.
    """

    physical_offset: int
    size: int
    store_timestamp: int
    topic: str
    queue_id: int
    queue_offset: int
    is_queued: bool
    light: tuple[tuple[str, int], ...] = ()

    @property
    def end(self) -> int:
        """Physical offset behind the record."""
        return self.physical_offset + self.size


def sample_log(commit_log: CommitLog) -> list[Sample]:
    """Records at `PLACES` places and the whole tail, ascending. Waits for the disk."""
    found: dict[int, Sample] = {}
    step = max((commit_log.end - commit_log.minimum) // PLACES, 1)
    for offset in range(commit_log.minimum, commit_log.end, step):
        found.update((sample.physical_offset, sample) for sample in _records_from(commit_log, offset, RECORDS_A_PLACE))
    tail = max(commit_log.minimum, commit_log.end - TAIL_BYTES)
    found.update((sample.physical_offset, sample) for sample in _records_from(commit_log, tail, MOST_IN_TAIL))
    return [found[offset] for offset in sorted(found)]


def _records_from(commit_log: CommitLog, physical_offset: int, count: int) -> Iterator[Sample]:
    """Up to `count` intact records from an offset on, across segments and damage."""
    for segment in commit_log.segments:
        if segment.end <= physical_offset:
            continue
        position = max(physical_offset - segment.base_offset, 0)
        while count and (position := _next_record(segment, position)) >= 0:
            sample = _sample(segment, position)
            if sample is not None:
                yield sample
                count -= 1
            position += sample.size if sample is not None else 1
        if not count or segment.base_offset > physical_offset + SEARCHED_BYTES:
            return


def _next_record(segment: Segment, position: int) -> int:
    """Position of the first intact record from a position on, −1 for none near."""
    stop = min(segment.valid_length, position + SEARCHED_BYTES)
    found = find_record(segment.file.region, position, stop, segment.base_offset) if position < stop else stop
    return found if found < stop else -1


def _sample(segment: Segment, position: int) -> Sample | None:
    region, physical_offset = segment.file.region, segment.base_offset + position
    size = check_shape(region, position, segment.valid_length, physical_offset)
    if size <= 0:
        return None
    record = segment.file.view[position : position + size]
    try:
        places = locate(record, physical_offset)
    except StoreError:
        return None
    fields = places.fixed.unpack_from(record)
    queue_id, queue_offset, flags = fields[3], fields[5], fields[7]
    topic = bytes(record[places.topic : places.topic + places.topic_length]).decode("utf-8", "surrogateescape")
    is_queued = flags & TRANSACTION_MASK not in UNQUEUED
    light = tuple(
        (name, offset)
        for name, offset in dispatched_places(record)
        if offset is not None and name.startswith(LIGHT_PREFIX)
    )
    timestamp = store_timestamp(region, position)
    return Sample(physical_offset, size, timestamp, topic, queue_id, queue_offset, is_queued, light)
