"""A queue that begins in a tier and goes on in the store: older messages from the one, the rest from the other.

A broker copies messages into its tier (`TieredMessageStore`) while they are in its log, and removes them from the log
later. So both have the same queue offsets, and for a while the same messages. What the store's own queue has is read
from there, as a broker does; what lies before it is read from the tier. Records of both are equal but for the physical
offset, which in a tier is the position in the tier's own log. Where a message that both should have differs, the tier
is that of another store: it is left out, and said so.
"""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from storage.files.waiting import Lookup, plainly
from storage.kernels.records import PHYSICAL_OFFSET, SYS_FLAG
from storage.log.commit_log import CommitLog
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit
from storage.queue.queue import ConsumeQueueEntry, TimeBoundary, Unit
from storage.queue.queue_holes import QueueHole
from storage.queue.queue_record import NamedQueue, QueueName

OwnQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue


class OtherTier(StoreError):
    """A queue of a tier holds other messages than the queue of the store."""


class TieredQueue(NamedQueue):
    """One queue of a store with the older part of it in a tier; made by :func:`join`.

    ``seam`` is the queue offset from which on the store's own queue is read. Messages between the end of the tier and
    the seam are lost: an offset there is in no part, and is answered by the next one that has messages.
    """

    __slots__ = ("local", "name", "seam", "tier")
    has_batches = False

    def __init__(self, tier: ConsumeQueue, local: OwnQueue, seam: int) -> None:
        self.tier, self.local, self.seam = tier, local, seam
        self.name: QueueName = local.name

    @property
    def is_measured(self) -> bool:
        """Whether it is known where the queue begins and ends; it is, for a queue that was joined."""
        return self.tier.is_measured and self.local.is_measured

    def measured(self) -> Lookup["TieredQueue"]:
        """Find out where the queue begins and ends; return the queue."""
        yield from self.tier.measured()
        yield from self.local.measured()
        return self

    def newest_physical_offset(self) -> Lookup[int]:
        """Return the physical offset in the last unit of the store's own queue, −1 where that has none."""
        return (yield from self.local.newest_physical_offset())

    @property
    def unit_size(self) -> int:
        """Bytes of one unit on disk."""
        return self.tier.unit_size

    @property
    def min_offset(self) -> int:
        """The first queue offset of the tier's part."""
        return self.tier.min_offset

    @property
    def max_offset(self) -> int:
        """The queue offset after the last message."""
        return max(self.local.max_offset, min(self.seam, self.tier.max_offset))

    def part_at(self, queue_offset: int) -> OwnQueue:
        """The part that has a queue offset: the tier's below the seam, as far as that reaches, else the store's own."""
        return self.tier if queue_offset < min(self.seam, self.tier.max_offset) else self.local

    @property
    def lost(self) -> tuple[int, int]:
        """First queue offset, and the one after the last, of what neither part has between the two; empty mostly."""
        return min(self.tier.max_offset, self.seam), self.seam

    def log_at(self, queue_offset: int) -> CommitLog:
        """The log that has the message of a queue offset."""
        return self.part_at(queue_offset).log

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of one message, whose physical offset is one of `log_at`; None where the queue has none."""
        return self.part_at(queue_offset).entry_at(queue_offset)

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        """Return the entries of up to `count` queue offsets from `queue_offset` on; empty if that one has none."""
        if self.part_at(queue_offset) is not self.tier:
            return (yield from self.local.entries_lookup(queue_offset, count))
        stop = min(self.seam, self.tier.max_offset)
        found = yield from self.tier.entries_lookup(queue_offset, min(count, stop - queue_offset))
        if len(found) == stop - queue_offset < count and stop == self.seam:
            found += yield from self.local.entries_lookup(stop, count - len(found))
        return found

    entries = plainly(entries_lookup)

    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        """Return up to `maximum` units of one file of one part, from `queue_offset` on; None where there is none."""
        return (yield from self.part_at(queue_offset).walk(queue_offset, maximum))

    def message_in_log(self, queue_offset: int) -> int | None:
        """Return the physical offset of the message with a queue offset, in `log_at`; None where it is lost."""
        return self.part_at(queue_offset).message_in_log(queue_offset)

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """Return the hole around a unit that leads to no message, searched in the log. Raises BeingSearched."""
        return self.part_at(queue_offset).hole_at_lookup(queue_offset)

    hole_at = plainly(hole_at_lookup)

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        """Return whether a unit is lost, or points to a place where its message cannot be."""
        return self.part_at(queue_offset).is_doubtful_lookup(queue_offset)

    is_doubtful = plainly(is_doubtful_lookup)

    def sound_from(self, queue_offset: int) -> int:
        """The first queue offset from `queue_offset` on whose unit leads to its message, else `max_offset`. Waits."""
        part = self.part_at(queue_offset)
        if part is not self.tier:
            return self.local.sound_from(queue_offset)
        found = self.tier.sound_from(queue_offset)
        return found if found < min(self.seam, self.tier.max_offset) else self.local.sound_from(self.seam)

    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """Return the extension unit whose address is in a unit's tags code; a tier has none."""
        return self.local.extension_at(tags_code)

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        """Return the store time in ms of the message at a queue offset, −1 where it cannot be read."""
        return (yield from self.part_at(queue_offset).store_timestamp_at_lookup(queue_offset))

    store_timestamp_at = plainly(store_timestamp_at_lookup)

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """Return the queue offset for a time (ms): in the tier, if the store's own part begins later than that."""
        low, high = self.tier.min_offset, self.local.max_offset
        if self.seam < high:
            begins = yield from self.local.store_timestamp_at_lookup(self.local.sound_from(self.seam))
            if 0 <= begins <= timestamp:
                found = yield from self.local.offset_by_timestamp_lookup(timestamp, boundary)
                is_first = boundary is TimeBoundary.LOWER and found <= self.seam and begins == timestamp
                if not is_first:
                    return found
        found = yield from self.tier.offset_by_timestamp_lookup(timestamp, boundary)
        # A tier goes on into what the store has too; no part knows messages between the tier's end and the seam.
        if found >= min(self.seam, self.tier.max_offset):
            if boundary is TimeBoundary.UPPER:
                return max(min(self.seam, self.tier.max_offset) - 1, low)
            return self.seam if self.seam < high else self.max_offset
        return found

    offset_by_timestamp = plainly(offset_by_timestamp_lookup)

    def offsets_with_tag_lookup(
        self, tag_hash: int, from_physical: int, to_physical: int
    ) -> Lookup[npt.NDArray[np.int64]]:
        """Return physical offsets of the store's own log, as its own queue does; the tier's log has others."""
        return (yield from self.local.offsets_with_tag_lookup(tag_hash, from_physical, to_physical))

    offsets_with_tag = plainly(offsets_with_tag_lookup)


def join(tier: ConsumeQueue, local: OwnQueue) -> Lookup[OwnQueue | TieredQueue]:
    """Join the tier's part of a queue with the store's own; one of them where the other has no message.

    The store's own too where it begins as early, and for a queue of batches, which no tier keeps. Raises OtherTier
    where a message that both have differs.
    """
    yield from tier.measured()
    yield from local.measured()
    if isinstance(local, BatchConsumeQueue) or tier.min_offset >= tier.max_offset:
        return local
    seam = local.min_offset if local.min_offset < local.max_offset else max(local.max_offset, tier.max_offset)
    if tier.min_offset >= seam:
        return local
    if seam < min(tier.max_offset, local.max_offset):
        yield from _refuse_another(tier, local, seam)
    return TieredQueue(tier, local, seam)


def _refuse_another(tier: ConsumeQueue, local: ConsumeQueue, queue_offset: int) -> Lookup[None]:
    """Raise OtherTier where the message at a queue offset is another one in the tier than in the store."""
    records = []
    for queue in (tier, local):
        unit = yield from queue.readable_unit(queue_offset)
        record = None if unit is None else (yield from queue.log.record_at_lookup(unit[0]))
        if record is None or queue.name.offset_in(record, 0 if unit is None else unit[0]) != queue_offset:
            return  # damaged: nothing is known
        records.append(bytes(record))
    cut = [record[:PHYSICAL_OFFSET] + record[SYS_FLAG:] for record in records]
    if cut[0] != cut[1]:
        what = f"at queue offset {queue_offset} holds another message than the store: it is the tier of another store"
        raise OtherTier(tier.files.directory, what=what)
