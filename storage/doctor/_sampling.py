"""Sample messages all over the log, and take all of its last ones: other parts of the store are compared with them."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import StoreError
from protocol.message_layout import locate
from protocol.system_topics import LIGHT_PREFIX
from storage.kernels.records import ANY_TIME, KeptChecksums, check_shape, find_recent, store_timestamp
from storage.kernels.region import Region
from storage.log.commit_log import CommitLog, Segment
from storage.queue.queue_record import dispatched_places

PLACES = 96
"""Places evenly over the log from which records are taken."""

RECORDS_A_PLACE = 4
"""Records that are taken from a place on; they are looked for up to the next place, whatever damage lies before."""

TAIL_BYTES = 8 * 1024 * 1024
"""Bytes at the end of the log all of whose records are taken."""

PIECE_BYTES, RECORD_BYTES = 1024 * 1024, 4 * 1024 * 1024
"""Looked through at once, and what the last record there may have behind it."""

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
    for start in range(commit_log.minimum, commit_log.end, step):
        records = _records(commit_log, start, min(start + step, commit_log.end))
        found.update((sample.physical_offset, sample) for sample in itertools.islice(records, RECORDS_A_PLACE))
    tail = _records(commit_log, max(commit_log.minimum, commit_log.end - TAIL_BYTES), commit_log.end)
    found.update((sample.physical_offset, sample) for sample in tail)
    return [found[offset] for offset in sorted(found)]


def _records(commit_log: CommitLog, start: int, stop: int) -> Iterator[Sample]:
    """The intact records that start in [start, stop), across segments and damage."""
    for segment in commit_log.segments:
        position, limit = max(start - segment.base_offset, 0), min(stop - segment.base_offset, segment.valid_length)
        # Of bytes that come when they are looked at, sums may be those of zeros.
        readable, sums = segment.valid_length, None if segment.file.is_hollow else KeptChecksums()
        while position < limit:
            behind = min(position + PIECE_BYTES, limit)
            region = segment.file.region_of(position, behind + RECORD_BYTES)
            position = find_recent(region, position, behind, readable, segment.base_offset, ANY_TIME, sums)
            if position >= behind:
                continue
            sample = _sample(segment, position)
            if sample is not None:
                yield sample
            position += sample.size if sample is not None else 1


def _sample(segment: Segment, position: int) -> Sample | None:
    region, physical_offset = segment.region_at(position), segment.base_offset + position
    size = check_shape(region, position, segment.valid_length, physical_offset)
    if size <= 0:
        return None
    record = bytes(segment.file.slice(position, position + size))  # that does not change while it is looked at
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
        for name, offset in dispatched_places(record, places)
        if offset is not None and name.startswith(LIGHT_PREFIX)
    )
    timestamp = store_timestamp(Region(record), 0)
    return Sample(physical_offset, size, timestamp, topic, queue_id, queue_offset, is_queued, light)
