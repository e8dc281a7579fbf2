"""Records behind a running broker's end of the log: left over where it cut the log and wrote on (store-format §6.3).

Where a replica cuts off what its master does not have, the bytes stay, and behind what it has written since they are
intact records of another history. Nothing on disk says where a broker writes next. But it puts each record into its
queue within milliseconds, in the order of the log: so a record that no queue has, and that was stored well before those
in front of it, is not new. A stopped broker has no such place: at its start it takes these records for messages.
"""

from typing import Final

from storage.kernels.records import MINIMUM_SIZE, check_shape, find_record_backwards, store_timestamp
from storage.layout.store_layout import StoreLayout
from storage.log.commit_log import CommitLog
from storage.log.segment_end import TOLERATED_MS
from storage.queue.queue_record import is_queued
from storage.queue.queue_store import QueueStore
from storage.store.store_state import StoreState

MOST_LATE: Final = 100_000
"""Records at the end of the log that are looked at; a broker is not so far behind with its queues."""


def without_stale_tail(log: CommitLog, layout: StoreLayout, state: StoreState) -> CommitLog:
    """The log without what is left over behind the place where a running broker writes; waits for the disk."""
    has_queue_files = not (layout.lacks_queues or layout.ledgers or layout.rocksdb_queues)
    if not (state.is_live and has_queue_files and log.segments):
        return log
    place = stale_from(log, QueueStore(layout.root, log))
    return log if place is None else log.ending_at(place)


def stale_from(log: CommitLog, queues: QueueStore) -> int | None:
    """The physical offset of the first record at the log's end that is left over; None where none is.

    Records are looked at from the end of the last segment back to one that its queue has.
    """
    last = log.segments[-1]
    region, base, end = last.file.region, last.base_offset, last.valid_length
    late: list[int] = []
    position = max(0, end - MINIMUM_SIZE + 1)
    while (position := find_record_backwards(region, 0, position, base)) >= 0 and len(late) < MOST_LATE:
        size = check_shape(region, position, end, base + position)
        if size <= 0:
            return None
        record = last.file.view[position : position + size]
        if is_queued(record) and queues.has_unit_of(record, base + position):
            newest = store_timestamp(region, position)
            for number in reversed(late):
                timestamp = store_timestamp(region, number)
                if timestamp < newest - TOLERATED_MS:
                    return base + number
                newest = max(newest, timestamp)
            return None
        late.append(position)
    return None
