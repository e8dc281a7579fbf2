"""Records behind a running broker's end of the log: left over where it cut the log and wrote on (store-format §6.3).

Where a replica cuts off what its master does not have, the bytes stay, and behind what it has written since they are
intact records of another history. Nothing on disk says where a broker writes next. But it puts each record into its
queue within milliseconds, in the order of the log: so a record that no queue has, and that was stored well before those
in front of it, is not new. A stopped broker has no such place: at its start it takes these records for messages.

Where no queue files can be asked, the epochs of controller mode may show it: behind the place where the last one began
nothing is older than the message that it began with (store-format §8.5).
"""

from collections.abc import Sequence
from typing import Final

from protocol.message import decode_message
from storage.kernels.records import MINIMUM_SIZE, check_shape, find_record_backwards, store_timestamp
from storage.layout.epochs import Epoch, read_epochs
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
    if not (state.is_live and log.segments):
        return log
    if layout.lacks_queues or layout.ledgers or layout.rocksdb_queues:
        place = older_than_epoch_from(log, read_epochs(layout.root))
    else:
        place = stale_from(log, QueueStore(layout.root, log))
    return log if place is None else log.ending_at(place)


def older_than_epoch_from(log: CommitLog, epochs: Sequence[Epoch]) -> int | None:
    """The physical offset of the first record at the log's end that is older than the epoch it lies in; None for none.

    Records are looked at from the end of the last segment back to one that is as new as the last epoch's beginning.
    """
    first = log.record_at(epochs[-1].start) if epochs else None
    if first is None:
        return None
    last, earliest = log.segments[-1], decode_message(first, check_crc=False).store_timestamp - TOLERATED_MS
    region, base, place = last.file.region, last.base_offset, None
    position = max(0, last.valid_length - MINIMUM_SIZE + 1)
    for _ in range(MOST_LATE):
        position = find_record_backwards(region, 0, position, base)
        if position < 0 or base + position <= epochs[-1].start or store_timestamp(region, position) >= earliest:
            return place
        place = base + position
    return None


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
